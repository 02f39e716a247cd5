"""Probe of exercise grouping_cost."""

import torch

from course.checks.engine import exercise


@exercise()
def grouping_cost(answer, device, seed):
    """What groups cost, for several costs of a sequence."""
    rng = torch.Generator().manual_seed(seed)
    lengths = torch.randint(1, 50, (40 + seed % 6,), generator=rng)
    lengths[0] = 50
    limits = [7, 20 + seed % 5, 50]
    kind = type(answer(lengths, limits)).__name__
    yield "returns a Python number", {"int": "number", "float": "number"}.get(kind, kind)
    yield "the number of cells, where no cost is given", float(answer(lengths, limits))
    yield "one group is the padded batch", float(answer(lengths, [50]))
    yield "a group costs its own longest length, not its threshold", float(answer(torch.tensor([2, 3, 9, 40]), [5, 50]))
    yield "a cost that grows with the square", float(answer(lengths, limits, lambda n: n * n))
    yield "a cost with a fixed part per sequence", float(answer(lengths, limits, lambda n: 3.5 + n))
    yield "groups without a sequence cost nothing", float(answer(torch.tensor([9, 9, 8]), [2, 4, 9], lambda n: n + 100))
