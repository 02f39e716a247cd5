"""Known mistakes of exercise gpipe, and right answers in other styles."""

from course.engine.known_answers import alternative, mistake

MISTAKES = {
    "all_ranks_start_together": (
        "All ranks begin in slot 0, before their input is there. Rank r begins one slot after rank r - 1.",
        ('rank, rank + m, "F"', 'rank, m, "F"'),
    ),
    "ranks_one_after_the_other": (
        "A rank begins when the one before has done all its micro-batches. Begin with the first one that arrives.",
        ('rank, rank + m, "F"', 'rank, rank * micro_batches + m, "F"'),
        ("turn = micro_batches + ranks - 1", "turn = ranks * micro_batches"),
        ("(ranks - 1 - rank)", "(ranks - 1 - rank) * micro_batches"),
    ),
    "backward_from_the_first_rank": (
        "Gradients go from the first rank to the last one. They begin at the loss, on the last rank.",
        ("(ranks - 1 - rank)", "rank"),
    ),
    "backward_together": (
        "All ranks begin backward in the same slot, before the gradient is there. Rank r begins one slot after "
        "rank r + 1.",
        ("turn + (ranks - 1 - rank) + m", "turn + m"),
    ),
    "one_slot_too_late": (
        "Backward begins one slot late. The last rank is free after M + P - 1 slots.",
        ("turn = micro_batches + ranks - 1", "turn = micro_batches + ranks"),
    ),
    "backward_after_own_forwards": (
        "Backward is counted from the end of the first rank's forward passes. The last rank ends P - 1 slots later.",
        ("turn = micro_batches + ranks - 1", "turn = micro_batches"),
    ),
    "last_micro_batch_first": (
        "The last micro-batch goes back first. The task wants the order of forward: 0, 1, ...",
        ('+ m, "B", m)', '+ micro_batches - 1 - m, "B", m)'),
    ),
    "forward_alone": (
        "The backward passes are missing. Add one for each forward pass.",
        ('            schedule.append((rank, turn + (ranks - 1 - rank) + m, "B", m))\n', ""),
    ),
    "last_rank_missing": (
        "A rank is missing. There are P ranks, 0 to P - 1.",
        ("for rank in range(ranks)", "for rank in range(ranks - 1)"),
    ),
}


@mistake("The tuples have the time first. A pass is (rank, time, kind, micro-batch).")
def time_first(ranks, micro_batches):
    schedule = []
    turn = micro_batches + ranks - 1
    for rank in range(ranks):
        for m in range(micro_batches):
            schedule.append((rank + m, rank, "F", m))
            schedule.append((turn + (ranks - 1 - rank) + m, rank, "B", m))
    return schedule


@mistake(
    "A micro-batch goes through all ranks and back before the next one begins, so one rank works at a time. Begin the "
    "next one as soon as rank 0 is free."
)
def one_micro_batch_at_a_time(ranks, micro_batches):
    schedule = []
    for rank in range(ranks):
        for m in range(micro_batches):
            start = 2 * ranks * m
            schedule.append((rank, start + rank, "F", m))
            schedule.append((rank, start + 2 * ranks - 1 - rank, "B", m))
    return schedule


@mistake(
    "Each micro-batch goes back as soon as it can: that is 1F1B. GPipe does all forward passes first."
)
def as_1f1b(ranks, micro_batches):
    schedule = []
    for rank in range(ranks):
        for m in range(micro_batches):
            forward = rank + m if m < ranks - rank else rank + 2 * m
            schedule.append((rank, forward, "F", m))
            schedule.append((rank, 2 * ranks - 1 - rank + 2 * m, "B", m))
    return schedule


@alternative
def wave_by_wave(ranks, micro_batches):
    slots = ranks + micro_batches - 1
    forward = [
        (r, t, "F", t - r) for t in range(slots) for r in range(ranks) if 0 <= t - r < micro_batches
    ]
    return forward + [(ranks - 1 - r, slots + t, "B", m) for r, t, _, m in forward]


@alternative
def from_dependencies(ranks, micro_batches):
    end = {}
    for m in range(micro_batches):
        for rank in range(ranks):
            end[rank, "F", m] = 1 + max(
                end.get((rank - 1, "F", m), 0), end.get((rank, "F", m - 1), 0)
            )
    for m in range(micro_batches):
        for rank in reversed(range(ranks)):
            before = end[rank, "B", m - 1] if m else end[rank, "F", micro_batches - 1]
            end[rank, "B", m] = 1 + max(before, end.get((rank + 1, "B", m), 0))
    return [(rank, after - 1, kind, m) for (rank, kind, m), after in end.items()]
