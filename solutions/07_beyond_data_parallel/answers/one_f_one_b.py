"""Known mistakes of exercise one_f_one_b, and right answers in other styles."""

from course.engine.known_answers import alternative, mistake

MISTAKES = {
    "as_gpipe": (
        "All forward passes come first: that is GPipe. Alternate after the first P - r of them.",
        ("first = min(ranks - rank, micro_batches)", "first = micro_batches"),
    ),
    "same_on_all_ranks": (
        "All ranks begin with P forward passes, so all hold as much as rank 0. Rank r begins with P - r.",
        ("min(ranks - rank, micro_batches)", "min(ranks, micro_batches)"),
    ),
    "one_too_few": (
        "Rank r begins with P - r - 1 forward passes, so the last rank waits for a gradient before its first "
        "forward pass. Begin with P - r.",
        ("min(ranks - rank, micro_batches)", "min(ranks - rank - 1, micro_batches)"),
    ),
    "one_too_many": (
        "Rank r does P - r + 1 forward passes before its first backward pass, so it holds one micro-batch too many. "
        "Do P - r.",
        ("min(ranks - rank, micro_batches)", "min(ranks - rank + 1, micro_batches)"),
    ),
    "last_rank_begins_with_most": (
        "The last rank begins with most forward passes, and the first with one. It is the other way round: P - r.",
        ("min(ranks - rank, micro_batches)", "min(rank + 1, micro_batches)"),
    ),
    "one_forward_first": (
        "Every rank begins with one forward pass and waits for its gradient, so one micro-batch is in the pipeline. "
        "Begin with P - r.",
        ("min(ranks - rank, micro_batches)", "1"),
    ),
    "few_micro_batches": (
        "With fewer than P - r micro-batches there are passes of micro-batches that do not exist. Begin with M then.",
        ("min(ranks - rank, micro_batches)", "ranks - rank"),
    ),
    "no_last_backwards": (
        "The last backward passes are missing. Each micro-batch goes back.",
        ("for m in range(micro_batches):", "for m in range(max(1, micro_batches - first)):"),
    ),
    "starts_again_at_zero": (
        "After the first forward passes you begin with micro-batch 0 again. Continue with the next one.",
        ('order.append(("F", first + m))', 'order.append(("F", m))'),
    ),
}


@mistake(
    "The newest micro-batch goes back first, and its gradient is not there yet. Take the oldest one."
)
def newest_back_first(rank, ranks, micro_batches):
    first = min(ranks - rank, micro_batches)
    live = list(range(first))
    order = [("F", m) for m in live]
    following = first
    while live:
        order.append(("B", live.pop()))
        if following < micro_batches:
            order.append(("F", following))
            live.append(following)
            following += 1
    return order


@alternative
def three_phases(rank, ranks, micro_batches):
    warm = min(ranks - 1 - rank, micro_batches)
    steady = micro_batches - warm
    order = [("F", m) for m in range(warm)]
    for step in range(steady):
        order += [("F", warm + step), ("B", step)]
    return order + [("B", steady + step) for step in range(warm)]


@alternative
def from_times(rank, ranks, micro_batches):
    times = []
    for m in range(micro_batches):
        times.append((rank + m if m < ranks - rank else rank + 2 * m, "F", m))
        times.append((2 * ranks - 1 - rank + 2 * m, "B", m))
    return [(kind, m) for _, kind, m in sorted(times)]
