"""Probe of exercise ridge_by_cg."""

import inspect

import torch

from course.checks.fast_loading.batches import RegressionProblem
from course.engine.exercise import Answer, Facts, exercise
from course.engine.probing.tensors import NewTensors, kind_and_device, snapped, torch_only


def _best_of(products, problem, strength):
    """(w, relative residual norm): the w with the least energy among the sums of `products`, in
    float64.

    Conjugate gradients find that w after as many iterations, by another way (Hestenes and Stiefel
    1952, theorem 4:3).
    """
    matrix, right = problem.normal_equations(strength)
    basis = torch.linalg.qr(torch.stack(products, 1)).Q
    w = basis @ torch.linalg.solve(basis.T @ matrix @ basis, basis.T @ right)
    return w, ((right - matrix @ w).norm() / right.norm()).item()


def _iterates(problem, strength, count):
    """(the w, the relative residual norms) after 1, 2, ... `count` iterations, float64."""
    matrix, right = problem.normal_equations(strength)
    products = [right / right.norm()]
    for _ in range(count - 1):
        product = matrix @ products[-1]
        products.append(product / product.norm())
    return zip(*(_best_of(products[: n + 1], problem, strength) for n in range(count)), strict=True)


def _between(norms, least):
    """(tolerance, k): the first norm below the tolerance is number k >= `least`, by a margin that
    rounding respects.
    """
    for k in range(least, len(norms)):
        before = min(norms[:k])
        if norms[k] < 0.7 * before:
            return (norms[k] * before) ** 0.5, k
    raise RuntimeError("no iteration brings the residual clearly below all before it")


@exercise()
def ridge_by_cg(answer: Answer, device: torch.device, seed: int) -> Facts:
    """Compared with the solution and with exact iterations in float64; stops at a wrong
    solution.
    """
    answer = torch_only(answer)
    rng = torch.Generator().manual_seed(seed)
    columns, batch, strength = 20 + seed % 5, 6 + seed % 3, 0.05
    data = RegressionProblem(rng, device, 9 * batch + 4, columns, batch)
    w, passes, residuals = answer(data.read, columns, strength, tolerance=1e-6, most=60)
    yield (
        "returns w, the number of passes, and a list",
        [kind_and_device(value) for value in (w, passes, residuals)],
    )
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
    exact = torch.tensor(norms[:4], dtype=torch.float64)
    yield "what the list of residuals holds", sorted({type(r).__name__ for r in residuals})
    yield (
        "the residuals of the first four iterations",
        snapped(first, exact, 1e-3) if len(first) == 4 else first,
    )

    tolerance, k = _between(norms, 3 + seed % 2)
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
    named = inspect.signature(answer).parameters
    yield (
        "tolerance and most, if not given",
        [named[n].default if n in named else None for n in ("tolerance", "most")],
    )
