"""Probes of unit 06_faster_training, one module per exercise."""

UNIT = "06_faster_training"  # above the imports: `@exercise` reads it

from course.checks.faster_training.accumulated import accumulated
from course.checks.faster_training.adamw_step import adamw_step
from course.checks.faster_training.autocast_region import autocast_region
from course.checks.faster_training.channels_last import channels_last
from course.checks.faster_training.checkpoint import checkpoint
from course.checks.faster_training.clip_grad_norm import clip_grad_norm
from course.checks.faster_training.evaluate_fast import evaluate_fast
from course.checks.faster_training.fused_gelu import fused_gelu
from course.checks.faster_training.hidden_syncs import hidden_syncs
from course.checks.faster_training.largest_batch import largest_batch
from course.checks.faster_training.lr_range_test import lr_range_test
from course.checks.faster_training.one_cycle import one_cycle
from course.checks.faster_training.saved_bytes import saved_bytes
from course.checks.faster_training.speedup_bound import speedup_bound
from course.checks.faster_training.useless_bias import useless_bias
from course.checks.faster_training.where_time_goes import where_time_goes

__all__ = [
    "accumulated",
    "adamw_step",
    "autocast_region",
    "channels_last",
    "checkpoint",
    "clip_grad_norm",
    "evaluate_fast",
    "fused_gelu",
    "hidden_syncs",
    "largest_batch",
    "lr_range_test",
    "one_cycle",
    "saved_bytes",
    "speedup_bound",
    "useless_bias",
    "where_time_goes",
]
