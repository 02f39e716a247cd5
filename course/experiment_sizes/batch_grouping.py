"""Sizes of the experiments of unit 05, batch grouping, and what they need at `gpu` scale."""

from course.system.fit import PROCESS_BYTES, Need, UnitNeeds

# name -> its value at (smoke, laptop, gpu)
SIZES = {
    "emb_dim": (32, 256, 2048),  # and width of the hidden layer
    "attention_dim": (16, 64, 512),
    # of sequences of four tokens
    "padded_lengths": ((8, 16, 32, 64), (32, 64, 128, 256), (128, 256, 512, 1024)),
    "rows_of_cost": (8, 16, 64),  # sequences of that batch
    # after which a comparison begins no further round, and that of the numbers of groups
    "seconds": (0.0, 10.0, 5.0),
    "overhead_seconds": (0.0, 25.0, 15.0),
    "demo_rows": (512, 1024, 1024),  # sequences of the demonstration's set
    "emb_dims": ((16, 32), (64, 256), (64, 1024, 8192)),  # at which grouping is timed
    "losing_dims": ((8, 16), (8, 64, 256), (64, 1024, 8192)),  # in batches of 32
    "lengths": (2000, 20_000, 50_000),  # of the search for thresholds
    "trials": ((1, 10), (1, 10, 100), (1, 10, 100)),  # of the random search
    # sequences of the batch with which all methods are compared, and its embedding dimension
    "rows_of_groups": (128, 512, 1024),
    "u_dim": (16, 32, 512),
    # sequences of the batch that is cut into groups, one per length at most, and its embedding
    # dimension, which is small, so that the overhead shows
    "rows_of_overhead": (64, 256, 2048),
    "overhead_dim": (8, 16, 512),
    "rows_of_waste": (2048, 32_768, 65_536),  # sequences of the set whose batches are chosen
    "batch_size": (16, 64, 256),
    "training_batch": (16, 32, 64),
    "text_rows": (128, 2048, 2048),  # texts of the epoch that is timed, padded and packed
    # texts that a transformer is trained on: a window of 50 batches holds a small part of them
    "training_rows": (128, 16_384, 16_384),
    "held_out": (32, 128, 256),  # texts of the validation loss
    "training_dim": (16, 32, 256),
    "training_layers": (1, 1, 2),
    "training_updates": (16, 128, 64),  # of random batches
    "training_seeds": (1, 6, 6),
    # of the transformer that is timed on padded and packed texts
    "text_dim": (16, 64, 256),
    "text_layers": (1, 2, 4),
    "row_length": (256, 256, 1024),  # tokens of a packed row
    "attention_rows": (16, 64, 128),  # sequences of the flat batch with attention
}

# Bytes of the GPU per unit of each size: five tensors of the largest kind, which a step keeps or
# needs for gradients. They are what a model of that size makes of padded cells, or the scores of
# four heads.
STEP_BYTES = {
    "emb_dims": 5 * 4 * 256 * 64,
    "rows_of_groups": 5 * 4 * 256 * 512,
    "rows_of_overhead": 5 * 4 * 256 * 512,
    "rows_of_cost": 5 * 4 * 4 * 1024**2,
}

NEEDS = UnitNeeds(
    minutes=10,
    resources={
        # the largest model is drawn on the CPU
        "memory": Need(PROCESS_BYTES, {"emb_dims": 2 * 4 * 8192}),
        "gpu": Need(0.6e9, STEP_BYTES, max),  # and that model with its gradients
    },
)
