"""The code cells of a notebook, and what of them runs outside the notebook.

One rule, for `course check`, for masters, for answers that other parts use and for programs that
take a notebook's
answers: cells that are locked or hold an answer run whole; of all others only definitions run, so
nothing is measured and nothing is trained.
"""

import ast
import contextlib
import io
import linecache
import sys
import types
from dataclasses import dataclass
from pathlib import Path

from course.errors import CourseError
from course.notebook.registry import read_cells

VISIBLE = "-visible"  # the end of the id of a grade cell that learners see
RUN = ("given", "answer", "other")  # roles of cells that run before a check
_DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Import, ast.ImportFrom)


@dataclass
class CodeCell:
    """A code cell of a notebook file: its text, and what it is for."""

    source: str
    exercise: str | None = None  # of an answer or of its visible check
    role: str = "other"  # "given" (locked), "answer", "check", "hidden" or "other"


def read_code(path: Path) -> list[CodeCell]:
    """The code cells of the notebook at `path`, as Python.  Raises: CourseError if it is none."""
    if not path.is_file():
        raise CourseError(f"there is no notebook {path}.")
    if path.suffix != ".ipynb":
        raise CourseError(f"{path} is not a notebook; its name must end with .ipynb.")
    return [
        _code_cell(as_python(cell.source), cell.marks)
        for cell in read_cells(path)
        if cell.kind == "code"
    ]


def _code_cell(source, marks):
    test = marks.get("test", "")
    if test.endswith(VISIBLE):
        return CodeCell(source, test.removesuffix(VISIBLE), "check")
    if test or "answer" in marks:
        return CodeCell(source, role="hidden")
    if "solution" in marks:
        return CodeCell(source, marks["solution"], "answer")
    return CodeCell(source, role="given" if marks else "other")


def as_python(source):
    """The text of a cell without the lines that are IPython's."""
    return "\n".join(line for line in source.splitlines() if not line.startswith(("%", "!"))) + "\n"


def is_definition(node):
    """True if a statement is an import, a function, a class, an UPPER_CASE constant or calls
    nothing to set a name.
    """
    targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
    if not isinstance(node, (ast.Assign, ast.AnnAssign)):
        return isinstance(node, _DEFINITIONS)
    if not all(isinstance(target, (ast.Name, ast.Tuple)) for target in targets):
        return False
    is_constant = all(isinstance(target, ast.Name) and target.id.isupper() for target in targets)
    return is_constant or not any(isinstance(inner, ast.Call) for inner in ast.walk(node))


def load(name, cells):
    """A new module `name` in which `cells`, {what tracebacks call it: CodeCell}, ran in silence,
    each by its rule.

    Raises: whatever a cell raises.
    """
    module = types.ModuleType(name)
    sys.modules[name] = (
        module  # dataclasses look there, but only now: later its functions must be pickled by value
    )
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            for where, cell in cells.items():
                execute(cell, where, vars(module))
    finally:
        del sys.modules[name]
    return module


def execute(cell, where, names):
    """Execute a CodeCell, by its role, in the dict `names`; tracebacks show its lines as those of
    `where`.

    In cells of role "other", a value that cannot be set is left out: an experiment computes what it
    needs.
    """
    tree = ast.parse(cell.source, where)
    linecache.cache[where] = len(cell.source), None, cell.source.splitlines(True), where
    if cell.role != "other":
        exec(compile(tree, where, "exec"), names)
        return
    for node in filter(is_definition, tree.body):
        try:
            exec(compile(ast.Module([node], []), where, "exec"), names)
        except Exception:
            if isinstance(node, _DEFINITIONS):
                raise
