"""Known mistakes of exercise one_cycle, and right answers in other styles."""

import math

import numpy as np

from course.checks.engine import alternative, mistake


def _points(total, max_lr, cycle, start, final, momenta):
    """Steps, learning rates and momenta at the ends of the lines."""
    half, base, (low, high) = cycle * total / 2, max_lr / start, momenta
    return [0, half - 1, 2 * half - 2, total - 1], [base, max_lr, base, base / final], [high, low, high, high]


def _inside(step, total):
    if not 0 <= step < total:
        raise ValueError(f"step {step} is not in a training of {total} steps")


def _between(step, steps, values):
    return float(np.interp(step, steps, values))


@mistake(
    "one_cycle",
    "The schedule moves once per epoch and stands still in between. Count steps of the whole training: use `step` "
    "as it is.",
)
def moves_once_per_epoch(step, epochs, steps_per_epoch, max_lr, cycle=0.9, start=10.0, final=1e4, momenta=(0.85, 0.95)):
    total = epochs * steps_per_epoch
    _inside(step, total)
    steps, lrs, values = _points(total, max_lr, cycle, start, final, momenta)
    step = step // steps_per_epoch * steps_per_epoch
    return _between(step, steps, lrs), _between(step, steps, values)


@mistake("one_cycle", "The length is taken for `epochs` steps. The training has epochs * steps_per_epoch steps.")
def length_in_epochs(step, epochs, steps_per_epoch, max_lr, cycle=0.9, start=10.0, final=1e4, momenta=(0.85, 0.95)):
    _inside(step, epochs * steps_per_epoch)
    steps, lrs, values = _points(epochs, max_lr, cycle, start, final, momenta)
    return _between(step, steps, lrs), _between(step, steps, values)


@mistake(
    "one_cycle", "Momentum moves with the learning rate. It moves against it: low where the learning rate is high."
)
def momentum_along(step, epochs, steps_per_epoch, max_lr, cycle=0.9, start=10.0, final=1e4, momenta=(0.85, 0.95)):
    total = epochs * steps_per_epoch
    _inside(step, total)
    steps, lrs, values = _points(total, max_lr, cycle, start, final, momenta[::-1])
    return _between(step, steps, lrs), _between(step, steps, values)


@mistake(
    "one_cycle", "Momentum stays the same. It falls to `momenta[0]` on the way up and rises again on the way down."
)
def momentum_stays(step, epochs, steps_per_epoch, max_lr, cycle=0.9, start=10.0, final=1e4, momenta=(0.85, 0.95)):
    total = epochs * steps_per_epoch
    _inside(step, total)
    steps, lrs, _ = _points(total, max_lr, cycle, start, final, momenta)
    return _between(step, steps, lrs), momenta[1]


@mistake(
    "one_cycle", "The end is max_lr / final. `final` divides the learning rate of the start: max_lr / start / final."
)
def final_of_the_top(step, epochs, steps_per_epoch, max_lr, cycle=0.9, start=10.0, final=1e4, momenta=(0.85, 0.95)):
    total = epochs * steps_per_epoch
    _inside(step, total)
    steps, lrs, values = _points(total, max_lr, cycle, start, final / start, momenta)
    return _between(step, steps, lrs), _between(step, steps, values)


@mistake(
    "one_cycle", "After the cycle the learning rate stays at max_lr / start. It falls on, to max_lr / start / final."
)
def no_last_line(step, epochs, steps_per_epoch, max_lr, cycle=0.9, start=10.0, final=1e4, momenta=(0.85, 0.95)):
    total = epochs * steps_per_epoch
    _inside(step, total)
    steps, lrs, values = _points(total, max_lr, cycle, start, final, momenta)
    return _between(step, steps[:3], lrs[:3]), _between(step, steps, values)


@mistake(
    "one_cycle",
    "The learning rate falls from the top to the end in one line. First it falls to max_lr / start, in as many steps "
    "as it rose; only then to the end.",
)
def two_lines(step, epochs, steps_per_epoch, max_lr, cycle=0.9, start=10.0, final=1e4, momenta=(0.85, 0.95)):
    total = epochs * steps_per_epoch
    _inside(step, total)
    steps, lrs, values = _points(total, max_lr, cycle, start, final, momenta)
    keep = [0, 1, 3]
    return tuple(_between(step, [steps[i] for i in keep], [v[i] for i in keep]) for v in (lrs, values))


@mistake("one_cycle", "The top is in step h and the cycle ends in step 2h. Steps count from 0: h - 1 and 2h - 2.")
def points_one_late(step, epochs, steps_per_epoch, max_lr, cycle=0.9, start=10.0, final=1e4, momenta=(0.85, 0.95)):
    total = epochs * steps_per_epoch
    _inside(step, total)
    steps, lrs, values = _points(total, max_lr, cycle, start, final, momenta)
    steps = [0, steps[1] + 1, steps[2] + 2, total - 1]
    return _between(step, steps, lrs), _between(step, steps, values)


