"""Load only the definitions of a percent script: solutions/<unit>.py -> module of reference answers.

Nothing else in the course knows where expected answers come from.  A percent script is plain Python (text cells are
comments), so no notebook library is needed here, and none of its experiments run.
"""

import ast
import functools
import linecache
import os
import types
from pathlib import Path

from course.errors import CourseError

_DEFINITIONS = (ast.FunctionDef, ast.ClassDef, ast.Import, ast.ImportFrom)


def solutions_folder():
    """The folder of masters: COURSE_SOLUTIONS, else `solutions/` beside the package."""
    return Path(os.environ.get("COURSE_SOLUTIONS") or Path(__file__).parents[2] / "solutions")


def load_definitions(path, transform=None):
    """A new module with the imports, functions, classes and UPPER_CASE constants of the script at `path`.

    Args:
        transform: optional function ast.Module -> ast.Module, applied before compiling (the mutation test uses it).

    Returns: types.ModuleType; every call makes new objects.  Raises: CourseError if there is no such file.
    """
    path = Path(path)
    if not path.is_file():
        raise CourseError(f"looked for {path}, found no such file; set COURSE_SOLUTIONS to the folder of the masters.")
    text = path.read_text(encoding="utf-8")
    tree = ast.parse(text, str(path))
    tree.body = [node for node in tree.body if _is_definition(node)]
    if transform is not None:
        tree = ast.fix_missing_locations(transform(tree))
    module = types.ModuleType(f"solutions.{path.stem}")
    module.__file__ = str(path)
    linecache.cache[str(path)] = len(text), None, text.splitlines(True), str(path)  # tracebacks show the lines
    exec(compile(tree, str(path), "exec"), module.__dict__)
    return module


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
