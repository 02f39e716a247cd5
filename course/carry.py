"""The script that makes an answer anew: live object of a notebook -> *its source, and all that it needs* -> answers.py.

A name that the answer uses is followed to what binds it in the notebook: a function, class or import is taken as it
stands there, a constant as its statement or its value, and their own names likewise.  What only the running notebook
has, a loader that an experiment opened for one, cannot be carried, and NotCarried says which name it is.
"""

import ast
import builtins
import contextlib
import functools
import importlib.util
import inspect
import io
import linecache
import math
import symtable
import sys
import types
from pathlib import PurePath

LONGEST = 100_000  # characters of a constant's value
_MOST_ITEMS = 1000  # of a tensor that is a constant
run_cells = []  # texts of the cells that `course check` ran; a notebook's own kernel knows them by itself
_FUNCTION_LIKE = (types.FunctionType, types.BuiltinFunctionType, type, functools.partial, type(functools.cache(len)))
_MAKERS = {"collections", "functools", "operator", "re", "types", "typing", "weakref"}  # of what is small
_LOCKS = {"_thread.lock", "_thread.RLock", "_thread._local", "threading.Event", "threading.Condition"}
_NUMBERS = (int, float, complex, bool, str, bytes, type(None), type(...))
_DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)


class NotCarried(Exception):
    """Why an answer works only where it is; the message goes on from "it"."""


def script_of(answer, name, notebook=None, cells=None):
    """(script, name) of what makes `answer` anew in an empty module, where it then has that name.

    Args:
        answer: function, class or other callable of a notebook.
        name: of its exercise, by which the cell that checks it is known.
        notebook: dict of the notebook's names (default: those of the main module).
        cells: list of str, the texts of the cells as they ran (default: those of this kernel).

    Raises: NotCarried if it needs what only this process has.
    """
    notebook = vars(sys.modules["__main__"]) if notebook is None else notebook
    collected = _Script(notebook, cells_of_kernel() if cells is None else cells)
    called = [key for key, value in [*notebook.items()] if value is answer]
    if called:
        collected.answer = called = name if name in called else called[0]
        collected.need(called)
    else:
        called = name
        collected.need_argument_of(name)
    script = "\n\n".join(collected.lines) + "\n"
    _try(script, called)
    return script, called


def load_script(script, name, file):
    """The object `name` of a `script`, executed in a module of its own.  Raises: whatever the script does.

    Args:
        file: what tracebacks call the script; they show its lines.
    """
    module = types.ModuleType("kept_answer")
    linecache.cache[file] = len(script), None, script.splitlines(True), file
    sys.modules[module.__name__] = module  # dataclasses look there, but only now: later it must be pickled by value
    try:
        exec(compile(script, file, "exec"), module.__dict__)
    finally:
        del sys.modules[module.__name__]
    return getattr(module, name)


def cells_of_kernel():
    """The texts of the cells that ran in this kernel, in their order; magics as Python."""
    shell = shell_of_kernel()
    return [*run_cells, *(shell.history_manager.input_hist_parsed if shell and shell.history_manager else [])]


def shell_of_kernel():
    """IPython's shell if this process is a notebook's or an IPython session's, else None."""
    ipython = sys.modules.get("IPython")
    return ipython and ipython.get_ipython()


def _try(script, name):
    """Raise NotCarried unless `script` makes `name`, also when it runs alone."""
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            load_script(script, name, "<kept answer>")
    except Exception as error:
        raise NotCarried(f"cannot be defined on its own ({type(error).__name__}: {error})") from None


