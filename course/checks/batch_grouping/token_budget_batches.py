"""Probe of exercise token_budget_batches."""

from collections.abc import Sequence

import torch

from course.engine.exercise import Answer, Facts, exercise
from course.engine.probing.errors import error_name
from course.engine.probing.laws import tried
from course.engine.probing.values import type_word


def _batches(
    answer: Answer, lengths: Sequence[int] | torch.Tensor, budget: int, *order: torch.Tensor
) -> list[list[int]]:
    """The answer's batches as lists of Python numbers."""
    return [list(map(int, batch)) for batch in answer(torch.as_tensor(lengths), budget, *order)]


@exercise()
def token_budget_batches(answer: Answer, device: torch.device, seed: int) -> Facts:
    """Batches of at most so many cells."""
    yield from _worked_by_hand(answer)
    rng = torch.Generator().manual_seed(seed)
    lengths = torch.randint(1, 40, (50 + seed % 7,), generator=rng)
    lengths[:8] = 25  # the first batches meet the budget exactly
    batches = _batches(answer, lengths, 100)
    cells = [len(batch) * max(lengths[batch].tolist()) for batch in batches]
    yield "many sequences: cells of each batch", cells
    yield "many sequences: the batches", batches
    ordered = _batches(answer, [2, 9, 1], 9, torch.tensor([2, 0, 1]))
    yield "in another order: lengths 2, 9, 1, order 2, 0, 1, budget 9", ordered
    yield "many sequences in another order", _batches(answer, lengths, 100, lengths.argsort())
    given = answer(lengths, 100, lengths.argsort())
    types = sorted({type_word(i) for batch in given for i in batch})
    yield "indices are whole numbers in another order, too", tried(types, lengths[8:12].tolist())
    error = error_name(answer, torch.tensor([3, 101]), 100)
    yield (
        "a sequence longer than the budget raises ValueError",
        tried(error, lengths[8:12].tolist()),
    )


def _worked_by_hand(answer: Answer) -> Facts:
    """A few sequences each."""
    yield "lengths 3, 1, 2, budget 6", _batches(answer, [3, 1, 2], 6)
    yield "lengths 2, 3, 4, budget 8", _batches(answer, [2, 3, 4], 8)
    yield "one batch for all: lengths 2, 3, budget 1000", _batches(answer, [2, 3], 1000)
    exact = _batches(answer, [5] * 5, 10)
    yield "a budget that is met exactly: five lengths of 5, budget 10", exact
    long_among_short = _batches(answer, [1, 1, 1, 9, 1, 1], 10)
    yield "a long sequence ends the batch: lengths 1, 1, 1, 9, 1, 1, budget 10", long_among_short
    long_before_short = _batches(answer, [6, 1, 1, 1], 12)
    yield "short ones after a long one: lengths 6, 1, 1, 1, budget 12", long_before_short
    as_long_as_budget = _batches(answer, [2, 10, 3], 10)
    yield "a sequence as long as the budget: lengths 2, 10, 3, budget 10", as_long_as_budget
