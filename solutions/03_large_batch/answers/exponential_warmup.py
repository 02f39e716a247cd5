"""Known mistakes of exercise exponential_warmup, and right answers in other styles."""

import math

from course.checks.engine import alternative, mistake


@mistake(
    "exponential_warmup",
    "This ramp is a straight line. Here each step multiplies the learning rate by the same factor: use a power.",
)
def straight_line(step, steps_per_epoch, lr, warmup_epochs=0.1, start=0.01):
    length = warmup_epochs * steps_per_epoch
    return lr if step >= length else lr * (start + (1 - start) * step / length)


@mistake(
    "exponential_warmup",
    "The length is rounded to whole steps. Leave the fraction: a ramp of 4.5 steps has 5 steps below lr.",
)
def rounded_length(step, steps_per_epoch, lr, warmup_epochs=0.1, start=0.01):
    length = int(warmup_epochs * steps_per_epoch)
    return lr if step >= length else lr * start ** (1 - step / length)


@mistake(
    "exponential_warmup", "`start` is used as the first learning rate. It is a share of lr: step 0 has start * lr."
)
def start_is_a_rate(step, steps_per_epoch, lr, warmup_epochs=0.1, start=0.01):
    length = warmup_epochs * steps_per_epoch
    return lr if step >= length else start * (lr / start) ** (step / length)


@mistake("exponential_warmup", "Steps are counted from 1, so the first one is already past start * lr. Count from 0.")
def steps_from_one(step, steps_per_epoch, lr, warmup_epochs=0.1, start=0.01):
    length = warmup_epochs * steps_per_epoch
    return lr if step + 1 >= length else lr * start ** (1 - (step + 1) / length)


@mistake(
    "exponential_warmup",
    "The exponent is one step ahead, so step 0 is already past start * lr. Use step itself, which counts from 0.",
)
def exponent_one_ahead(step, steps_per_epoch, lr, warmup_epochs=0.1, start=0.01):
    length = warmup_epochs * steps_per_epoch
    return lr if step >= length else lr * start ** (1 - (step + 1) / length)


@mistake(
    "exponential_warmup",
    "The ramp is one step short: it reaches lr a step early. Divide by the length, not by the length minus 1.",
)
def one_step_short(step, steps_per_epoch, lr, warmup_epochs=0.1, start=0.01):
    length = warmup_epochs * steps_per_epoch
    return lr if step >= length - 1 else lr * start ** (1 - step / (length - 1))


@mistake("exponential_warmup", "The ramp falls: start is raised to a power that grows. At the end the power must be 0.")
def falls(step, steps_per_epoch, lr, warmup_epochs=0.1, start=0.01):
    length = warmup_epochs * steps_per_epoch
    return lr if step >= length else lr * start ** (step / length)


@mistake("exponential_warmup", "The learning rate keeps growing after the warm-up. After the ramp, return lr.")
def ramp_without_end(step, steps_per_epoch, lr, warmup_epochs=0.1, start=0.01):
    return lr * start ** (1 - step / max(warmup_epochs * steps_per_epoch, 1e-9))


@mistake("exponential_warmup", "The length is used as steps, but it is given in epochs. Multiply by steps_per_epoch.")
def epochs_taken_for_steps(step, steps_per_epoch, lr, warmup_epochs=0.1, start=0.01):
    return lr if step >= warmup_epochs else lr * start ** (1 - step / warmup_epochs)


@mistake(
    "exponential_warmup",
    "The exponent is divided by the length minus 1, so the ramp reaches lr a step early. Divide by the length.",
)
def length_minus_one(step, steps_per_epoch, lr, warmup_epochs=0.1, start=0.01):
    length = warmup_epochs * steps_per_epoch
    return lr if step >= length else lr * start ** (1 - step / (length - 1))


@mistake(
    "exponential_warmup",
    "The ramp starts anew in every epoch. Count steps over the whole training: leave `step` as it is.",
)
def anew_in_each_epoch(step, steps_per_epoch, lr, warmup_epochs=0.1, start=0.01):
    length, step = warmup_epochs * steps_per_epoch, step % steps_per_epoch
    return lr if step >= length else lr * start ** (1 - step / length)


@alternative("exponential_warmup")
def through_the_logarithm(step, steps_per_epoch, lr, warmup_epochs=0.1, start=0.01):
    length = warmup_epochs * steps_per_epoch
    left = max(length - step, 0.0)
    return lr * math.exp(math.log(start) * left / length) if left else float(lr)


@alternative("exponential_warmup")
def factor_at_each_step(step, steps_per_epoch, lr, warmup_epochs=0.1, start=0.01):
    length = warmup_epochs * steps_per_epoch
    rate = lr * start
    for done in range(step):
        if done + 1 >= length:
            return lr
        rate *= (1 / start) ** (1 / length)
    return rate if length > 0 else lr
