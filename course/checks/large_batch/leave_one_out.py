"""Probe of exercise leave_one_out."""

import torch

from course.engine.exercise import Answer, Facts, exercise
from course.engine.probing.tensors import form


@exercise()
def leave_one_out(answer: Answer, device: torch.device, seed: int) -> Facts:
    """Split by each user's latest interaction."""
    rng = torch.Generator().manual_seed(seed)
    n_users = 12 + seed % 5
    users = (
        torch.arange(n_users)
        .repeat_interleave(torch.randint(1, 9, (n_users,), generator=rng))
        .to(device)
    )
    n = len(users)
    times = torch.randperm(n, generator=rng).to(device)

    train, test = answer(users, times)
    yield "returns two bool masks, one value a row", form(train, "train") | form(test, "test")
    yield "every row is in exactly one of the two", bool((train ^ test).all())
    yield (
        "every user has exactly one row held out",
        bool((torch.bincount(users[test], minlength=n_users) == 1).all()),
    )
    yield "the row held out is the user's latest", test
    shuffle = torch.randperm(n, generator=rng).to(device)
    yield "rows may come in any order", answer(users[shuffle], times[shuffle])[1]
    yield (
        "Unix times a second apart are different times",
        answer(users[shuffle], times[shuffle] + 1_500_000_000)[1],
    )
    yield (
        "of several latest rows, the last in the file is held out",
        answer(users[shuffle], times[shuffle] // 40)[1],
    )
    yield "one user", answer(torch.zeros_like(users), times)[1]
