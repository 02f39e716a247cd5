"""Known mistakes of exercise Annotated, and right answers in other styles."""

import torch
from torch import nn

from course import grouping
from course.checks.engine import alternative, mistake


class _Right(nn.Module):
    """A right wrapper in pieces, so that each mistake can spoil one of them."""

    def __init__(self, module, inputs, outputs):
        super().__init__()
        self.module, self.per_token = module, grouping.check_shapes(inputs, outputs)

    def groups(self, lengths, thresholds):
        which = torch.bucketize(lengths, torch.tensor(thresholds, device=lengths.device))
        return [(which == g).nonzero().squeeze(1) for g in which.unique().tolist()]

    def cleared(self, x, mask):
        return x * mask.reshape(*mask.shape, *[1] * (x.dim() - 2))

    def real(self, x, mask):
        return mask

    def placed(self, output, mask, rows, cells):
        return (output[mask], cells[mask]) if self.per_token else (output, rows)

    def ordered(self, outputs, places):
        return outputs[places.argsort()]

    def forward(self, values, lengths, thresholds):
        starts, found = lengths.cumsum(0) - lengths, []
        for rows in self.groups(lengths, thresholds):
            column = torch.arange(int(lengths[rows].max()), device=values.device)
            mask = column < lengths[rows][:, None]
            cells = (starts[rows][:, None] + column).clamp(max=len(values) - 1)
            x = self.cleared(values[cells], mask)
            found.append(self.placed(self.module(x, self.real(x, mask)), mask, rows, cells))
        outputs, places = zip(*found, strict=True)
        return self.ordered(torch.cat(outputs), torch.cat(places))


@mistake("Annotated", "The outputs stand in the order of the groups. Put them back into the order of the batch.")
class OrderOfTheGroups(_Right):
    def ordered(self, outputs, places):
        return outputs


@mistake(
    "Annotated",
    "Outputs per token come back in the order of the groups' rows, not of the values. Keep each cell's place.",
)
class TokensInTheOrderOfTheGroups(_Right):
    def ordered(self, outputs, places):
        return outputs if self.per_token else outputs[places.argsort()]


@mistake("Annotated", "The groups are ignored: all sequences share one rectangle.")
class OneRectangle(_Right):
    def groups(self, lengths, thresholds):
        return [torch.arange(len(lengths), device=lengths.device)]


@mistake(
    "Annotated",
    "The wrapped module is not registered, so no optimizer finds its parameters. Keep self.module = module.",
)
class HiddenParameters(_Right):
    def __init__(self, module, inputs, outputs):
        super().__init__(module, inputs, outputs)
        del self.module
        self.kept = [module]

    def __getattr__(self, name):
        return self.__dict__["kept"][0] if name == "module" and "kept" in self.__dict__ else super().__getattr__(name)


@mistake("Annotated", "The padding of features holds the next sequence's. Set x to 0 where the mask is False.")
class DirtyFeatures(_Right):
    def cleared(self, x, mask):
        return x * mask if x.dim() == 2 else x


@mistake("Annotated", "The padding holds tokens of the next sequences. Set x to 0 where the mask is False.")
class DirtyPadding(_Right):
    def cleared(self, x, mask):
        return x


@mistake("Annotated", "Outputs per token come back with those of the padding. Keep the tokens only: output[mask].")
class PaddingComesBack(_Right):
    def placed(self, output, mask, rows, cells):
        return (output.flatten(0, 1), cells.flatten()) if self.per_token else (output, rows)


@mistake(
    "Annotated",
    "The mask is read off the tokens, but a token may be 0 like the padding. Compare columns with lengths.",
)
class MaskFromTheTokens(_Right):
    def real(self, x, mask):
        return x != 0 if x.dim() == 2 else mask


@mistake("Annotated", "Outputs per token are treated like outputs per sequence. Look at self.per_token.")
class PerTokenIgnored(_Right):
    def __init__(self, module, inputs, outputs):
        super().__init__(module, inputs, outputs)
        self.per_token = False


@mistake("Annotated", "The outputs are detached, so no gradient reaches the module. Keep them in the graph.")
class Detached(_Right):
    def placed(self, output, mask, rows, cells):
        return super().placed(output.detach().requires_grad_(), mask, rows, cells)


@alternative("Annotated")
class InPieces(_Right):
    pass


@alternative("Annotated")
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
