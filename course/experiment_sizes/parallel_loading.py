"""Sizes of the experiments of unit 01, parallel loading, and what they need at `gpu` scale."""

import os

from course.system.fit import PROCESS_BYTES, Need, UnitNeeds

FACE_BYTES = 3 * 250 * 250 * 4  # of an image of LFW as floats
CROP_BYTES = 3 * 224 * 224 * 4  # of the part of it that a network sees
WORKERS_MAX = min(2 * (os.cpu_count() or 1), 32)  # that the unit starts

# name -> its value at (smoke, laptop, gpu)
SIZES = {
    "dataset": ("tiny", "lfw", "lfw"),
    "images": (64, 320, 4096),
    "batch_size": (8, 32, 64),
    "rounds": (2, 3, 5),  # passes that are timed
    "paired_rounds": (1, 5, 7),  # in which one worker is measured before many are
    "cores_seconds": (0.05, 0.2, 0.4),  # of making items in one process and in all, per round
    "handed_over": (2, 6, 8),  # batches of a pass in which nothing is computed
    "starts": (1, 1, 3),  # how often workers are started to time it
    "uneven": (90, 270, 450),  # items of the dataset that is slow now and then
    # of the run that is rescued, a quarter of them for validation
    "starved_images": (60, 480, 2048),
    "starved_epochs": (2, 3, 3),
    "starved_rounds": (1, 2, 3),
}

NEEDS = UnitNeeds(
    minutes=25,
    resources={
        "disk": Need(0.212e9),  # the images and two traces
        "memory": Need(
            PROCESS_BYTES,
            # three batches per worker
            {"batch_size": 3 * WORKERS_MAX * FACE_BYTES, "starved_images": FACE_BYTES / 4},
        ),
        "gpu": Need(0, {"batch_size": 8 * CROP_BYTES}),
    },
)
