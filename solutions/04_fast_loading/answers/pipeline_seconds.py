"""Known mistakes of exercise pipeline_seconds, and right answers in other styles."""

import itertools

from course.checks.engine import alternative, mistake


@mistake("pipeline_seconds", "That is the sum of all times, as with one buffer. With more, fills and steps overlap.")
def always_in_turn(fills, steps, buffers):
    return sum(fills) + sum(steps)


@mistake(
    "pipeline_seconds",
    "That is the longer of both totals: as if the first step could begin with the first fill. A step waits for its "
    "own fill.",
)
def longer_total(fills, steps, buffers):
    return sum(fills) + sum(steps) if buffers == 1 else max(sum(fills), sum(steps))


@mistake(
    "pipeline_seconds",
    "Each pair of a fill and a step takes the longer of the two, as if both waited for each other in every turn. Keep "
    "the end of each.",
)
def in_lockstep(fills, steps, buffers):
    if buffers == 1:
        return sum(fills) + sum(steps)
    return fills[0] + sum(map(max, fills[1:], steps[:-1])) + steps[-1]


@mistake(
    "pipeline_seconds",
    "Each batch is charged with the longer of its own fill and step. But a step follows its own fill: what runs beside "
    "it is a later fill. Keep the end of each.",
)
def longer_of_each_batch(fills, steps, buffers):
    return sum(fills) + sum(steps) if buffers == 1 else sum(map(max, fills, steps))


@mistake(
    "pipeline_seconds",
    "That is the first fill, and then the longer of both totals. The last step waits for the last fill, and one long "
    "fill or step holds up the other lane. Keep the end of each.",
)
def first_fill_then_the_longer(fills, steps, buffers):
    return sum(fills) + sum(steps) if buffers == 1 else fills[0] + max(sum(fills[1:]), sum(steps))


@mistake(
    "pipeline_seconds",
    "The reader runs as far ahead as it likes. Fill i needs the buffer of item i - buffers, whose step must be over.",
)
def no_end_of_buffers(fills, steps, buffers):
    return _ends(fills, steps, 1 if buffers == 1 else len(fills))


@mistake(
    "pipeline_seconds",
    "`buffers` is not used. Fill i needs the buffer of item i - buffers, whose step must be over.",
)
def buffers_not_used(fills, steps, buffers):
    return _ends(fills, steps, len(fills))


def _ends(fills, steps, held, begin=0):
    """The end of the last step where fill i waits for the end of step i - held, if i is at least `begin`."""
    filled, done = 0.0, []
    for i, (fill, step) in enumerate(zip(fills, steps, strict=True)):
        filled = max([filled, *done[i - held : i - held + 1]] if i >= max(held, begin) else [filled]) + fill
        done.append(max([filled, *done[-1:]]) + step)
    return done[-1]


@mistake(
    "pipeline_seconds",
    "One buffer too many: fill i begins when step i - buffers - 1 is over. The consumer holds its buffer until its "
    "step is over.",
)
def one_buffer_more(fills, steps, buffers):
    return _ends(fills, steps, buffers + 1)


@mistake(
    "pipeline_seconds",
    "One buffer is never used: fill i waits for step i - buffers + 1. The buffer of item i was used last by item "
    "i - buffers.",
)
def one_buffer_less(fills, steps, buffers):
    return _ends(fills, steps, max(1, buffers - 1))


@mistake(
    "pipeline_seconds",
    "From fill `buffers` on, fill i waits for step i - buffers + 1, one step too long. Its buffer was used last by "
    "item i - buffers.",
)
def waits_one_step_longer(fills, steps, buffers):
    return _ends(fills, steps, max(1, buffers - 1), begin=buffers)


@alternative("pipeline_seconds")
def free_times_of_each_buffer(fills, steps, buffers):
    free, read, computed = [0.0] * buffers, 0.0, 0.0
    for i in range(len(fills)):
        read = max(read, free[i % buffers]) + fills[i]
        computed = max(read, computed) + steps[i]
        free[i % buffers] = computed
    return computed


@alternative("pipeline_seconds")
def longest_path(fills, steps, buffers):
    """The end is the longest path through fills and steps."""
    ends = {}
    for i, (fill, step) in enumerate(zip(fills, steps, strict=True)):
        before = [ends.get(("fill", i - 1), 0.0), ends.get(("step", i - buffers), 0.0)]
        ends["fill", i] = max(before) + fill
        ends["step", i] = max(ends["fill", i], ends.get(("step", i - 1), 0.0)) + step
    return list(itertools.islice(reversed(ends.values()), 1))[0]
