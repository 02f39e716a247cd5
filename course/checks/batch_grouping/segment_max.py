"""Probe of exercise segment_max."""

import torch

from course.checks.batch_grouping.ragged import some_lengths
from course.engine.exercise import Answer, Facts, exercise
from course.engine.probing.laws import tried
from course.engine.probing.tensors import NewTensors


def _work(answer: Answer, lengths: torch.Tensor) -> NewTensors:
    """What was counted while the answer ran on sequences of these lengths."""
    with NewTensors() as seen:
        answer(torch.rand(int(lengths.sum()), 2), lengths)
    return seen


@exercise()
def segment_max(answer: Answer, device: torch.device, seed: int) -> Facts:
    """Maxima per sequence, their gradient, and what they take."""
    rng = torch.Generator().manual_seed(seed)
    lengths = some_lengths(rng, 6 + seed % 4).to(device)
    values = torch.randn(int(lengths.sum()), 3, generator=rng).to(device)
    yield "a row per sequence, a column per feature", answer(values, lengths).shape
    few = torch.tensor([[1.0], [5.0], [2.0], [3.0], [-4.0]], device=device)
    yield "lengths 2, 2, 1 of the tokens 1, 5, 2, 3, -4", answer(few, lengths.new_tensor([2, 2, 1]))
    yield "the maxima", answer(values, lengths)
    yield "maxima far below 0", answer(values.double() - 1e12, lengths)
    yield "float64 stays float64", answer(values.double(), lengths).dtype
    leaf = values.clone().requires_grad_()
    answer(leaf, lengths).square().sum().backward()
    yield "the gradient reaches the largest token of each feature", leaf.grad
    yield "one sequence", answer(values[:4], lengths.new_tensor([4]))
    # a number of 64 bits for each value takes less than a padded batch of float32
    few = _work(answer, torch.tensor([1, 1, 1, 30] * 2))
    many = _work(answer, torch.tensor([1, 1, 1, 30] * 20))
    no_loop = many.calls <= few.calls + 2
    yield "80 sequences take no more operations than 8: no loop over them", tried(no_loop, lengths)
    is_small = many.largest < 4 * 80 * 30 * 2
    yield "no tensor as large as the padded batch is made", tried(is_small, lengths)
