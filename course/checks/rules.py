"""What the source of an answer must not do: text of cells -> sentences.  It reads; nothing of a learner's is executed.

    shortcuts(cells, "data_parallel", ["torch.nn.parallel"])   what one task forbids, also in the helpers of an answer
    reaching(cell, before)                                     what no answer needs, in every line of a cell

A name is followed through imports, aliases and getattr to a dotted path such as torch.nn.DataParallel, and a path below
torch to the object that torch itself has there, so that one class under three names is one class.  Whoever wants to
hide a name can: this is the fence that says what is meant, the sandbox is the wall.  Where a name may be anything,
nothing is said; honest code passes.
"""

import ast
import builtins
import functools
import inspect
import linecache
import re
import sys
import warnings
from dataclasses import dataclass, field
from pathlib import Path

# Paths that no answer needs, wherever they are reached from: torch.sys.modules is sys.modules too.
_REFERENCE = "solutions course.publish course.grading course.checks.expected load_definitions load_solutions".split()
_DENIED = """
    builtins.exec builtins.eval builtins.compile builtins.globals builtins.__import__ builtins.breakpoint
    sys.modules sys._getframe sys._current_frames sys.settrace sys.setprofile sys.monitoring sys.meta_path
    sys.path_hooks threading.settrace threading.setprofile
    gc.get_objects gc.get_referrers gc.get_referents gc.callbacks
    inspect.currentframe inspect.stack inspect.trace inspect.getouterframes inspect.getinnerframes
    inspect.getclosurevars unittest.mock marshal ctypes.pythonapi ctypes.py_object ctypes.PyDLL
    importlib.import_module importlib.reload importlib.machinery importlib.util.spec_from_file_location
    importlib.util.module_from_spec course.answers course.carry
""".split()
_ATTRIBUTES = """
    __globals__ __code__ __closure__ __subclasses__ __builtins__ __loader__ __wrapped__
    f_back f_globals f_locals f_builtins tb_frame gi_frame cr_frame ag_frame
""".split()
_HARMLESS = {"name", "unit", "__name__", "__doc__"}  # of a check
_MAY_TAKE_A_CHECK = {"course.solved", "builtins.help", "builtins.print"}
_MARKS = ("course.checks.engine.alternative", "course.checks.engine.mistake")  # of answers that the course keeps
_FILES = ("/proc/", "/dev/shm")
# Of an imported module an answer may set what is a setting, also one in capitals (ImageFile.LOAD_TRUNCATED_IMAGES).
_SETTINGS = {"backends", "config", "rcParams", "tqdm", "stdout", "stderr", "argv"}
_COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
_LITERALS = (ast.List, ast.Tuple, ast.Set)
_SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda, *_COMPREHENSIONS)
_BINDS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Import, ast.ImportFrom, ast.Assign, ast.AnnAssign,
          ast.NamedExpr, ast.AugAssign, ast.For, ast.AsyncFor, ast.comprehension, ast.withitem, ast.arg,
          ast.ExceptHandler, ast.MatchAs, ast.MatchStar, ast.Global, ast.Nonlocal)  # fmt: skip
_PROBE = re.compile(r"^@exercise\b", re.M)
_INSTEAD = "call check.<exercise>(your answer) or course.solved(check.<exercise>) instead."
_MAGIC = re.compile(r"^\s*[%!?]|=\s*[%!]|\?\s*$")  # a line that is IPython's, seen only where Python cannot read it
# bounds, since a hostile cell must not take for ever
_MOST_MAGIC = 10  # lines of a cell that are found one by one; then all that look like it are left out
_MOST_BINDINGS = 50  # of one name that are remembered
_MOST_STEPS = 500_000  # of following names, in one cell


def shortcuts(cells, name, forbids=()):
    """Where the answer `name`, or what it uses, takes what its task forbids or asks for the reference.

    Args:
        cells: list of str, the sources that were run, in their order; given ones too, for what their names stand for.
        name: what the cells call the answer, a function or a class; the exercise's name.
        forbids: dotted paths of functions, classes or modules; a module stands for all that is in it, a class for its
            subclasses too.

    Returns: list of str, a sentence for each line; empty if there is nothing to say, or no answer.
    """
    return _found(_Shortcuts(cells, name, forbids))


