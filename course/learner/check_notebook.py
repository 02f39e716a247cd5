"""Check the answers in a notebook file from a terminal.

Its definitions are run in a fresh process, then its checks. notebook/code.py says what of a cell
runs.
"""

import contextlib
import io
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import NoReturn

from course.errors import CourseError
from course.learner import answers, carry
from course.notebook.code import RUN, execute, read_code
from course.notebook.registry import near
from course.system.folders import ROOT

# a notebook must not find a name `sys` that it has not imported
_START = """
from course.learner import check_notebook
check_notebook.run_in_main(*__import__("sys").argv[1:])
"""


def check_notebook(path: Path, names: tuple[str, ...] = ()) -> int:
    """Print the reports of a notebook's checks; return the exit code.

    Args:
        names: the exercises whose checks are run (default: all).

    Raises: CourseError if there is no such notebook or exercise.
    """
    known = [cell.exercise for cell in read_code(path) if cell.role == "check"]
    if not known:
        ours = ROOT / "notebooks"
        raise CourseError(
            f"{path} holds no exercise of this course; name one of the notebooks in {ours}."
        )
    for name in names:
        if name not in known:
            raise CourseError(f"{path.name} has no exercise {name!r}; {near(name, known)}")
    python_path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    call = [sys.executable, "-c", _START, str(path.resolve()), *names]
    env = os.environ | {"PYTHONPATH": python_path, "MPLBACKEND": "agg"}
    return subprocess.run(call, cwd=path.resolve().parent, env=env).returncode


def run_in_main(path: str, *names: str) -> NoReturn:
    """Run the notebook at `path` in the main module of this process, and end the process.

    The exit code is 1 if an exercise is not solved.
    """
    answers.recording = True
    file = Path(path)
    checked = []  # exercises
    failed = {}  # exercise -> what its latest cell raised, "" if nothing
    for number, cell in enumerate(read_code(file), 1):
        where = f"<cell {number} of {file.name}>"
        if cell.role == "check" and (not names or cell.exercise in names):
            checked.append(cell.exercise)
            failed[cell.exercise] = _run_check(cell, where, failed.get(cell.exercise))
        elif cell.role in RUN:
            with contextlib.redirect_stdout(io.StringIO()):
                failed[cell.exercise] = _run(cell, where)
    missing = [name for name in checked if failed[name]]
    which = f"; not solved: {', '.join(missing)}" if missing else ""
    print(f"\n{len(checked) - len(missing)} of {len(checked)} solved{which}")
    sys.stdout.flush()
    os._exit(bool(missing))  # an answer's forgotten threads and processes keep nobody waiting


def _run_check(cell, where, stopped):
    """Print the report of a check; return what is wrong with the answer, "" if nothing is."""
    if stopped:
        print(f"{cell.exercise}: its cell stops with {stopped}")
        return stopped
    graded = f"check.{cell.exercise}({cell.exercise})"
    if cell.source.strip() != graded:
        print(f"{cell.exercise}: its check was edited; what is graded, and run here, is {graded}")
        cell = replace(cell, source=graded)
    wrong = _run(cell, where, CourseError, AssertionError)
    if wrong:
        print(wrong)
    return wrong


def _run(cell, where, *reports):
    """Execute a cell; return the text of what it raises, "" if nothing.

    The text begins with the kind of error, unless that is one of `reports`.
    """
    try:
        carry.run_cells.append(cell.source)
        execute(cell, where, vars(sys.modules["__main__"]))
    except reports as report:
        return str(report)
    except SyntaxError as error:
        return f"SyntaxError: {error.msg} (line {error.lineno})"
    except (Exception, SystemExit) as error:
        return f"{type(error).__name__}: {error}"
    return ""
