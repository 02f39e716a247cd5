"""Probe of exercise sample_negatives."""

import torch

from course.engine.exercise import Answer, Facts, exercise
from course.engine.probing.tensors import form


@exercise()
def sample_negatives(answer: Answer, device: torch.device, seed: int) -> Facts:
    """Draw items that a user has not seen."""
    rng = torch.Generator().manual_seed(seed)
    n_users, n_items, n = 30 + seed % 5, 50 + seed % 7, 600 + seed % 13
    seen = (torch.rand(n_users, n_items, generator=rng) < 0.6).to(device)
    seen[:, n_items // 2] = False
    users = torch.randint(n_users, (n,), generator=rng).to(device)

    def draw(who, known, draw_seed=seed):
        return answer(who, known, torch.Generator(device).manual_seed(draw_seed))

    before = _global_random_state(device)
    items = draw(users, seen)
    untouched = torch.equal(before, _global_random_state(device))
    yield "returns one whole number for each row", form(items)
    yield "every item is a column of `seen`", bool(((items >= 0) & (items < n_items)).all())
    # by pure chance 0.6 of the rows would hit, with a second draw for these 0.36: 0.48 lies six
    # deviations from both
    inside = items.clamp(0, n_items - 1)
    hits = int(seen[users, inside].sum())
    yield "most items that the user has seen are avoided", hits < 0.48 * n
    yield "no item that the user has seen is drawn", hits == 0
    yield "the same generator state gives the same items", bool((items == draw(users, seen)).all())
    yield (
        "another generator state gives other items",
        not torch.equal(items, draw(users, seen, seed + 1)),
    )
    generator = torch.Generator(device).manual_seed(seed)
    first = answer(users, seen, generator)
    yield (
        "a second call continues with the generator",
        not torch.equal(first, answer(users, seen, generator)),
    )
    yield "with a generator, torch's global random numbers stay untouched", untouched
    items = answer(users, seen)
    yield (
        "without a generator: a second call gives other items",
        not torch.equal(items, answer(users, seen)),
    )
    yield (
        "without a generator: still never a seen item",
        not seen[users, items.clamp(0, n_items - 1)].any(),
    )

    # one user who has seen a run of items
    known = torch.zeros(2, n_items, dtype=torch.bool, device=device)
    known[1, 5 : 5 + n_items // 3] = True
    items = draw(torch.ones(400 * n_items, dtype=torch.int64, device=device), known)
    counts = torch.bincount(items.clamp(0, n_items - 1), minlength=n_items)[~known[1]].double()
    yield "rows of the same user get different items", len(items.unique()) > 1
    yield "the first item is drawn too", bool(counts[0] > 0)
    yield "the last item is drawn too", bool(counts[-1] > 0)
    # chi-square statistic: its mean is below len(counts), its deviation sqrt(2 len(counts)); eight
    # of them are allowed, and a spread far below chance betrays rows that know of each other
    chance = ((counts - counts.mean()) ** 2 / counts.mean()).sum()
    yield (
        "all unseen items are equally likely",
        bool(chance < len(counts) + 8 * (2 * len(counts)) ** 0.5),
    )
    yield "rows do not depend on each other", bool(chance > len(counts) / 4)
    left = torch.randint(1, n_items - 1, (n_users,), generator=rng).to(device)
    known = torch.ones(n_users, n_items, dtype=torch.bool, device=device)
    known[torch.arange(n_users, device=device), left] = False
    yield (
        "a user with one unseen item gets this item",
        torch.equal(draw(users[:40], known), left[users[:40]]),
    )


def _global_random_state(device):
    return torch.cuda.get_rng_state(device) if device.type == "cuda" else torch.get_rng_state()