def reaching(source, before=()):
    """Where a cell reaches for the grader, or changes what is not its own: what no answer to any task needs.

    Args:
        source: str, the cell.
        before: list of str, the cells that were run before it, for what its names stand for; nothing is said of them.

    Returns: list of str, a sentence for each line; empty if there is nothing to say.
    """
    return _found(_Reaching([*before, source]))


def refusal(answer, name, forbids=()):
    """The first sentence of `shortcuts` about an answer that lives in this process, or None.

    Args:
        answer: function or class, or anything else: where Python does not have its source, nothing is said.
        name: of the exercise.
    """
    cells, called = _cells_of(answer, name)
    reader = _Shortcuts(cells, called, forbids, name)
    names = reader.scopes[0].names
    for key, bounds in names.items():  # of imports only those count that still hold: they stand in the last cell
        names[key] = [bound for bound in bounds if not bound.path or bound.cell == len(cells) - 1]
    return next(iter(_found(reader)), None)


def _found(reader):
    try:
        reader.read()
    except RecursionError:
        return ["its source is nested too deeply, or is too tangled, to be read: write it in shorter expressions."]
    return [reader.found[place] for place in sorted(reader.found)]


@dataclass
class _Bound:
    """What a name stands for: a dotted path, an expression, or (neither) anything; and the syntax that made it so."""

    path: str | None = None
    alias: ast.expr | None = None
    made_by: ast.AST | None = None
    cell: int = 0


@dataclass
class _Scope:
    """The names of a notebook, function, class or comprehension."""

    names: dict = field(default_factory=dict)  # name -> list of _Bound
    stars: list = field(default_factory=list)  # modules of star imports
    outer: set = field(default_factory=set)  # names declared global or nonlocal
    is_class: bool = False
    cell: int = 0

    def bind(self, name, surely=False, **bound):
        if name not in self.outer:
            earlier = [] if surely else self.names.get(name, [])[-_MOST_BINDINGS:]
            self.names[name] = [*earlier, _Bound(**bound, cell=self.cell)]

    def bind_target(self, target, value, made_by, surely=False):
        """`target` = `value`; tuples of one length place by place."""
        if isinstance(target, ast.Name):
            self.bind(target.id, surely, alias=value, made_by=made_by)
        elif isinstance(target, ast.Starred):
            self.bind_target(target.value, None, made_by, surely)
        elif isinstance(target, (ast.Tuple, ast.List)):
            values = getattr(value, "elts", [])
            values = values if len(values) == len(target.elts) else [None] * len(target.elts)
            for part, item in zip(target.elts, values, strict=True):
                self.bind_target(part, item, made_by, surely)

    def read(self, bindings):
        """Enter the names that `bindings` (see _bindings) bind; what runs `surely` replaces what they stood for."""
        for node, surely in bindings:
            self.enter(node, surely)

    def enter(self, node, surely):
        """Enter the names that this one node binds."""
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            self.bind(node.name, surely, made_by=node)
        elif isinstance(node, (ast.Import, ast.ImportFrom)):
            for name, path in _imported(node):
                if name == "*":
                    self.stars.append(node.module)
                else:
                    self.bind(name, surely, path=path, made_by=node)
        elif isinstance(node, ast.Assign):
            for target in node.targets:
                self.bind_target(target, node.value, node.value, surely)
        elif isinstance(node, (ast.AnnAssign, ast.NamedExpr)):
            self.bind_target(node.target, node.value, node.value, surely and node.value is not None)
        elif isinstance(node, ast.AugAssign):
            self.bind_target(node.target, None, node.value)
        elif isinstance(node, (ast.For, ast.AsyncFor, ast.comprehension)):
            written_out = isinstance(node.iter, _LITERALS) and isinstance(node.target, ast.Name)
            self.bind_target(node.target, node.iter if written_out else None, node.iter)
        elif isinstance(node, ast.withitem) and node.optional_vars:
            self.bind_target(node.optional_vars, None, node.context_expr)
        elif isinstance(node, ast.arg):
            self.bind(node.arg)
        elif isinstance(node, (ast.ExceptHandler, ast.MatchAs, ast.MatchStar)) and node.name:
            self.bind(node.name)
        elif isinstance(node, (ast.Global, ast.Nonlocal)):
            self.outer.update(node.names)


