"""Known mistakes of exercise packed_order, and right answers in other styles."""

import torch

from course.checks.known_answers import alternative

MISTAKES = {
    "sequence_by_sequence": (
        "The tokens are ordered by sequence. A packed sequence orders them by step.",
        ("(starts + t[:, None])[mask]", "(starts[:, None] + t)[mask.T]"),
    ),
    "shortest_first": (
        "The shortest sequence comes first. The longest does, so that those that end drop out at the back.",
        ("descending=True", "descending=False"),
    ),
    "starts_of_the_sorted": (
        "The places come from sorted lengths, but `values` are in batch order. Compute the starts, then sort them.",
        ("(lengths.cumsum(0) - lengths)[order]", "lengths[order].cumsum(0) - lengths[order]"),
    ),
    "order_of_the_batch": (
        "The sequences are in the order of the batch. Sort them by falling length first.",
        ("lengths.argsort(descending=True, stable=True)", "slice(None)"),
    ),
    "lengths_as_batch_sizes": (
        "batch_sizes holds the lengths of the sequences. It says how many sequences are still going at each step.",
        ("mask.sum(1)", "lengths[order]"),
    ),
    "equal_ones_turned_round": (
        "Sequences of equal length change their order. Sort stably.",
        ("lengths.argsort(descending=True, stable=True)", "lengths.argsort(stable=True).flip(0)"),
    ),
    "sorted_sequences": (
        "The sequences come one after the other, with their lengths. Go column by column: first all first tokens.",
        ("(starts + t[:, None])[mask]", "(starts[:, None] + t)[mask.T]"),
        ("mask.sum(1)", "lengths[order]"),
    ),
    "padding_kept": (
        "The padding is still there. Sequences that have ended drop out.",
        (
            "values[(starts + t[:, None])[mask]]",
            "(values[(starts + t[:, None]).clamp(max=len(values) - 1)] * mask).flatten()",
        ),
    ),
    "one_step_too_long": (
        "batch_sizes counts a sequence once more after it has ended: compare length > t, t from 0.",
        ("mask.sum(1)", "(t[:, None] <= lengths).sum(1)"),
    ),
    "added_up": (
        "batch_sizes is added up. It says how many sequences have a token at each place.",
        ("mask.sum(1)", "mask.sum(1).cumsum(0)"),
    ),
}


@alternative
def plain_python(values, lengths):
    pieces = sorted(values.split(lengths.tolist()), key=len, reverse=True)
    steps = [[piece[t] for piece in pieces if len(piece) > t] for t in range(len(pieces[0]))]
    data = torch.stack([token for step in steps for token in step])
    return data, torch.tensor([len(step) for step in steps], device=values.device)


@alternative
def sorted_by_step_then_length(values, lengths):
    total = len(values)
    owner = torch.arange(len(lengths), device=values.device).repeat_interleave(lengths)
    step = torch.arange(total, device=values.device) - (lengths.cumsum(0) - lengths)[owner]
    rank = torch.empty_like(lengths)
    rank[lengths.argsort(descending=True, stable=True)] = torch.arange(len(lengths), device=values.device)
    return values[(step * len(lengths) + rank[owner]).argsort()], torch.bincount(step)