@mistake("one_cycle", "The points are at h, 2h and T. Steps count from 0: they are at h - 1, 2h - 2 and T - 1.")
def counts_from_one(step, epochs, steps_per_epoch, max_lr, cycle=0.9, start=10.0, final=1e4, momenta=(0.85, 0.95)):
    total = epochs * steps_per_epoch
    _inside(step, total)
    steps, lrs, values = _points(total, max_lr, cycle, start, final, momenta)
    steps = [0, steps[1] + 1, steps[2] + 2, total]
    return _between(step, steps, lrs), _between(step, steps, values)


@mistake("one_cycle", "The learning rate grows by equal factors. The lines are straight: add equal amounts.")
def equal_factors(step, epochs, steps_per_epoch, max_lr, cycle=0.9, start=10.0, final=1e4, momenta=(0.85, 0.95)):
    total = epochs * steps_per_epoch
    _inside(step, total)
    steps, lrs, values = _points(total, max_lr, cycle, start, final, momenta)
    return math.exp(_between(step, steps, [math.log(lr) for lr in lrs])), _between(step, steps, values)


@mistake("one_cycle", "The end is reached in step T, which does not exist. The last step is T - 1.")
def ends_one_late(step, epochs, steps_per_epoch, max_lr, cycle=0.9, start=10.0, final=1e4, momenta=(0.85, 0.95)):
    total = epochs * steps_per_epoch
    _inside(step, total)
    steps, lrs, values = _points(total, max_lr, cycle, start, final, momenta)
    steps[3] = total
    return _between(step, steps, lrs), _between(step, steps, values)


@mistake("one_cycle", "h is rounded to whole steps. The points may lie between two steps; do not round.")
def rounded_half(step, epochs, steps_per_epoch, max_lr, cycle=0.9, start=10.0, final=1e4, momenta=(0.85, 0.95)):
    total = epochs * steps_per_epoch
    _inside(step, total)
    steps, lrs, values = _points(total, max_lr, cycle, start, final, momenta)
    half = int(cycle * total / 2)
    steps[1:3] = half - 1, 2 * half - 2
    return _between(step, steps, lrs), _between(step, steps, values)


@mistake("one_cycle", "`cycle` is the length of the way up. It is that of the way up and down together: halve it.")
def cycle_is_the_way_up(step, epochs, steps_per_epoch, max_lr, cycle=0.9, start=10.0, final=1e4, momenta=(0.85, 0.95)):
    total = epochs * steps_per_epoch
    _inside(step, total)
    steps, lrs, values = _points(total, max_lr, 2 * cycle, start, final, momenta)
    return _between(step, steps[:2], lrs[:2]), _between(step, steps[:2], values[:2])


@mistake("one_cycle", "The lines are half waves of a cosine. Here they are straight.")
def half_waves(step, epochs, steps_per_epoch, max_lr, cycle=0.9, start=10.0, final=1e4, momenta=(0.85, 0.95)):
    total = epochs * steps_per_epoch
    _inside(step, total)
    steps, lrs, values = _points(total, max_lr, cycle, start, final, momenta)
    line = sum(step > s for s in steps[1:3])
    share = (1 - math.cos(math.pi * (step - steps[line]) / (steps[line + 1] - steps[line]))) / 2
    return tuple(v[line] + share * (v[line + 1] - v[line]) for v in (lrs, values))


@mistake("one_cycle", "A step outside of the training gets a learning rate. Raise ValueError: the loop is too long.")
def no_error(step, epochs, steps_per_epoch, max_lr, cycle=0.9, start=10.0, final=1e4, momenta=(0.85, 0.95)):
    steps, lrs, values = _points(epochs * steps_per_epoch, max_lr, cycle, start, final, momenta)
    return _between(step, steps, lrs), _between(step, steps, values)


@alternative("one_cycle")
def line_by_line(step, epochs, steps_per_epoch, max_lr, cycle=0.9, start=10.0, final=1e4, momenta=(0.85, 0.95)):
    total = epochs * steps_per_epoch
    if step < 0 or step >= total:
        raise ValueError("the training is over")
    bottom, top, end = max_lr / start, cycle * total / 2 - 1, max_lr / start / final
    if step <= top:
        up = step / top
    elif step <= 2 * top:
        up = 2 - step / top
    else:
        rest = (step - 2 * top) / (total - 1 - 2 * top)
        return bottom - rest * (bottom - end), float(momenta[1])
    return bottom + up * (max_lr - bottom), momenta[1] - up * (momenta[1] - momenta[0])


@alternative("one_cycle")
def interpolated(step, epochs, steps_per_epoch, max_lr, cycle=0.9, start=10.0, final=1e4, momenta=(0.85, 0.95)):
    total = epochs * steps_per_epoch
    if step not in range(total):
        raise ValueError(step)
    steps, lrs, values = _points(total, max_lr, cycle, start, final, momenta)
    return float(np.interp(step, steps, lrs)), float(np.interp(step, steps, values))
