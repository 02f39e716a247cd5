"""How densely code is written, beside codebases of the field: a table, one row per tree.

    python tests/density.py                  # course, instructor and their rooms
    python tests/density.py FOLDER ...

A reader takes in one step per line.  Limits on the length of functions and files were once met here by writing wider;
these figures show that.  The anchors' figures are of November 2026; those of types count functions within functions,
too, which is 29 % instead of 37 % for this course.  Characters are counted without indentation.
"""

import ast
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
WIDTH = 100  # columns
COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
PACKED = 3  # values that one assignment unpacks at once
# tree -> characters per line, lines over WIDTH in percent, comprehensions and packed assignments per 1,000 lines,
# public functions with all types in percent
ANCHORS = {
    "nanochat": (44.2, 3.7, 16, 2.0, 7),
    "httpx": (29.4, 0.0, 8, 0.0, 100),
    "nbgrader": (34.0, 1.8, 6, 0.0, 33),
    "otter-grader": (34.0, 1.0, 8, 0.4, 49),
    "jupytext": (35.0, 3.5, 10, 0.0, 3),
    "torchtitan (components)": (36.1, 0.2, 7, 0.0, 80),
    "this course, b87ac80": (50.2, 12.8, 63, 6.9, 37),
}


@dataclass
class Density:
    """What was counted in the Python files of a tree; lines are those that are not blank."""

    lines: int = 0
    characters: int = 0
    long_lines: int = 0
    comprehensions: int = 0
    packed_assignments: int = 0
    public_functions: int = 0
    typed_functions: int = 0

    @property
    def figures(self) -> tuple[float, float, float, float, float]:
        """The columns of ANCHORS."""
        per_thousand = 1000 / max(self.lines, 1)
        return (
            self.characters / max(self.lines, 1),
            100 * self.long_lines / max(self.lines, 1),
            self.comprehensions * per_thousand,
            self.packed_assignments * per_thousand,
            100 * self.typed_functions / max(self.public_functions, 1),
        )


def density(*folders: Path) -> Density:
    """The Density of all Python files below `folders`."""
    found = Density()
    for folder in folders:
        for path in sorted(folder.rglob("*.py")):
            add_file(found, path.read_text(encoding="utf-8"))
    return found


def add_file(found: Density, text: str) -> None:
    """Count the source `text` of a file into `found`."""
    for line in text.splitlines():
        if line.strip():
            found.lines += 1
            found.characters += len(line.strip())
            found.long_lines += len(line) > WIDTH
    tree = ast.parse(text)
    for node in ast.walk(tree):
        found.comprehensions += isinstance(node, COMPREHENSIONS)
        found.packed_assignments += is_packed(node)
    for function in public_functions(tree):
        found.public_functions += 1
        found.typed_functions += is_typed(function)


def is_packed(node: ast.AST) -> bool:
    """True if one assignment sets three names or more from as many values: a, b, c = 1, 2, 3."""
    if not isinstance(node, ast.Assign) or not isinstance(node.value, ast.Tuple):
        return False
    return any(isinstance(target, ast.Tuple) and len(target.elts) >= PACKED for target in node.targets)


def is_statement_of_choice(node: ast.AST) -> bool:
    """True if `x() if a else y()` or `a and x()` stands where an `if` belongs."""
    return isinstance(node, ast.Expr) and isinstance(node.value, (ast.IfExp, ast.BoolOp))


def public_functions(tree: ast.AST) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    """The functions of a module and the methods of its public classes whose names have no leading underscore."""
    for node in tree.body:
        if getattr(node, "name", "_").startswith("_"):
            continue
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            yield node
        elif isinstance(node, ast.ClassDef):
            yield from public_functions(node)


def is_typed(function: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    """True if the result and every argument but self and cls are annotated."""
    given = function.args
    arguments = [*given.posonlyargs, *given.args, *given.kwonlyargs]
    arguments += [argument for argument in (given.vararg, given.kwarg) if argument]
    others = [argument for argument in arguments if argument.arg not in ("self", "cls")]
    return function.returns is not None and all(argument.annotation for argument in others)


def main() -> None:
    named = [Path(name) for name in sys.argv[1:]]
    rooms = [path.parent for package in ("course", "instructor") for path in (ROOT / package).glob("*/__init__.py")]
    print(f"{'tree':28}{'chars/line':>11}{'over 100':>10}{'comprehensions':>16}{'packed':>8}{'typed':>8}")
    for name, figures in ANCHORS.items():
        print_row(name, figures)
    for folder in named or [ROOT / "course", ROOT / "instructor", *sorted(rooms)]:
        print_row(str(folder.resolve().relative_to(ROOT)), density(folder).figures)


def print_row(name: str, figures: tuple[float, float, float, float, float]) -> None:
    """Print a row of the table."""
    characters, long_lines, comprehensions, packed, typed = figures
    print(f"{name:28}{characters:11.1f}{long_lines:8.1f} %{comprehensions:16.0f}{packed:8.1f}{typed:6.0f} %")


if __name__ == "__main__":
    main()
