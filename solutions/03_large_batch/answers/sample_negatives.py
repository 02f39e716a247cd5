"""Known mistakes of exercise sample_negatives, and right answers in other styles."""

import torch

from course.checks.engine import alternative, mistake


@mistake(
    "sample_negatives",
    "Items are drawn and never looked up in `seen`, so some negatives are positives. Draw those again.",
)
def never_looked_up(users, seen, generator=None):
    return torch.randint(seen.shape[1], users.shape, generator=generator, device=users.device)


@mistake(
    "sample_negatives", "Hits are drawn a second time only, and the second draw can hit too. Repeat while any row hits."
)
def drawn_twice(users, seen, generator=None):
    n_items = seen.shape[1]
    items = torch.randint(n_items, users.shape, generator=generator, device=users.device)
    second = torch.randint(n_items, users.shape, generator=generator, device=users.device)
    return torch.where(seen[users, items], second, items)


@mistake(
    "sample_negatives", "A hit moves on to the next unseen item, which is then drawn too often. Draw again instead."
)
def next_free_item(users, seen, generator=None):
    n_items = seen.shape[1]
    items = torch.randint(n_items, users.shape, generator=generator, device=users.device)
    while seen[users, items].any():
        items = torch.where(seen[users, items], (items + 1) % n_items, items)
    return items


@mistake(
    "sample_negatives",
    "Not every draw uses the generator, so no state can repeat them. Pass it to every torch.randint.",
)
def generator_ignored(users, seen, generator=None):
    return torch.multinomial((~seen[users]).float(), 1).squeeze(1) if len(users) else users


@mistake(
    "sample_negatives",
    "Item 0 is never drawn: the range starts at 1. Items count from 0, as torch.randint(n_items, ...) does.",
)
def items_from_one(users, seen, generator=None):
    items = torch.randint(1, seen.shape[1], users.shape, generator=generator, device=users.device)
    while (hit := seen[users, items]).any():
        new = torch.randint(1, seen.shape[1], users.shape, generator=generator, device=users.device)
        items = torch.where(hit, new, items)
    return items


@mistake(
    "sample_negatives", "One item is drawn for each user and shared by all of this user's rows. Draw one for each row."
)
def one_item_for_each_user(users, seen, generator=None):
    return torch.multinomial((~seen).float(), 1, generator=generator).squeeze(1)[users]


@alternative("sample_negatives")
def weights_of_multinomial(users, seen, generator=None):
    if len(users) == 0:
        return torch.empty_like(users)
    return torch.multinomial((~seen[users]).float(), 1, generator=generator).squeeze(1)


@alternative("sample_negatives")
def kth_unseen_item(users, seen, generator=None):
    unseen = (~seen).cumsum(1)[users]  # (n, n_items): how many unseen items up to here
    u = torch.rand(users.shape, generator=generator, device=users.device, dtype=torch.float64)
    return torch.searchsorted(unseen, (u * unseen[:, -1]).long()[:, None] + 1).squeeze(1)


@alternative("sample_negatives")
def row_by_row_from_a_list(users, seen, generator=None):
    free = [(~row).nonzero().squeeze(1) for row in seen]
    draws = torch.rand(len(users), generator=generator, device=users.device).tolist()
    chosen = [int(free[user][int(r * len(free[user]))]) for user, r in zip(users.tolist(), draws, strict=True)]
    return torch.tensor(chosen, dtype=torch.int64, device=users.device)