class _Script:
    """Statements in an order in which each finds what it needs."""

    def __init__(self, notebook, cells):
        self.notebook, self.cells, self.lines, self.seen = notebook, cells, [], set()
        self.answer = None  # its name
        self.bindings = {}  # name -> its statements, the latest last
        for cell in cells:
            for statement in _statements(cell):
                for name in statement.binds:
                    self.bindings.setdefault(name, []).append(statement)

    def need(self, name):
        """Add what makes the notebook's `name`, after what that needs, unless it is there."""
        if name in self.seen or name not in self.notebook:
            return
        self.seen.add(name)
        value = self.notebook[name]
        statement = self._binding(name, value)
        if not statement and hasattr(builtins, name):
            return  # IPython puts an `open` of its own into every notebook
        if statement and isinstance(statement.node, (ast.Import, ast.ImportFrom)):
            self.lines.append(_import_of(statement.node, name))
        elif inspect.ismodule(value):
            self._add_module(name, value)
        elif statement and (name == self.answer or self._can_run_again(statement, value)):
            self._add(statement, name)
        elif _is_importable(value):
            self.lines.append(f"from {value.__module__} import {value.__qualname__} as {name}")
        else:
            self.lines += [line for line in _needed_imports(value) if line not in self.lines]
            self.lines.append(f"{name} = {_literal(name, value)}")

    def need_argument_of(self, exercise):
        """Add the first argument of the latest call of a check of `exercise`, under the exercise's name."""
        for cell in reversed(self.cells):
            for call in [node for s in _statements(cell) for node in ast.walk(s.node) if isinstance(node, ast.Call)]:
                if call.args and getattr(call.func, "attr", getattr(call.func, "id", None)) == exercise:
                    made = _Statement(ast.parse(f"{exercise} = {ast.unparse(call.args[0])}").body[0], "")
                    self._add(made, exercise)
                    return
        raise NotCarried("has no name in the notebook")

    def _add(self, statement, name):
        """Add a statement after what it needs; the one before it too if it builds on that: f = cache(f)."""
        if name in statement.top_names:
            earlier = [s for s in self.bindings.get(name, []) if s is not statement]
            if not earlier:
                raise NotCarried(f"uses {name}, which was made step by step")
            self._add(earlier[-1], name)
        self.seen |= statement.binds
        for needed in sorted(statement.needs - statement.binds):
            self.need(needed)
        self.lines.append(statement.text)

    def _add_module(self, name, module):
        known = module.__name__ in sys.modules and importlib.util.find_spec(module.__name__)
        if not known:
            raise NotCarried(f"uses the module {name}, which cannot be imported")
        self.lines.append(f"import {module.__name__} as {name}")

    def _binding(self, name, value):
        """The statement that made `name` what it is, or None: for a function the one in the cell of its code."""
        function = inspect.unwrap(value) if callable(value) else value
        code = getattr(function, "__code__", None) if getattr(function, "__globals__", 0) is self.notebook else None
        for statement in _statements("".join(linecache.getlines(code.co_filename))) if code else ():
            if name in statement.binds and statement.first_line <= code.co_firstlineno <= statement.node.end_lineno:
                return statement
        return self.bindings.get(name, [None])[-1]

    def _can_run_again(self, statement, value):
        """Whether the statement may run wherever the answer is loaded: it defines, or makes something small."""
        node = statement.node
        if isinstance(node, _DEFINITIONS):
            return True
        if isinstance(node, (ast.If, ast.Try)):
            return isinstance(value, _FUNCTION_LIKE)
        if not isinstance(node, (ast.Assign, ast.AnnAssign)) or node.value is None:
            return False
        calls = [call for call in ast.walk(node.value) if isinstance(call, ast.Call)]
        if _is_plain(value) and (calls or not _is_constant(node, self.notebook)):
            return False  # its value says it all
        made = isinstance(value, _FUNCTION_LIKE) or _type_name(value) in _LOCKS
        return not calls or made or all(self._is_maker(call.func) for call in calls)

    def _is_maker(self, function):
        with contextlib.suppress(Exception):
            made_by = eval(compile(ast.Expression(function), "<maker>", "eval"), dict(self.notebook))
            record = hasattr(made_by, "__dataclass_fields__") or hasattr(made_by, "_fields")
            return record or made_by in _PLAIN_TYPES or made_by.__module__.split(".")[0].lstrip("_") in _MAKERS
        return False


class _Statement:
    """A statement at the top of a cell: its text, the names that it binds, and those that it needs."""

    def __init__(self, node, cell):
        self.node = node
        self.first_line = min([node.lineno, *(d.lineno for d in getattr(node, "decorator_list", []))])
        self.text = self._text(cell)

    def _text(self, cell):
        lines = cell.splitlines()[self.first_line - 1 : self.node.end_lineno]
        text = "\n".join(lines)
        with contextlib.suppress(SyntaxError):
            if len(ast.parse(text).body) == 1:
                return text
        return ast.unparse(self.node)  # it shares its lines with others

    @functools.cached_property
    def _table(self):
        return symtable.symtable(ast.unparse(self.node), "<cell>", "exec")

    @functools.cached_property
    def binds(self):
        return {s.get_name() for s in self._table.get_symbols() if s.is_assigned() or s.is_imported()}

    @functools.cached_property
    def top_names(self):
        """Names that are looked up when it runs, not later in a function of it."""
        return {s.get_name() for s in self._table.get_symbols() if s.is_referenced()}

    @functools.cached_property
    def needs(self):
        return self.top_names | _global_names(self._table)


