"""Probes of unit 02_data_parallel, one module per exercise."""

UNIT = "02_data_parallel"  # above the imports: `@exercise` reads it

from course.checks.data_parallel.accumulate import accumulate
from course.checks.data_parallel.all_gather import all_gather
from course.checks.data_parallel.all_reduce_seconds import all_reduce_seconds
from course.checks.data_parallel.average_hook import average_hook
from course.checks.data_parallel.broadcast_naive import broadcast_naive
from course.checks.data_parallel.broadcast_tree import broadcast_tree
from course.checks.data_parallel.Checkpoint import Checkpoint
from course.checks.data_parallel.data_parallel import data_parallel
from course.checks.data_parallel.ddp_facts import ddp_facts
from course.checks.data_parallel.device_of import device_of
from course.checks.data_parallel.efficiency import efficiency
from course.checks.data_parallel.gather import gather
from course.checks.data_parallel.gathered import gathered
from course.checks.data_parallel.global_moments import global_moments
from course.checks.data_parallel.halving_doubling import halving_doubling
from course.checks.data_parallel.lightning_fit import lightning_fit
from course.checks.data_parallel.NaiveDDP import NaiveDDP
from course.checks.data_parallel.OverlappedDDP import OverlappedDDP
from course.checks.data_parallel.rank_loss import rank_loss
from course.checks.data_parallel.reduce_naive import reduce_naive
from course.checks.data_parallel.reduce_tree import reduce_tree
from course.checks.data_parallel.ring_all_reduce import ring_all_reduce
from course.checks.data_parallel.scatter import scatter
from course.checks.data_parallel.shard_scale import shard_scale
from course.checks.data_parallel.sharded_bytes import sharded_bytes
from course.checks.data_parallel.ShardedOptimizer import ShardedOptimizer
from course.checks.data_parallel.ShardSampler import ShardSampler
from course.checks.data_parallel.train_ddp import train_ddp

__all__ = [
    "Checkpoint",
    "NaiveDDP",
    "OverlappedDDP",
    "ShardSampler",
    "ShardedOptimizer",
    "accumulate",
    "all_gather",
    "all_reduce_seconds",
    "average_hook",
    "broadcast_naive",
    "broadcast_tree",
    "data_parallel",
    "ddp_facts",
    "device_of",
    "efficiency",
    "gather",
    "gathered",
    "global_moments",
    "halving_doubling",
    "lightning_fit",
    "rank_loss",
    "reduce_naive",
    "reduce_tree",
    "ring_all_reduce",
    "scatter",
    "shard_scale",
    "sharded_bytes",
    "train_ddp",
]
