"""Sizes of the experiments of unit 02, data parallel, and what they need at `gpu` scale."""

from course.system.fit import PROCESS_BYTES, Need, UnitNeeds

VIRTUAL_BYTES = (2**10, 2**14, 2**17, 2**20, 2**23, 2**26, 2**30)
IMAGE_BYTES = 28 * 28 * 4  # of an image of Fashion-MNIST as floats

# name -> its value at (smoke, laptop, gpu)
SIZES = {
    "dataset": ("tiny", "fashion", "fashion"),
    "batch_size": (16, 64, 256),  # of one rank
    "rounds": (2, 7, 11),  # of what is not compared
    "seconds": (0.0, 12.0, 12.0),  # after which a comparison begins no further round
    # of the inference curve
    "batches": (
        (4, 16),
        (1, 4, 16, 64, 256, 1024),
        (16, 64, 256, 1024),
    ),
    "bytes": (
        (2**10, 2**16),
        (2**10, 2**13, 2**16, 2**19, 2**22, 2**24),
        (2**10, 2**14, 2**18, 2**22, 2**26),
    ),
    "epochs": (1, 3, 5),  # of the torchrun script
    "sequences": (2, 4, 8),  # of 64 tokens, in a batch of the small GPT on one rank
    "virtual_ranks": (8, 64, 64),
    "ranks_per_machine": (4, 8, 8),  # virtual ones that share a network card
    "virtual_bytes": ((2**10, 2**20, 2**30), VIRTUAL_BYTES, VIRTUAL_BYTES),
    "shard_steps": (2, 5, 5),  # of the sharded optimizers and of DDP
}

NEEDS = UnitNeeds(
    minutes=10,
    resources={
        "disk": Need(31e6),
        # four ranks and the notebook
        "memory": Need(5 * PROCESS_BYTES, {"bytes": 4 * 3, "batches": 4 * IMAGE_BYTES}),
        "gpu": Need(0, {"batches": 4 * IMAGE_BYTES * 32}),
    },
)
