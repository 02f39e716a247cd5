"""Load reference answers: the definitions of a master, as a module; no experiment of it is run.

A master is solutions/<unit>/<part>.py. A class's folder has none; there engine/expected.py reads
recorded facts.
"""

import functools
import types
from collections.abc import Callable
from pathlib import Path

from course.errors import CourseError
from course.notebook.cells import Cell, read_cells, solution_cell
from course.notebook.code import RUN, load, read_code
from course.notebook.registry import has_solutions, solutions_folder


def load_definitions(path: str | Path) -> types.ModuleType:
    """A new module with what runs of a script or notebook (code.py); of a script definitions only.

    Raises: CourseError if there is no such file, or it is not Python.
    """
    path = Path(path)
    if not path.is_file():
        raise CourseError(
            f"looked for {path}, found no such file; "
            "set COURSE_SOLUTIONS to the folder of the masters."
        )
    try:
        module = load(f"solutions.{path.stem}", _cells_that_run(path))
    except (UnicodeError, SyntaxError) as error:
        raise CourseError(
            f"{path} should hold Python, but cannot be read ({error}); fix it first."
        ) from None
    module.__file__ = str(path)
    return module


def _cells_that_run(path):
    """{what tracebacks call it: cell} of a notebook, or of a script, which is one cell."""
    if path.suffix != ".ipynb":
        return {str(path): Cell("code", {}, path.read_text(encoding="utf-8"))}
    cells = {}
    for number, cell in enumerate(read_code(path), 1):
        if cell.role in RUN:
            cells[f"<cell {number} of {path.name}>"] = cell
    return cells


def masters(unit: str) -> list[Path]:
    """The paths of the masters of `unit`, one per part, in order."""
    return sorted((solutions_folder() / unit).glob("[0-9]_*.py"))


@functools.cache
def load_part(path: Path) -> types.ModuleType:
    """The definitions of the master at `path`, loaded once per process."""
    return load_definitions(path)


@functools.cache
def exercise_parts(unit: str) -> dict[str, Path]:
    """{exercise: path of the master that asks it} of `unit`, in order."""
    parts = {}
    for path in masters(unit):
        for cell in read_cells(path):
            if cell.role == "answer":
                parts[cell.exercise] = path
    return parts


@functools.cache
def solution_source(unit: str, exercise: str) -> str:
    """The text of the solution cell of an exercise, with a line break at its end."""
    cells = read_cells(exercise_parts(unit)[exercise])
    return solution_cell(cells, exercise).source + "\n"


def load_reference(unit: str, exercise: str) -> Callable:
    """The reference answer to an exercise.  Raises: CourseError where there are no solutions."""
    _refuse_without_solutions(unit)
    return getattr(load_part(exercise_parts(unit)[exercise]), exercise)


@functools.cache
def load_solutions(unit: str) -> types.SimpleNamespace:
    """All definitions of the masters of `unit` in one namespace.

    Raises: CourseError where there are none.
    """
    _refuse_without_solutions(unit)
    names = {}
    for path in masters(unit):
        names |= vars(load_part(path))
    for exercise, path in exercise_parts(unit).items():
        names[exercise] = getattr(load_part(path), exercise)
    return types.SimpleNamespace(**names)


@functools.cache
def load_answers(unit: str, exercise: str) -> types.ModuleType:
    """The known mistakes and alternatives of an exercise, as a module.

    Raises: CourseError where there are none.
    """
    _refuse_without_solutions(unit)
    return load_definitions(solutions_folder() / unit / "answers" / f"{exercise}.py")


def _refuse_without_solutions(unit):
    if not has_solutions() or not masters(unit):
        raise CourseError(
            f"looked for the reference answers of {unit} in {solutions_folder()}, found none; "
            "name your own notebook where a command takes one."
        )
