"""Probes of unit 05_batch_grouping, one module per exercise."""

UNIT = "05_batch_grouping"  # above the imports: `@exercise` reads it

from course.checks.batch_grouping.best_thresholds import best_thresholds
from course.checks.batch_grouping.block_mask import block_mask
from course.checks.batch_grouping.BucketBatchSampler import BucketBatchSampler
from course.checks.batch_grouping.find_thresholds import find_thresholds
from course.checks.batch_grouping.flat_attention import flat_attention
from course.checks.batch_grouping.group_by_length import group_by_length
from course.checks.batch_grouping.pack import pack
from course.checks.batch_grouping.pad_batch import pad_batch
from course.checks.batch_grouping.padding_waste import padding_waste
from course.checks.batch_grouping.ragged_loss import ragged_loss
from course.checks.batch_grouping.run_grouped import run_grouped
from course.checks.batch_grouping.segment_max import segment_max
from course.checks.batch_grouping.shard_batches import shard_batches
from course.checks.batch_grouping.stragglers import stragglers
from course.checks.batch_grouping.token_budget_batches import token_budget_batches
from course.checks.batch_grouping.untouched import untouched

__all__ = [
    "BucketBatchSampler",
    "best_thresholds",
    "block_mask",
    "find_thresholds",
    "flat_attention",
    "group_by_length",
    "pack",
    "pad_batch",
    "padding_waste",
    "ragged_loss",
    "run_grouped",
    "segment_max",
    "shard_batches",
    "stragglers",
    "token_budget_batches",
    "untouched",
]
