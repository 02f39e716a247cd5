"""Known mistakes of exercise run_grouped, and right answers in other styles."""

import torch

from course.engine.known_answers import alternative

MISTAKES = {
    "groups_lack_sequences": (
        "Some sequences are in no group, so they have no output. Check your group_by_length, then your loop.",
        (
            "in group_by_length(lengths, thresholds)",
            "in [m[lengths[m] < t] for m, t in zip(group_by_length(lengths, thresholds), thresholds)]",
        ),
    ),
    "border_in_the_next_group": (
        "A sequence as long as a threshold is in the group after it. Correct your group_by_length: it belongs to that "
        "threshold's group.",
        (
            "group_by_length(lengths, thresholds)",
            "group_by_length(lengths + 1, [*thresholds[:-1], thresholds[-1] + 1])",
        ),
    ),
    "group_without_a_dimension": (
        "A group of one sequence is a number without a dimension. Correct your group_by_length: squeeze(1), not "
        "squeeze().",
        (
            "in group_by_length(lengths, thresholds)",
            "in [m.squeeze() for m in group_by_length(lengths, thresholds)]",
        ),
    ),
    "place_not_clamped": (
        "`place` runs past the end of `values` where the last sequence is padded. Clamp it, then set padding to 0.",
        (".clamp(max=len(values) - 1)", ""),
    ),
    "order_of_the_groups": (
        "The outputs are in the order of the groups. Put each row back to its place in the batch.",
        ("torch.empty_like(outputs).index_copy(0, torch.cat(groups), outputs)", "outputs"),
    ),
    "order_applied_twice": (
        "outputs[order] reorders once more; outputs[order.argsort()] or index_copy(0, order, outputs) undoes it.",
        (
            "torch.empty_like(outputs).index_copy(0, torch.cat(groups), outputs)",
            "outputs[torch.cat(groups)]",
        ),
    ),
    "padded_to_the_threshold": (
        "Each group is padded to its threshold. Its own longest sequence is enough, and may be shorter.",
        (
            "int(lengths[members].max())",
            "min(t for t in thresholds if t >= lengths[members].max())",
        ),
    ),
    "padded_to_the_longest_of_all": (
        "Every group is padded to the longest sequence of the batch, so no padding is removed.",
        ("lengths[members].max()", "lengths.max()"),
    ),
    "one_call_per_sequence": (
        "Each sequence is run by itself: one call per sequence. Call the module once per group.",
        ("in groups:", "in torch.cat(groups).split(1):"),
    ),
    "padding_is_not_zero": (
        "The padding holds tokens of the next sequences. Set them to 0 where the mask is False.",
        (".masked_fill(~mask, 0)", ""),
    ),
    "detached": (
        "The outputs are detached, so no gradient reaches the model. Keep them in the graph.",
        ("torch.cat(outputs)", "torch.cat(outputs).detach().requires_grad_()"),
    ),
    "split_into_sequences": (
        "There is a loop over the sequences: operations grow with their number. Index all cells of a group in one "
        "call.",
        ("    outputs = []", "    outputs, pieces = [], values.split(lengths.tolist())"),
        (
            "values[place.clamp(max=len(values) - 1)].masked_fill(~mask, 0)",
            "torch.nn.utils.rnn.pad_sequence([pieces[i] for i in members], batch_first=True)",
        ),
    ),
    "loops_over_lists": (
        "There is a Python loop over the sequences, if only over lists. Index all cells of a group in one call.",
        ("    outputs = []", "    outputs, tokens = [], values.tolist()"),
        (
            "values[place.clamp(max=len(values) - 1)]",
            "torch.tensor([[(tokens + [0] * 64)[i] for i in row] for row in place.tolist()]).to(values.device)",
        ),
    ),
    "starts_at_the_ends": (
        "`starts` holds the sequences' ends: cumsum alone. Subtract the lengths, so each begins where the last ends.",
        ("cumsum(0) - lengths", "cumsum(0)"),
    ),
    "mask_from_the_tokens": (
        "You make the mask from the tokens, but a token may be 0 like the padding. Compare columns with lengths.",
        ("module(x, mask)", "module(x, mask & (x != 0))"),
    ),
    "inverted_mask": (
        "The mask is inverted: it is True at the padding. It must be True at tokens.",
        ("module(x, mask)", "module(x, ~mask)"),
    ),
}


@alternative
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


@alternative
def sorted_back(module, values, lengths, thresholds):
    which = torch.bucketize(lengths, torch.tensor(thresholds, device=lengths.device))
    starts, order, outputs = lengths.cumsum(0) - lengths, which.argsort(), []
    for rows in order.split(which.unique(return_counts=True)[1].tolist()):
        column = torch.arange(int(lengths[rows].max()), device=values.device)
        mask = column < lengths[rows][:, None]
        cells = (starts[rows][:, None] + column).clamp(max=len(values) - 1)
        outputs.append(module(values[cells] * mask, mask))
    return torch.cat(outputs)[order.argsort()]
