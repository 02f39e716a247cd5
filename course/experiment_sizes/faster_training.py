"""Sizes of the experiments of unit 06, faster training, and what they need at `gpu` scale."""

from course.system.fit import PROCESS_BYTES, Need, UnitNeeds

ALL_IMAGES_BYTES = 70_000 * 28 * 28 * 4  # of Fashion-MNIST as floats

# name -> its value at (smoke, laptop, gpu)
SIZES = {
    "dataset": ("tiny", "fashion", "fashion"),
    # part 1, find out what is slow
    "cheap_batch": (16, 32, 512),
    "cheap_steps": (2, 6, 10),  # of one timed run
    "same_pairs": (2, 20, 20),  # comparisons of a step with itself
    "profile_steps": (3, 10, 16),  # six are the least that give an interval
    "worker_steps": (4, 40, 16),  # of a pass with workers
    "worker_seconds": (0, 15, 30),
    "advice_seconds": (0, 4, 10),  # the same, for the checklist
    "linear_rows": (64, 8192, 65_536),
    "few_rows_width": (16, 1024, 8192),
    "checkup_steps": (6, 30, 60),
    "gpt": (
        dict(vocabulary=32, dim=16, layers=1, heads=2, rows=2, columns=9),
        dict(vocabulary=256, dim=128, layers=2, heads=4, rows=8, columns=129),
        dict(vocabulary=4096, dim=1024, layers=4, heads=16, rows=8, columns=513),
    ),
    "regime_numbers": (2**12, 2**24, 2**26),  # of one operation that memory bounds
    "regime_width": (16, 1024, 4096),  # of a product that arithmetic bounds
    "eval_images": (100, 300, 2000),
    "norm_steps": (4, 20, 100),  # with and without normalisation
    "norm_seeds": (1, 6, 6),  # six are the least that give an interval
    # part 2, fewer steps
    # channels of the first convolution; the others have 2 and 4 times as many
    "few_width": (4, 8, 32),
    "few_images": (640, 2560, 10_000),
    "few_batch": (32, 64, 128),
    "few_epochs": (2, 3, 2),
    "few_range": (20, 100, 100),  # steps of the range test
    "few_lr": (0.014, 0.014, 0.014),  # of SGD with momentum, where nothing else is said
    "few_rates": (
        (0.0035, 0.9),
        (0.0035, 0.014, 0.056, 0.22, 0.9),
        (0.0035, 0.014, 0.056, 0.22, 0.9),
    ),
    "few_peaks": (
        (0.0175, 0.035, 0.07, 0.14),
        (0.0175, 0.035, 0.07, 0.14, 0.28),
        (0.0175, 0.035, 0.07, 0.14, 0.28),
    ),
    "few_seeds": (3, 12, 12),  # of the contest of schedules
    "few_extra_seeds": (2, 6, 6),  # of all else; six are the least that give an interval
    "few_step_seconds": (0, 6, 10),  # of the comparison of steps with three batch sizes
    "few_decay_steps": (10, 60, 200),
    "few_megabytes": (4, 16, 128),  # budget of a step
    "few_target_epochs": (2, 5, 5),  # at most, until the target is reached
    "few_target_steps": (1, 50, 100),  # but as many steps at least
    # part 3, cheaper steps
    "step_batch": (16, 128, 1024),  # images per step
    "steps_per_turn": (1, 2, 5),  # of each rung of the ladder, in each round
    "ladder_seconds": (0, 30, 30),  # that the rounds of each ladder take at most
    "gpt_rows": (2, 8, 8),  # sequences per step
    "gpt_columns": (16, 128, 512),  # tokens of a sequence
    "gpt_dim": (16, 128, 768),
    "gpt_layers": (1, 2, 4),
    "loss_batch": (8, 32, 256),  # images of a step in the comparison of losses
    "loss_rows": (1, 2, 4),  # sequences of one
    "loss_steps": (2, 20, 60),
    "loss_seeds": (2, 6, 6),  # six are the least that give an interval
    "cause_seconds": (0, 5, 10),  # of each pair that differs by one cause
    "long_columns": (32, 512, 2048),  # of attention alone
    "gelu_numbers": (2**12, 2**22, 2**26),
    # part 4, memory for time, and the race
    "blocks": (4, 16, 16),  # of the checkpointed model
    "block_width": (32, 256, 1024),
    "block_rows": (64, 512, 8192),  # rows of its batch
    "accumulated_batch": (64, 256, 1024),
    "race_images": (600, 10_000, 10_000),  # as many as the stand-in has
    "race_look": (128, 1024, 1024),  # images between two looks
    "race_target": (
        {"stand-in": 0.35, "real": 0.35},
        {"stand-in": 0.86, "real": 0.85},
        {"stand-in": 0.86, "real": 0.85},
    ),
    "race_seeds": (2, 8, 8),  # six are the least that give an interval
    "race_epochs": (4, 4, 4),  # at most, of a run
    "race_cost_seconds": (0.0, 40.0, 40.0),  # of the comparison of all pieces
    "race_cost_images": (32, 256, 2560),  # of each piece in a round of it
    "race_entry_seconds": (0.0, 15.0, 15.0),
    "checkup_minutes": (0.1, 0.25, 0.5),
    "compare_seconds": (0.0, 20.0, 20.0),
}

NEEDS = UnitNeeds(
    minutes=20,
    resources={
        "disk": Need(31e6),
        # all images, those of a split, and a copy that changes
        "memory": Need(PROCESS_BYTES + 3 * ALL_IMAGES_BYTES),
        "gpu": Need(
            4e9,  # rungs of a ladder, or the models of part 1, with their optimizers
            {
                "regime_numbers": 11 * 4,
                "gelu_numbers": 6 * 4,
                "gpt_rows": 450e6,  # with all scores in memory, and what CUDA graphs keep
                "block_rows": 8 * 16 * 1024 * 4,
                "few_megabytes": 2**20,
            },
            max,
        ),
    },
)
