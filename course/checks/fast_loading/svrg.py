"""Probe of exercise svrg."""

import torch

from course.checks.engine import exercise
from course.checks.fast_loading.shared import _Data, _kind_and_place, _Largest, _snapped, _torch_alone


def _svrg(data, w, lr, strength, epochs):
    """w after `epochs` in float64, from the first pass of `data` on."""
    n, w = len(data.table), w.double()
    for epoch in range(epochs):
        x, y = data.exact()
        anchor = w
        full = x.T @ (x @ anchor - y) / n + strength * anchor
        batches = data.orders[(2 * epoch + 2) % 4].split(data.batch)
        for rows in batches:
            x, _ = data.exact(rows)
            w = w - lr * (x.T @ (x @ (w - anchor)) / (n / len(batches)) + strength * (w - anchor) + full)
    return w


@exercise()
def svrg(answer, device, seed):
    """Compared with the same steps in float64; after a wrong result nothing more is asked."""
    answer = _torch_alone(answer)
    rng = torch.Generator().manual_seed(seed)
    columns, batch, lr, strength = 12 + seed % 5, 5 + seed % 3, 0.2, 0.3
    start = torch.randn(columns, generator=rng).to(device)

    def data(rows):
        return _Data(rng, device, rows, columns, batch)

    for text, problem, epochs in (
        ("1 epoch, batches of one size", data(6 * batch), 1),
        ("1 epoch, the last batch is smaller", data(5 * batch + 2), 1),
        ("2 epochs", data(5 * batch + 2), 2),
        ("5 epochs", data(4 * batch + 1), 5),
    ):
        w, passes = answer(problem, start, lr, strength, epochs)
        if epochs == 1:
            yield f"{text}: returns w and the number of passes", [_kind_and_place(w), _kind_and_place(passes)]
        exact = _svrg(problem, start, lr, strength, epochs)
        if _kind_and_place(w) != _kind_and_place(start):
            return
        seen = _snapped(w, exact, 1e-4)
        yield f"{text}: w", seen
        yield f"{text}: passes, and calls of read()", [passes, problem.passes]
        if seen is w or [passes, problem.passes] != [2 * epochs] * 2:
            return

    problem = data(5 * batch + 2)
    minimum = problem.solution(strength)
    start = minimum.float()
    with _Largest(problem.buffer.numel()) as largest:
        w, _ = answer(problem, start, lr, strength, 3)
    yield "started at the minimum, w stays there", _snapped(w, minimum, 1e-4)
    yield "the largest tensor that is made", largest.found
    yield "the batches are not written to", not problem.written_to
