"""Known mistakes of exercise pipeline_seconds, and right answers in other styles."""

import itertools

from course.engine.known_answers import alternative

MISTAKES = {
    "always_in_turn": (
        "This is the sum of all times, as with one buffer. With more buffers, fills and steps overlap.",
        ("return done[-1]", "return sum(fills) + sum(steps)"),
    ),
    "longer_total": (
        "This is the longer of both totals, as if the first step could begin with the first fill. A step waits for "
        "its own fill.",
        ("return done[-1]", "return done[-1] if buffers == 1 else max(sum(fills), sum(steps))"),
    ),
    "in_lockstep": (
        "Fill and step wait for each other in every turn, as with two buffers, and the longer of them counts. Keep the "
        "end of each: fill i waits for step i - buffers.",
        (
            "return done[-1]",
            "return done[-1] if buffers == 1 else fills[0] + sum(map(max, fills[1:], steps[:-1])) + steps[-1]",
        ),
    ),
    "longer_of_each_batch": (
        "Each batch is charged with the longer of its own fill and step. But a step follows its own fill and runs "
        "during a later one. Keep the end of each.",
        ("return done[-1]", "return done[-1] if buffers == 1 else sum(map(max, fills, steps))"),
    ),
    "first_fill_then_the_longer": (
        "This is the first fill, and then the longer of both totals. But the last step waits for the last fill, and "
        "one long fill or step holds up the other thread. Keep the end of each.",
        (
            "return done[-1]",
            "return done[-1] if buffers == 1 else fills[0] + max(sum(fills[1:]), sum(steps))",
        ),
    ),
    "no_end_of_buffers": (
        "The reader runs ahead without a limit. Fill i needs the buffer of batch i - buffers, whose step must be over.",
        ("i >= buffers", "i >= buffers == 1"),
    ),
    "buffers_not_used": (
        "`buffers` is not used. Fill i needs the buffer of batch i - buffers, whose step must be over.",
        ("done[i - buffers + 1] if i >= buffers else 0.0", "0.0"),
    ),
    "one_buffer_more": (
        "Fill i begins before step i - buffers is over, as if there were one buffer more. The consumer holds its "
        "buffer until the end of its step.",
        ("    filled, done", "    buffers += 1\n    filled, done"),
    ),
    "one_buffer_less": (
        "One buffer is never used: fill i waits for step i - buffers + 1. The buffer of batch i was used last by "
        "batch i - buffers.",
        ("    filled, done", "    buffers = max(1, buffers - 1)\n    filled, done"),
    ),
    "steps_overlap": (
        "A step does not wait for the step before it, as if two batches could be computed on simultaneously. Step i "
        "begins when fill i and step i - 1 are over.",
        ("max(filled[-1], done[-1]) + steps[i]", "filled[-1] + steps[i]"),
    ),
    "waits_one_step_longer": (
        "From fill `buffers` on, fill i waits for step i - buffers + 1, one step too long. Its buffer was used last "
        "by batch i - buffers.",
        ("i - buffers + 1", "i - max(2, buffers) + 2"),
    ),
    "fills_overlap": (
        "A fill does not wait for the fill before it, as if several threads read. Fill i begins when fill i - 1 is "
        "over, and its buffer is free.",
        ("max(filled[-1], free) + fill", "free + fill"),
    ),
}


@alternative
def free_times_of_each_buffer(fills, steps, buffers):
    free, read, computed = [0.0] * buffers, 0.0, 0.0
    for i in range(len(fills)):
        read = max(read, free[i % buffers]) + fills[i]
        computed = max(read, computed) + steps[i]
        free[i % buffers] = computed
    return computed


@alternative
def longest_path(fills, steps, buffers):
    """The end is the longest path through fills and steps."""
    ends = {}
    for i, (fill, step) in enumerate(zip(fills, steps, strict=True)):
        before = [ends.get(("fill", i - 1), 0.0), ends.get(("step", i - buffers), 0.0)]
        ends["fill", i] = max(before) + fill
        ends["step", i] = max(ends["fill", i], ends.get(("step", i - 1), 0.0)) + step
    return list(itertools.islice(reversed(ends.values()), 1))[0]
