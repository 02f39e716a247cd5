"""Sizes of the experiments of unit 03, large batches, and what they need at `gpu` scale."""

from course.system.fit import PROCESS_BYTES, Need, UnitNeeds

# name -> its value at (smoke, laptop, gpu)
SIZES = {
    "dataset": ("tiny", "ml-100k", "ml-1m"),
    "base_batch": (64, 256, 4096),  # the batch that everything else is a multiple of
    "base_lr": (0.5, 0.5, 1.0),  # of SGD at the base batch
    # at 16 and at 192 times the base batch
    "adam_lr": ((0.01, 0.035), (0.01, 0.035), (0.003, 0.02)),
    "adam_lr_small": (0.005, 0.00125, 0.001),  # at the base batch
    "lars_lr": (100.0, 120.0, 120.0),
    "epochs": (3, 6, 30),
    "long_epochs": (3, 12, 12),  # after which the small batch gains no more
    "pairs": (2, 6, 6),  # seeds of a comparison
    "perf_steps": (5, 10, 20),
    "amp_steps": (1, 2, 10),
    "seconds": (0.0, 12.0, 12.0),  # after which a comparison begins no further round
    "target": (0.48, 0.55, 0.55),  # validation HR@10 of the critical-batch experiment
    "target_epochs": (3, 15, 15),  # most that a run to the target may take
    # times the base batch
    "critical_times": ((4, 16, 192), (4, 16, 64, 192, 576), (4, 16, 64, 192, 576)),
    # the reader's own map in part 2: times the base batch, and epochs
    "map_times": ((1, 16, 192), (4, 16, 64, 192), (16, 64, 192)),
    "map_epochs": (1, 6, 6),
    "map_rate": (0.5, 0.5, 0.5),  # on the recorded map, at the smallest batch
    # part 3: trainings that are compared seed by seed, after others chose the learning rate
    "paired_seeds": (2, 6, 6),
    "tuning_seeds": (1, 2, 1),
    "warm_rows": (256, 2048, 2048),  # sequences of the text
    "warm_layers": (2, 12, 12),
    "warm_steps": (8, 200, 200),
    "warm_lr": (0.007, 0.007, 0.007),
    # at 192 times the base batch, three tries for each way
    "scale_lrs": (
        {"tensor": (0.14,), "model": (0.3,)},
        {"tensor": (0.14, 0.28, 0.56), "model": (1.0, 3.0, 10.0)},
        {"tensor": (0.02, 0.06, 0.2), "model": (0.2, 0.6, 2.0)},
    ),
    "adam_lrs": ((0.07,), (0.035, 0.07, 0.14), (0.01, 0.02, 0.06)),
    "sgd_peaks": ((24.0,), (2.0, 8.0, 24.0), (12.0, 48.0, 384.0)),
    "lars_peaks": ((120.0,), (60.0, 120.0, 240.0), (60.0, 120.0, 240.0)),
    "bias_peaks": ((120.0,), (2.0, 8.0, 30.0), (60.0, 120.0, 240.0)),  # LARS, biases as in SGD
    # at 16 times the base batch
    "sgd_peaks_16": ((32.0,), (16.0, 32.0, 64.0), (32.0, 64.0)),
    "lars_peaks_16": ((30.0,), (15.0, 30.0, 60.0), (30.0, 60.0)),
    "noise_seeds": (1, 6, 6),
    # part 4: a network trained in 16 bits
    "tower_seeds": (1, 6, 6),
    "tower_rows": (256, 512, 512),
    "tower_updates": (10, 200, 200),
    "tower_lr": (0.01, 0.01, 0.01),
    "whole_recipe_seeds": (1, 6, 6),
    # part 5: the price of a result
    "price_seeds": (1, 6, 6),
    "grown_seeds": (1, 6, 6),
    "recipe_seeds": (1, 6, 6),
}

NEEDS = UnitNeeds(
    minutes=15,
    resources={
        "disk": Need(0, {"dataset": 20}),
        # twice: seen pairs, and an epoch with four negatives
        "memory": Need(PROCESS_BYTES, {"dataset": 650}),
        # the epochs of all seeds, and the largest batch: NVIDIA's NeuMF at 192 times the base
        # batch, some 10 kB per sample with its gradients
        "gpu": Need(1e9, {"base_batch": 192 * 10_000}),
    },
)
