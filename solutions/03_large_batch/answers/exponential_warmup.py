"""Known mistakes of exercise exponential_warmup, and right answers in other styles."""

import math

from course.engine.known_answers import alternative

MISTAKES = {
    "straight_line": (
        "This ramp is a straight line. Here each step multiplies the learning rate by the same factor: use a power.",
        ("start ** (1 - step / warmup_steps)", "(start + (1 - start) * step / warmup_steps)"),
    ),
    "rounded_length": (
        "The length is rounded to whole steps. Leave the fraction: a ramp of 4.5 steps has 5 steps below lr.",
        ("warmup_epochs * steps_per_epoch", "int(warmup_epochs * steps_per_epoch)"),
    ),
    "start_is_a_rate": (
        "`start` is used as the first learning rate. It is a share of lr: step 0 has start * lr.",
        (
            "lr * start ** (1 - step / warmup_steps)",
            "start * (lr / start) ** (step / warmup_steps)",
        ),
    ),
    "steps_from_one": (
        "Steps are counted from 1, so the first one is already past start * lr. Count from 0.",
        ("    warmup_steps =", "    step += 1\n    warmup_steps ="),
    ),
    "exponent_one_ahead": (
        "The exponent is one step ahead, so step 0 is already past start * lr. Use step itself, which counts from 0.",
        ("1 - step", "1 - (step + 1)"),
    ),
    "one_step_short": (
        "The ramp is one step short: it reaches lr a step early. Divide by the length, not by the length minus 1.",
        ("epochs * steps_per_epoch\n", "epochs * steps_per_epoch - 1\n"),
    ),
    "falls": (
        "The ramp falls: start is raised to a power that grows. At the end the power must be 0.",
        ("1 - step /", "step /"),
    ),
    "ramp_without_end": (
        "The learning rate keeps growing after the warm-up. After the ramp, return lr.",
        ("step >= warmup_steps", "warmup_steps == 0"),
    ),
    "epochs_taken_for_steps": (
        "The length is used as steps, but it is given in epochs. Multiply by steps_per_epoch.",
        ("epochs * steps_per_epoch\n", "epochs\n"),
    ),
    "length_minus_one": (
        "The exponent is divided by the length minus 1, so the ramp reaches lr a step early. Divide by the length.",
        ("step / warmup_steps", "step / (warmup_steps - 1)"),
    ),
    "anew_in_each_epoch": (
        "The ramp starts again in every epoch. Count steps over the whole training: leave `step` as it is.",
        ("    warmup_steps =", "    step %= steps_per_epoch\n    warmup_steps ="),
    ),
    "rounded_to_at_least_one": (
        "The length is rounded to whole steps, and to 1 where there is no warm-up. Leave fractions and 0 as they are.",
        ("warmup_epochs * steps_per_epoch", "max(1, int(warmup_epochs * steps_per_epoch))"),
    ),
}


@alternative
def through_the_logarithm(step, steps_per_epoch, lr, warmup_epochs=0.1, start=0.01):
    length = warmup_epochs * steps_per_epoch
    left = max(length - step, 0.0)
    return lr * math.exp(math.log(start) * left / length) if left else float(lr)


@alternative
def factor_at_each_step(step, steps_per_epoch, lr, warmup_epochs=0.1, start=0.01):
    length = warmup_epochs * steps_per_epoch
    rate = lr * start
    for done in range(step):
        if done + 1 >= length:
            return lr
        rate *= (1 / start) ** (1 / length)
    return rate if length > 0 else lr
