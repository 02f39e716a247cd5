"""Extract an answer's source with its dependencies: the statements of a notebook that define it.

answers.py keeps them. A name is followed to the latest cell that sets it: of the answer's own cell
every statement counts that sets a name it needs, of another cell only definitions do (cells.py).
What another cell has computed cannot be carried.
"""

import ast
import builtins
import functools
import symtable
import sys
from collections.abc import Sequence
from typing import Any, NamedTuple

from course.notebook.cells import Cell
from course.notebook.code import as_python, is_definition, load

# texts of the cells that `course check` ran; a notebook's own kernel knows them by itself
run_cells = []


class NotCarried(Exception):
    """Why an answer works only in its notebook.

    The message continues a sentence that starts with "it".
    """


class _Statement(NamedTuple):
    """A statement of a cell."""

    node: ast.stmt
    sets: set[str]  # names that it sets
    reads: set[str]  # names that it looks up, now or later


def script_of(
    answer: Any, name: str, notebook: dict[str, Any], cells: Sequence[str]
) -> tuple[str, str]:
    """(script, name) that define `answer` in an empty module, where it then has that name.

    Args:
        answer: function, class or other callable of a notebook.
        name: of its exercise; the name of `answer` if the notebook has it under several.
        notebook: dict of the notebook's names.
        cells: list of str, the texts of the cells in the order in which they ran.

    Raises: NotCarried if it needs what only this process has.
    """
    # a copy of the items, because another thread may define a name meanwhile
    names = [key for key, value in [*notebook.items()] if value is answer]
    if not names:
        raise NotCarried("has no name in the notebook; give it one and check that")
    if name not in names:
        name = names[0]
    script = "\n\n".join(definitions([name], cells, notebook)) + "\n"
    try:
        load_script(script, name, "<kept answer>")
    except Exception as error:
        why = f"{type(error).__name__}: {error}"
        raise NotCarried(f"cannot be defined on its own ({why})") from None
    return script, name


def definitions(
    answers: Sequence[str], cells: Sequence[str], notebook: dict[str, Any]
) -> list[str]:
    """Texts of the statements of `cells` that define the names `answers`.

    Each stands after those that it needs.

    Raises: NotCarried if one needs a name of the dict `notebook` that no definition sets.
    """
    search = _Definitions(answers, cells, notebook)
    for name in answers:
        search.need(name)
    return search.chosen


class _Definitions:
    """The statements that answers need, found from name to name."""

    def __init__(self, answers, cells, notebook):
        self.notebook = notebook
        self.chosen = []  # texts of statements
        self._seen = set()  # names
        self._latest = {}  # name -> the latest cell that sets it
        for cell in cells:
            for statement in _statements(cell):
                for name in statement.sets:
                    self._latest[name] = cell
        self._own = {self._latest[name] for name in answers if name in self._latest}

    def need(self, name):
        """Choose the statements that set `name`, after those that they need.

        Raises: NotCarried if no definition sets it.
        """
        if name in self._seen or not self._is_of_notebook(name):
            return
        self._seen.add(name)
        for statement in self._setting(name):
            for other in sorted(statement.reads):
                self.need(other)
            text = ast.unparse(statement.node)
            if text not in self.chosen:
                self.chosen.append(text)

    def _is_of_notebook(self, name):
        """True for a name of the notebook that is not a built-in one which no cell sets.

        IPython puts an `open` of its own into every notebook.
        """
        if name in self._latest:
            return True
        return name in self.notebook and not hasattr(builtins, name)

    def _setting(self, name):
        """The statements that set `name`.  Raises: NotCarried if they cannot be carried."""
        cell = self._latest.get(name, "")
        setting = [statement for statement in _statements(cell) if name in statement.sets]
        defined = all(is_definition(statement.node) for statement in setting)
        if not setting or not (cell in self._own or defined):
            raise NotCarried(
                f"uses {name}, which no definition sets; set it in the cell of the answer"
            )
        return setting


@functools.lru_cache(maxsize=1000)
def _statements(cell):
    """The _Statements of a cell's text; none if it is not Python."""
    try:
        return [_statement(node) for node in ast.parse(cell).body]
    except (SyntaxError, ValueError):
        return []


def _statement(node):
    """The _Statement of a syntax tree."""
    table = symtable.symtable(ast.unparse(node), "<cell>", "exec")
    sets = set()
    for symbol in table.get_symbols():
        if symbol.is_assigned() or symbol.is_imported():
            sets.add(symbol.get_name())
    if not is_definition(node):
        for inner in ast.walk(node):
            # f.calls = 0 and table[0] = 1 change f and table
            if isinstance(getattr(inner, "ctx", None), ast.Store):
                sets |= _names_in(inner)
    return _Statement(node, sets, _globals(table))


def _names_in(node):
    """The names that storing into `node` changes; an index such as len(x) of y[len(x)] is read."""
    while isinstance(node, (ast.Attribute, ast.Subscript)):
        node = node.value
    return {inner.id for inner in ast.walk(node) if isinstance(inner, ast.Name)}


def _globals(table):
    """Names that a scope, or one in it, looks up in the notebook."""
    names = {symbol.get_name() for symbol in table.get_symbols() if symbol.is_global()}
    return names.union(*map(_globals, table.get_children()))


def load_script(script: str, name: str, file: str) -> Any:
    """The object `name` of a `script`, executed in its own module.

    Args:
        file: what tracebacks call the script; they show its lines.

    Raises: whatever the script raises.
    """
    answer = Cell("code", {"solution": name}, script)
    module = load("kept_answer", {file: answer})
    return getattr(module, name)


def cells_of_kernel() -> list[str]:
    """The texts of the cells that ran in this kernel, in their order."""
    shell = shell_of_kernel()
    ran = shell.history_manager.input_hist_raw if shell and shell.history_manager else []
    return [*run_cells, *map(as_python, ran)]


def shell_of_kernel() -> Any:
    """IPython's shell if this process is a notebook's or an IPython session's, else None."""
    ipython = sys.modules.get("IPython")
    return ipython.get_ipython() if ipython else None
