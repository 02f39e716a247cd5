"""Known mistakes of exercise efficiency, and right answers in other styles."""

import numpy as np
import torch

from course.engine.known_answers import alternative

MISTAKES = {
    "speedup_alone": (
        "This is the speed-up. Strong scaling divides it by the number of ranks.",
        (" if weak else speedup / torch.tensor(ranks)", ""),
    ),
    "always_strong": (
        "Weak scaling is divided by the number of ranks too. There the ideal time is t1 itself.",
        ("speedup if weak else ", ""),
    ),
    "strong_and_weak_swapped": (
        "Strong and weak scaling are swapped. Strong scaling divides by the number of ranks.",
        (
            "speedup if weak else speedup / torch.tensor(ranks)",
            "speedup / torch.tensor(ranks) if weak else speedup",
        ),
    ),
    "list_times_tensor": (
        "`ranks` is a list, which cannot be multiplied by a tensor. Make it a tensor: torch.tensor(ranks).",
        ("speedup / torch.tensor(ranks)", "seconds[ranks.index(1)] / (ranks * seconds)"),
    ),
    "first_in_the_list": (
        "t1 is taken from the first place of the list. Look for the measurement on one rank.",
        ("ranks.index(1)", "0 * ranks.index(1)"),
    ),
    "whatever_comes_first": (
        "t1 is the first of the list, whatever its number of ranks. Look for one rank, and raise ValueError if there "
        "is none.",
        ("ranks.index(1)", "0"),
    ),
    "ratio_upside_down": (
        "The fraction is upside down: more time gives more efficiency. Divide t1 by the seconds.",
        ("seconds[ranks.index(1)] / seconds", "seconds / seconds[ranks.index(1)]"),
        ("speedup /", "speedup *"),
    ),
    "cut_off": (
        "Values above 1 are cut off. They happen, and are worth a look: leave them.",
        ("return speedup", "return (speedup"),
        ("(ranks)", "(ranks)).clamp(max=1)"),
    ),
    "single_precision": (
        "The result has the dtype of `seconds`, float32. Convert the whole tensor first, seconds.double(): t1 alone "
        "does not change the dtype.",
        ("seconds.double()", "seconds"),
    ),
    "fewest_ranks": (
        "There is no measurement on one rank, and t1 is taken from another one. Raise a ValueError.",
        ("ranks.index(1)", "ranks.index(min(ranks))"),
    ),
}


@alternative
def one_at_a_time(ranks, seconds, weak=False):
    times = dict(zip(ranks, seconds.tolist(), strict=True))
    if 1 not in times:
        raise ValueError("measure on one rank first")
    return torch.tensor(
        [times[1] / (t * (1 if weak else n)) for n, t in times.items()], dtype=torch.float64
    )


@alternative
def share_of_the_ideal_time(ranks, seconds, weak=False):
    n = np.array(ranks)
    measured = seconds.numpy().astype(np.float64)
    (alone,) = measured[n == 1]  # not one value: ValueError
    ideal = np.full(len(n), alone) / (1 if weak else n)
    return torch.from_numpy(ideal / measured)
