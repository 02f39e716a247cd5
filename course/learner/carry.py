"""Extract an answer's source with its dependencies: the statements of the notebook that define it,
for answers.py.

A name is followed to the latest cell that sets it: of the answer's own cell every statement counts
that sets a name it needs, of another cell only definitions do (cells.py). What another cell has
computed cannot be carried.
"""

import ast
import builtins
import functools
import symtable
import sys

from course.notebook.cells import Cell
from course.notebook.code import as_python, is_definition, load

# texts of the cells that `course check` ran; a notebook's own kernel knows them by itself
run_cells = []


class NotCarried(Exception):
    """Why an answer works only in its notebook; the message continues a sentence that starts with
    "it".
    """


def script_of(answer, name, notebook, cells):
    """(script, name) that define `answer` in an empty module, where it then has that name.

    Args:
        answer: function, class or other callable of a notebook.
        name: of its exercise; the name of `answer` if the notebook has it under several.
        notebook: dict of the notebook's names.
        cells: list of str, the texts of the cells in the order in which they ran.

    Raises: NotCarried if it needs what only this process has.
    """
    names = [key for key, value in [*notebook.items()] if value is answer]
    if not names:
        raise NotCarried("has no name in the notebook; give it one and check that")
    name = name if name in names else names[0]
    script = "\n\n".join(definitions([name], cells, notebook)) + "\n"
    try:
        load_script(script, name, "<kept answer>")
    except Exception as error:
        raise NotCarried(
            f"cannot be defined on its own ({type(error).__name__}: {error})"
        ) from None
    return script, name


def definitions(answers, cells, notebook):
    """Texts of the statements of `cells` that define the names `answers`, each after those that it
    needs.

    Raises: NotCarried if one needs a name of the dict `notebook` that no definition sets.
    """
    latest = {name: cell for cell in cells for _, sets, _ in _statements(cell) for name in sets}
    chosen, seen = [], set()
    own = {latest[name] for name in answers if name in latest}

    def need(name):
        if name in seen or (
            name not in latest and (name not in notebook or hasattr(builtins, name))
        ):
            return  # IPython puts an `open` of its own into every notebook
        seen.add(name)
        cell = latest.get(name, "")
        setting = [(node, reads) for node, sets, reads in _statements(cell) if name in sets]
        if not setting or not (cell in own or all(is_definition(node) for node, _ in setting)):
            raise NotCarried(
                f"uses {name}, which no definition sets; set it in the cell of the answer"
            )
        for node, reads in setting:
            for other in sorted(reads):
                need(other)
            if (text := ast.unparse(node)) not in chosen:
                chosen.append(text)

    for name in answers:
        need(name)
    return chosen


@functools.lru_cache(maxsize=1000)
def _statements(cell):
    """[(node, names that it sets, names that it looks up, now or later)] of a cell's text; none if
    it is not Python.
    """
    try:
        return [(node, *_names(node)) for node in ast.parse(cell).body]
    except (SyntaxError, ValueError):
        return []


def _names(node):
    table = symtable.symtable(ast.unparse(node), "<cell>", "exec")
    sets = {
        symbol.get_name()
        for symbol in table.get_symbols()
        if symbol.is_assigned() or symbol.is_imported()
    }
    for inner in (
        [] if is_definition(node) else ast.walk(node)
    ):  # f.calls = 0 and table[0] = 1 change f and table
        if isinstance(getattr(inner, "ctx", None), ast.Store):
            sets |= {name.id for name in ast.walk(inner) if isinstance(name, ast.Name)}
    return sets, _globals(table)


def _globals(table):
    """Names that a scope, or one in it, looks up in the notebook."""
    names = {symbol.get_name() for symbol in table.get_symbols() if symbol.is_global()}
    return names.union(*map(_globals, table.get_children()))


def load_script(script, name, file):
    """The object `name` of a `script`, executed in a module of its own. Raises: whatever the script
    raises.

    Args:
        file: what tracebacks call the script; they show its lines.
    """
    answer = Cell("code", {"solution": name}, script)
    return getattr(load("kept_answer", {file: answer}), name)


def cells_of_kernel():
    """The texts of the cells that ran in this kernel, in their order."""
    shell = shell_of_kernel()
    ran = shell.history_manager.input_hist_raw if shell and shell.history_manager else []
    return [*run_cells, *map(as_python, ran)]


def shell_of_kernel():
    """IPython's shell if this process is a notebook's or an IPython session's, else None."""
    ipython = sys.modules.get("IPython")
    return ipython and ipython.get_ipython()
