"""Known mistakes of exercise plan_buckets, and right answers in other styles."""

import functools

from course.checks.engine import alternative, mistake


@mistake("plan_buckets", "The buckets begin with the first parameter, whose gradient comes last. Begin with the last.")
def first_one_first(sizes, cap):
    return _filled(sizes, cap, range(len(sizes)))


def _filled(sizes, cap, order, fits=lambda held, size, cap: held + size <= cap):
    buckets, held = [], 0
    for i in order:
        if not buckets or not fits(held, sizes[i], cap):
            buckets.append([])
            held = 0
        buckets[-1].append(i)
        held += sizes[i]
    return buckets


@mistake("plan_buckets", "The places are counted from the last parameter. A place is the index in `sizes`.")
def counted_from_the_end(sizes, cap):
    return _filled(sizes[::-1], cap, range(len(sizes)))


@mistake("plan_buckets", "A bucket is closed before it holds exactly `cap` bytes. That much is allowed.")
def below_cap(sizes, cap):
    return _filled(sizes, cap, reversed(range(len(sizes))), lambda held, size, cap: held + size < cap)


@mistake(
    "plan_buckets",
    "A bucket is closed after the parameter with which it reaches `cap`, and so exceeds it. Ask before, not after.",
)
def closed_too_late(sizes, cap):
    return _filled(sizes, cap, reversed(range(len(sizes))), lambda held, size, cap: held < cap)


@mistake(
    "plan_buckets",
    "A small parameter is put into an earlier bucket that has room, and its gradient, which comes late, holds that up. "
    "Look at the last bucket only.",
)
def first_fit(sizes, cap):
    buckets = []
    for i in reversed(range(len(sizes))):
        fitting = [b for b in buckets if sum(sizes[j] for j in b) + sizes[i] <= cap]
        if fitting:
            fitting[0].append(i)
        else:
            buckets.append([i])
    return buckets


@mistake(
    "plan_buckets", "A large parameter closes a bucket that is still empty. Open a new one only behind a full one."
)
def empty_before_a_large_one(sizes, cap):
    buckets, held = [[]], 0
    for i in reversed(range(len(sizes))):
        if held + sizes[i] > cap:
            buckets.append([])
            held = 0
        buckets[-1].append(i)
        held += sizes[i]
    return buckets if sizes else []


@mistake(
    "plan_buckets", "The last bucket is never appended: it is not full when the loop ends. Append it after the loop."
)
def last_one_lost(sizes, cap):
    return _filled(sizes, cap, reversed(range(len(sizes))))[:-1]


@alternative("plan_buckets")
def by_reduce(sizes, cap):
    def step(buckets, i):
        if buckets and sum(sizes[j] for j in buckets[-1]) + sizes[i] <= cap:
            return [*buckets[:-1], [*buckets[-1], i]]
        return [*buckets, [i]]

    return functools.reduce(step, range(len(sizes) - 1, -1, -1), [])


@alternative("plan_buckets")
def from_a_stack(sizes, cap):
    stack, buckets = list(enumerate(sizes)), []
    while stack:
        i, held = stack.pop()
        bucket = [i]
        while stack and held + stack[-1][1] <= cap:
            i, size = stack.pop()
            bucket.append(i)
            held += size
        buckets.append(bucket)
    return buckets
