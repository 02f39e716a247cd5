"""Known mistakes of exercise linear_warmup, and right answers in other styles."""

import numpy
import torch

from course.checks.engine import alternative, mistake


@mistake(
    "linear_warmup",
    "The ramp starts at 0, so the first step changes nothing. Goyal et al. start at the small batch's learning rate.",
)
def ramp_from_zero(step, steps_per_epoch, base_lr, lr, warmup_epochs=5):
    length = warmup_epochs * steps_per_epoch
    return lr if step >= length else lr * step / length


@mistake("linear_warmup", "The first step is already one amount above base_lr: it is counted as 1. Count steps from 0.")
def first_step_is_one(step, steps_per_epoch, base_lr, lr, warmup_epochs=5):
    length = warmup_epochs * steps_per_epoch
    return lr if step + 1 >= length else base_lr + (lr - base_lr) * (step + 1) / length


@mistake(
    "linear_warmup",
    "The learning rate changes only once per epoch. Gradual warm-up raises it at every step: use step itself.",
)
def staircase(step, steps_per_epoch, base_lr, lr, warmup_epochs=5):
    epoch = step // steps_per_epoch
    return lr if epoch >= warmup_epochs else base_lr + (lr - base_lr) * epoch / warmup_epochs


@mistake(
    "linear_warmup",
    "The length is rounded to whole steps. Leave the fraction: a ramp of 4.5 steps has 5 steps below lr.",
)
def length_cut(step, steps_per_epoch, base_lr, lr, warmup_epochs=5):
    length = int(warmup_epochs * steps_per_epoch)
    return lr if step >= length else base_lr + (lr - base_lr) * step / length


@mistake(
    "linear_warmup",
    "The ramp climbs by lr from base_lr, so it ends above lr. It climbs by the difference, lr - base_lr.",
)
def climbs_too_far(step, steps_per_epoch, base_lr, lr, warmup_epochs=5):
    length = warmup_epochs * steps_per_epoch
    return lr if step >= length else base_lr + lr * step / length


@mistake(
    "linear_warmup",
    "The larger of base_lr and lr * step / length has a flat piece first. The line itself starts at base_lr.",
)
def larger_of_both(step, steps_per_epoch, base_lr, lr, warmup_epochs=5):
    length = warmup_epochs * steps_per_epoch
    return lr if step >= length else max(base_lr, lr * step / length)


@mistake(
    "linear_warmup",
    "The ramp is one step short: it reaches lr a step early. Divide by the length, not by the length minus 1.",
)
def one_step_short(step, steps_per_epoch, base_lr, lr, warmup_epochs=5):
    length = warmup_epochs * steps_per_epoch
    return lr if step >= length - 1 else base_lr + (lr - base_lr) * step / (length - 1)


@mistake("linear_warmup", "The learning rate keeps growing after the warm-up. From the end of the ramp on, return lr.")
def line_without_end(step, steps_per_epoch, base_lr, lr, warmup_epochs=5):
    return base_lr + (lr - base_lr) * step / max(warmup_epochs * steps_per_epoch, 1e-9)


@mistake("linear_warmup", "This ramp multiplies by equal factors. Goyal et al. add equal amounts: a straight line.")
def equal_factors(step, steps_per_epoch, base_lr, lr, warmup_epochs=5):
    length = warmup_epochs * steps_per_epoch
    return lr if step >= length else base_lr * (lr / base_lr) ** (step / length)


@mistake(
    "linear_warmup", "On the ramp steps are counted from 1, so step 0 is already above base_lr. Count them from 0."
)
def one_ahead_on_the_ramp(step, steps_per_epoch, base_lr, lr, warmup_epochs=5):
    length = warmup_epochs * steps_per_epoch
    return lr if step >= length else base_lr + (lr - base_lr) * (step + 1) / length


@mistake(
    "linear_warmup",
    "The ramp climbs by lr and is cut off at lr, so it ends early. It climbs by the difference, lr - base_lr.",
)
def cut_off_at_lr(step, steps_per_epoch, base_lr, lr, warmup_epochs=5):
    length = warmup_epochs * steps_per_epoch
    return lr if step >= length else min(lr, base_lr + lr * step / length)


@alternative("linear_warmup")
def weighted_mean(step, steps_per_epoch, base_lr, lr, warmup_epochs=5):
    length = warmup_epochs * steps_per_epoch
    done = min(1.0, step / length) if length else 1.0
    return (1 - done) * base_lr + done * lr


@alternative("linear_warmup")
def interpolation(step, steps_per_epoch, base_lr, lr, warmup_epochs=5):
    end = warmup_epochs * steps_per_epoch
    return float(numpy.interp(step, [0, end], [base_lr, lr])) if end > 0 else lr


@alternative("linear_warmup")
def scheduler_of_torch(step, steps_per_epoch, base_lr, lr, warmup_epochs=5):
    end = warmup_epochs * steps_per_epoch
    optimizer = torch.optim.SGD([torch.zeros(1)], lr=1.0)
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda s: base_lr + s * (lr - base_lr) / end if s < end else lr
    )
    for _ in range(step):
        optimizer.step()
        schedule.step()
    return schedule.get_last_lr()[0]
