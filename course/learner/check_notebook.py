"""Check the answers in a notebook file from a terminal: its definitions are run in a fresh process,
then its checks.

What runs of a cell is said in learner/cells.py.
"""

import contextlib
import io
import os
import subprocess
import sys
from pathlib import Path

from course.errors import CourseError
from course.learner import answers, carry
from course.notebook.code import RUN, execute, read_code
from course.notebook.registry import near
from course.system.folders import ROOT

_START = "from course.learner import check_notebook; check_notebook.run_in_main(*__import__('sys').argv[1:])"


def check_notebook(path: Path, names: tuple[str, ...] = ()) -> int:
    """Print the reports of the checks of `names` (default: all) in the notebook at `path`; return
    the exit code.

    Raises: CourseError if there is no such notebook or exercise.
    """
    known = [cell.exercise for cell in read_code(path) if cell.role == "check"]
    if not known:
        raise CourseError(
            f"{path} holds no exercise of this course; name one of the notebooks in {ROOT / 'notebooks'}."
        )
    for name in names:
        if name not in known:
            raise CourseError(f"{path.name} has no exercise {name!r}; {near(name, known)}")
    python_path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    call = [sys.executable, "-c", _START, str(path.resolve()), *names]
    env = os.environ | {"PYTHONPATH": python_path, "MPLBACKEND": "agg"}
    return subprocess.run(call, cwd=path.resolve().parent, env=env).returncode


def run_in_main(path: str, *names: str):
    """Run the notebook at `path` in the main module of this process, which it then ends with its
    exit code.
    """
    answers.recording = True
    file, failed, checked = Path(path), {}, []
    for number, cell in enumerate(read_code(file), 1):
        where = f"<cell {number} of {file.name}>"
        if cell.role == "check" and (not names or cell.exercise in names):
            checked.append(cell.exercise)
            failed[cell.exercise] = _run_check(cell, where, failed.get(cell.exercise))
        elif cell.role in RUN:
            with contextlib.redirect_stdout(io.StringIO()):
                failed[cell.exercise] = _run(cell, where)
    missing = [name for name in checked if failed[name]]
    names = f"; not solved: {', '.join(missing)}" if missing else ""
    print(f"\n{len(checked) - len(missing)} of {len(checked)} solved{names}")
    sys.stdout.flush()
    os._exit(bool(missing))  # an answer's forgotten threads and processes keep nobody waiting


def _run_check(cell, where, stopped):
    """What is wrong with an answer, "" if nothing is; the report is printed."""
    if stopped:
        print(f"{cell.exercise}: its cell stops with {stopped}")
        return stopped
    wrong = _run(cell, where, CourseError, AssertionError)
    if wrong:
        print(wrong)
    return wrong


def _run(cell, where, *reports):
    """Execute a cell; the text of what it raises, without the kind if it is one of `reports`, "" if
    nothing.
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
