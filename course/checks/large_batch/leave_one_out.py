"""Probe of exercise leave_one_out."""

import torch

from course.engine.exercise import Answer, Facts, exercise
from course.engine.probing.tensors import form


@exercise()
def leave_one_out(answer: Answer, device: torch.device, seed: int) -> Facts:
    """Split by each user's latest interaction."""
    rng = torch.Generator().manual_seed(seed)
    n_users = 12 + seed % 5
    rows_per_user = torch.randint(1, 9, (n_users,), generator=rng)
    users = torch.arange(n_users).repeat_interleave(rows_per_user).to(device)
    n = len(users)
    times = torch.randperm(n, generator=rng).to(device)

    train, test = answer(users, times)
    yield "returns two bool masks, one value a row", form(train, "train") | form(test, "test")
    yield "every row is in exactly one of the two", bool((train ^ test).all())
    held_out_per_user = torch.bincount(users[test], minlength=n_users)
    yield "every user has exactly one row held out", bool((held_out_per_user == 1).all())
    yield "the row held out is the user's latest", test
    shuffle = torch.randperm(n, generator=rng).to(device)
    users_shuffled = users[shuffle]
    times_shuffled = times[shuffle]
    yield "rows may come in any order", answer(users_shuffled, times_shuffled)[1]
    _, by_unix_time = answer(users_shuffled, times_shuffled + 1_500_000_000)
    yield "Unix times a second apart are different times", by_unix_time
    rest, of_equal_times = answer(users_shuffled, times_shuffled // 40)
    yield "of several latest rows, the last in the file is held out", of_equal_times
    in_one = bool((rest ^ of_equal_times).all())
    yield "the other rows at the latest time are in the rest", in_one
    _, of_odd_numbers = answer(2 * users_shuffled + 1, times_shuffled)
    yield "only odd user numbers: the others have no row", of_odd_numbers
    yield "one user", answer(torch.zeros_like(users), times)[1]
