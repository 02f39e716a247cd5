"""Where a file that learners get holds the body of a reference, whatever its names are.

    python tests/leaks.py [EXERCISE ...]        prints every place, the largest share first

A statement is compared without the names of its locals, its docstrings and its annotations, and weighs as much as it
has syntax nodes: renaming, another order and an added print do not hide a copy.  Two ways to write one idea do.
"""

import ast
import collections
import copy
import functools
import sys
from dataclasses import dataclass

from course.checks.expected import exercise_parts
from course.publish.release import given_files
from course.units import units

SHARE = 0.8  # of a function's weight that makes it a copy
LEAST_STATEMENTS = 3
LEAST_WEIGHT = 30  # syntax nodes of a function with fewer statements: one long expression is a body too
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


@dataclass(frozen=True)
class Copy:
    """A function of a shipped file that has `share` of the statements of a function of a reference."""

    exercise: str
    function: str  # of the reference
    place: str  # file:line
    name: str  # of the function there
    share: float

    def __str__(self):
        return f"{self.exercise}: {self.share:.0%} of {self.function} stands in {self.place}, {self.name}"


class _Anonymous(ast.NodeTransformer):
    """Takes the names of locals, docstrings and annotations out of a function."""

    def __init__(self, local):
        self.local = local

    def visit_Name(self, node):
        return ast.Name("_", ast.Load()) if node.id in self.local else ast.Name(node.id, ast.Load())

    def visit_arg(self, node):
        return ast.arg("_")

    def visit_FunctionDef(self, node):
        self.generic_visit(node)
        node.name, node.returns, node.decorator_list = "_", None, []
        return node

    visit_AsyncFunctionDef = visit_FunctionDef

    def visit_AnnAssign(self, node):
        if node.value is None:
            return ast.Pass()
        return self.visit(ast.Assign([node.target], node.value))

    def visit_keyword(self, node):
        self.generic_visit(node)
        return node


def _locals(function):
    stored = {n.id for n in ast.walk(function) if isinstance(n, ast.Name) and not isinstance(n.ctx, ast.Load)}
    inner = {n.name for n in ast.walk(function) if isinstance(n, (*_FUNCTIONS, ast.ClassDef))}
    return stored | inner | {n.arg for n in ast.walk(function) if isinstance(n, ast.arg)}


def _is_docstring(statement):
    return isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)


def statements(function):
    """Counter of (text without local names, weight) of all statements of a function; of a block its head alone."""
    found = collections.Counter()
    anonymous = _Anonymous(_locals(function))

    def enter(block):
        for statement in block:
            if _is_docstring(statement) or isinstance(statement, (ast.Pass, *_FUNCTIONS)):
                if isinstance(statement, _FUNCTIONS):
                    enter(statement.body)
                continue
            blocks = [getattr(statement, name, []) for name in ("body", "orelse", "finalbody")]
            blocks += [handler.body for handler in getattr(statement, "handlers", [])]
            blocks += [case.body for case in getattr(statement, "cases", [])]
            head = copy.copy(statement)
            for name in ("body", "orelse", "finalbody", "handlers", "cases"):
                if hasattr(head, name):
                    setattr(head, name, [])
            head = anonymous.visit(copy.deepcopy(head))
            found[ast.dump(head), sum(1 for _ in ast.walk(head))] += 1
            for inner in blocks:
                enter(inner)

    enter(function.body)
    return found


def _functions(tree):
    for node in ast.walk(tree):
        if isinstance(node, _FUNCTIONS):
            yield node


def weight(found):
    return sum(size * count for (_, size), count in found.items())


def _is_long_enough(found):
    return sum(found.values()) >= LEAST_STATEMENTS or weight(found) >= LEAST_WEIGHT


@functools.cache
def references():
    """[(exercise, function's name, its statements)] of all functions of all references that are long enough."""
    found = []
    for unit in units():
        for name, path in exercise_parts(unit).items():
            tree = ast.parse(path.read_text(encoding="utf-8"))
            (node,) = [n for n in tree.body if getattr(n, "name", None) == name]
            for function in _functions(node):
                text = statements(function)
                if _is_long_enough(text):
                    label = name if function is node else f"{name}.{function.name}"
                    found.append((f"{unit[:2]} {name}", label, text))
    return found


def shipped_functions(files):
    """(place, name, statements) of every function in the Python files of `files`, {name: bytes}."""
    for file, content in files.items():
        if file.endswith(".py"):
            for function in _functions(ast.parse(content)):
                yield f"{file}:{function.lineno}", function.name, statements(function)


def copies(files=None, share=SHARE):
    """Every Copy of at least `share` of a function of a reference in `files`, {name: bytes} (default: a release's)."""
    found = []
    for place, name, here in shipped_functions(given_files() if files is None else files):
        for exercise, function, there in references():
            common = weight(here & there) / weight(there)
            if common >= share:
                found.append(Copy(exercise, function, place, name, common))
    return sorted(found, key=lambda copy: -copy.share)


def main(names):
    for found in copies():
        if not names or found.exercise.split()[-1] in names:
            print(found)


if __name__ == "__main__":
    main(sys.argv[1:])
