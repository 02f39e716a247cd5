"""Known mistakes of exercise scaled_lr, and right answers in other styles."""

from fractions import Fraction

from course.engine.known_answers import alternative

MISTAKES = {
    "square_root_rule": (
        "This is the square-root rule, which keeps the variance of the update. The linear rule multiplies by k.",
        (
            "batch * accumulation * ranks / base_batch",
            "(batch * accumulation * ranks / base_batch) ** 0.5",
        ),
    ),
    "one_rank_only": (
        "Only the batch of one rank counts here. An update averages over all micro steps and ranks: multiply.",
        (" * accumulation * ranks", ""),
    ),
    "accumulation_left_out": (
        "The micro steps are left out. Their gradients add up to one update, so multiply by `accumulation`.",
        (" * accumulation", ""),
    ),
    "ranks_left_out": (
        "The ranks are left out. Their gradients are averaged for one update, so multiply by `ranks`.",
        (" * ranks", ""),
    ),
    "whole_multiples": (
        "k is rounded down to a whole number by //. A batch 1.5 times as large gets 1.5 times the lr: use /.",
        (
            "batch * accumulation * ranks / base_batch",
            "(batch * accumulation * ranks // base_batch)",
        ),
    ),
    "never_below_the_base": (
        "A smaller batch keeps the known recipe's lr. The rule works both ways: half of it for half the batch.",
        (
            "batch * accumulation * ranks / base_batch",
            "max(1, batch * accumulation * ranks / base_batch)",
        ),
    ),
    "divided_by_accumulation": (
        "The learning rate is divided by the micro steps. Only the loss is; the samples of an update add up.",
        ("* accumulation", "/ accumulation"),
    ),
    "divided_by_ranks": (
        "The learning rate is divided by the ranks. Their samples count too: multiply by `ranks`.",
        ("* ranks", "/ ranks"),
    ),
    "upside_down": (
        "The ratio is upside down, so a larger batch gets a smaller learning rate. Divide by base_batch.",
        (
            "batch * accumulation * ranks / base_batch",
            "base_batch / (batch * accumulation * ranks)",
        ),
    ),
    "added": (
        "Micro steps and ranks are added. Each rank makes all the micro steps, so multiply both.",
        ("accumulation * ranks", "(accumulation + ranks)"),
    ),
}


@alternative
def factor_by_factor(base_lr, base_batch, batch, accumulation=1, ranks=1):
    rate = base_lr / base_batch  # for a single sample
    for factor in (batch, accumulation, ranks):
        rate *= factor
    return rate


@alternative
def exact_fraction(base_lr, base_batch, batch, accumulation=1, ranks=1):
    return float(Fraction(batch * accumulation * ranks, base_batch) * Fraction(base_lr))
