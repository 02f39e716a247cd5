"""Probe of exercise run_grouped."""

from typing import Any

import torch
from torch import nn

from course.checks.batch_grouping.ragged import (
    batch,
    loops_over_sequences,
    operations,
    some_lengths,
)
from course.engine.exercise import Answer, Facts, exercise
from course.engine.probing.laws import tried


def _sums(x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """Two numbers per row: of its tokens, weighted by their place, and how many they are."""
    weights = torch.arange(1, x.shape[1] + 1, device=x.device)
    return torch.stack([(x * weights * mask).sum(1), mask.sum(1)], 1).float()


class _Noting:
    """`_sums` as a module that keeps the (x, mask) of each call in `seen`."""

    def __init__(self) -> None:
        self.seen = []

    def __call__(self, x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        self.seen.append((x, mask))
        return _sums(x, mask)

    def tokens_and_masks(self) -> tuple[list, list]:
        """The rows of each call, sorted, as a list per group: their tokens, and their masks.

        In a group any order is right, and argsort has its own on a GPU.
        """
        tokens = []
        masks = []
        for x, mask in self.seen:
            tokens.append([])
            masks.append([])
            for row, row_mask in sorted(zip(x.tolist(), mask.tolist(), strict=False)):
                tokens[-1].append(row)
                masks[-1].append(row_mask)
        return tokens, masks


class _Weighted(nn.Module):
    """The sum of the weights of a row's tokens."""

    def __init__(self, weight: torch.Tensor) -> None:
        super().__init__()
        self.weight = nn.Parameter(weight)

    def forward(self, x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        return (self.weight[x] * mask).sum(1)


def _counts(x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """How many tokens each row has."""
    return mask.sum(1).float()


@exercise()
def run_grouped(answer: Answer, device: torch.device, seed: int) -> Facts:
    """Outputs in the order of the batch, from a module that notes what it is called with."""
    rng = torch.Generator().manual_seed(seed)
    sizes = some_lengths(rng, 11 + seed % 4, 16)
    sizes[0] = 3  # as long as the first threshold
    sizes[-1] = 1  # behind the longest one: the order of groups is never that of the batch
    values, lengths = batch(rng, sizes, device=device)
    limits = [3, 8, 20]
    yield from _calls(answer, values, lengths, limits)
    alone = torch.tensor([2, 9, 3], device=device)
    yield "a group of a single sequence", answer(_sums, values[:14], alone, [3, 20])
    weighted = _Weighted(torch.randn(8, generator=rng).to(device))
    scale = torch.arange(1.0, len(lengths) + 1, device=device)
    (answer(weighted, values, lengths, limits) * scale).sum().backward()
    yield "gradients reach the weights", weighted.weight.grad
    yield "outputs of one number per row", answer(_counts, values, lengths, limits)
    module = _Noting()
    answer(module, torch.zeros_like(values), lengths, limits)
    _, masks = module.tokens_and_masks()
    yield "tokens of value 0 are tokens like others", masks
    module = _Noting()
    short = torch.full((3,), 2, device=device)
    outputs = answer(module, values[:6], short, limits)
    yield "groups without a sequence are not run", (outputs, len(module.seen))
    yield from _work(answer, sizes)


def _calls(answer: Answer, values: torch.Tensor, lengths: torch.Tensor, limits: list[int]) -> Facts:
    """What the module is called with, and the order of its outputs."""
    module = _Noting()
    outputs = answer(module, values, lengths, limits)
    seen = module.seen
    yield "returns a row per sequence", outputs.shape
    yield "the module is called once per group that has a sequence", len(seen)
    rows = []
    columns = []
    for x, _ in seen:
        rows.append(len(x))
        columns.append(x.shape[1])
    yield "each call gets the sequences of one group of group_by_length", sorted(rows)
    yield "each group is padded to its own longest sequence", sorted(columns)
    tokens, masks = module.tokens_and_masks()
    yield "each call gets the tokens of its rows, padded with 0", tokens
    yield "each call gets the mask of its rows", masks
    yield "outputs are in the order of the batch", outputs


def _work(answer: Answer, sizes: list[int]) -> Facts:
    """How much work many sequences take; the answer is right for those of these `sizes`."""

    def with_two_limits(values: torch.Tensor, lengths: torch.Tensor) -> Any:
        return answer(_sums, values, lengths, [4, 64])

    def with_three_limits(values: torch.Tensor, lengths: torch.Tensor) -> Any:
        return answer(_sums, values, lengths, [1, 2, 3])

    few = operations(with_two_limits, [2, 5, 64] * 3)
    many = operations(with_two_limits, [2, 5, 64] * 36)
    yield "twelve times the sequences take no more operations", tried(many <= few + 2, sizes)
    loops = many > few + 2 or loops_over_sequences(with_three_limits)
    yield "no Python loop over the sequences", tried(not loops, sizes)
