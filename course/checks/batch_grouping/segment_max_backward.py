"""Probe of exercise segment_max_backward."""

import torch

from course.checks.batch_grouping.ragged import some_lengths
from course.engine.exercise import Answer, Facts, exercise


@exercise()
def segment_max_backward(answer: Answer, device: torch.device, seed: int) -> Facts:
    """The gradient of the values, given that of the maxima; ties by laws alone."""
    rng = torch.Generator().manual_seed(seed)
    lengths = some_lengths(rng, 6 + seed % 4).to(device)
    total = int(lengths.sum())
    values = torch.randperm(3 * total, generator=rng).view(total, 3).float().to(device)
    maxima = torch.stack([part.amax(0) for part in values.split(lengths.tolist())])
    grad = torch.randn(maxima.shape, generator=rng).to(device)
    result = answer(grad, values, maxima, lengths)
    yield "shape of the values", result.shape
    yield "tokens 1 and 3, and 2 alone; gradients 10 and 20", _small_example(answer, device)
    yield "the gradient", result
    yield "one sequence", answer(grad[:1], values[: int(lengths[0])], maxima[:1], lengths[:1])
    yield from _equal_tokens(answer, device)


def _small_example(answer: Answer, device: torch.device) -> torch.Tensor:
    """What three tokens of one feature, in two sequences, get."""
    values = torch.tensor([[1.0], [3.0], [2.0]], device=device)
    maxima = values[1:]
    lengths = torch.tensor([2, 1], device=device)
    return answer(values.new_tensor([[10], [20]]), values, maxima, lengths)


def _equal_tokens(answer: Answer, device: torch.device) -> Facts:
    """Tokens that are as large as a maximum, of their own sequence or of another."""
    tied = torch.ones(5, 2, device=device)
    ones = torch.ones(2, 2, device=device)
    shared = answer(3 * ones, tied, ones, torch.tensor([2, 3], device=device))
    sums = torch.stack([part.sum(0) for part in shared.split([2, 3])])
    yield "equal tokens: what they get adds up to the gradient of the maximum", sums
    values = torch.tensor([[5.0, 1.0], [7.0, 5.0], [5.0, 9.0]], device=device)
    maxima = torch.tensor([[5.0, 1.0], [7.0, 9.0]], device=device)
    result = answer(ones, values, maxima, torch.tensor([1, 2], device=device))
    yield "a token equal to the maximum of another sequence gets nothing of that", result
