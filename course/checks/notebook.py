"""Check the answers in a notebook file from a terminal: its definitions are run in a fresh process, then its checks.

Setup and answers run as they stand.  Of other cells only imports, functions, classes and constants count, so nothing
is measured and nothing is trained.
"""

import ast
import contextlib
import io
import json
import linecache
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from course import answers, carry
from course.errors import CourseError
from course.units import near

ROOT = Path(__file__).parents[2]
VISIBLE = "-visible"  # the end of the id of a grade cell that learners see
_START = "from course.checks import notebook; notebook.run_in_main(*__import__('sys').argv[1:])"


@dataclass
class CodeCell:
    """A code cell of a notebook file: its text, and what it is for."""

    source: str
    exercise: str | None = None  # of an answer or of its visible check
    role: str = "other"  # "given" (locked), "answer", "check", "hidden" or "other"


def check_notebook(path: Path, names: tuple[str, ...] = ()) -> int:
    """Print the reports of the checks of `names` (default: all) in the notebook at `path`; return the exit code.

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


def read_code(path: Path) -> list[CodeCell]:
    """The code cells of the notebook at `path`.  Raises: CourseError if there is none."""
    if not path.is_file():
        raise CourseError(f"there is no notebook {path}.")
    try:
        cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
        return [_code_cell(cell) for cell in cells if cell["cell_type"] == "code"]
    except (OSError, ValueError, LookupError, TypeError, AttributeError) as error:
        raise CourseError(f"{path} is not a notebook ({type(error).__name__}: {error}).") from None


def _code_cell(cell):
    lines = "".join(cell["source"]).splitlines()
    source = "\n".join(line for line in lines if not line.startswith(("%", "!"))) + "\n"  # those are IPython's
    marks = cell["metadata"].get("nbgrader", {})
    name = marks.get("grade_id", "")
    if marks.get("grade"):
        is_visible = name.endswith(VISIBLE) and not marks.get("solution")
        return CodeCell(source, name.removesuffix(VISIBLE), "check" if is_visible else "hidden")
    if marks.get("solution"):
        return CodeCell(source, name, "answer")
    return CodeCell(source, None, "given" if marks.get("locked") else "other")


def run_in_main(path: str, *names: str):
    """Run the notebook at `path` in the main module of this process, which it then ends with its exit code."""
    answers.recording = True
    file, failed, asked = Path(path), {}, []
    for number, cell in enumerate(read_code(file), 1):
        where = f"<cell {number} of {file.name}>"
        if cell.role == "check" and (not names or cell.exercise in names):
            asked.append(cell.exercise)
            failed[cell.exercise] = _run_check(cell, where, failed.get(cell.exercise))
        elif cell.role in ("given", "answer", "other"):
            with contextlib.redirect_stdout(io.StringIO()):
                failed[cell.exercise] = _run(cell, where)
    missing = [name for name in asked if failed[name]]
    print(
        f"\n{len(asked) - len(missing)} of {len(asked)} solved"
        + (f"; not solved: {', '.join(missing)}" * bool(missing))
    )
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
    """Execute a cell; the text of what it raises, without the kind if it is one of `reports`, "" if nothing."""
    try:
        tree = ast.parse(cell.source, where)
        if cell.role == "other":
            tree.body = [node for node in tree.body if _is_definition(node)]
        linecache.cache[where] = len(cell.source), None, cell.source.splitlines(True), where
        carry.run_cells.append(cell.source)
        exec(compile(tree, where, "exec"), vars(sys.modules["__main__"]))
    except reports as report:
        return str(report)
    except SyntaxError as error:
        return f"SyntaxError: {error.msg} (line {error.lineno})"
    except (Exception, SystemExit) as error:
        return f"{type(error).__name__}: {error}"
    return ""


def _is_definition(node):
    calls = any(isinstance(inner, ast.Call) for inner in ast.walk(node))
    kinds = ast.Import, ast.ImportFrom, ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef
    return isinstance(node, kinds) or (isinstance(node, (ast.Assign, ast.AnnAssign)) and not calls)
