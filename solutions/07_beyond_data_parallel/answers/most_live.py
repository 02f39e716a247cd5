"""Known mistakes of exercise most_live, and right answers in other styles."""

from course.engine.known_answers import alternative, mistake

MISTAKES = {
    "as_listed": (
        "The passes are taken in the order of the list. Take them by time.",
        ("sorted(schedule):", "schedule:"),
    ),
    "sorts_the_argument": (
        "You sort the list that you are given, which the caller still uses. Make a new one: sorted(schedule).",
        ("    ranks = ", "    schedule.sort(key=lambda each: each[1])\n    ranks = "),
        ("sorted(schedule):", "schedule:"),
    ),
    "nothing_is_freed": (
        "Backward frees nothing here, so this counts all micro-batches. Subtract one per backward pass.",
        ('1 if kind == "F" else -1', '1 if kind == "F" else 0'),
    ),
    "at_the_end": (
        "This is what is held at the end: nothing. Keep the largest count on the way.",
        ("most[rank] = max(most[rank], live[rank])", "most[rank] = live[rank]"),
    ),
    "over_all_ranks": (
        "Micro-batches of all ranks are counted together. Each rank has its own memory.",
        ("sorted(schedule):", "sorted(schedule, key=lambda each: each[1]):"),
        ("live[rank] += 1", "live[0] += 1"),
        ("max(most[rank], live[rank])", "max(most[rank], live[0])"),
    ),
    "by_micro_batch": (
        "The passes are sorted by micro-batch. Sort them by time.",
        ("sorted(schedule):", "sorted(schedule, key=lambda each: each[3]):"),
    ),
    "one_number": (
        "This is the number of the fullest rank alone. Return a list with the number of each rank.",
        ("return most", "return [max(most)]"),
    ),
}


@mistake(
    "The ranks come in the order in which they appear. The list has rank 0 first, then rank 1, and so on."
)
def in_order_of_appearance(schedule):
    live, most = {}, {}
    for rank, _, kind, _ in sorted(schedule, key=lambda each: each[1]):
        live[rank] = live.get(rank, 0) + (1 if kind == "F" else -1)
        most[rank] = max(most.get(rank, 0), live[rank])
    return list(most.values())


def most_in_a_slot(schedule, is_held):
    """The most micro-batches of each rank in a slot; is_held(slot, begin, end) says which count."""
    begin = {(r, m): t for r, t, kind, m in schedule if kind == "F"}
    end = {(r, m): t for r, t, kind, m in schedule if kind == "B"}
    slots = range(2 + max(end.values()))
    most = []
    for rank in range(1 + max(r for r, _ in begin)):
        mine = [key for key in begin if key[0] == rank]
        most.append(max(sum(is_held(slot, begin[key], end[key]) for key in mine) for slot in slots))
    return most


@mistake(
    "A micro-batch counts only from the slot after its forward pass. It is held as soon as the forward pass has begun."
)
def from_the_next_slot_on(schedule):
    return most_in_a_slot(schedule, lambda slot, begin, end: begin < slot < end)


@mistake("The count is kept only after backward passes. Keep the largest count after every pass.")
def looked_at_after_backward(schedule):
    live = [0] * (1 + max(each[0] for each in schedule))
    most = list(live)
    for rank, _, kind, _ in sorted(schedule):
        live[rank] += 1 if kind == "F" else -1
        if kind == "B":
            most[rank] = max(most[rank], live[rank])
    return most


@mistake(
    "A micro-batch counts one slot too long, after its backward pass is over. Subtract it before the next pass begins."
)
def until_the_next_slot(schedule):
    return most_in_a_slot(schedule, lambda slot, begin, end: begin <= slot <= end + 1)


@mistake(
    "This is the longest run of forward passes. What earlier passes left is still held: count up and down."
)
def longest_run_of_forwards(schedule):
    most = [0] * (1 + max(each[0] for each in schedule))
    run = list(most)
    for rank, _, kind, _ in sorted(schedule, key=lambda each: each[1]):
        run[rank] = run[rank] + 1 if kind == "F" else 0
        most[rank] = max(most[rank], run[rank])
    return most


@alternative
def sets_of_held(schedule):
    held = {rank: set() for rank, *_ in sorted(schedule)}
    most = dict.fromkeys(held, 0)
    for rank, _, kind, m in sorted(schedule, key=lambda each: each[1]):
        if kind == "F":
            held[rank].add(m)
        else:
            held[rank].remove(m)
        most[rank] = max(most[rank], len(held[rank]))
    return list(most.values())


@alternative
def intervals(schedule):
    begin = {(r, m): t for r, t, kind, m in schedule if kind == "F"}
    end = {(r, m): t for r, t, kind, m in schedule if kind == "B"}
    most = []
    for rank in range(1 + max(r for r, _ in begin)):
        mine = [key for key in begin if key[0] == rank]
        most.append(max(sum(begin[a] <= begin[b] < end[a] for a in mine) for b in mine))
    return most
