"""Sizes of the experiments of unit 07, beyond data parallel, and what they need at `gpu` scale."""

from course.system.fit import PROCESS_BYTES, Need, UnitNeeds

# name -> its value at (smoke, laptop, gpu)
SIZES = {
    "rounds": (2, 5, 5),  # of what is not compared
    "seconds": (0.0, 8.0, 12.0),  # after which a comparison begins no further round
}

NEEDS = UnitNeeds(
    minutes=5,
    resources={
        "memory": Need(5 * PROCESS_BYTES),  # four ranks and the notebook
        "gpu": Need(0),
    },
)
