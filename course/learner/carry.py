"""Extract an answer's source from its notebook: live object -> *the statements that define it* -> answers.py.

A name is followed to the latest cell that sets it: of the answer's own cell every statement counts that sets a name it
needs, of another cell only definitions do (cells.py).  What another cell has computed cannot be carried.
"""

import ast
import builtins
import contextlib
import functools
import io
import symtable
import sys
import types

from course.learner.cells import CodeCell, as_python, execute, is_definition

run_cells = []  # texts of the cells that `course check` ran; a notebook's own kernel knows them by itself


class NotCarried(Exception):
    """Why an answer works only where it is; the message goes on from "it"."""


def script_of(answer, name, notebook=None, cells=None):
    """(script, name) of what makes `answer` anew in an empty module, where it then has that name.

    Args:
        answer: function, class or other callable of a notebook.
        name: of its exercise; the name of `answer` if the notebook has it under several.
        notebook: dict of the notebook's names (default: those of the main module).
        cells: list of str, the texts of the cells as they ran (default: those of this kernel).

    Raises: NotCarried if it needs what only this process has.
    """
    notebook = vars(sys.modules["__main__"]) if notebook is None else notebook
    named = [key for key, value in [*notebook.items()] if value is answer]
    if not named:
        raise NotCarried("has no name in the notebook; give it one and check that")
    name = name if name in named else named[0]
    script = "\n\n".join(definitions([name], cells_of_kernel() if cells is None else cells, notebook)) + "\n"
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            load_script(script, name, "<kept answer>")
    except Exception as error:
        raise NotCarried(f"cannot be defined on its own ({type(error).__name__}: {error})") from None
    return script, name


def definitions(answers, cells, notebook):
    """Texts of the statements of `cells` that define the names `answers`, each after those that it needs.

    Raises: NotCarried if one needs a name of the dict `notebook` that no definition sets.
    """
    latest, chosen, seen = {}, [], set()
    for cell in cells:
        for name in {name for _, sets, _ in _statements(cell) for name in sets}:
            latest[name] = cell
    own = {latest[name] for name in answers if name in latest}

    def need(name):
        if name in seen or (name not in latest and (name not in notebook or hasattr(builtins, name))):
            return  # IPython puts an `open` of its own into every notebook
        seen.add(name)
        cell = latest.get(name, "")
        found = [(node, reads) for node, sets, reads in _statements(cell) if name in sets]
        if not found or not (cell in own or all(is_definition(node) for node, _ in found)):
            raise NotCarried(f"uses {name}, which no definition sets; set it in the cell of the answer")
        for node, reads in found:
            for other in sorted(reads):
                need(other)
            if (text := ast.unparse(node)) not in chosen:
                chosen.append(text)

    for name in answers:
        need(name)
    return chosen


@functools.lru_cache(maxsize=1000)
def _statements(cell):
    """[(node, names that it sets, names that it looks up, now or later)] of a cell's text; none if it is not Python."""
    with contextlib.suppress(SyntaxError, ValueError):
        return [(node, *_names(node)) for node in ast.parse(cell).body]
    return []


def _names(node):
    table = symtable.symtable(ast.unparse(node), "<cell>", "exec")
    sets = {symbol.get_name() for symbol in table.get_symbols() if symbol.is_assigned() or symbol.is_imported()}
    for inner in [] if is_definition(node) else ast.walk(node):  # f.calls = 0 and table[0] = 1 change f and table
        if isinstance(getattr(inner, "ctx", None), ast.Store):
            sets |= {name.id for name in ast.walk(inner) if isinstance(name, ast.Name)}
    return sets, _globals(table)


def _globals(table):
    """Names that a scope, or one in it, looks up in the notebook."""
    found = {symbol.get_name() for symbol in table.get_symbols() if symbol.is_global()}
    return found.union(*map(_globals, table.get_children()))


def load_script(script, name, file):
    """The object `name` of a `script`, executed in a module of its own.  Raises: whatever the script does.

    Args:
        file: what tracebacks call the script; they show its lines.
    """
    module = types.ModuleType("kept_answer")
    sys.modules[module.__name__] = module  # dataclasses look there, but only now: later it must be pickled by value
    try:
        execute(CodeCell(script, name, "answer"), file, vars(module))
    finally:
        del sys.modules[module.__name__]
    return getattr(module, name)


def cells_of_kernel():
    """The texts of the cells that ran in this kernel, in their order."""
    shell = shell_of_kernel()
    ran = shell.history_manager.input_hist_raw if shell and shell.history_manager else []
    return [*run_cells, *map(as_python, ran)]


def shell_of_kernel():
    """IPython's shell if this process is a notebook's or an IPython session's, else None."""
    ipython = sys.modules.get("IPython")
    return ipython and ipython.get_ipython()
