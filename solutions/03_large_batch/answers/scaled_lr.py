"""Known mistakes of exercise scaled_lr, and right answers in other styles."""

from fractions import Fraction

from course.checks.engine import alternative, mistake


@mistake(
    "scaled_lr",
    "This is the square-root rule, which keeps the variance of the update. The linear rule multiplies by k.",
)
def square_root_rule(base_lr, base_batch, batch, accumulation=1, ranks=1):
    return base_lr * (batch * accumulation * ranks / base_batch) ** 0.5


@mistake(
    "scaled_lr", "Only the batch of one rank counts here. An update averages over all micro steps and ranks: multiply."
)
def one_rank_only(base_lr, base_batch, batch, accumulation=1, ranks=1):
    return base_lr * batch / base_batch


@mistake(
    "scaled_lr",
    "The micro steps are left out. Their gradients add up to one update, so multiply by `accumulation`.",
)
def accumulation_left_out(base_lr, base_batch, batch, accumulation=1, ranks=1):
    return base_lr * batch * ranks / base_batch


@mistake(
    "scaled_lr",
    "The ranks are left out. Their gradients are averaged for one update, so multiply by `ranks`.",
)
def ranks_left_out(base_lr, base_batch, batch, accumulation=1, ranks=1):
    return base_lr * batch * accumulation / base_batch


@mistake(
    "scaled_lr",
    "k is rounded down to a whole number by //. A batch 1.5 times as large gets 1.5 times the lr: use /.",
)
def whole_multiples(base_lr, base_batch, batch, accumulation=1, ranks=1):
    return base_lr * (batch * accumulation * ranks // base_batch)


@mistake(
    "scaled_lr",
    "A smaller batch keeps the learning rate of the known recipe. The rule works both ways: half of it for half the "
    "batch.",
)
def never_below_the_base(base_lr, base_batch, batch, accumulation=1, ranks=1):
    return base_lr * max(1, batch * accumulation * ranks / base_batch)


@mistake(
    "scaled_lr",
    "The learning rate is divided by the micro steps. Only the loss is; the samples of an update add up.",
)
def divided_by_accumulation(base_lr, base_batch, batch, accumulation=1, ranks=1):
    return base_lr * batch * ranks / (base_batch * accumulation)


@mistake("scaled_lr", "The learning rate is divided by the ranks. Their samples count too: multiply by `ranks`.")
def divided_by_ranks(base_lr, base_batch, batch, accumulation=1, ranks=1):
    return base_lr * batch * accumulation / (base_batch * ranks)


@mistake("scaled_lr", "The ratio is upside down, so a larger batch gets a smaller learning rate. Divide by base_batch.")
def upside_down(base_lr, base_batch, batch, accumulation=1, ranks=1):
    return base_lr * base_batch / (batch * accumulation * ranks)


@alternative("scaled_lr")
def factor_by_factor(base_lr, base_batch, batch, accumulation=1, ranks=1):
    rate = base_lr / base_batch  # for a single sample
    for factor in (batch, accumulation, ranks):
        rate *= factor
    return rate


@alternative("scaled_lr")
def exact_fraction(base_lr, base_batch, batch, accumulation=1, ranks=1):
    return float(Fraction(batch * accumulation * ranks, base_batch) * Fraction(base_lr))
