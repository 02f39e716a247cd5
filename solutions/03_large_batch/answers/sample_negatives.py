"""Known mistakes of exercise sample_negatives, and right answers in other styles."""

import torch

from course.engine.known_answers import alternative

MISTAKES = {
    "never_looked_up": (
        "Items are drawn and never looked up in `seen`, so some negatives are positives. Draw those again.",
        ("while len(again)", "while False"),
    ),
    "drawn_twice": (
        "Hits are drawn a second time only, and the second draw can hit too. Repeat while any row hits.",
        ("while len", "if len"),
    ),
    "next_free_item": (
        "A hit moves on to the next unseen item, which is then drawn too often. Draw again instead.",
        (
            "torch.empty_like(again).random_(n_items, generator=generator)",
            "(items[again] + 1) % n_items",
        ),
    ),
    "generator_ignored": (
        "Not every draw uses the generator, so no state can repeat them. Pass it to every torch.randint.",
        ("(again).random_(n_items, generator=generator)", "(again).random_(n_items)"),
    ),
    "items_from_one": (
        "Item 0 is never drawn: the range starts at 1. Items count from 0, as torch.randint(n_items, ...) does.",
        ("(users).random_(n", "(users).random_(1, n"),
        ("(again).random_(n", "(again).random_(1, n"),
    ),
    "one_item_for_each_user": (
        "One item is drawn for each user and shared by all of this user's rows. Draw one for each row.",
        ("    n_items =", "    users, rows = users.unique(return_inverse=True)\n    n_items ="),
        ("return items", "return items[rows]"),
    ),
}


@alternative
def weights_of_multinomial(users, seen, generator=None):
    return torch.multinomial((~seen[users]).float(), 1, generator=generator).squeeze(1)


@alternative
def kth_unseen_item(users, seen, generator=None):
    unseen = (~seen).cumsum(1)[users]  # (n, n_items): how many unseen items up to here
    u = torch.rand(users.shape, generator=generator, device=users.device, dtype=torch.float64)
    return torch.searchsorted(unseen, (u * unseen[:, -1]).long()[:, None] + 1).squeeze(1)
