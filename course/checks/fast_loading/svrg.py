"""Probe of exercise svrg."""

import torch

from course.checks.engine import exercise
from course.checks.fast_loading.batches import RegressionProblem
from course.checks.probing.tensors import NewTensors, kind_and_device, snapped, torch_only


@exercise()
def svrg(answer, device, seed):
    """Steps as the reference takes them; stops at a wrong number of passes."""
    answer = torch_only(answer)
    rng = torch.Generator().manual_seed(seed)
    columns, batch, lr, strength = 12 + seed % 5, 5 + seed % 3, 0.2, 0.3
    start = torch.randn(columns, generator=rng).to(device)

    def data(rows):
        return RegressionProblem(rng, device, rows, columns, batch)

    for text, problem, epochs in (
        ("1 epoch, batches of one size", data(6 * batch), 1),
        ("1 epoch, the last batch is smaller", data(5 * batch + 2), 1),
        ("2 epochs", data(5 * batch + 2), 2),
        ("5 epochs", data(4 * batch + 1), 5),
    ):
        w, passes = answer(problem.read, start, lr, strength, epochs)
        if epochs == 1:
            yield f"{text}: returns w and the number of passes", [kind_and_device(w), kind_and_device(passes)]
        if kind_and_device(w) != kind_and_device(start):
            return
        yield f"{text}: w", w
        yield f"{text}: passes, and calls of read()", [passes, problem.passes]
        if [passes, problem.passes] != [2 * epochs] * 2:
            return

    problem = data(5 * batch + 2)
    minimum = problem.solution(strength)
    start = minimum.float()
    with NewTensors(problem.buffer.numel()) as largest:
        w, _ = answer(problem.read, start, lr, strength, 3)
    yield "started at the minimum, w stays there", snapped(w, minimum, 1e-4)
    yield "the largest tensor that is made", largest.found
