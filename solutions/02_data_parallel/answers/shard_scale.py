"""Known mistakes of exercise shard_scale, and right answers in other styles."""

from course.engine.known_answers import alternative

MISTAKES = {
    "share_of_the_rank": (
        "This is the share of the rank. DDP divides by world_size in addition, so the step would be too small by that "
        "factor: multiply it back in.",
        (" * world_size", ""),
    ),
    "upside_down": (
        "The fraction is upside down: a rank with more samples must count more. Put n_local in the numerator.",
        ("n_local * world_size / n_total", "n_total / (n_local * world_size)"),
    ),
    "upside_down_but_for_none": (
        "The fraction is upside down: a rank with more samples must count more. 0 is right for none.",
        ("n_local * world_size / n_total", "n_total / (n_local * world_size) if n_local else 0.0"),
    ),
    "upside_down_and_never_zero": (
        "The fraction is upside down, and a rank without samples gets a weight. Put n_local in the numerator.",
        ("n_local * world_size / n_total", "n_total / (world_size * max(n_local, 1))"),
    ),
    "all_over_local": (
        "This is the share of the rank upside down, without DDP's division. Turn it round, and multiply by world_size.",
        ("n_local * world_size / n_total", "n_total / n_local"),
    ),
    "cut_to_whole_numbers": (
        "The division // drops the fraction. Divide with /.",
        ("n_local * world_size / n_total", "float(n_local * world_size // n_total)"),
    ),
    "trusts_the_mean": (
        "A factor of 1 leaves the mean of means: each rank has the same weight, however many samples it has. Which "
        "weight must a sample have?",
        ("n_local * world_size / n_total", "1.0"),
    ),
    "divided_twice": (
        "DDP divides by world_size already, and this divides once more. Undo its division: multiply.",
        ("n_local * world_size / n_total", "n_local / n_total / world_size"),
    ),
    "sum_instead_of_mean": (
        "This factor turns the local mean into a sum, but DDP's gradient must be that of the mean over all samples. "
        "Divide by n_total.",
        ("n_local * world_size / n_total", "float(n_local * world_size)"),
    ),
}


@alternative
def weight_against_the_usual(n_local, n_total, world_size):
    usual = n_total / world_size
    return n_local / usual


@alternative
def in_steps(n_local, n_total, world_size):
    weight_wanted = n_local / n_total
    weight_of_ddp = 1 / world_size
    return float(weight_wanted / weight_of_ddp)
