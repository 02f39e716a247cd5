"""Known mistakes of exercise linear_warmup, and right answers in other styles."""

import numpy

from course.engine.known_answers import alternative

MISTAKES = {
    "ramp_from_zero": (
        "The ramp starts at 0: the first step changes nothing. Goyal et al. start at the small batch's learning rate.",
        ("base_lr + (lr - base_lr) * step", "lr * step"),
    ),
    "first_step_is_one": (
        "The first step is already one amount above base_lr: it is counted as 1. Count steps from 0.",
        ("    warmup_steps =", "    step += 1\n    warmup_steps ="),
    ),
    "staircase": (
        "The learning rate changes only once per epoch. Gradual warm-up raises it at every step: use step itself.",
        ("    warmup_steps =", "    step -= step % steps_per_epoch\n    warmup_steps ="),
    ),
    "length_cut": (
        "The length is rounded to whole steps. Leave the fraction: a ramp of 4.5 steps has 5 steps below lr.",
        ("warmup_epochs * steps_per_epoch", "int(warmup_epochs * steps_per_epoch)"),
    ),
    "climbs_too_far": (
        "The ramp climbs by lr from base_lr, so it ends above lr. It climbs by the difference, lr - base_lr.",
        ("(lr - base_lr)", "lr"),
    ),
    "larger_of_both": (
        "The ramp is the larger of base_lr and lr * step / length, so it starts flat. Let it rise from step 0.",
        (
            "base_lr + (lr - base_lr) * step / warmup_steps",
            "max(base_lr, lr * step / warmup_steps)",
        ),
    ),
    "one_step_short": (
        "The ramp is one step short: it reaches lr a step early. Divide by the length, not by the length minus 1.",
        ("epochs * steps_per_epoch\n", "epochs * steps_per_epoch - 1\n"),
    ),
    "divided_by_one_less": (
        "The step is divided by the length minus 1, so the line is too steep. Divide it by the length.",
        ("step / warmup_steps", "step / (warmup_steps - 1)"),
    ),
    "line_without_end": (
        "The learning rate keeps growing after the warm-up. From the end of the ramp on, return lr.",
        ("step >= warmup_steps", "warmup_steps == 0"),
    ),
    "equal_factors": (
        "This ramp multiplies by equal factors. Goyal et al. add equal amounts: a straight line.",
        (
            "base_lr + (lr - base_lr) * step / warmup_steps",
            "base_lr * (lr / base_lr) ** (step / warmup_steps)",
        ),
    ),
    "one_ahead_on_the_ramp": (
        "On the ramp steps are counted from 1, so step 0 is already above base_lr. Count them from 0.",
        ("* step /", "* (step + 1) /"),
    ),
    "cut_off_at_lr": (
        "The ramp climbs by lr and is cut off at lr, so it ends early. It climbs by the difference, lr - base_lr.",
        (
            "base_lr + (lr - base_lr) * step / warmup_steps",
            "min(lr, base_lr + lr * step / warmup_steps)",
        ),
    ),
    "at_least_one_step": (
        "A length below 1 is raised to 1, so without a warm-up step 0 gets base_lr. Leave the length as it is.",
        ("warmup_epochs * steps_per_epoch", "max(1, warmup_epochs * steps_per_epoch)"),
    ),
}


@alternative
def weighted_mean(step, steps_per_epoch, base_lr, lr, warmup_epochs=5):
    length = warmup_epochs * steps_per_epoch
    done = min(1.0, step / length) if length else 1.0
    return (1 - done) * base_lr + done * lr


@alternative
def interpolation(step, steps_per_epoch, base_lr, lr, warmup_epochs=5):
    end = warmup_epochs * steps_per_epoch
    return float(numpy.interp(step, [0, end], [base_lr, lr])) if end > 0 else lr
