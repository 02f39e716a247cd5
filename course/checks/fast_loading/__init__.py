"""Probes of unit 04_fast_loading, one module per exercise."""

UNIT = "04_fast_loading"  # above the imports: `@exercise` reads it

from course.checks.fast_loading.batch_bias import batch_bias
from course.checks.fast_loading.copy_ahead import copy_ahead
from course.checks.fast_loading.draw_rows import draw_rows
from course.checks.fast_loading.fit import fit
from course.checks.fast_loading.gather import gather
from course.checks.fast_loading.mean_and_std import mean_and_std
from course.checks.fast_loading.pipeline_seconds import pipeline_seconds
from course.checks.fast_loading.quasi_random_order import quasi_random_order
from course.checks.fast_loading.random_order import random_order
from course.checks.fast_loading.ridge_by_cg import ridge_by_cg
from course.checks.fast_loading.sgd_step_ import sgd_step_
from course.checks.fast_loading.shuffle_buffer import shuffle_buffer
from course.checks.fast_loading.step_in_place import step_in_place
from course.checks.fast_loading.write_rows import write_rows

__all__ = [
    "batch_bias",
    "copy_ahead",
    "draw_rows",
    "fit",
    "gather",
    "mean_and_std",
    "pipeline_seconds",
    "quasi_random_order",
    "random_order",
    "ridge_by_cg",
    "sgd_step_",
    "shuffle_buffer",
    "step_in_place",
    "write_rows",
]
