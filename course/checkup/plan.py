"""How this training would run on a cluster: *facts, a cluster* -> bytes and seconds per plan.

The plans are those of data parallelism, DDP and the stages of ZeRO, because what they send follows
from the bytes of the weights alone (units 02 and 07). What tensor and pipeline ranks send depends
on the model's layers, which a check-up does not know.
"""

import re
from dataclasses import dataclass

from course.checkup.facts import Facts
from course.checkup.formats import duration, size
from course.checkup.phases import BACKWARD, DATA, FORWARD, TRANSFER
from course.errors import CourseError

GB = 1e9
# bytes of memory, from the data sheets of NVIDIA
MEMORY = {"V100": 32e9, "A100": 80e9, "H100": 80e9, "H200": 141e9, "B200": 180e9, "L4": 24e9}
_CLUSTER = re.compile(r"(\d+)x([A-Za-z0-9]+)@(\d+(?:\.\d+)?)GB/s")
_SIZE = re.compile(r"(\d+(?:\.\d+)?)GB", re.IGNORECASE)
PLANS = ("DDP", "ZeRO-1", "ZeRO-2", "ZeRO-3")
ASSUMES = """\
  Assumed: each device computes the watched batch in the watched time, without its data; all state
  is cut evenly; messages go round a ring at full speed and hide behind backward (DDP and ZeRO-1:
  behind the last of a step; ZeRO-3: behind forward, too).
  Not known: how fast that device computes, what else its memory holds, latency, and what tensor and
  pipeline ranks would send, which depends on the layers (07/1)."""


@dataclass(frozen=True)
class Cluster:
    """So many devices, bytes of memory of each, and bytes per second that each sends."""

    devices: int
    memory: float
    bandwidth: float


@dataclass(frozen=True)
class Row:
    """What a plan takes on a cluster."""

    plan: str
    n_bytes: float  # that each device holds
    seconds: float  # of a step
    fits: bool


def parse(text: str) -> Cluster:
    """The Cluster of "8xH100@450GB/s" or "8x24GB@10GB/s".

    Raises: CourseError if the text is not of this form, or the device is not known.
    """
    found = _CLUSTER.fullmatch(text)
    if not found or int(found[1]) < 1 or float(found[3]) == 0:
        raise CourseError(
            f"--plan {text} is no cluster; write it as 8xH100@450GB/s or 8x24GB@10GB/s."
        )
    said = _SIZE.fullmatch(found[2])
    if not said and found[2].upper() not in MEMORY:
        raise CourseError(
            f"the memory of {found[2]} is not known; say it, as in {found[1]}x24GB@{found[3]}GB/s. "
            f"Known are {', '.join(MEMORY)}."
        )
    memory = float(said[1]) * GB if said else MEMORY[found[2].upper()]
    return Cluster(int(found[1]), memory, float(found[3]) * GB)


def rows(facts: Facts, cluster: Cluster) -> list[Row]:
    """A Row per plan, those that fit first, then the fastest, then the smallest.

    Each device computes the batch that was watched, so a step of the cluster has `devices` times as
    many samples.
    """
    found = [_row(plan, facts, cluster) for plan in PLANS]
    return sorted(found, key=lambda row: (not row.fits, row.seconds, row.n_bytes))


def text(facts: Facts, cluster: Cluster) -> str:
    """The table of the plans, best first, with what it assumes and cannot know."""
    if not facts.phases:
        return "Plans: no step was timed, so nothing is known of them."
    if facts.ranks > 1:
        return "Plans: watch one rank, because steps of several already wait for each other."
    lines = [
        f"Plans for {cluster.devices} devices of {size(cluster.memory)} that send "
        f"{cluster.bandwidth / GB:g} GB/s, {cluster.devices} times the watched batch per step:"
    ]
    for row in rows(facts, cluster):
        fits = "" if row.fits else "   does not fit"
        costs = f"{size(row.n_bytes):>9} per device, {duration(row.seconds):>9} per step"
        lines.append(f"  {row.plan:<8} {costs}{fits}")
    if facts.memory.activations is None:
        lines.append("  Activations were not seen, and come on top.")
    return "\n".join([*lines, ASSUMES])


def _row(plan: str, facts: Facts, cluster: Cluster) -> Row:
    """What `plan` holds and takes: gradients hide behind backward, gathers behind forward, too.

    Where gradients accumulate, DDP and ZeRO-1 send them once, during the last backward pass.
    """
    kept = facts.memory
    n = cluster.devices
    stage = 0 if plan == "DDP" else int(plan[-1])
    state = kept.weights / (n if stage >= 3 else 1)
    state += kept.gradients / (n if stage >= 2 else 1)
    state += kept.optimizer / (n if stage >= 1 else 1)
    n_bytes = state + (kept.activations or 0)
    passes = max(1, round(facts.backwards))  # more than one if gradients accumulate
    halves = (2, 2, passes + 1, 3 * passes)[stage]
    half = kept.gradients * (n - 1) / n / cluster.bandwidth
    hidden = _seconds(facts, BACKWARD)
    if stage <= 1:
        hidden /= passes  # gradients add up, and travel during the last backward pass
    if stage == 3:
        hidden += _seconds(facts, FORWARD)
    waits = max(0.0, halves * half - hidden)
    return Row(plan, n_bytes, _computing(facts) + waits, n_bytes <= cluster.memory)


def _computing(facts: Facts) -> float:
    """Seconds of a step without its data, which other ranks load at the same time."""
    return facts.seconds.median - _seconds(facts, DATA) - _seconds(facts, TRANSFER)


def _seconds(facts: Facts, phase: str) -> float:
    return facts.phases[phase].seconds if phase in facts.phases else 0.0
