"""Probe of exercise ridge_by_cg."""

import inspect
from collections.abc import Sequence

import torch

from course.checks.fast_loading.batches import RegressionProblem
from course.engine.exercise import Answer, Facts, exercise
from course.engine.probing.tensors import NewTensors, kind_and_device, snapped, torch_only
from course.engine.probing.values import type_names


def _best_of(
    products: Sequence[torch.Tensor], problem: RegressionProblem, strength: float
) -> tuple[torch.Tensor, float]:
    """(w, relative residual norm) of the least energy among the sums of `products`, in float64.

    Conjugate gradients find that w after as many iterations, by another way (Hestenes and Stiefel
    1952, theorem 4:3).
    """
    matrix, right = problem.normal_equations(strength)
    basis = torch.linalg.qr(torch.stack(products, 1)).Q
    w = basis @ torch.linalg.solve(basis.T @ matrix @ basis, basis.T @ right)
    residual = right - matrix @ w
    return w, (residual.norm() / right.norm()).item()


def _iterates(
    problem: RegressionProblem, strength: float, count: int
) -> tuple[list[torch.Tensor], list[float]]:
    """(the w, the relative residual norms) after 1, 2, ... `count` iterations, float64."""
    matrix, right = problem.normal_equations(strength)
    products = []
    iterates = []
    norms = []
    product = right
    for _ in range(count):
        products.append(product / product.norm())
        w, norm = _best_of(products, problem, strength)
        iterates.append(w)
        norms.append(norm)
        product = matrix @ products[-1]
    return iterates, norms


def _tolerance_between(norms: Sequence[float], least: int) -> tuple[float, int]:
    """(tolerance, k): the first norm below the tolerance is number k >= `least`.

    It is so by a margin that rounding respects.
    """
    for k in range(least, len(norms)):
        before = min(norms[:k])
        if norms[k] < 0.7 * before:
            return (norms[k] * before) ** 0.5, k
    raise RuntimeError("no iteration brings the residual clearly below all before it")


@exercise()
def ridge_by_cg(answer: Answer, device: torch.device, seed: int) -> Facts:
    """Compared with the solution and exact iterations in float64; stops at a wrong solution."""
    answer = torch_only(answer)
    rng = torch.Generator().manual_seed(seed)
    columns = 20 + seed % 5
    batch = 6 + seed % 3
    strength = 0.05
    data = RegressionProblem(rng, device, 9 * batch + 4, columns, batch)
    w, passes, residuals = answer(data.read, columns, strength, tolerance=1e-6, most=60)
    kinds = [kind_and_device(w), kind_and_device(passes), kind_and_device(residuals)]
    yield "returns w, the number of passes, and a list", kinds
    solution = data.solution(strength)
    if kind_and_device(w) != kind_and_device(solution.float()):
        return
    seen = snapped(w, solution, 1e-4)
    yield "w is the solution", seen
    yield "read() is called once for each pass that is counted", data.passes == passes
    if seen is w:
        return
    iterates, norms = _iterates(data, strength, 9)
    first = torch.tensor([float(r) for r in residuals[:4]])
    yield "what the list of residuals holds", type_names(list(residuals))
    if len(first) == 4:
        first = snapped(first, torch.tensor(norms[:4], dtype=torch.float64), 1e-3)
    yield "the residuals of the first four iterations", first

    tolerance, k = _tolerance_between(norms, 3 + seed % 2)
    data.passes = 0
    w, passes, residuals = answer(data.read, columns, strength, tolerance=tolerance, most=60)
    yield f"passes at a tolerance of {tolerance:.2g}", passes
    yield "and calls of read()", data.passes
    yield "a residual for each iteration, and a pass more", len(residuals) - passes
    yield f"w after {k + 1} iterations", snapped(w, iterates[k], 1e-3)

    data.passes = 0
    with NewTensors(data.buffer.numel()) as largest:
        w, passes, residuals = answer(data.read, columns, strength, tolerance=1e-6, most=4)
    yield "most=4: passes", passes
    yield "most=4: calls of read()", data.passes
    yield "most=4: iterations", len(residuals)
    yield "most=4: w", snapped(w, iterates[2], 1e-3)
    yield "the largest tensor that is made", largest.found

    w, passes, residuals = answer(data.read, columns, strength, most=1)
    yield "most=1: w, passes, residuals", [w, passes, residuals]
    data = RegressionProblem(rng, device, 3 * columns, columns, batch=4 * columns, noise=0.1)
    w, *_ = answer(data.read, columns, 0.0, 1e-6, 90)
    yield "strength 0, all rows in one batch", snapped(w, data.solution(0), 1e-3)
    data.table[:, columns] = 0
    yield "y all 0: w, passes, residuals", list(answer(data.read, columns, strength))
    defaults = [_default_of("tolerance", answer), _default_of("most", answer)]
    yield "tolerance and most, if not given", defaults


def _default_of(name: str, answer: Answer) -> object:
    parameters = inspect.signature(answer).parameters
    return parameters[name].default if name in parameters else None
