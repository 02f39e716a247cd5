"""Probe of exercise Annotated."""

import torch
from torch import nn

from course.checks.batch_grouping.ragged import batch, some_lengths
from course.checks.engine import exercise


class _Notes:
    """What modules note: the shapes that they were called with, what stood in the padding the last time."""

    def __init__(self):
        self.shapes, self.padding = [], None

    def note(self, shape, padding):
        self.shapes.append(shape)
        self.padding = padding


class _PerRow(nn.Module):
    """A weighted sum of the tokens of a row, which notes how it is called."""

    def __init__(self, notes):
        super().__init__()
        self.weight = nn.Parameter(torch.linspace(-1, 1, 8))
        self.note = notes.note

    def forward(self, x, mask):
        self.note(tuple(x.shape), x[~mask])
        return (self.weight[x] * mask).sum(1)


class _PerToken(_PerRow):
    """Each token's weight plus the sum of its row's weights."""

    def forward(self, x, mask):
        own = self.weight[x] * mask
        return own + own.sum(1, keepdim=True)


class _Wide(nn.Module):
    """The largest of each feature over the tokens of a row, which notes how it is called."""

    def __init__(self, notes):
        super().__init__()
        self.note = notes.note

    def forward(self, x, mask):
        self.note(tuple(x.shape), x[~mask])
        return x.masked_fill(~mask[..., None], float("-inf")).amax(1)


class _Doubled(nn.Module):
    """Twice each token."""

    def forward(self, x, mask):
        return 2 * x


@exercise()
def Annotated(answer, device, seed):
    """A module behind shapes: outputs per sequence, outputs per token, inputs with features."""
    rng = torch.Generator().manual_seed(seed)
    values, lengths = batch(rng, some_lengths(rng, 9 + seed % 4, 16), device=device)
    seen, seen_wide = _Notes(), _Notes()
    per_row = _PerRow(seen).to(device)
    wrapped = answer(per_row, "(b, l_seq)", "(b)")
    yield "is a module whose parameters are those of the wrapped one", [tuple(p.shape) for p in wrapped.parameters()]
    yield "an output per sequence", wrapped(values, lengths, [3, 8, 16])
    yield "the module runs once per group", sorted(seen.shapes)
    wrapped(values, lengths, [16])
    yield "padding is 0", seen.padding
    yield "a group may be empty", wrapped(values, lengths, [16, 20, 30])
    yield "tokens of value 0 are tokens like others", wrapped(torch.zeros_like(values), lengths, [3, 8, 16])
    per_token = answer(_PerToken(_Notes()).to(device), "(b, l_seq)", "(b, l_seq)")
    yield (
        "an output per token comes back flat, without padding, in the order of the values",
        per_token(values, lengths, [3, 8, 16]),
    )
    features, wide = torch.randn(len(values), 4, generator=rng).to(device), _Wide(seen_wide)
    yield "tokens with features", answer(wide, "(b, l_time, d)", "(b, d)")(features, lengths, [5, 16])
    yield "padding is 0 in every feature", seen_wide.padding
    doubled = answer(_Doubled(), "(b, l_time, d)", "(b, l_time, d)")
    yield "an output with features per token", doubled(features, lengths, [5, 16])
    wrapped(values, lengths, [4, 16]).square().sum().backward()
    yield "gradients reach the wrapped module", per_row.weight.grad
