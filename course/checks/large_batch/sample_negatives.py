"""Probe of exercise sample_negatives."""

import torch

from course.engine.exercise import Answer, Facts, exercise
from course.engine.probing.laws import tried
from course.engine.probing.tensors import form


@exercise()
def sample_negatives(answer: Answer, device: torch.device, seed: int) -> Facts:
    """Draw items that a user has not seen."""
    rng = torch.Generator().manual_seed(seed)
    n_users = 30 + seed % 5
    n_items = 50 + seed % 7
    n = 600 + seed % 13
    seen = (torch.rand(n_users, n_items, generator=rng) < 0.6).to(device)
    seen[:, n_items // 2] = False
    users = torch.randint(n_users, (n,), generator=rng).to(device)

    def draw(who: torch.Tensor, known: torch.Tensor, draw_seed: int = seed) -> torch.Tensor:
        return answer(who, known, torch.Generator(device).manual_seed(draw_seed))

    before = _global_random_state(device)
    items = draw(users, seen)
    untouched = torch.equal(before, _global_random_state(device))
    yield "returns one whole number for each row", form(items)
    yield "every item is a column of `seen`", bool(((items >= 0) & (items < n_items)).all())
    # by pure chance 0.6 of the rows would hit, with a second draw for these 0.36: 0.48 lies six
    # deviations from both
    hits = int(seen[users, items.clamp(0, n_items - 1)].sum())
    yield "most items that the user has seen are avoided", tried(hits < 0.48 * n, n)
    yield "no item that the user has seen is drawn", tried(hits == 0, n)
    are_same = bool((items == draw(users, seen)).all())
    yield "the same generator state gives the same items", tried(are_same, n)
    others = draw(users, seen, seed + 1)
    yield "another generator state gives other items", not torch.equal(items, others)
    generator = torch.Generator(device).manual_seed(seed)
    first = answer(users, seen, generator)
    second = answer(users, seen, generator)
    yield "a second call continues with the generator", not torch.equal(first, second)
    yield "with a generator, torch's global random numbers stay untouched", untouched
    first = answer(users, seen)
    second = answer(users, seen)
    differ = not torch.equal(first, second)
    yield "without a generator: a second call gives other items", differ
    never_seen = not seen[users, first.clamp(0, n_items - 1)].any()
    yield "without a generator: still never a seen item", never_seen

    # one user who has seen a run of items
    known = torch.zeros(2, n_items, dtype=torch.bool, device=device)
    known[1, 5 : 5 + n_items // 3] = True
    items = draw(torch.ones(400 * n_items, dtype=torch.int64, device=device), known)
    counts = torch.bincount(items.clamp(0, n_items - 1), minlength=n_items)[~known[1]].double()
    yield "rows of the same user get different items", tried(len(items.unique()) > 1, n)
    yield "the first item is drawn too", tried(bool(counts[0] > 0), n)
    yield "the last item is drawn too", tried(bool(counts[-1] > 0), n)
    # chi-square statistic: its mean is below len(counts), its deviation sqrt(2 len(counts)); eight
    # of them are allowed, and a spread far below chance betrays rows that know of each other
    chi_square = ((counts - counts.mean()) ** 2 / counts.mean()).sum()
    most = len(counts) + 8 * (2 * len(counts)) ** 0.5
    yield "all unseen items are equally likely", tried(bool(chi_square < most), n)
    yield "rows do not depend on each other", bool(chi_square > len(counts) / 4)
    left = torch.randint(1, n_items - 1, (n_users,), generator=rng).to(device)
    known = torch.ones(n_users, n_items, dtype=torch.bool, device=device)
    known[torch.arange(n_users, device=device), left] = False
    got_what_is_left = torch.equal(draw(users[:40], known), left[users[:40]])
    yield "a user with one unseen item gets this item", got_what_is_left


def _global_random_state(device: torch.device) -> torch.Tensor:
    """The state of torch's own generator for `device`."""
    if device.type == "cuda":
        return torch.cuda.get_rng_state(device)
    return torch.get_rng_state()
