"""Reference answers: the definitions of a master, loaded as a module; none of its experiments is
run.

A master is solutions/<unit>/<part>.py. A class's folder has none; there engine/expected.py reads
recorded facts.
"""

import functools
import re
import types
from pathlib import Path

from course.errors import CourseError
from course.notebook.code import RUN, CodeCell, load, read_code
from course.notebook.registry import has_solutions, solutions_folder

SOLUTION_MARK = re.compile(r'^# %%.* solution="(\w+)"', re.M)


def load_definitions(path):
    """A new module with what runs of the script or notebook at `path` (learner/cells.py), of a
    script definitions only.

    Raises: CourseError if there is no such file, or it is not Python.
    """
    path = Path(path)
    if not path.is_file():
        raise CourseError(
            f"looked for {path}, found no such file; set COURSE_SOLUTIONS to the folder of the masters."
        )
    try:
        if path.suffix == ".ipynb":
            numbered = enumerate(read_code(path), 1)
            cells = {
                f"<cell {number} of {path.name}>": cell
                for number, cell in numbered
                if cell.role in RUN
            }
        else:
            cells = {str(path): CodeCell(path.read_text(encoding="utf-8"))}
        module = load(f"solutions.{path.stem}", cells)
    except (UnicodeError, SyntaxError) as error:
        raise CourseError(
            f"{path} should hold Python, but cannot be read ({error}); fix it first."
        ) from None
    module.__file__ = str(path)
    return module


def masters(unit):
    """The paths of the masters of `unit`, one per part, in order."""
    return sorted((solutions_folder() / unit).glob("[0-9]_*.py"))


@functools.cache
def load_part(path):
    """The definitions of the master at `path`, loaded once per process."""
    return load_definitions(path)


@functools.cache
def exercise_parts(unit):
    """{exercise: path of the master that asks it} of `unit`, in order."""
    return {
        name: path
        for path in masters(unit)
        for name in SOLUTION_MARK.findall(path.read_text(encoding="utf-8"))
    }


def load_reference(unit, exercise):
    """The reference answer to an exercise.  Raises: CourseError where there are no solutions."""
    _refuse_without_solutions(unit)
    return getattr(load_part(exercise_parts(unit)[exercise]), exercise)


@functools.cache
def load_solutions(unit):
    """All definitions of the masters of `unit` in one namespace. Raises: CourseError where there
    are none.
    """
    _refuse_without_solutions(unit)
    names = {}
    for path in masters(unit):
        names |= vars(load_part(path))
    names |= {name: getattr(load_part(path), name) for name, path in exercise_parts(unit).items()}
    return types.SimpleNamespace(**names)


@functools.cache
def load_answers(unit, exercise):
    """The known mistakes and alternatives of an exercise, as a module. Raises: CourseError where
    there are none.
    """
    _refuse_without_solutions(unit)
    return load_definitions(solutions_folder() / unit / "answers" / f"{exercise}.py")


def _refuse_without_solutions(unit):
    if not has_solutions() or not masters(unit):
        raise CourseError(
            f"looked for the reference answers of {unit} in {solutions_folder()}, found none; "
            "name your own notebook where a command takes one."
        )