def _global_names(table):
    """Names that the functions and classes inside a scope look up in the notebook."""
    found = set()
    for inner in table.get_children():
        found |= {s.get_name() for s in inner.get_symbols() if s.is_global()} | _global_names(inner)
    return found


@functools.lru_cache(maxsize=1000)
def _statements(cell):
    """The statements of a cell's text; none if it is not Python."""
    try:
        return [_Statement(node, cell) for node in ast.parse(cell).body]
    except (SyntaxError, ValueError):
        return []


def _import_of(node, name):
    """The import of `name` alone, of a statement that may import more."""
    for alias in node.names:
        bound = alias.asname or (alias.name if isinstance(node, ast.ImportFrom) else alias.name.split(".")[0])
        if bound == name:
            what = alias.name + (f" as {alias.asname}" if alias.asname else "")
            whence = f"from {'.' * node.level}{node.module or ''} " if isinstance(node, ast.ImportFrom) else ""
            return f"{whence}import {what}"
    return ast.unparse(node)


def _is_importable(value):
    module = sys.modules.get(getattr(value, "__module__", None) or "")
    qualname = getattr(value, "__qualname__", "")
    return module and module.__name__ != "__main__" and getattr(module, qualname, None) is value


def _is_constant(node, notebook):
    """Whether an assignment is of numbers and texts and of names that stand for such: PAGE * 2, {}, [0.1, 0.2]."""
    names = {n.id for n in ast.walk(node.value) if isinstance(n, ast.Name)}
    targets = node.targets if isinstance(node, ast.Assign) else [node.target]
    single = all(isinstance(target, ast.Name) for target in targets)
    return single and all(_is_plain(notebook.get(name)) for name in names if name in notebook)


def _type_name(value):
    return f"{type(value).__module__}.{type(value).__qualname__}"


def _is_plain(value):
    """True for numbers, texts, small tensors, dtypes, devices, paths, and for lists, tuples, sets, dicts of such."""
    if isinstance(value, dict):
        return type(value) is dict and all(_is_plain(item) for pair in value.items() for item in pair)
    if isinstance(value, (list, tuple, set, frozenset)):
        return type(value) in (list, tuple, set, frozenset) and all(map(_is_plain, value))
    if type(value) is types.SimpleNamespace:
        return _is_plain(vars(value))
    if _type_name(value) == "torch.Tensor":
        return value.numel() <= _MOST_ITEMS and value.device.type == "cpu" and not value.requires_grad
    named = _type_name(value) in ("torch.dtype", "torch.device") or isinstance(value, PurePath)
    return type(value) in (*_NUMBERS, range, slice) or named


def _literal(name, value):
    """An expression for a plain value.  Raises: NotCarried for every other."""
    if not _is_plain(value):
        raise NotCarried(f"uses {name}, a {type(value).__name__} that only this notebook has")
    text = _expression(value)
    if len(text) > LONGEST:
        raise NotCarried(f"uses {name}, a {type(value).__name__} that is too large to be kept")
    return text


def _expression(value):
    if isinstance(value, dict):
        return "{" + ", ".join(f"{_expression(k)}: {_expression(v)}" for k, v in value.items()) + "}"
    if isinstance(value, (list, tuple, set, frozenset)):
        inner = ", ".join(map(_expression, value)) + ("," if isinstance(value, tuple) and value else "")
        return (
            f"{type(value).__name__}([{inner}])"
            if isinstance(value, (set, frozenset))
            else (f"[{inner}]" if isinstance(value, list) else f"({inner})")
        )
    if isinstance(value, float) and not math.isfinite(value):
        return f'float("{value}")'
    if isinstance(value, PurePath):
        return f"pathlib.Path({str(value)!r})"
    if isinstance(value, types.SimpleNamespace):
        return "types.SimpleNamespace(**" + _expression(vars(value)) + ")"
    if _type_name(value) == "torch.Tensor":
        return f"torch.tensor({_expression(value.tolist())}, dtype={value.dtype})"
    return f"torch.{value!r}" if _type_name(value) == "torch.device" else repr(value)


def _needed_imports(value):
    """The imports that the expression for a plain value needs."""
    text = _expression(value) if _is_plain(value) else ""
    return [f"import {name}" for name in ("pathlib", "torch", "types") if f"{name}." in text]


_PLAIN_TYPES = (dict, list, set, tuple, frozenset, bytearray, object)
