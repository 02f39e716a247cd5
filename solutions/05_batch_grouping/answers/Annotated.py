"""Known mistakes of exercise Annotated, and right answers in other styles."""

import re

import torch
from torch import nn

from course.checks.engine import alternative, mistake


class _Right(nn.Module):
    """A right wrapper in pieces, so that each mistake can spoil one of them."""

    def __init__(self, module, inputs, outputs):
        super().__init__()
        given, gives = self.parsed(inputs), self.parsed(outputs)
        lengths = [name for name in given if name.startswith("l_")]
        self.check(given, gives, lengths)
        self.module, self.per_token = module, bool(lengths) and gives[1:2] == lengths

    def parsed(self, text):
        found = re.fullmatch(r"\(\s*(b(?:\s*,\s*\w+)*)\s*\)", text.strip())
        if not found:
            raise ValueError(text)
        return [name.strip() for name in found[1].split(",")]

    def check(self, given, gives, lengths):
        if len(lengths) != 1 or given[1] != lengths[0] or {n for n in gives if n[:2] == "l_"} - {*lengths}:
            raise ValueError("annotation")

    def groups(self, lengths, thresholds):
        which = torch.bucketize(lengths, torch.tensor(thresholds, device=lengths.device))
        return [(which == g).nonzero().squeeze(1) for g in which.unique().tolist()]

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
            x = values[cells]
            keep = mask.reshape(*mask.shape, *[1] * (x.dim() - 2))
            found.append(self.placed(self.module(x * keep, mask), mask, rows, cells))
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
    "The wrapped module is hidden in a list, so its parameters are not the wrapper's. Assign it to self.",
)
class HiddenParameters(_Right):
    def __init__(self, module, inputs, outputs):
        super().__init__(module, inputs, outputs)
        del self.module
        self.kept = [module]

    def __getattr__(self, name):
        return self.__dict__["kept"][0] if name == "module" and "kept" in self.__dict__ else super().__getattr__(name)


@mistake("Annotated", "Two lengths in the input pass. One batch has one length per sequence here: raise ValueError.")
class TwoLengthsPass(_Right):
    def check(self, given, gives, lengths):
        if not lengths or given[1] != lengths[0] or {n for n in gives if n[:2] == "l_"} - {*lengths}:
            raise ValueError("annotation")


@mistake(
    "Annotated",
    "An output with a length that the input has not passes. Nothing says how long it is: raise ValueError.",
)
class OtherLengthPasses(_Right):
    def check(self, given, gives, lengths):
        if len(lengths) != 1 or given[1] != lengths[0]:
            raise ValueError("annotation")


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
        shapes = []
        for text in (inputs, outputs):
            text = text.replace(" ", "")
            if not (text.startswith("(b,") or text == "(b)") or not text.endswith(")"):
                raise ValueError(text)
            shapes.append(text[1:-1].split(","))
        given, gives = shapes
        if [name[:2] == "l_" for name in given[1:]] != [True] + [False] * (len(given) - 2):
            raise ValueError(inputs)
        ragged = [name for name in gives if name.startswith("l_")]
        if ragged not in ([], [given[1]]):
            raise ValueError(outputs)
        self.inner, self.ragged = module, bool(ragged)

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
