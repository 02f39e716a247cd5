"""Known mistakes of exercise polynomial_decay, and right answers in other styles."""

import math

from course.engine.known_answers import alternative

MISTAKES = {
    "rises_again": (
        "After the end the base is negative, and an even power makes the learning rate rise again. Clip the base at 0.",
        ("max(0.0, 1 - step / max_steps)", "(1 - step / max_steps)"),
    ),
    "cut_too_late": (
        "The result is clipped at 0, not the base, so an even power still rises. Put the max inside the power.",
        (
            "lr * max(0.0, 1 - step / max_steps) ** power",
            "max(0.0, lr * (1 - step / max_steps) ** power)",
        ),
    ),
    "always_square": (
        "`power` is ignored. Use it as the exponent; 2 is only its default.",
        ("** power", "** 2"),
    ),
    "one_step_short": (
        "The learning rate is 0 one step too early, at max_steps - 1. Divide by max_steps.",
        ("/ max_steps)", "/ max(max_steps - 1, 1))"),
    ),
    "power_inside": (
        "The power is applied to step / max_steps. Apply it to the rest: (1 - step / max_steps) ** power.",
        ("max(0.0, 1 - step / max_steps) ** power", "(1 - min(1.0, step / max_steps) ** power)"),
    ),
    "lr_inside_the_power": (
        "`lr` is raised to the power, too. Multiply by it outside: lr * (...) ** power.",
        ("lr * max(0.0, 1 - step / max_steps)", "(lr * max(0.0, 1 - step / max_steps))"),
    ),
    "multiplied_by_the_power": (
        "`power` is a factor here. Make it the exponent: **, not *.",
        ("** power", "* power"),
    ),
    "counted_from_one": (
        "Steps are counted from 1, so step 0 is already below lr. Use step / max_steps as it is.",
        ("1 - step", "1 - (step + 1)"),
    ),
    "begins_anew": (
        "The schedule starts again after max_steps. Return 0.0 from max_steps on.",
        ("- step /", "- step % max_steps /"),
    ),
    "one_step_late": (
        "The learning rate is 0 one step too late, at max_steps + 1. Divide by max_steps.",
        ("/ max_steps)", "/ (max_steps + 1))"),
    ),
}


@alternative
def with_a_branch(step, max_steps, lr, power=2):
    if step >= max_steps:
        return 0.0
    return lr * (1 - step / max_steps) ** power


@alternative
def stays_at_the_end(step, max_steps, lr, power=2):
    left = (max_steps - min(step, max_steps)) / max_steps
    return lr * math.pow(left, power) if left else 0
