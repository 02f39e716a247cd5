"""Known mistakes of exercise polynomial_decay, and right answers in other styles."""

import math

from course.checks.engine import alternative, mistake


@mistake(
    "polynomial_decay",
    "After the end the base is negative, and an even power makes the learning rate rise again. Clip the base at 0.",
)
def rises_again(step, max_steps, lr, power=2):
    return lr * (1 - step / max_steps) ** power


@mistake(
    "polynomial_decay",
    "The result is clipped at 0, not the base, so an even power still rises. Put the max inside the power.",
)
def cut_too_late(step, max_steps, lr, power=2):
    return max(0.0, lr * (1 - step / max_steps) ** power)


@mistake("polynomial_decay", "`power` is ignored. Use it as the exponent; 2 is only its default.")
def always_square(step, max_steps, lr, power=2):
    return lr * max(0.0, 1 - step / max_steps) ** 2


@mistake(
    "polynomial_decay",
    "The learning rate is 0 one step too early, at max_steps - 1. Divide by max_steps.",
)
def one_step_short(step, max_steps, lr, power=2):
    return lr * max(0.0, 1 - step / max(max_steps - 1, 1)) ** power


@mistake(
    "polynomial_decay",
    "The power is applied to step / max_steps. Apply it to the rest: (1 - step / max_steps) ** power.",
)
def power_inside(step, max_steps, lr, power=2):
    return lr * (1 - min(1.0, step / max_steps) ** power)


@mistake("polynomial_decay", "`lr` is raised to the power, too. Multiply by it outside: lr * (...) ** power.")
def lr_inside_the_power(step, max_steps, lr, power=2):
    return (lr * max(0.0, 1 - step / max_steps)) ** power


@mistake("polynomial_decay", "`power` is a factor here. Make it the exponent: **, not *.")
def multiplied_by_the_power(step, max_steps, lr, power=2):
    return lr * max(0.0, 1 - step / max_steps) * power


@mistake("polynomial_decay", "Steps are counted from 1, so step 0 is already below lr. Use step / max_steps as it is.")
def counted_from_one(step, max_steps, lr, power=2):
    return lr * max(0.0, 1 - (step + 1) / max_steps) ** power


@mistake("polynomial_decay", "The schedule begins anew after max_steps. It ends there: 0.0 from max_steps on.")
def begins_anew(step, max_steps, lr, power=2):
    return lr * (1 - step % max_steps / max_steps) ** power


@alternative("polynomial_decay")
def with_a_branch(step, max_steps, lr, power=2):
    if step >= max_steps:
        return 0.0
    return lr * (1 - step / max_steps) ** power


@alternative("polynomial_decay")
def stays_at_the_end(step, max_steps, lr, power=2):
    left = (max_steps - min(step, max_steps)) / max_steps
    return lr * math.pow(left, power) if left else 0
