"""Probes of unit 07_beyond_data_parallel, one module per exercise."""

UNIT = "07_beyond_data_parallel"  # above the imports: `@exercise` reads it

from course.checks.beyond_data_parallel.copy_to_ranks import copy_to_ranks
from course.checks.beyond_data_parallel.head_rows import head_rows
from course.checks.beyond_data_parallel.rank_seeds import rank_seeds
from course.checks.beyond_data_parallel.split_bytes import split_bytes
from course.checks.beyond_data_parallel.SplitMLP import SplitMLP
from course.checks.beyond_data_parallel.step_flops import step_flops
from course.checks.beyond_data_parallel.sum_over_ranks import sum_over_ranks

__all__ = [
    "SplitMLP",
    "copy_to_ranks",
    "head_rows",
    "rank_seeds",
    "split_bytes",
    "step_flops",
    "sum_over_ranks",
]
