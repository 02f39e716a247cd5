"""Sizes of the experiments of unit 07, beyond data parallel, and what they need at `gpu` scale."""

from course.system.fit import PROCESS_BYTES, Need, UnitNeeds

# name -> its value at (smoke, laptop, gpu)
SIZES = {
    "split_rows": (1, 2, 2),  # sequences of 64 tokens in the batch of a split block
    "seed_pairs": (2, 8, 8),  # trainings with one seed for all ranks and with a seed per rank
    "imitation_steps": (20, 200, 200),
}

NEEDS = UnitNeeds(
    minutes=5,
    resources={
        "memory": Need(5 * PROCESS_BYTES),  # four ranks and the notebook
        "gpu": Need(0),
    },
)
