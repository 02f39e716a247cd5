"""Known mistakes of exercise in_order, and right answers in other styles."""

import heapq

from course.engine.known_answers import alternative

MISTAKES = {
    "sorts_all": (
        "All arrivals are taken before the first is handed out, so that nothing runs ahead of the loop. Yield as soon "
        "as the number that is due is there.",
        ("in arrivals:", "in list(arrivals):"),
    ),
    "as_they_come": (
        "Things come as they arrive. Keep those whose number is not due yet.",
        (
            "early[number] = thing\n        while due in early:\n            yield early.pop(due)\n"
            "            due += 1",
            "yield thing",
        ),
    ),
    "one_for_one": (
        "Each arrival frees one thing at most, so that things lag behind or are lost. After each arrival, hand out "
        "*while* the number that is due is there.",
        ("while due", "if due"),
        ("    if early:", "    while due in early:\n        yield early.pop(due)\n        due += 1\n    if early:"),
    ),
    "if_for_while": (
        "An arrival that frees several things hands out the first of them only, and the rest count as missing. Hand "
        "out *while* the number that is due is there, not if.",
        ("while due", "if due"),
    ),
    "drops_the_early": (
        "Things that arrive before their turn are dropped. Keep them until they are due.",
        ("early[number] = thing\n        while due in early", "if number == due"),
        ("early.pop(due)", "thing"),
    ),
    "starts_at_one": (
        "The first number is 0, not 1.",
        ("{}, 0", "{}, 1"),
    ),
    "yields_pairs": (
        "Pairs are handed out. Yield the thing alone.",
        ("yield early", "yield due, early"),
    ),
    "asks_the_thing": (
        "A thing that is None or 0 is taken for one that has not arrived. Ask whether the number is in the dictionary.",
        ("due in early", "early.get(due) is not None"),
    ),
    "silent_gap": (
        "If a number never arrives, later things are lost silently. Raise RuntimeError if some are left at the end.",
        ("if early:", "if False:"),
    ),
}


@alternative
def with_a_heap(arrivals):
    heap, due = [], 0
    for count, (number, thing) in enumerate(arrivals):
        heapq.heappush(heap, (number, count, thing))
        while heap and heap[0][0] == due:
            yield heapq.heappop(heap)[2]
            due += 1
    if heap:
        raise RuntimeError(f"missing: {due}")


@alternative
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
