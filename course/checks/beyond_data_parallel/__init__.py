"""Probes of unit 07_beyond_data_parallel, one module per exercise."""

UNIT = "07_beyond_data_parallel"  # above the imports: `@exercise` reads it

from course.checks.beyond_data_parallel.step_flops import step_flops

__all__ = [
    "step_flops",
]
