"""Run the code cells of a notebook outside the notebook, and define what of them runs there.

One rule, for `course check`, for masters, for answers that other parts use and for programs that
take a notebook's answers: cells that are locked or hold an answer run whole; of all others only
definitions run, so nothing is measured and nothing is trained.
"""

import ast
import contextlib
import io
import linecache
import sys
import types
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from course.errors import CourseError
from course.notebook.cells import Cell, read_cells

RUN = ("given", "answer", "other")  # roles of cells that run before a check
_DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Import, ast.ImportFrom)


def read_code(path: Path) -> list[Cell]:
    """The code cells of the notebook at `path`, as Python.  Raises: CourseError if it is none."""
    if not path.is_file():
        raise CourseError(f"there is no notebook {path}.")
    if path.suffix != ".ipynb":
        raise CourseError(f"{path} is not a notebook; its name must end with .ipynb.")
    code = []
    for cell in read_cells(path):
        if cell.kind == "code":
            code.append(replace(cell, source=as_python(cell.source)))
    return code


def as_python(source: str) -> str:
    """The text of a cell without the lines that are IPython's."""
    return "\n".join(line for line in source.splitlines() if not line.startswith(("%", "!"))) + "\n"


def is_definition(node: ast.stmt) -> bool:
    """Whether a statement defines something and computes nothing.

    That is an import, a function, a class, an UPPER_CASE constant, or a name set without any call.
    """
    if not isinstance(node, (ast.Assign, ast.AnnAssign)):
        return isinstance(node, _DEFINITIONS)
    is_constant = True
    for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
        if not isinstance(target, (ast.Name, ast.Tuple)):
            return False
        if isinstance(target, ast.Tuple) or not target.id.isupper():
            is_constant = False
    return is_constant or not any(isinstance(inner, ast.Call) for inner in ast.walk(node))


def load(name: str, cells: Mapping[str, Cell]) -> types.ModuleType:
    """A new module `name` in which `cells` ran in silence, each by its rule.

    Args:
        cells: {what tracebacks call it: cell}, in the order in which they run.

    Raises: whatever a cell raises.
    """
    module = types.ModuleType(name)
    # dataclasses look there, but only now: later its functions must be pickled by value
    sys.modules[name] = module
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            for where, cell in cells.items():
                execute(cell, where, vars(module))
    finally:
        del sys.modules[name]
    return module


def execute(cell: Cell, where: str, names: dict[str, Any]) -> None:
    """Execute a cell, by its role, in the dict `names`; tracebacks show its lines as `where`.

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
