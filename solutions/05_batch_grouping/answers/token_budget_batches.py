"""Known mistakes of exercise token_budget_batches, and right answers in other styles."""

import torch

from course.engine.known_answers import alternative

MISTAKES = {
    "real_tokens_counted": (
        "Real tokens are counted, not those of the rectangle. A batch takes sequences × longest cells.",
        ("(len(batches[-1]) + 1) * max(longest, length) > budget", "longest + length > budget"),
        ("longest = max(longest, length)", "longest += length"),
    ),
    "exact_budget_refused": (
        "A budget that is met exactly counts as exceeded. The rectangle may have `budget` cells.",
        (
            "(len(batches[-1]) + 1) * max(longest, length) > budget",
            "(len(batches[-1]) + 1) * max(longest, length) >= budget and batches[-1]",
        ),
    ),
    "checked_before_joining": (
        "The check looks at the batch without the new sequence, so the batch may grow over the budget.",
        (
            "(len(batches[-1]) + 1) * max(longest, length) > budget",
            "len(batches[-1]) * longest >= budget",
        ),
    ),
    "longest_never_forgotten": (
        "The longest sequence is remembered from earlier batches. Start again with each batch.",
        ("            longest = 0\n", ""),
    ),
    "order_ignored": (
        "The order is ignored. Go through the sequences as `order` says.",
        (" if order is None else order.tolist()", ""),
    ),
    "too_long_alone": (
        "A sequence longer than the budget gets a batch alone. It does not fit: raise ValueError.",
        ("    if int(", "    lengths = lengths.clamp(max=budget)\n    if int("),
    ),
    "last_batch_lost": (
        "The last batch is lost: append it when the sequences have run out.",
        ("return batches", "return batches[:-1]"),
    ),
    "lengths_for_indices": (
        "The batches hold lengths. Return the indices of the sequences.",
        ("append(index)", "append(length)"),
    ),
    "places_for_indices": (
        "The batches hold places in `order`. Return the indices of the sequences: what is at these places.",
        (
            "    if int(",
            "    lengths, order = lengths if order is None else lengths[order], None\n    if int(",
        ),
    ),
    "longest_without_the_new": (
        "The new sequence is counted, but not its length. If it is longer than the others, all of them grow.",
        ("max(longest, length) > budget", "longest > budget"),
    ),
    "count_without_the_new": (
        "The length of the new sequence is counted, but not the sequence: there are len(batch) + 1 of them.",
        ("(len(batches[-1]) + 1) *", "len(batches[-1]) *"),
    ),
    "width_of_the_new": (
        "You use only the length of the new sequence. A longer one in the batch still sets the width.",
        ("max(longest, length) > budget", "length > budget"),
    ),
    "first_one_not_counted": (
        "The sequence that begins a new batch is not counted in its longest. Set `longest` to its length, not to 0.",
        (
            "append([])\n            longest = 0",
            "append([index])\n            longest = 0\n            continue",
        ),
    ),
    "tensors_for_numbers": (
        "The indices of an order are tensors of one number. Return Python numbers: order.tolist().",
        ("order.tolist()", "order"),
    ),
    "always_sorted": (
        "Sorting by length is the caller's choice. Go through the sequences as `order` says.",
        ("range(len(lengths)) if order is None else order.tolist()", "lengths.argsort().tolist()"),
    ),
}


@alternative
def by_running_maxima(lengths, budget, order=None):
    if (lengths > budget).any():
        raise ValueError("too long")
    order = torch.arange(len(lengths), device=lengths.device) if order is None else order
    batches = []
    while len(order):
        longest = lengths[order].cummax(0).values
        size = int((longest * torch.ones_like(longest).cumsum(0) <= budget).sum())
        batches.append(order[:size].tolist())
        order = order[size:]
    return batches


@alternative
def current_batch_apart(lengths, budget, order=None):
    lengths = lengths.tolist()
    if max(lengths) > budget:
        raise ValueError(max(lengths))
    found, current = [], []
    for i in order.tolist() if order is not None else range(len(lengths)):
        if (len(current) + 1) * max(lengths[j] for j in [*current, i]) > budget:
            found.append(current)
            current = []
        current.append(i)
    return [*found, current]
