"""Known mistakes of exercise in_order, and right answers in other styles."""

import heapq

from course.checks.engine import alternative, mistake


@mistake(
    "in_order",
    "All arrivals are taken before the first is handed out, so that nothing runs ahead of the loop. Yield as soon as "
    "the number that is due is there.",
)
def sorts_all(arrivals):
    pairs = dict(arrivals)
    for k in range(len(pairs)):
        if k not in pairs:
            raise RuntimeError(f"{k} is missing")
        yield pairs[k]


def one_at_most(arrivals, early):
    """Hand out one thing for each arrival, at most; returns the number that is due then."""
    due = 0
    for number, thing in arrivals:
        early[number] = thing
        if due in early:
            yield early.pop(due)
            due += 1
    return due


@mistake("in_order", "Things come as they arrive. Keep those whose number is not due yet.")
def as_they_come(arrivals):
    for _, thing in arrivals:
        yield thing


@mistake(
    "in_order",
    "Each arrival frees one thing at most, so that things lag behind or are lost. After each arrival, hand out *while* "
    "the number that is due is there.",
)
def one_for_one(arrivals):
    early = {}
    due = yield from one_at_most(arrivals, early)
    while due in early:
        yield early.pop(due)
        due += 1
    if early:
        raise RuntimeError(f"{due} is missing")


@mistake(
    "in_order",
    "An arrival that frees several things hands out the first of them only, and the rest count as missing. Hand out "
    "*while* the number that is due is there, not if.",
)
def if_for_while(arrivals):
    early = {}
    due = yield from one_at_most(arrivals, early)
    if early:
        raise RuntimeError(f"{due} is missing")


@mistake("in_order", "Things that arrive before their turn are dropped. Keep them until they are due.")
def drops_the_early(arrivals):
    due = 0
    for number, thing in arrivals:
        if number == due:
            yield thing
            due += 1


@mistake("in_order", "The first number is 0, not 1.")
def starts_at_one(arrivals):
    early, due = {}, 1
    for number, thing in arrivals:
        early[number] = thing
        while due in early:
            yield early.pop(due)
            due += 1
    if early and due not in early and min(early) > 0:
        raise RuntimeError(f"{due} is missing")


@mistake("in_order", "Pairs are handed out. Yield the thing alone.")
def yields_pairs(arrivals):
    early, due = {}, 0
    for number, thing in arrivals:
        early[number] = thing
        while due in early:
            yield due, early.pop(due)
            due += 1
    if early:
        raise RuntimeError(f"{due} is missing")


@mistake(
    "in_order",
    "A thing that is None or 0 is taken for one that has not arrived. Ask whether the number is in the dictionary.",
)
def asks_the_thing(arrivals):
    early, due = {}, 0
    for number, thing in arrivals:
        early[number] = thing
        while early.get(due) is not None:
            yield early.pop(due)
            due += 1
    if early:
        raise RuntimeError(f"{due} is missing")


@mistake(
    "in_order",
    "Where a number never arrives, the later things are lost in silence. Raise RuntimeError if some are left at the "
    "end.",
)
def silent_gap(arrivals):
    early, due = {}, 0
    for number, thing in arrivals:
        early[number] = thing
        while due in early:
            yield early.pop(due)
            due += 1


@alternative("in_order")
def with_a_heap(arrivals):
    heap, due = [], 0
    for count, (number, thing) in enumerate(arrivals):
        heapq.heappush(heap, (number, count, thing))
        while heap and heap[0][0] == due:
            yield heapq.heappop(heap)[2]
            due += 1
    if heap:
        raise RuntimeError(f"missing: {due}")


@alternative("in_order")
def asks_when_it_needs(arrivals):
    source, kept, due, end = iter(arrivals), [], 0, object()
    while True:
        found = [pair for pair in kept if pair[0] == due]
        if found:
            kept = [pair for pair in kept if pair[0] != due]
            due += 1
            yield found[0][1]
            continue
        pair = next(source, end)
        if pair is end:
            break
        kept.append(pair)
    if kept:
        raise RuntimeError("there is a gap before " + str(min(number for number, _ in kept)))
