"""Known mistakes of exercise shard_scale, and right answers in other styles."""

from course.checks.engine import alternative, mistake


@mistake(
    "shard_scale",
    "This is the share of the rank. DDP divides by world_size in addition, so the step would be too small by that "
    "factor: multiply it back in.",
)
def share_of_the_rank(n_local, n_total, world_size):
    return n_local / n_total


@mistake(
    "shard_scale",
    "The fraction is upside down: a rank with more samples must count more, not less.",
)
def upside_down(n_local, n_total, world_size):
    return n_total / (n_local * world_size)


@mistake("shard_scale", "The fraction is upside down: a rank with more samples must count more. 0 is right for none.")
def upside_down_but_for_none(n_local, n_total, world_size):
    return n_total / (n_local * world_size) if n_local else 0.0


@mistake(
    "shard_scale",
    "A factor of 1 leaves the mean of means: each rank has the same weight, however many samples it has. Which weight "
    "must a sample have?",
)
def trusts_the_mean(n_local, n_total, world_size):
    return 1.0


@mistake(
    "shard_scale",
    "DDP divides by world_size already, and this divides once more. Undo its division: multiply.",
)
def divided_twice(n_local, n_total, world_size):
    return n_local / n_total / world_size


@mistake(
    "shard_scale",
    "This is the number of samples. Right if the local loss is a mean that must become a sum, but the result is to be "
    "the mean over all: divide by n_total.",
)
def sum_instead_of_mean(n_local, n_total, world_size):
    return float(n_local * world_size)


@alternative("shard_scale")
def weight_against_the_usual(n_local, n_total, world_size):
    usual = n_total / world_size
    return n_local / usual


@alternative("shard_scale")
def in_steps(n_local, n_total, world_size):
    weight_wanted = n_local / n_total
    weight_of_ddp = 1 / world_size
    return float(weight_wanted / weight_of_ddp)
