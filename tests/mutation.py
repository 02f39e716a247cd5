"""Wrong versions of a reference, one small change each: what a check must reject.

A mutant changes one operator, constant, comparison, condition, keyword argument or statement (DeMillo, Lipton and
Sayward 1978, "Hints on test data selection").  A survivor is a hole in the probe, or the same function written another
way: then it is in equivalent_mutants.py with the reason.  mutant_records.py remembers what was found.
"""

import ast
import copy
import functools
import re
import time

import torch
from exercises import with_probe

from course.engine.compare import differs, plain
from course.engine.limits import Limits, limited
from course.notebook.cells import HIDDEN, read_cells
from course.notebook.solutions import exercise_parts, load_part
from course.parallel.distributed import run_ranks

OPERATORS = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult, ast.FloorDiv: ast.Mult,
    ast.Mod: ast.FloorDiv, ast.Pow: ast.Mult, ast.BitAnd: ast.BitOr, ast.BitOr: ast.BitAnd,
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In, ast.And: ast.Or, ast.Or: ast.And,
}  # fmt: skip
# what no check on the CPU can see, or the task excludes: keyword arguments, and statements that begin so
UNSEEN = {"device", "device_id", "map_location", "strict"}
GIVEN = "grouping.check_"  # lines of refusals; tests/test_grouping.py tries them
PATIENCE = 0.5  # seconds, and
PACE = 4  # times what the reference took: who needs longer for the next fact is held to loop or to wait for ever


def variants(node):
    """The changed copies of one syntax node (its children are left alone)."""

    def changed(**fields):
        new = copy.copy(node)
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
        for i, keyword in enumerate(node.keywords):
            if keyword.arg not in UNSEEN:
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
                if not isinstance(child, ast.AST) or _is_left_alone(child):
                    continue
                here = [*path, (field, place if isinstance(value, list) else None)]
                yield from ((here, variant) for variant in variants(child))
                if not isinstance(child, ast.Raise):  # the words of an error are not the matter of a check
                    yield from walk(child, here)

    yield from walk(function, [])


def _is_left_alone(node):
    """Whether `node` is a docstring, a refusal or an argument that cannot be seen."""
    if isinstance(node, ast.Expr):
        return isinstance(node.value, ast.Constant) or ast.unparse(node).startswith(GIVEN)
    return isinstance(node, ast.keyword) and node.arg in UNSEEN


@functools.cache
def syntax(path):
    """{name: syntax tree} of the functions and classes in the master at `path`."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return {node.name: node for node in tree.body if hasattr(node, "name")}


def mutants(unit, name):
    """(description, mutated answer) for every mutant of exercise `name`."""
    path = exercise_parts(unit)[name]
    function, others = syntax(path)[name], vars(load_part(path))
    seen = {}
    for path, variant in sites(function):
        statement, original = _at(function, path)
        description = f"{name}: {_text(original)} => {_text(variant)} in {_text(statement)}"
        seen[description] = seen.get(description, 0) + 1
        if seen[description] > 1:
            description += f" ({seen[description]})"
        namespace = dict(others)
        try:
            exec(compile(_changed(function, path, variant), others["__file__"], "exec"), namespace)
        except Exception:  # it does not even load
            continue
        yield description, namespace[name]


def _at(function, path):
    """The statement and the node at the end of `path`."""
    statement = node = function
    for field, place in path:
        node = getattr(node, field) if place is None else getattr(node, field)[place]
        if isinstance(node, ast.stmt):
            statement = node
    return statement, node


def _changed(function, path, variant):
    """A module of one definition: `function` with `variant` at the end of `path`."""
    changed, (*way, (field, place)) = copy.deepcopy(function), path
    _, parent = _at(changed, way)
    if place is None:
        setattr(parent, field, variant)
    else:
        getattr(parent, field)[place] = variant
    return ast.fix_missing_locations(ast.Module([changed], type_ignores=[]))


def _text(node):
    return ast.unparse(node).splitlines()[0][:90]


@functools.cache
def hidden_seed(unit, name):
    """The seed of the hidden grade cell of exercise `name`."""
    cells = read_cells(exercise_parts(unit)[name])
    (cell,) = [cell for cell in cells if cell.marks.get("test") == name + HIDDEN]
    return int(re.search(r"seed=(\d+)", cell.source)[1])


@functools.cache
def _ranks_are_warm():
    """Start ranks once: the first of a process take seconds, which must not count as the pace of the reference."""
    run_ranks(max, 1, backend="gloo")


@functools.cache
def reference_steps(exercise, device, seed):
    """[(fact, what the reference gives, seconds that it took for it)]."""
    _ranks_are_warm()
    steps = []

    def timed(answer, device, seed):
        before = time.monotonic()
        for fact, value in exercise.probe(answer, device, seed):
            steps.append((fact, plain(value), time.monotonic() - before))
            yield fact, value
            before = time.monotonic()

    outcome = with_probe(exercise, timed).at(device, seed).run(exercise.reference())
    assert outcome.raised is None, f"the probe of {exercise.name} fails on the reference: {outcome.raised}"
    return steps


def survives(exercise, answer, patience=1, device="cpu"):
    """True if neither the visible nor the hidden check of `exercise` rejects `answer`.

    Each stops at the first fact that is wrong, or that takes too long: `patience` times what is usual here.
    """
    device = torch.device(device)
    return all(_passes(exercise, answer, patience, device, s) for s in (0, hidden_seed(exercise.unit, exercise.name)))


def _passes(exercise, answer, patience, device, seed):
    steps, right = reference_steps(exercise, device, seed), []

    def watched(answer, device, seed):
        facts = exercise.probe(answer, device, seed)
        for fact, expected, seconds in steps:
            with limited(Limits(patience * (PATIENCE + PACE * seconds)), 1):
                seen = next(facts, None)
            if seen is None or seen[0] != fact or differs(plain(seen[1]), expected):
                return
            right.append(fact)
        yield from facts

    outcome = with_probe(exercise, watched).at(device, seed).run(answer)
    return outcome.raised is None and not outcome.facts and len(right) == len(steps)
