"""Probe of exercise run_grouped."""

import torch
from torch import nn

from course.checks.batch_grouping.ragged import (
    batch,
    loops_over_sequences,
    operations,
    some_lengths,
)
from course.engine.exercise import Answer, Facts, exercise


def _sums(x, mask):
    """Two numbers per row: of its tokens, weighted by their place, and how many they are."""
    weights = torch.arange(1, x.shape[1] + 1, device=x.device)
    return torch.stack([(x * weights * mask).sum(1), mask.sum(1)], 1).float()


def _sorted_rows(seen):
    """The rows (x, mask) of each call, sorted: in a group any order is right, and argsort has its
    own on a GPU.
    """
    return [sorted(zip(x.tolist(), mask.tolist(), strict=False)) for x, mask in seen]


class _Weighted(nn.Module):
    """The sum of the weights of a row's tokens."""

    def __init__(self, weight):
        super().__init__()
        self.weight = nn.Parameter(weight)

    def forward(self, x, mask):
        return (self.weight[x] * mask).sum(1)


@exercise()
def run_grouped(answer: Answer, device: torch.device, seed: int) -> Facts:
    """Outputs in the order of the batch, from a module that notes what it is called with."""
    rng = torch.Generator().manual_seed(seed)
    sizes = some_lengths(rng, 11 + seed % 4, 16)
    sizes[0] = 3  # as long as the first threshold
    sizes[-1] = 1  # behind the longest one: the order of groups is never that of the batch
    values, lengths = batch(rng, sizes, device=device)
    limits, seen = [3, 8, 20], []

    def noting(x, mask):
        seen.append((x, mask))
        return _sums(x, mask)

    outputs = answer(noting, values, lengths, limits)
    yield "returns a row per sequence, which group_by_length puts into one group", outputs.shape
    yield "the module is called once per group that has a sequence", len(seen)
    yield (
        "each call gets the sequences of one group, made by group_by_length",
        sorted(len(x) for x, _ in seen),
    )
    yield "each group is padded to its own longest sequence", sorted(x.shape[1] for x, _ in seen)
    rows = _sorted_rows(seen)
    yield (
        "each call gets the tokens of its rows, padded with 0",
        [[x for x, _ in group] for group in rows],
    )
    yield "each call gets the mask of its rows", [[mask for _, mask in group] for group in rows]
    yield "outputs are in the order of the batch", outputs
    weighted = _Weighted(torch.randn(8, generator=rng).to(device))
    scale = torch.arange(1.0, len(lengths) + 1, device=device)
    (answer(weighted, values, lengths, limits) * scale).sum().backward()
    yield "gradients reach the weights", weighted.weight.grad
    yield (
        "outputs of one number per row",
        answer(lambda x, mask: mask.sum(1).float(), values, lengths, limits),
    )
    seen.clear()
    answer(noting, torch.zeros_like(values), lengths, limits)
    yield (
        "tokens of value 0 are tokens like others",
        [[mask for _, mask in group] for group in _sorted_rows(seen)],
    )
    seen.clear()
    short = torch.full((3,), 2, device=device)
    yield (
        "groups without a sequence are not run",
        (answer(noting, values[:6], short, limits), len(seen)),
    )
    few, many = (
        operations(lambda v, n: answer(_sums, v, n, [4, 64]), [2, 5, 64] * times)
        for times in (3, 36)
    )
    yield "twelve times the sequences take no more operations", many <= few + 2
    loops = many > few + 2 or loops_over_sequences(lambda v, n: answer(_sums, v, n, [1, 2, 3]))
    yield "no Python loop over the sequences", not loops
