"""Known mistakes of exercise one_cycle, and right answers in other styles."""

import numpy as np

from course.engine.known_answers import alternative

MISTAKES = {
    "moves_once_per_epoch": (
        "The schedule moves once per epoch and stands still in between. Count the steps of the whole training: use "
        "`step` as it is.",
        ("    line =", "    step -= step % steps_per_epoch\n    line ="),
    ),
    "length_in_epochs": (
        "The training is taken to have `epochs` steps. It has epochs * steps_per_epoch steps.",
        ("    half,", "    total, step = epochs, min(step, epochs - 1)\n    half,"),
    ),
    "momentum_along": (
        "Momentum moves with the learning rate. It moves against it: low where the learning rate is high.",
        ("(low, high) =", "(high, low) ="),
    ),
    "momentum_stays": (
        "Momentum stays the same. It falls to `momenta[0]` on the way up and rises again on the way down.",
        ("momentum + share * (next_momentum - momentum)", "high"),
    ),
    "final_of_the_top": (
        "The end is max_lr / final. `final` divides the learning rate of the start: max_lr / start / final.",
        ("base / final", "max_lr / final"),
    ),
    "no_last_line": (
        "After the cycle the learning rate stays at max_lr / start. It has to fall further, to max_lr / start / final.",
        ("base / final", "base"),
    ),
    "two_lines": (
        "The learning rate falls from the top to the end in one line. First it falls to max_lr / start, in as many "
        "steps as it rose; only then to the end.",
        ("(2 * half - 2, base, high),", ""),
        ("[1:3]", "[1:2]"),
    ),
    "points_one_late": (
        "The top is in step h and the cycle ends in step 2h. Steps count from 0: h - 1 and 2h - 2.",
        ("(half - 1,", "(half,"),
        ("2 * half - 2", "2 * half"),
    ),
    "counts_from_one": (
        "The points are at h, 2h and T. Steps count from 0: they are at h - 1, 2h - 2 and T - 1.",
        ("(half - 1,", "(half,"),
        ("2 * half - 2", "2 * half"),
        ("(total - 1,", "(total,"),
    ),
    "equal_factors": (
        "The learning rate grows by equal factors. The lines are straight: add equal amounts.",
        ("lr + share * (next_lr - lr)", "lr * (next_lr / lr) ** share"),
    ),
    "ends_one_late": (
        "The end is reached in step T, which does not exist. The last step is T - 1.",
        ("(total - 1,", "(total,"),
    ),
    "rounded_half": (
        "h is rounded to whole steps. The points may lie between two steps; do not round.",
        ("cycle * total / 2", "int(cycle * total / 2)"),
    ),
    "cycle_is_the_way_up": (
        "`cycle` is taken as the length of the way up. It is the length of both ways together: halve it.",
        ("cycle * total / 2", "cycle * total"),
    ),
    "half_waves": (
        "The lines are half waves of a cosine. Here they are straight.",
        (
            "(step - left) / (right - left)",
            "(1 - math.cos(math.pi * (step - left) / (right - left))) / 2",
        ),
    ),
    "no_error": (
        "A step outside the training gets a learning rate. Raise ValueError: the loop is too long.",
        ("not 0 <= step < total", "False"),
    ),
}


@alternative
def line_by_line(
    step, epochs, steps_per_epoch, max_lr, cycle=0.9, start=10.0, final=1e4, momenta=(0.85, 0.95)
):
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


@alternative
def interpolated(
    step, epochs, steps_per_epoch, max_lr, cycle=0.9, start=10.0, final=1e4, momenta=(0.85, 0.95)
):
    total = epochs * steps_per_epoch
    if step not in range(total):
        raise ValueError(step)
    half, base, (low, high) = cycle * total / 2, max_lr / start, momenta
    steps = 0, half - 1, 2 * half - 2, total - 1
    lr = np.interp(step, steps, [base, max_lr, base, base / final])
    return float(lr), float(np.interp(step, steps, [high, low, high, high]))
