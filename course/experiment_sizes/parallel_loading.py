"""Sizes of the experiments of unit 01, parallel loading, and what they need at `gpu` scale."""

import os

from course.system.fit import PROCESS_BYTES, Need, UnitNeeds

FACE_BYTES = 3 * 250 * 250 * 4  # of an image of LFW as floats
CROP_BYTES = 3 * 224 * 224 * 4  # of the part of it that a network sees
WORKERS_MAX = min(2 * (os.cpu_count() or 1), 32)  # that the unit starts

# name -> its value at (smoke, laptop, gpu)
SIZES = {
    "dataset": ("tiny", "lfw", "lfw"),
    "images": (64, 320, 1024),
    "batch_size": (8, 32, 32),
    # of passes that are compared: their batches, at least and at most as many rounds, seconds
    "pass_batch": (2, 16, 8),
    "pass_rounds": ((2, 2), (7, 41), (7, 41)),
    "pass_seconds": (1.0, 40.0, 30.0),
    "cores_seconds": (0.05, 0.2, 0.4),  # of making items in one process and in all, per round
    "handed_over": (4, 40, 40),  # batches of a pass in which nothing is computed
    "start_rounds": ((1, 1), (7, 7), (7, 7)),  # in which workers are started to time it
    "names": (20_000, 300_000, 1_000_000),  # of files, which two workers read
    "uneven": (90, 270, 450),  # items of the dataset that is slow now and then
    # of the run that is rescued, a quarter of them for validation
    "starved_images": (60, 480, 480),
    "starved_epochs": (2, 3, 2),
    "starved_rounds": ((1, 1), (7, 7), (7, 7)),
    # of `waterfall.measure`: steps of a run without workers, rounds at least and at most, seconds
    "waterfall": (
        {"steps": 2, "rounds": (2, 2), "seconds": 0.5},
        {"steps": 4, "rounds": (7, 15), "seconds": 20.0},
        {"steps": 8, "rounds": (7, 41), "seconds": 30.0},
    ),
    "checkup_minutes": (0.05, 0.25, 0.5),
}

NEEDS = UnitNeeds(
    minutes=25,
    resources={
        "disk": Need(0.212e9),  # the images and two traces
        "memory": Need(
            PROCESS_BYTES,
            # three batches per worker
            {
                "batch_size": 3 * WORKERS_MAX * FACE_BYTES,
                # part 2 takes batches four times as large with two workers
                "pass_batch": 3 * max(8, WORKERS_MAX) * FACE_BYTES,
                "starved_images": FACE_BYTES / 4,
            },
        ),
        "gpu": Need(0, {"batch_size": 8 * CROP_BYTES}),
    },
)