def _imported(node):
    """(name, path) of each name that an import statement binds."""
    for item in node.names:
        if isinstance(node, ast.ImportFrom):
            yield item.asname or item.name, None if node.level else f"{node.module}.{item.name}"
        else:
            top = item.name.split(".")[0]
            yield item.asname or top, item.name if item.asname else top


def _bindings(node):
    """[(a node that binds names, whether it runs surely)] in `node`, in order, without what is in inner scopes."""
    found, waiting = [], [(node, False)]
    while waiting:
        node, surely = waiting.pop()
        if isinstance(node, _BINDS):
            found.append((node, surely))
        if not isinstance(node, _SCOPES):
            inside = [(child, isinstance(node, ast.Module)) for child in ast.iter_child_nodes(node)]
            waiting += reversed(inside)
    return found


@functools.lru_cache(256)
def _bindings_of_cell(source):
    try:
        return _bindings(_parsed(source))
    except RecursionError:  # then its names may be anything
        return []


@functools.lru_cache(8)
def _lines(source):
    """Lines as Python counts them; splitlines would also cut at a form feed, in a string too."""
    return tuple(re.split("\r\n?|\n", source))


@functools.lru_cache(256)
def _parsed(source):
    """The syntax tree of a cell without the lines that are IPython's; an empty one if it is not Python."""
    lines = [*_lines(source)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of strange escapes in strings
        for number in range(_MOST_MAGIC + 1):
            if number == _MOST_MAGIC:
                lines = [re.match(r"\s*", line)[0] + "pass" if _MAGIC.search(line) else line for line in lines]
            try:
                return ast.parse("\n".join(lines))
            except (SyntaxError, ValueError, MemoryError) as error:
                at = (getattr(error, "lineno", None) or 0) - 1
                if not (0 <= at < len(lines) and _MAGIC.search(lines[at])):
                    break
                lines[at] = re.match(r"\s*", lines[at])[0] + "pass"
    return ast.Module([], [])


def _text(node):
    """The string that an expression of constants is, joined by + or in an f-string; None for any other."""
    if isinstance(node, ast.Constant):
        return node.value if isinstance(node.value, str) else None
    parts = []
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        parts = [_text(node.left), _text(node.right)]
    elif isinstance(node, ast.JoinedStr):
        parts = [_text(part.value if isinstance(part, ast.FormattedValue) else part) for part in node.values]
    return "".join(parts) if parts and None not in parts else None


class _Reader(ast.NodeVisitor):
    """Walks through syntax and says `use(path, node)` for every path that an expression may stand for."""

    def __init__(self, cells):
        self.cells, self.cell, self.found, self.steps = cells, len(cells) - 1, {}, 0
        module = _Scope()
        for module.cell, source in enumerate(cells):
            module.read(_bindings_of_cell(source))
        self.scopes = [module]

    def note(self, node, what):
        line = _lines(self.cells[self.cell])[node.lineno - 1].strip()
        self.found.setdefault((-self.cell, node.lineno), f"line {node.lineno}, `{line[:60]}`, {what}")

    def use(self, path, node):
        raise NotImplementedError

    def paths(self, node, seen=None):
        """The dotted paths that an expression may stand for; none if it may be anything."""
        seen = set() if seen is None else seen  # what names stand for, each looked at once
        self.steps += 1
        if self.steps > _MOST_STEPS:
            raise RecursionError
        if isinstance(node, ast.Name):
            return self._paths_of_name(node.id, seen)
        if isinstance(node, ast.Attribute):
            return [f"{path}.{node.attr}" for path in self.paths(node.value, seen)]
        if isinstance(node, ast.NamedExpr):
            return self.paths(node.value, seen)
        if isinstance(node, ast.IfExp):
            return self.paths(node.body, seen) + self.paths(node.orelse, seen)
        if isinstance(node, (ast.BoolOp, *_LITERALS)):  # of a list: what one of its items may stand for
            return [path for value in getattr(node, "values", None) or node.elts for path in self.paths(value, seen)]
        if isinstance(node, ast.Subscript) and isinstance(node.value, _LITERALS):
            return self.paths(node.value, seen)
        if isinstance(node, ast.Call) and node.args:
            called = self.paths(node.func, seen)
            if "builtins.getattr" in called and len(node.args) > 1 and (name := _text(node.args[1])):
                return [f"{path}.{name}" for path in self.paths(node.args[0], seen)]
            if {"builtins.__import__", "importlib.import_module"} & {*called} and (name := _text(node.args[0])):
                return [name]
        return []

    def _paths_of_name(self, name, seen):
        for place in reversed(range(len(self.scopes))):
            scope = self.scopes[place]
            if name in scope.names and (place == len(self.scopes) - 1 or not scope.is_class):
                break
        else:
            stars = [f"{module}.{name}" for module in self.scopes[0].stars]
            return [f"builtins.{name}"] if hasattr(builtins, name) else stars
        found, here = [], self.scopes
        for bound in scope.names[name]:
            if bound.path:
                found.append(bound.path)
            elif bound.alias is not None and id(bound) not in seen:
                seen.add(id(bound))
                self.scopes = here[: place + 1]  # where the alias was made
                found += self.paths(bound.alias, seen)
                self.scopes = here
        return found

    def _visit_inside(self, node, parts):
        """Visit `parts` in a scope of their own."""
        scope = _Scope(is_class=isinstance(node, ast.ClassDef))
        for part in parts:
            scope.read(_bindings(part))
        self.scopes.append(scope)
        for part in parts:
            if not isinstance(part, ast.arguments):
                self.visit(part)
        self.scopes.pop()

    def visit_FunctionDef(self, node):
        for part in [*getattr(node, "decorator_list", []), *node.args.defaults, *filter(None, node.args.kw_defaults)]:
            self.visit(part)
        self._visit_inside(node, [node.args, *(node.body if isinstance(node.body, list) else [node.body])])

    visit_AsyncFunctionDef = visit_Lambda = visit_FunctionDef

    def visit_ClassDef(self, node):
        for part in [*node.decorator_list, *node.bases, *node.keywords]:
            self.visit(part)
        self._visit_inside(node, node.body)

    def visit_ListComp(self, node):
        results = [node.key, node.value] if isinstance(node, ast.DictComp) else [node.elt]
        self._visit_inside(node, [*node.generators, *results])

    visit_SetComp = visit_DictComp = visit_GeneratorExp = visit_ListComp

    def visit_AnnAssign(self, node):  # an annotation uses nothing
        for part in filter(None, [node.target, node.value]):
            self.visit(part)

    def visit_Name(self, node):
        for path in self.paths(node):
            self.use(path, node)
        self.generic_visit(node)

    visit_Attribute = visit_Call = visit_Name


class _Shortcuts(_Reader):
    """The answer and all that it uses, from name to name."""

    def __init__(self, cells, name, forbids, exercise=None):
        super().__init__(cells)
        self.name, self.forbids, self.exercise = name, forbids, exercise or name
        self.waiting, self.reached = [], set()

    def read(self):
        for bound in self.scopes[0].names.get(self.name, []):
            if bound.path:  # the answer is something imported
                self.cell = bound.cell
                self.use(bound.path, bound.made_by)
        self._reach(self.name)
        while self.waiting:
            bound = self.waiting.pop()
            self.cell = bound.cell
            self.visit(bound.made_by)

    def _reach(self, name):
        for bound in self.scopes[0].names.get(name, []):
            if bound.made_by and not bound.path and id(bound) not in self.reached:
                self.reached.add(id(bound))
                self.waiting.append(bound)

    def visit_Name(self, node):
        super().visit_Name(node)
        if not any(node.id in scope.names for scope in self.scopes[1:]):
            self._reach(node.id)

    def use(self, path, node):
        if path in _MARKS:
            return
        if _is_reference(path) or re.fullmatch(rf"course\.checks\.\w+\.{self.exercise}", path):
            self.note(node, "asks the course for its answer. Write your own.")
        elif is_of_the_checks(path):
            self.note(node, f"uses {path}, which belongs to the checks. Write it yourself.")
        forbidden = next((name for name in self.forbids if _is(path, name)), None)
        if forbidden:
            self.note(node, f"uses {forbidden}, which the task does not allow. Write it yourself.")


class _Reaching(_Reader):
    """One cell, the last."""

    def read(self):
        self.visit(_parsed(self.cells[-1]))

    def use(self, path, node):
        if is_of_the_checks(path):
            self.note(node, f"uses {path}, which belongs to the checks; {_INSTEAD}")
        elif _is_reference(path) or path == "builtins" or _has(path, _DENIED):
            self.note(node, f"uses {path.removeprefix('builtins.')}, which no answer needs.")

    def visit_Import(self, node):
        for item in node.names:
            module = f"{node.module or ''}." if isinstance(node, ast.ImportFrom) else ""
            self.use(module + item.name, node)

    visit_ImportFrom = visit_Import

    def visit_Name(self, node):
        super().visit_Name(node)
        if node.id in _ATTRIBUTES:
            self.note(node, f"uses {node.id}, which no answer needs.")

    def visit_Attribute(self, node):
        super().visit_Attribute(node)
        owner = self.paths(node.value)
        if node.attr in _ATTRIBUTES or (node.attr == "__dict__" and owner):
            self.note(node, f"uses {node.attr}, which no answer needs.")
        if not isinstance(node.ctx, ast.Load) and owner:
            self._changed(owner, node.attr, node)

    def visit_Call(self, node):
        super().visit_Call(node)
        called, owner = self.paths(node.func), self.paths(node.args[0]) if node.args else []
        if not _MAY_TAKE_A_CHECK & {*called}:
            self._handed_on([*node.args, *(keyword.value for keyword in node.keywords)], node)
        name = _text(node.args[1]) if len(node.args) > 1 else None
        if "builtins.vars" in called and owner:
            self.note(node, f"looks into {owner[0]}, which no answer needs.")
        if "builtins.getattr" in called and (name in _ATTRIBUTES or (owner and not name)):
            self.note(
                node, f"uses {f'getattr on {owner[0]} with a name that is made' if owner else name}; write it out."
            )
        changing = ("builtins.setattr", "builtins.delattr")
        if owner and any(path in changing or path.endswith(("__setattr__", "__delattr__")) for path in called):
            self._changed(owner, name or "", node)

    def _handed_on(self, values, node):
        given = [path for value in values for path in self.paths(value) if path in _checks()]
        if given:
            self.note(node, f"hands on {given[0]}; {_INSTEAD}")

    def _changed(self, owner, name, node):
        if not name.isupper() and not any(_SETTINGS & {*path.split("."), name} for path in owner):
            self.note(node, f"changes {owner[0]}, which belongs to everyone.")

    def visit_Expr(self, node):
        if not isinstance(node.value, ast.Constant):  # a docstring does nothing
            self.visit(node.value)

    def visit_Constant(self, node):
        if (_text(node) or "").startswith(_FILES):
            self.note(node, f"names a file in {_text(node)[:12]}, which no answer needs.")

    def visit_JoinedStr(self, node):
        self.visit_Constant(node)
        self.generic_visit(node)

    visit_BinOp = visit_JoinedStr


def is_of_the_checks(path):
    """True if `path` leads into course.checks, but not to a check, a unit's package of them, or what a check is called.

    check.gather passes; check.gather.reference, check.TOPICS and every module of helpers do not.
    """
    if not path.startswith("course.checks."):
        return False
    owner, _, name = path.rpartition(".")
    units = {check.rpartition(".")[0] for check in _checks()}
    return not (path in _checks() or path in units or (owner in _checks() and name in _HARMLESS))


@functools.cache
def _checks():
    """The dotted paths of all checks: the modules below this folder that hold a probe."""
    probes = [path for path in Path(__file__).parent.glob("*/*.py") if _PROBE.search(path.read_text(encoding="utf-8"))]
    return {f"course.checks.{path.parent.name}.{path.stem}" for path in probes}


def _is_reference(path):
    """True if `path` leads to the course's answers: check.<exercise>.reference does, check.<exercise> does not."""
    inside_a_check = is_of_the_checks(path) and path.rpartition(".")[0] in _checks()
    return inside_a_check or _has(path, _REFERENCE)


def _has(path, parts):
    """True if one of `parts`, each of one name or more, stands in the dotted `path`."""
    return any(f".{part}." in f".{path}." for part in parts)


def _is(path, forbidden):
    """True if `path` is `forbidden`, or in it, or what torch has there is."""
    if f"{path}.".startswith(f"{forbidden}."):
        return True
    pairs = ((found, target) for target in _objects(forbidden) for found in _objects(path))
    return any(_is_in(found, target) for found, target in pairs)


def _is_in(found, target):
    if inspect.ismodule(target):
        home = found.__name__ if inspect.ismodule(found) else getattr(found, "__module__", None)
        return f"{home}.".startswith(f"{target.__name__}.")
    return found is target or (inspect.isclass(found) and inspect.isclass(target) and issubclass(found, target))


def _objects(path):
    """What torch has at `path`, as it is loaded here: a list, since a function may have the name of its module."""
    parts, found = path.split("."), []
    for cut in range(len(parts), 0, -1) if parts[0] == "torch" else []:
        place = sys.modules.get(".".join(parts[:cut]))
        for part in parts[cut:]:  # a module's own names: its __getattr__ may import for seconds
            place = vars(place).get(part) if inspect.ismodule(place) else getattr(place, part, None)
        if place is not None:
            found.append(place)
    return found


def _cells_of(answer, name):
    """(cells, what they call `answer`) for an answer of this process, as far as Python has their text; else ([], name).

    Behind the text of the cells, the answer's own the last of them, stands what the notebook's names are now.
    """
    functions = [f for f in _functions(answer) if not _is_ready_made(f)]
    if not functions:
        kinds = filter(_is_ready_made, answer.__mro__ if inspect.isclass(answer) else [answer])
        return [next((_import_of(name, kind) for kind in kinds), "")], name
    here = functions[0].__globals__
    others = [f for value in [*here.values()] for f in _functions(value) if f.__globals__ is here]
    files = [f.__code__.co_filename for f in [*others, functions[0]]]
    texts = {file: "".join(linecache.getlines(file)) for file in files}
    run = [file for file in linecache.cache if file in texts and file != files[-1]]  # in the order in which they ran
    imports = "\n".join(_import_of(key, value, here.get("__name__")) for key, value in [*here.items()])
    called = next((key for key, value in here.items() if value is answer), "")
    return [*(texts[file] for file in [*run, files[-1]]), imports], called


def _is_ready_made(value):
    return str(getattr(value, "__module__", None)).startswith(("torch.", "course."))


def _functions(value):
    """The functions, without decorators, that a function is or a class holds."""
    found = []
    for function in vars(value).values() if inspect.isclass(value) else [value]:
        while "__wrapped__" in getattr(function, "__dict__", ()):
            function = function.__dict__["__wrapped__"]
        found += [function] if inspect.isfunction(function) else []
    return found


def _import_of(name, value, here=None):
    """The statement that imports `value` as `name`, if it is a module or of a module other than `here`; else ""."""
    if inspect.ismodule(value):
        statement, names = f"import {value.__name__} as {name}", value.__name__
    elif inspect.isclass(value) or inspect.isfunction(value):
        module, names = str(value.__module__), f"{value.__module__}.{value.__qualname__}"
        known = getattr(sys.modules.get(module), value.__qualname__, None) is value and module != here
        statement = f"from {module} import {value.__qualname__} as {name}" if known else ""
    else:
        return ""
    return statement if all(part.isidentifier() for part in names.split(".")) else ""
