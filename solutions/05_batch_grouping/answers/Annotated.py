"""Known mistakes of exercise Annotated, and right answers in other styles."""

import torch
from torch import nn

from course.checks.known_answers import alternative
from course.training import grouping

MISTAKES = {
    "OrderOfTheGroups": (
        "The outputs are in the order of the groups. Put them back into the order of the batch.",
        ("torch.empty_like(outputs).index_copy(0, torch.cat(places), outputs)", "outputs"),
    ),
    "TokensInTheOrderOfTheGroups": (
        "Outputs per token come back in the order of the groups' rows, not of the values. Keep each cell's place.",
        ("return torch", "return outputs if self.per_token else torch"),
    ),
    "OneRectangle": (
        "The groups are ignored: all sequences share one rectangle.",
        ("in groups:", "in [torch.cat(groups)]:"),
    ),
    "HiddenParameters": (
        "The wrapped module is not registered, so no optimizer finds its parameters. Keep self.module = module.",
        ("self.module = module", "self.kept = [module]"),
        ("self.module(", "self.kept[0]("),
    ),
    "DirtyFeatures": (
        "The padding of features holds the next sequence's. Set x to 0 where the mask is False.",
        ("x[~mask] = 0", "x[~mask] *= x.dim() > 2"),
    ),
    "DirtyPadding": (
        "The padding holds tokens of the next sequences. Set x to 0 where the mask is False.",
        ("            x[~mask] = 0\n", ""),
    ),
    "PaddingComesBack": (
        "Outputs per token come back with those of the padding. Keep the tokens only: output[mask].",
        ("output[mask] if", "output.flatten(0, 1) if"),
        ("place[mask] if", "place.flatten() if"),
        ("torch.empty_like(outputs).index_copy(0, torch.cat(places), outputs)", "outputs[torch.cat(places).argsort()]"),
    ),
    "MaskFromTheTokens": (
        "The mask is read off the tokens, but a token may be 0 like the padding. Compare columns with lengths.",
        ("self.module(x, mask)", "self.module(x, x != 0 if x.dim() == 2 else mask)"),
    ),
    "PerTokenIgnored": (
        "Outputs per token are treated like outputs per sequence. Look at self.per_token.",
        ("check_shapes(inputs, outputs)", "check_shapes(inputs, outputs) and False"),
    ),
    "Detached": (
        "The outputs are detached, so no gradient reaches the module. Keep them in the graph.",
        ("self.module(x, mask)", "self.module(x, mask).detach().requires_grad_()"),
    ),
}


@alternative
class RectangleFirst(nn.Module):
    def __init__(self, module, inputs, outputs):
        super().__init__()
        self.inner, self.ragged = module, grouping.check_shapes(inputs, outputs)

    def forward(self, values, lengths, thresholds):
        mask = torch.arange(int(lengths.max()), device=values.device) < lengths[:, None]
        x = values.new_zeros((*mask.shape, *values.shape[1:]))
        x[mask] = values
        result, low = None, 0
        for high in thresholds:
            rows = ((lengths > low) & (lengths <= high)).nonzero().squeeze(1)
            low = high
            if not len(rows):
                continue
            longest = int(lengths[rows].max())
            output = self.inner(x[rows, :longest], mask[rows, :longest])
            if self.ragged:
                output = torch.nn.functional.pad(output, (0, 0) * (output.dim() - 2) + (0, mask.shape[1] - longest))
            if result is None:
                result = output.new_zeros((len(lengths), *output.shape[1:]))
            result = result.index_copy(0, rows, output)
        return result[mask] if self.ragged else result


@alternative
class SortedBack(nn.Module):
    def __init__(self, module, inputs, outputs):
        super().__init__()
        self.module, self.per_token = module, grouping.check_shapes(inputs, outputs)

    def forward(self, values, lengths, thresholds):
        which = torch.bucketize(lengths, torch.tensor(thresholds, device=lengths.device))
        starts, found = lengths.cumsum(0) - lengths, []
        for rows in [(which == g).nonzero().squeeze(1) for g in which.unique().tolist()]:
            column = torch.arange(int(lengths[rows].max()), device=values.device)
            mask = column < lengths[rows][:, None]
            cells = (starts[rows][:, None] + column).clamp(max=len(values) - 1)
            output = self.module(values[cells] * mask.reshape(*mask.shape, *[1] * (values.dim() - 1)), mask)
            found.append((output[mask], cells[mask]) if self.per_token else (output, rows))
        outputs, places = zip(*found, strict=True)
        return torch.cat(outputs)[torch.cat(places).argsort()]
