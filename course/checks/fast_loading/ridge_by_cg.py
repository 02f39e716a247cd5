"""Probe of exercise ridge_by_cg."""

import inspect

import torch

from course.checks.engine import exercise
from course.checks.fast_loading.shared import _Data, _kind_and_place, _Largest, _snapped, _torch_alone


def _conjugate_gradients(data, strength, count):
    """(w, relative residual norms) of `count` iterations in float64."""
    x, y = data.exact()
    right = x.T @ y / len(x)
    w, residual, direction, norms = torch.zeros_like(right), right, right, []
    for _ in range(count):
        product = x.T @ (x @ direction) / len(x) + strength * direction
        step = residual.square().sum() / (direction @ product)
        w, rest = w + step * direction, residual - step * product
        direction = rest + rest.square().sum() / residual.square().sum() * direction
        residual = rest
        norms.append((residual.norm() / right.norm()).item())
    return w, norms


def _between(norms, least):
    """(tolerance, k): the first norm below the tolerance is number k >= `least`, by a margin that rounding respects."""
    for k in range(least, len(norms)):
        before = min(norms[:k])
        if norms[k] < 0.7 * before:
            return (norms[k] * before) ** 0.5, k
    raise RuntimeError("no iteration brings the residual clearly below all before it")


@exercise()
def ridge_by_cg(answer, device, seed):
    """Compared with the solution and with the iterations in float64; after a wrong one nothing more is asked."""
    answer = _torch_alone(answer)
    rng = torch.Generator().manual_seed(seed)
    columns, batch, strength = 20 + seed % 5, 6 + seed % 3, 0.05
    data = _Data(rng, device, 9 * batch + 4, columns, batch)
    w, passes, residuals = answer(data, columns, strength, tolerance=1e-6, most=60)
    yield "returns w, the number of passes, and a list", [_kind_and_place(value) for value in (w, passes, residuals)]
    solution = data.solution(strength)
    if _kind_and_place(w) != _kind_and_place(solution.float()):
        return
    seen = _snapped(w, solution, 1e-4)
    yield "w is the solution", seen
    yield "read() is called once for each pass that is counted", data.passes == passes
    if seen is w:
        return
    _, norms = _conjugate_gradients(data, strength, 9)
    first = torch.tensor([float(r) for r in residuals[:4]])
    exact = torch.tensor(norms[:4], dtype=torch.float64)
    yield "what the list of residuals holds", sorted({type(r).__name__ for r in residuals})
    yield "the residuals of the first four iterations", _snapped(first, exact, 1e-3) if len(first) == 4 else first
    yield "a residual for each iteration, and a pass more", len(residuals) - passes

    tolerance, k = _between(norms, 3 + seed % 2)
    data.passes = 0
    w, passes, residuals = answer(data, columns, strength, tolerance=tolerance, most=60)
    yield f"passes at a tolerance of {tolerance:.2g}", passes
    yield "and calls of read()", data.passes
    exact, _ = _conjugate_gradients(data, strength, k + 1)
    yield f"w after {k + 1} iterations", _snapped(w, exact, 1e-3)

    data.passes = 0
    with _Largest(data.buffer.numel()) as largest:
        w, passes, residuals = answer(data, columns, strength, tolerance=1e-6, most=4)
    yield "most=4: passes", passes
    yield "most=4: calls of read()", data.passes
    yield "most=4: iterations", len(residuals)
    yield "most=4: w", _snapped(w, _conjugate_gradients(data, strength, 3)[0], 1e-3)
    yield "the largest tensor that is made", largest.found
    yield "the batches are not written to", not data.written_to

    w, passes, residuals = answer(data, columns, strength, most=1)
    yield "most=1: w, passes, residuals", [w, passes, residuals]
    data = _Data(rng, device, 3 * columns, columns, 4 * columns, noise=0.1)  # one batch that is larger than the data
    yield "strength 0, all rows in one batch", _snapped(answer(data, columns, 0.0, 1e-6, 90)[0], data.solution(0), 1e-3)
    data = _Data(rng, device, 2 * batch + 1, columns, batch)
    data.table[:, columns] = 0
    w, passes, residuals = answer(data, columns, strength)
    yield "y is 0 everywhere: w", w
    yield "y is 0 everywhere: passes, residuals", [passes, residuals]
    named = inspect.signature(answer).parameters
    yield "tolerance and most, if not given", [named[n].default if n in named else None for n in ("tolerance", "most")]
