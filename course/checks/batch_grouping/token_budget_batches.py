"""Probe of exercise token_budget_batches."""

import torch

from course.checks.batch_grouping.ragged import raised
from course.checks.engine import exercise


@exercise(isolated=True)
def token_budget_batches(answer, device, seed):
    """Batches of at most so many padded tokens."""
    rng = torch.Generator().manual_seed(seed)
    lengths = torch.randint(1, 40, (50 + seed % 7,), generator=rng)
    found = [[int(i) for i in batch] for batch in answer(lengths, 100)]
    yield "every index once, in order", [i for batch in found for i in batch]
    yield "padded tokens of each batch", [len(b) * max(int(lengths[i]) for i in b) for b in found]
    yield "the batches", found
    order = lengths.argsort()
    yield "in another order", [[int(i) for i in batch] for batch in answer(lengths, 100, order)]
    yield "a budget that is met exactly", [list(map(int, b)) for b in answer(torch.tensor([5, 5, 5, 5, 5]), 10)]
    yield (
        "a long sequence closes the batch before it",
        [list(map(int, b)) for b in answer(torch.tensor([1, 1, 1, 9, 1, 1]), 10)],
    )
    yield "one batch for all", [list(map(int, b)) for b in answer(torch.tensor([2, 3]), 1000)]
    yield (
        "a sequence as long as the budget has a batch of its own",
        [list(map(int, b)) for b in answer(torch.tensor([2, 10, 3]), 10)],
    )
    yield "a sequence longer than the budget raises ValueError", raised(lambda: answer(torch.tensor([3, 101]), 100))
