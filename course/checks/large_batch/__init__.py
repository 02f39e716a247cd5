"""Probes of unit 03_large_batch, one module per exercise."""

UNIT = "03_large_batch"  # above the imports: `@exercise` reads it

from course.checks.large_batch.accumulated_step import accumulated_step
from course.checks.large_batch.amp_step import amp_step
from course.checks.large_batch.exponential_warmup import exponential_warmup
from course.checks.large_batch.flushed_share import flushed_share
from course.checks.large_batch.LARS import LARS
from course.checks.large_batch.leave_one_out import leave_one_out
from course.checks.large_batch.linear_warmup import linear_warmup
from course.checks.large_batch.LossScaler import LossScaler
from course.checks.large_batch.neumf_forward import neumf_forward
from course.checks.large_batch.noise_scale import noise_scale
from course.checks.large_batch.NoiseMeter import NoiseMeter
from course.checks.large_batch.polynomial_decay import polynomial_decay
from course.checks.large_batch.rank_metrics import rank_metrics
from course.checks.large_batch.sample_negatives import sample_negatives
from course.checks.large_batch.scaled_lr import scaled_lr
from course.checks.large_batch.sgd_step import sgd_step
from course.checks.large_batch.shows_frozen_bias import shows_frozen_bias
from course.checks.large_batch.sweep import sweep

__all__ = [
    "LARS",
    "LossScaler",
    "NoiseMeter",
    "accumulated_step",
    "amp_step",
    "exponential_warmup",
    "flushed_share",
    "leave_one_out",
    "linear_warmup",
    "neumf_forward",
    "noise_scale",
    "polynomial_decay",
    "rank_metrics",
    "sample_negatives",
    "scaled_lr",
    "sgd_step",
    "shows_frozen_bias",
    "sweep",
]
