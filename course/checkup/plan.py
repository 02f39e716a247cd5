"""How this training would run on a cluster: *facts, a cluster, the blocks* -> bytes and seconds.

What DDP and the stages of ZeRO send follows from the weights (units 02 and 07); with the blocks it
is known when (plan_data.py). Tensor and pipeline ranks cut the blocks (plan_blocks.py).
"""

from course.checkup.cluster import GB, Cluster
from course.checkup.facts import Facts
from course.checkup.formats import duration, size
from course.checkup.plan_blocks import (
    PIPELINE,
    TENSOR,
    no_pipeline,
    no_tensor,
    pipeline_row,
    tensor_row,
)
from course.checkup.plan_costs import Row
from course.checkup.plan_data import PLANS, data_row
from course.checkup.structure import Structure

ASSUMES = """\
  Assumed: a device computes the watched batch in the watched time (divided by `speed`), without its
  data; messages go round a ring at full speed; gradients hide behind backward (of DDP and ZeRO-1
  behind the last of a step), and what ZeRO-3 gathers behind forward, too, unless `overlap = false`.
  ZeRO cuts each tensor by rows, as fully_shard. Tensor ranks share what lies between two linear
  layers, and keep the rest whole. A pipeline runs GPipe with the watched batch as micro-batch, and
  splits the blocks by time.
  Not known: how fast that device computes, and what else its memory holds, such as layers that
  ZeRO-3 has gathered."""


def rows(facts: Facts, cluster: Cluster, structure: Structure | None = None) -> list[Row]:
    """A Row per plan that is known: those that fit first, then the fastest, then the smallest.

    A step of the cluster has `devices` times as many samples as the watched one.
    """
    found = [data_row(plan, facts, cluster, structure) for plan in PLANS]
    if structure is not None and cluster.devices > 1:
        if not no_tensor(structure, cluster):
            found.append(tensor_row(facts, cluster, structure))
        if not no_pipeline(structure, cluster):
            found.append(pipeline_row(facts, cluster, structure))
    return sorted(found, key=lambda row: (not row.fits, row.seconds, row.n_bytes))


def text(facts: Facts, cluster: Cluster, structure: Structure | None = None) -> str:
    """The table of the plans, best first, with what it assumes and cannot know."""
    if not facts.phases:
        return "Plans: no step was timed, so nothing is known of them."
    if facts.ranks > 1:
        return "Plans: watch one rank, because steps of several already wait for each other."
    lines = [
        f"Plans for {cluster.devices} devices of {size(cluster.memory)} that send "
        f"{cluster.bandwidth / GB:g} GB/s, {cluster.devices} times the watched batch per step:"
    ]
    for row in rows(facts, cluster, structure):
        fits = "" if row.fits else "   does not fit"
        costs = f"{size(row.n_bytes):>9} per device, {duration(row.seconds):>9} per step"
        lines.append(f"  {row.plan:<8} {costs}, sends {size(row.sent):>7}{row.note}{fits}")
    lines += _not_known(cluster, structure)
    if facts.memory.activations is None:
        lines.append("  Activations were not seen, and come on top.")
    return "\n".join([*lines, ASSUMES])


def _not_known(cluster: Cluster, structure: Structure | None) -> list[str]:
    """A line per plan that the structure does not give."""
    if structure is None or cluster.devices == 1:
        return []
    reasons = {
        TENSOR: no_tensor(structure, cluster),
        PIPELINE: no_pipeline(structure, cluster),
    }
    return [f"  {plan:<8} not known: {reason}." for plan, reason in reasons.items() if reason]
