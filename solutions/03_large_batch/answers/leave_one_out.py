"""Known mistakes of exercise leave_one_out, and right answers in other styles."""

import numpy
import torch

from course.checks.engine import alternative, mistake


def split_by_key(users, key):
    """A correct split by `key`: the building stone of mistakes about what the key should be."""
    order = torch.argsort(key, stable=True)
    order = order[torch.argsort(users[order], stable=True)]
    last = torch.ones_like(users, dtype=torch.bool)
    last[:-1] = users[order][1:] != users[order][:-1]
    test = torch.zeros_like(last)
    test[order[last]] = True
    return ~test, test


@mistake("leave_one_out", "The user's last row in the file is held out, whenever it happened. Use the timestamps.")
def last_row_of_the_file(users, timestamps):
    return split_by_key(users, torch.arange(len(users), device=users.device))


@mistake("leave_one_out", "All rows at a user's latest time are held out. Of equal times, keep only the last row.")
def every_latest_row(users, timestamps):
    latest = torch.stack([timestamps[users == user].max() for user in users])
    return timestamps != latest, timestamps == latest


@mistake(
    "leave_one_out", "Of rows with equal times the first was chosen, not the last. argmax stops at the first maximum."
)
def first_of_equal_times(users, timestamps):
    test = torch.zeros_like(users, dtype=torch.bool)
    for user in users.unique():
        rows = (users == user).nonzero().squeeze(1)
        test[rows[timestamps[rows].tolist().index(timestamps[rows].max())]] = True
    return ~test, test


@mistake(
    "leave_one_out", "The times went through float32, which keeps 24 bits: seconds of 1.5 billion merge. Stay in int64."
)
def float_times(users, timestamps):
    return split_by_key(users, timestamps.float())


@mistake("leave_one_out", "Neighbouring rows are compared, as if each user's rows were adjacent. Sort by user first.")
def neighbours_without_sorting(users, timestamps):
    test = torch.zeros_like(users, dtype=torch.bool)
    ends = [i for i in range(len(users)) if i == len(users) - 1 or users[i] != users[i + 1]]
    start = 0
    for end in ends:
        times = timestamps[start : end + 1].tolist()
        test[start + max(range(len(times)), key=lambda i: (times[i], i))] = True
        start = end + 1
    return ~test, test


@mistake(
    "leave_one_out",
    "The two masks are the wrong way round. Return the rest first, then the latest.",
)
def masks_swapped(users, timestamps):
    return split_by_key(users, timestamps)[::-1]


@mistake(
    "leave_one_out",
    "User and time share one number, and negative times reach into the numbers of other users. Sort twice, stably.",
)
def one_number_for_both(users, timestamps):
    order = torch.argsort(users * (timestamps.max() + 1) + timestamps, stable=True)
    last = torch.ones_like(users, dtype=torch.bool)
    last[:-1] = users[order][1:] != users[order][:-1]
    test = torch.zeros_like(last)
    test[order[last]] = True
    return ~test, test


@alternative("leave_one_out")
def sort_twice(users, timestamps):
    order = torch.argsort(timestamps, stable=True)
    order = order[torch.argsort(users[order], stable=True)]  # by user, then time, then place in the file
    last = torch.ones_like(users, dtype=torch.bool)
    last[:-1] = users[order][1:] != users[order][:-1]
    test = torch.zeros_like(last)
    test[order[last]] = True
    return ~test, test


@alternative("leave_one_out")
def latest_in_a_dictionary(users, timestamps):
    latest = {}
    for row, (user, time) in enumerate(zip(users.tolist(), timestamps.tolist(), strict=True)):
        if user not in latest or time >= latest[user][0]:
            latest[user] = (time, row)
    test = torch.zeros(len(users), dtype=torch.bool, device=users.device)
    test[[row for _, row in latest.values()]] = True
    return [~test, test]


@alternative("leave_one_out")
def lexsort_of_numpy(users, timestamps):
    u, t = users.cpu().numpy(), timestamps.cpu().numpy()
    order = numpy.lexsort((t, u))
    test = numpy.zeros(len(u), dtype=bool)
    test[order[numpy.flatnonzero(numpy.diff(u[order], append=-1))]] = True
    test = torch.from_numpy(test).to(users.device)
    return test.logical_not(), test
