"""Where expected facts come from, which nothing else in the course knows: reference answers, or facts recorded of them.

Where there are masters, solutions/<unit>.py -> module of reference answers.  Only its definitions are executed, none of
its experiments; a percent script is plain Python (text cells are comments), so no notebook library is needed.  A
notebook can be loaded likewise.  Where there are none, in a class's folder, the facts that class_release.py recorded
on the visible seed: one file a unit and kind of device, of plain data.
"""

import ast
import functools
import hashlib
import json
import linecache
import lzma
import os
import types
from pathlib import Path

from course.checks.wire import WireError, pack, unpack
from course.errors import CourseError

CHECKS = Path(__file__).parents[1] / "checks"
_DEFINITIONS = (ast.FunctionDef, ast.ClassDef, ast.Import, ast.ImportFrom)


def solutions_folder():
    """The folder of masters: COURSE_SOLUTIONS, else `solutions/` beside the package."""
    return Path(os.environ.get("COURSE_SOLUTIONS") or Path(__file__).parents[2] / "solutions")


def has_solutions():
    """True if expected facts come from reference answers: masters are here, or COURSE_SOLUTIONS says where."""
    return bool(os.environ.get("COURSE_SOLUTIONS")) or any(solutions_folder().glob("[0-9][0-9]_*.py"))


def load_definitions(path):
    """A new module with the imports, functions, classes and UPPER_CASE constants of the script or notebook at `path`.

    Returns: types.ModuleType; every call makes new objects.  Raises: CourseError if there is no such file, or it is not
        Python.
    """
    path = Path(path)
    if not path.is_file():
        raise CourseError(f"looked for {path}, found no such file; set COURSE_SOLUTIONS to the folder of the masters.")
    try:
        text = path.read_text(encoding="utf-8")
        text = _code_of(text) if path.suffix == ".ipynb" else text
        tree = ast.parse(text, str(path))
    except (ValueError, LookupError, TypeError, SyntaxError) as error:
        raise CourseError(f"{path} should hold Python, but cannot be read ({error}); mend it first.") from None
    tree.body = [node for node in tree.body if _is_definition(node)]
    module = types.ModuleType(f"solutions.{path.stem}")
    module.__file__ = str(path)
    linecache.cache[str(path)] = len(text), None, text.splitlines(True), str(path)  # tracebacks show the lines
    exec(compile(tree, str(path), "exec"), module.__dict__)
    return module


def _code_of(notebook):
    """The code cells of a notebook file's text, without the lines that are IPython's and not Python's."""
    cells = ["".join(cell["source"]) for cell in json.loads(notebook)["cells"] if cell["cell_type"] == "code"]
    return "\n".join(line for cell in cells for line in cell.splitlines() if not line.startswith(("%", "!")))


@functools.cache
def load_solutions(unit, kind=""):
    """The reference answers of `unit`, or with `kind` "mistakes" or "alternatives" those, loaded once a process.

    Raises: CourseError where there are none.
    """
    if not has_solutions():
        raise CourseError(
            f"looked for the reference answers of {unit} in {solutions_folder()}, found none; "
            "name your own notebook where a command takes one."
        )
    if not kind:
        return load_definitions(solutions_folder() / f"{unit}.py")
    return load_definitions(solutions_folder() / kind / f"{unit[3:]}.py")


def _is_definition(node):
    targets = [t.id for t in getattr(node, "targets", []) if isinstance(t, ast.Name)]
    return isinstance(node, _DEFINITIONS) or (
        isinstance(node, ast.Assign) and targets and all(t.isupper() for t in targets)
    )


def facts_file(unit, device):
    """The path of what was recorded of `unit` on the kind of device that the torch.device `device` is."""
    return CHECKS / "recorded" / f"{unit}.{device.type}.facts"


def pack_facts(records):
    """The bytes of a facts file: `records`, {exercise: plain data}, and which checks they were recorded with."""
    return lzma.compress(pack({"checks": _checks_digest(), "records": records}))  # a mistake repeats most of the facts


@functools.cache
def load_facts(path):
    """The records that `pack_facts` was given, read once a process; nothing in the file is executed.

    Raises: CourseError if there is no such file, it is damaged, or it was recorded with other checks.
    """
    try:
        found = unpack(lzma.decompress(path.read_bytes()))
        made_for, records = found["checks"], found["records"]
    except FileNotFoundError:
        raise CourseError(
            f"looked for recorded facts in {path}, found no such file; get the course folder anew."
        ) from None
    except (OSError, lzma.LZMAError, EOFError, WireError, KeyError, TypeError) as error:
        raise CourseError(
            f"{path} should hold recorded facts, but cannot be read ({error}); get the course folder anew."
        ) from None
    if made_for != _checks_digest():
        raise CourseError(f"{path} was recorded with other checks than those in {CHECKS}; get the course folder anew.")
    return records


def _checks_digest():
    """A string that changes when the source of any check does."""
    sources = [path.read_text(encoding="utf-8") for path in sorted(CHECKS.glob("*.py"))]
    return hashlib.sha256("\0".join(sources).encode()).hexdigest()
