"""Probes of unit 07_beyond_data_parallel, one module per exercise."""

UNIT = "07_beyond_data_parallel"  # above the imports: `@exercise` reads it

from course.checks.beyond_data_parallel.activation_bytes import activation_bytes
from course.checks.beyond_data_parallel.best_plan import best_plan
from course.checks.beyond_data_parallel.sent_bytes import sent_bytes
from course.checks.beyond_data_parallel.state_bytes import state_bytes
from course.checks.beyond_data_parallel.step_flops import step_flops

__all__ = [
    "activation_bytes",
    "best_plan",
    "sent_bytes",
    "state_bytes",
    "step_flops",
]
