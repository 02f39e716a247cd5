"""Probe of exercise Annotated."""

import torch
from torch import nn

from course.checks.batch_grouping.ragged import batch, some_lengths
from course.checks.engine import exercise


class _Module(nn.Module):
    """`compute(x, mask, weight)`; notes the shapes it was called with, and what was in the padding the last time."""

    def __init__(self, compute):
        super().__init__()
        self.weight = nn.Parameter(torch.linspace(-1, 1, 8))
        self.compute, self.shapes, self.padding = compute, [], None

    def forward(self, x, mask):
        self.shapes.append(tuple(x.shape))
        self.padding = x[~mask]
        return self.compute(x, mask, self.weight)


def _row_sums(x, mask, weight):
    return (weight[x] * mask).sum(1)


def _weights_and_row_sums(x, mask, weight):
    return weight[x] * mask + _row_sums(x, mask, weight)[:, None]


def _row_maxima(x, mask, weight):
    return x.masked_fill(~mask[..., None], float("-inf")).amax(1)


def _doubled(x, mask, weight):
    return 2 * x


@exercise()
def Annotated(answer, device, seed):
    """A module behind shapes: outputs per sequence, outputs per token, inputs with features."""
    rng = torch.Generator().manual_seed(seed)
    sizes = some_lengths(rng, 9 + seed % 4, 16)
    sizes[-1] = 1  # behind the longest one: the order of groups is never that of the batch
    values, lengths = batch(rng, sizes, device=device)
    per_row, per_token, wide, doubled = (
        _Module(compute).to(device) for compute in (_row_sums, _weights_and_row_sums, _row_maxima, _doubled)
    )
    wrapped = answer(per_row, "(b, l_seq)", "(b)")
    yield "is a module whose parameters are those of the wrapped one", [tuple(p.shape) for p in wrapped.parameters()]
    yield "an output per sequence", wrapped(values, lengths, [3, 8, 16])
    yield "the module runs once per group", sorted(per_row.shapes)
    wrapped(values, lengths, [16])
    yield "padding is 0", per_row.padding
    yield "a group may be empty", wrapped(values, lengths, [16, 20, 30])
    yield "tokens of value 0 are tokens like others", wrapped(torch.zeros_like(values), lengths, [3, 8, 16])
    flat = answer(per_token, "(b, l_seq)", "(b, l_seq)")(values, lengths, [3, 8, 16])
    yield "an output per token comes back flat, without padding, in the order of the values", flat
    features = torch.randn(len(values), 4, generator=rng).to(device)
    yield "tokens with features", answer(wide, "(b, l_time, d)", "(b, d)")(features, lengths, [5, 16])
    yield "padding is 0 in every feature", wide.padding
    twice = answer(doubled, "(b, l_time, d)", "(b, l_time, d)")
    yield "an output with features per token", twice(features, lengths, [5, 16])
    wrapped(values, lengths, [4, 16]).square().sum().backward()
    yield "gradients reach the wrapped module", per_row.weight.grad
