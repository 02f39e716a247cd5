"""Known mistakes of exercise run_grouped, and right answers in other styles."""

import torch
from torch.nn.utils.rnn import pad_sequence

from course.checks.engine import alternative, mistake


def _groups(lengths, thresholds):
    which = torch.bucketize(lengths, torch.tensor(thresholds, device=lengths.device))
    return [(which == g).nonzero().squeeze(1) for g in range(len(thresholds)) if bool((which == g).any())]


def _padded(values, lengths, rows, longest=None):
    place = torch.arange(longest or int(lengths[rows].max()), device=values.device)
    mask = place < lengths[rows][:, None]
    starts = lengths.cumsum(0) - lengths
    cells = (starts[rows][:, None] + place).clamp(max=len(values) - 1)
    return values[cells] * mask, mask


def _back(outputs, groups):
    return torch.cat(outputs)[torch.cat(groups).argsort()]


@mistake("run_grouped", "The outputs stand in the order of the groups. Put each row back to its place in the batch.")
def order_of_the_groups(module, values, lengths, thresholds):
    return torch.cat([module(*_padded(values, lengths, rows)) for rows in _groups(lengths, thresholds)])


@mistake(
    "run_grouped",
    "outputs[order] reorders once more; outputs[order.argsort()] or index_copy(0, order, outputs) undoes it.",
)
def order_applied_twice(module, values, lengths, thresholds):
    groups = _groups(lengths, thresholds)
    return torch.cat([module(*_padded(values, lengths, rows)) for rows in groups])[torch.cat(groups)]


@mistake(
    "run_grouped",
    "Each group is padded to its threshold. Its own longest sequence is enough, and may be shorter.",
)
def padded_to_the_threshold(module, values, lengths, thresholds):
    groups = _groups(lengths, thresholds)
    limits = [next(t for t in thresholds if int(lengths[rows].max()) <= t) for rows in groups]
    outputs = [module(*_padded(values, lengths, rows, t)) for rows, t in zip(groups, limits, strict=True)]
    return _back(outputs, groups)


@mistake("run_grouped", "Every group is padded to the longest sequence of the batch, so no padding is removed.")
def padded_to_the_longest_of_all(module, values, lengths, thresholds):
    groups = _groups(lengths, thresholds)
    return _back([module(*_padded(values, lengths, rows, int(lengths.max()))) for rows in groups], groups)


@mistake("run_grouped", "Each sequence is run by itself: one call per sequence. Call the module once per group.")
def one_call_per_sequence(module, values, lengths, thresholds):
    _groups(lengths, thresholds)
    rows = torch.arange(len(lengths), device=lengths.device).split(1)
    return torch.cat([module(*_padded(values, lengths, row)) for row in rows])


@mistake("run_grouped", "The padding holds tokens of the next sequences. Set them to 0 where the mask is False.")
def padding_is_not_zero(module, values, lengths, thresholds):
    groups, starts, outputs = _groups(lengths, thresholds), lengths.cumsum(0) - lengths, []
    for rows in groups:
        place = torch.arange(int(lengths[rows].max()), device=values.device)
        cells = (starts[rows][:, None] + place).clamp(max=len(values) - 1)
        outputs.append(module(values[cells], place < lengths[rows][:, None]))
    return _back(outputs, groups)


@mistake("run_grouped", "The outputs are detached, so no gradient reaches the model. Keep them in the graph.")
def detached(module, values, lengths, thresholds):
    groups = _groups(lengths, thresholds)
    found = _back([module(*_padded(values, lengths, rows)).detach() for rows in groups], groups)
    return found.requires_grad_()


@mistake(
    "run_grouped",
    "There is a loop over the sequences: operations grow with their number. Index all cells of a group at once.",
)
def split_into_sequences(module, values, lengths, thresholds):
    groups, pieces = _groups(lengths, thresholds), values.split(lengths.tolist())
    outputs = []
    for rows in groups:
        own = [pieces[row] for row in rows.tolist()]
        masks = [torch.ones_like(piece, dtype=torch.bool) for piece in own]
        outputs.append(module(pad_sequence(own, batch_first=True), pad_sequence(masks, batch_first=True)))
    return _back(outputs, groups)


@mistake(
    "run_grouped",
    "There is a Python loop over the sequences, if only over lists. Index all cells of a group at once.",
)
def loops_over_lists(module, values, lengths, thresholds):
    groups, tokens, counts = _groups(lengths, thresholds), values.tolist(), lengths.tolist()
    starts = (lengths.cumsum(0) - lengths).tolist()
    outputs = []
    for rows in groups:
        longest, x, mask = int(lengths[rows].max()), [], []
        for i in rows.tolist():
            x.append(tokens[starts[i] : starts[i] + counts[i]] + [0] * (longest - counts[i]))
            mask.append([True] * counts[i] + [False] * (longest - counts[i]))
        outputs.append(module(torch.tensor(x, device=values.device), torch.tensor(mask, device=values.device)))
    return _back(outputs, groups)


@mistake(
    "run_grouped",
    "`starts` holds the ends of the sequences: cumsum alone. Subtract the lengths, so each begins where the last ends.",
)
def starts_at_the_ends(module, values, lengths, thresholds):
    groups, outputs = _groups(lengths, thresholds), []
    for rows in groups:
        place = torch.arange(int(lengths[rows].max()), device=values.device)
        mask = place < lengths[rows][:, None]
        cells = (lengths.cumsum(0)[rows][:, None] + place).clamp(max=len(values) - 1)
        outputs.append(module(values[cells] * mask, mask))
    return _back(outputs, groups)


@mistake(
    "run_grouped",
    "The mask is read off the tokens, but a token may be 0 like the padding. Compare columns with lengths.",
)
def mask_from_the_tokens(module, values, lengths, thresholds):
    groups = _groups(lengths, thresholds)
    padded = [_padded(values, lengths, rows)[0] for rows in groups]
    return _back([module(x, x != 0) for x in padded], groups)


@mistake("run_grouped", "The mask is inverted: it is True at the padding. It must be True where a token stands.")
def inverted_mask(module, values, lengths, thresholds):
    groups, outputs = _groups(lengths, thresholds), []
    for rows in groups:
        x, mask = _padded(values, lengths, rows)
        outputs.append(module(x, ~mask))
    return _back(outputs, groups)


@alternative("run_grouped")
def sorted_back(module, values, lengths, thresholds):
    groups = _groups(lengths, thresholds)
    outputs = torch.cat([module(*_padded(values, lengths, rows)) for rows in groups])
    back = torch.empty(len(lengths), dtype=torch.int64, device=lengths.device)
    back[torch.cat(groups)] = torch.arange(len(lengths), device=lengths.device)
    return outputs[back]


@alternative("run_grouped")
def rectangle_first(module, values, lengths, thresholds):
    place = torch.arange(int(lengths.max()), device=values.device)
    mask = place < lengths[:, None]
    x = values.new_zeros(mask.shape)
    x[mask] = values
    result, low = None, 0
    for high in thresholds:
        rows = torch.where((lengths > low) & (lengths <= high))[0]
        low = high
        if len(rows):
            longest = int(lengths[rows].max())
            output = module(x[rows, :longest], mask[rows, :longest])
            if result is None:
                result = output.new_zeros((len(lengths), *output.shape[1:]))
            result = result.index_copy(0, rows, output)
    return result
