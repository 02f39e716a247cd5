"""Known mistakes of exercise leave_one_out, and right answers in other styles."""

import torch

from course.engine.known_answers import alternative, mistake

MISTAKES = {
    "last_row_of_the_file": (
        "The user's last row in the file is held out, whenever it happened. Use the timestamps.",
        (" * (timestamps == latest[users])", ""),
    ),
    "every_latest_row": (
        "All rows at a user's latest time are held out. Of equal times, keep only the last row.",
        ("last[users] == place", "timestamps == latest[users]"),
    ),
    "first_of_equal_times": (
        "Of rows with equal times the first was chosen, not the last. argmax stops at the first maximum.",
        ("cumsum(0)", "cumsum(0).flip(0)"),
    ),
    "float_times": (
        "The times went through float32, which keeps 24 bits: seconds of 1.5 billion merge. Stay in int64.",
        ("    per_user =", "    timestamps = timestamps.float().long()\n    per_user ="),
    ),
    "neighbours_without_sorting": (
        "Neighbouring rows are compared, as if each user's rows were adjacent. Sort by user first.",
        (
            "    per_user =",
            "    users = F.pad((users.diff() != 0).long(), (1, 0)).cumsum(0)\n    per_user =",
        ),
    ),
    "masks_swapped": (
        "The two masks are the wrong way round. Return the rest first, then the latest.",
        ("~test, test", "test, ~test"),
    ),
    "in_neither_mask": (
        "Rows at the latest time that are not held out are in neither mask. The rest is every other row: ~latest.",
        ("~test, test", "timestamps < latest[users], test"),
    ),
}


@mistake(
    "Every number up to the largest is taken for a user. Some have no rows, as after a split: use users.unique()."
)
def a_row_for_each_number(users, timestamps):
    test = torch.zeros(len(users), dtype=torch.bool, device=users.device)
    for user in range(int(users.max()) + 1):
        rows = (users == user).nonzero().squeeze(1)
        times = timestamps[rows]
        test[rows[times == times.max()][-1]] = True
    return ~test, test


@alternative
def one_number_for_both(users, timestamps):
    order = torch.argsort(users * (timestamps.max() + 1) + timestamps, stable=True)
    last = torch.ones_like(users, dtype=torch.bool)
    last[:-1] = users[order][1:] != users[order][:-1]
    test = torch.zeros_like(last)
    test[order[last]] = True
    return ~test, test


@alternative
def sort_twice(users, timestamps):
    order = torch.argsort(timestamps, stable=True)
    order = order[
        torch.argsort(users[order], stable=True)
    ]  # by user, then time, then place in the file
    last = torch.ones_like(users, dtype=torch.bool)
    last[:-1] = users[order][1:] != users[order][:-1]
    test = torch.zeros_like(last)
    test[order[last]] = True
    return ~test, test


@alternative
def latest_in_a_dictionary(users, timestamps):
    latest = {}
    for row, (user, time) in enumerate(zip(users.tolist(), timestamps.tolist(), strict=True)):
        if user not in latest or time >= latest[user][0]:
            latest[user] = (time, row)
    test = torch.zeros(len(users), dtype=torch.bool, device=users.device)
    test[[row for _, row in latest.values()]] = True
    return [~test, test]
