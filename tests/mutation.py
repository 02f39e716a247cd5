"""Wrong versions of a reference, one small change each: what a check must reject.

    python tests/mutation.py [EXERCISE ...]        prints the survivors

A mutant changes one operator, constant, comparison, condition, keyword argument or statement (DeMillo, Lipton and
Sayward 1978, "Hints on test data selection").  A survivor is a hole in the probe, or the same function written another
way: then it stands in equivalent_mutants.py with the reason.
"""

import ast
import contextlib
import copy
import io
import re
import sys

import torch
from exercises import EXERCISES

from course.authoring.reference import load_definitions, solutions_folder
from course.checks.sandbox import Limits

OPERATORS = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult, ast.FloorDiv: ast.Mult,
    ast.Mod: ast.FloorDiv, ast.Pow: ast.Mult, ast.BitAnd: ast.BitOr, ast.BitOr: ast.BitAnd,
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In, ast.And: ast.Or, ast.Or: ast.And,
}  # fmt: skip
LIMITS = Limits(seconds=2)  # a mutant may loop for ever
LONGER = {
    "train_ddp": Limits(seconds=30),  # a right one is run by torchrun, a hanging one ends with its ranks
    "write_records": Limits(seconds=15),  # ranks are started five times
}


def variants(node):
    """The changed copies of one syntax node (its children are left alone)."""

    def changed(**fields):
        new = copy.deepcopy(node)
        for name, value in fields.items():
            setattr(new, name, value)
        return new

    if isinstance(node, (ast.BinOp, ast.AugAssign, ast.BoolOp)) and type(node.op) in OPERATORS:
        yield changed(op=OPERATORS[type(node.op)]())
    if isinstance(node, ast.Compare) and type(node.ops[0]) in OPERATORS:
        yield changed(ops=[OPERATORS[type(node.ops[0])](), *node.ops[1:]])
    if isinstance(node, ast.UnaryOp):
        yield node.operand
    if isinstance(node, (ast.If, ast.While, ast.IfExp)):
        yield changed(test=ast.UnaryOp(ast.Not(), node.test))
    if isinstance(node, ast.Constant) and isinstance(node.value, (bool, int, float)):
        value = node.value
        new = not value if isinstance(value, bool) else value + 1 if isinstance(value, int) or value == 0 else value * 2
        yield changed(value=new)
    if isinstance(node, ast.Call):
        for i in range(len(node.keywords)):
            yield changed(keywords=node.keywords[:i] + node.keywords[i + 1 :])
    if isinstance(node, (ast.Assign, ast.AugAssign, ast.Expr, ast.If, ast.For, ast.While, ast.Return, ast.Raise)):
        yield ast.Pass()


def sites(function):
    """(path, variant) for every change of `function`; a path is the list of fields and places that lead to the node."""

    def walk(node, path):
        for field, value in ast.iter_fields(node):
            if field in ("annotation", "returns", "decorator_list", "type_params"):
                continue
            for place, child in enumerate(value if isinstance(value, list) else [value]):
                if not isinstance(child, ast.AST):
                    continue
                if isinstance(child, ast.Expr) and isinstance(child.value, ast.Constant):  # a docstring
                    continue
                here = [*path, (field, place if isinstance(value, list) else None)]
                yield from ((here, variant) for variant in variants(child))
                if not isinstance(child, ast.Raise):  # the words of an error are not the matter of a check
                    yield from walk(child, here)

    yield from walk(function, [])


def mutants(unit, name):
    """(description, mutated answer) for every mutant of exercise `name`."""
    master = solutions_folder() / f"{unit}.py"
    tree = ast.parse(master.read_text(encoding="utf-8"))
    function = next(node for node in tree.body if getattr(node, "name", None) == name)
    others = vars(load_definitions(master))
    seen = {}
    for path, variant in sites(function):
        statement, original = _at(function, path)
        description = f"{name}: {_text(original)} => {_text(variant)} in {_text(statement)}"
        seen[description] = seen.get(description, 0) + 1
        if seen[description] > 1:
            description += f" ({seen[description]})"
        mutant = ast.Module([_replaced(function, path, variant)], type_ignores=[])
        namespace = dict(others)
        try:
            exec(compile(ast.fix_missing_locations(mutant), str(master), "exec"), namespace)
        except Exception:  # it does not even load
            continue
        yield description, namespace[name]


def _at(function, path):
    statement = node = function
    for field, place in path:
        node = getattr(node, field) if place is None else getattr(node, field)[place]
        if isinstance(node, ast.stmt):
            statement = node
    return statement, node


def _replaced(function, path, variant):
    function = node = copy.deepcopy(function)
    *way, (field, place) = path
    for step, index in way:
        node = getattr(node, step) if index is None else getattr(node, step)[index]
    if place is None:
        setattr(node, field, variant)
    else:
        getattr(node, field)[place] = variant
    return function


def _text(node):
    return ast.unparse(node).splitlines()[0][:90]


def hidden_seed(unit, name):
    """The seed of the hidden grade cell of exercise `name`."""
    text = (solutions_folder() / f"{unit}.py").read_text(encoding="utf-8")
    return int(re.search(rf"check\.{name}\({name}, seed=(\d+)\)", text)[1])


def survives(exercise, answer, device="cpu"):
    """True if neither the visible nor the hidden check of `exercise` rejects `answer`."""
    device = torch.device(device)
    seeds = (0, hidden_seed(exercise.unit, exercise.name))
    limits = LONGER.get(exercise.name, LIMITS)
    # the facts alone: what a check says of a wrong answer costs a run of every known mistake
    return all(exercise.outcome(answer, device, s, limits).same(exercise.expected(device, s)) for s in seeds)


def main(names):
    total = alive = 0
    for exercise in [e for e in EXERCISES if e.name in (names or [e.name])]:
        for description, answer in mutants(exercise.unit, exercise.name):
            with contextlib.redirect_stdout(io.StringIO()):
                accepted = survives(exercise, answer)
            total, alive = total + 1, alive + accepted
            if accepted:
                print(description)
    print(f"{alive} of {total} mutants survive")


if __name__ == "__main__":
    main(sys.argv[1:])
