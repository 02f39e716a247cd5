"""Load only the definitions of a percent script: solutions/<unit>.py -> module of reference answers.

Nothing else in the course knows where expected answers come from.  A percent script is plain Python (text cells are
comments), so no notebook library is needed here, and none of its experiments run.  A notebook can be loaded likewise.
"""

import ast
import functools
import json
import linecache
import os
import types
from pathlib import Path

from course.errors import CourseError

_DEFINITIONS = (ast.FunctionDef, ast.ClassDef, ast.Import, ast.ImportFrom)


def solutions_folder():
    """The folder of masters: COURSE_SOLUTIONS, else `solutions/` beside the package."""
    return Path(os.environ.get("COURSE_SOLUTIONS") or Path(__file__).parents[2] / "solutions")


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
    """The reference answers of `unit`, or with `kind` "mistakes" or "alternatives" those, loaded once a process."""
    if not kind:
        return load_definitions(solutions_folder() / f"{unit}.py")
    return load_definitions(solutions_folder() / kind / f"{unit[3:]}.py")


def _is_definition(node):
    targets = [t.id for t in getattr(node, "targets", []) if isinstance(t, ast.Name)]
    return isinstance(node, _DEFINITIONS) or (
        isinstance(node, ast.Assign) and targets and all(t.isupper() for t in targets)
    )
