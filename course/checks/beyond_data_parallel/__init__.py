"""Probes of unit 07_beyond_data_parallel, one module per exercise."""

UNIT = "07_beyond_data_parallel"  # above the imports: `@exercise` reads it

from course.checks.beyond_data_parallel.activation_bytes import activation_bytes
from course.checks.beyond_data_parallel.best_plan import best_plan
from course.checks.beyond_data_parallel.copy_to_ranks import copy_to_ranks
from course.checks.beyond_data_parallel.forward_seconds import forward_seconds
from course.checks.beyond_data_parallel.gathered_ahead import gathered_ahead
from course.checks.beyond_data_parallel.gpipe import gpipe
from course.checks.beyond_data_parallel.head_rows import head_rows
from course.checks.beyond_data_parallel.layer_backward import layer_backward
from course.checks.beyond_data_parallel.MasterShard import MasterShard
from course.checks.beyond_data_parallel.merge_parts import merge_parts
from course.checks.beyond_data_parallel.most_live import most_live
from course.checks.beyond_data_parallel.one_f_one_b import one_f_one_b
from course.checks.beyond_data_parallel.outer_step import outer_step
from course.checks.beyond_data_parallel.pieces_to_read import pieces_to_read
from course.checks.beyond_data_parallel.rank_seeds import rank_seeds
from course.checks.beyond_data_parallel.route_tokens import route_tokens
from course.checks.beyond_data_parallel.run_order import run_order
from course.checks.beyond_data_parallel.save_interval import save_interval
from course.checks.beyond_data_parallel.sent_bytes import sent_bytes
from course.checks.beyond_data_parallel.split_bytes import split_bytes
from course.checks.beyond_data_parallel.SplitMLP import SplitMLP
from course.checks.beyond_data_parallel.state_bytes import state_bytes
from course.checks.beyond_data_parallel.step_flops import step_flops
from course.checks.beyond_data_parallel.sum_over_ranks import sum_over_ranks
from course.checks.beyond_data_parallel.zigzag import zigzag

__all__ = [
    "MasterShard",
    "SplitMLP",
    "activation_bytes",
    "best_plan",
    "copy_to_ranks",
    "forward_seconds",
    "gathered_ahead",
    "gpipe",
    "head_rows",
    "layer_backward",
    "merge_parts",
    "most_live",
    "one_f_one_b",
    "outer_step",
    "pieces_to_read",
    "rank_seeds",
    "route_tokens",
    "run_order",
    "save_interval",
    "sent_bytes",
    "split_bytes",
    "state_bytes",
    "step_flops",
    "sum_over_ranks",
    "zigzag",
]
