"""How this training would run on a cluster: *facts, a cluster, the blocks* -> bytes and seconds.

What DDP and the stages of ZeRO send follows from the weights (units 02 and 07); with the blocks it
is known when. Tensor and pipeline ranks cut the blocks: see plan_blocks.py.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from course.checkup.cluster import GB, Cluster
from course.checkup.cluster import parse as parse  # for the command
from course.checkup.facts import Facts
from course.checkup.formats import duration, size
from course.checkup.phases import BACKWARD, DATA, FORWARD, OPTIMIZER, TRANSFER
from course.checkup.structure import Parameter, Piece, Structure

PLANS = ("DDP", "ZeRO-1", "ZeRO-2", "ZeRO-3")
TENSOR = "tensor"
PIPELINE = "pipeline"
# DDP sends gradients in buckets: Li et al. 2020, arXiv:2006.15704, section 3.2.3, and torch's
# defaults of DistributedDataParallel
FIRST_BUCKET_BYTES = 2**20
BUCKET_BYTES = 25 * 2**20
ASSUMES = """\
  Assumed: a device computes the watched batch in the watched time (divided by `speed`), without its
  data; messages go round a ring at full speed; gradients hide behind backward, and what ZeRO-3
  gathers behind forward, too, unless `overlap = false`. ZeRO cuts each tensor by rows, as
  fully_shard. Tensor ranks share what lies between two linear layers, and keep the rest whole. A
  pipeline runs GPipe with the watched batch as micro-batch, and splits the blocks by time.
  Not known: how fast that device computes, and what else its memory holds, such as layers that
  ZeRO-3 has gathered."""


@dataclass(frozen=True)
class Row:
    """What a plan takes on a cluster."""

    plan: str
    n_bytes: float  # that each device holds
    seconds: float  # of a step
    fits: bool
    state: float = 0.0  # weights, gradients and optimizer, as part of n_bytes
    sent: float = 0.0  # bytes that a device sends in a step, by a ring
    note: str = ""  # how the model is cut


@dataclass(frozen=True)
class Work:
    """Seconds of a step that a device computes alone."""

    forward: float
    backward: float
    optimizer: float
    loss: float  # the script's own code between forward and backward
    code: float  # the rest of it
    passes: int  # backward passes: more than one if gradients accumulate

    @property
    def seconds(self) -> float:
        """Seconds of all of it."""
        return self.forward + self.backward + self.optimizer + self.loss + self.code


def work(facts: Facts, cluster: Cluster) -> Work:
    """The Work of the watched step on a device of the cluster, without its data."""
    step = facts.seconds.median / cluster.speed
    forward, backward, optimizer, loading = (
        step * facts.phases.share(*names)
        for names in ((FORWARD,), (BACKWARD,), (OPTIMIZER,), (DATA, TRANSFER))
    )
    code = max(0.0, step - forward - backward - optimizer - loading)
    loss = min(code, facts.gaps.get(BACKWARD, 0.0) / cluster.speed)
    passes = max(1, round(facts.backwards))
    return Work(forward, backward, optimizer, loss, code - loss, passes)


def rows(facts: Facts, cluster: Cluster, structure: Structure | None = None) -> list[Row]:
    """A Row per plan that is known: those that fit first, then the fastest, then the smallest.

    A step of the cluster has `devices` times as many samples as the watched one.
    """
    from course.checkup import plan_blocks

    found = [_data_row(plan, facts, cluster, structure) for plan in PLANS]
    if structure is not None and cluster.devices > 1:
        if not plan_blocks.no_tensor(structure, cluster):
            found.append(plan_blocks.tensor_row(facts, cluster, structure))
        if not plan_blocks.no_pipeline(structure, cluster):
            found.append(plan_blocks.pipeline_row(facts, cluster, structure))
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
    from course.checkup import plan_blocks

    if structure is None or cluster.devices == 1:
        return []
    reasons = {
        TENSOR: plan_blocks.no_tensor(structure, cluster),
        PIPELINE: plan_blocks.no_pipeline(structure, cluster),
    }
    return [f"  {plan:<8} not known: {reason}." for plan, reason in reasons.items() if reason]


# ---- bytes of parameters


def shard_bytes(parameters: Iterable[Parameter], n: int) -> tuple[int, int, int]:
    """(weights, gradients, optimizer) of the rank with the largest shards, as fully_shard cuts."""
    weights = gradients = optimizer = 0
    for each in parameters:
        rows = each.shape[0] if each.shape else 1
        largest = -(-rows // n)
        part = each.n_bytes * largest // max(1, rows)
        weights += part
        gradients += part if each.trained else 0
        optimizer += each.state * largest // max(1, rows) + each.scalars
    return weights, gradients, optimizer


def padded_bytes(parameters: Iterable[Parameter], n: int) -> int:
    """Bytes that n ranks gather of these parameters: n shards of the largest size."""
    return n * shard_bytes(parameters, n)[0]


def _held(stage: int, facts: Facts, n: int, structure: Structure | None) -> float:
    """Bytes of weights, gradients and optimizer of a device."""
    kept = facts.memory
    whole: Sequence[float] = kept.weights, kept.gradients, kept.optimizer
    shards: Sequence[float] = [each / n for each in whole]
    if structure is not None:
        whole = shard_bytes(structure.parameters, 1)
        shards = shard_bytes(structure.parameters, n)
    is_cut = stage >= 3, stage >= 2, stage >= 1
    return sum(s if cut else w for w, s, cut in zip(whole, shards, is_cut, strict=True))


# ---- data parallel


def _data_row(plan: str, facts: Facts, cluster: Cluster, structure: Structure | None) -> Row:
    """What DDP or a stage of ZeRO holds, takes and sends."""
    n = cluster.devices
    stage = PLANS.index(plan)
    own = work(facts, cluster)
    state = _held(stage, facts, n, structure)
    n_bytes = state + (facts.memory.activations or 0)
    halves = _halves(stage, facts, own.passes, n, structure)
    sent = sum(halves) * (n - 1) / n
    messages = sum(half_seconds(each, cluster) for each in halves)
    computing = own.seconds
    if stage:
        computing -= own.optimizer * (1 - 1 / n)  # of its own shard
    hidden = own.backward + (own.forward if stage == 3 else 0.0)
    waits = max(0.0, messages - hidden) if cluster.overlap else messages
    if stage == 0 and cluster.overlap and structure is not None and structure.blocks:
        waits = _waits_of_ddp(own, cluster, structure)
    return Row(plan, n_bytes, computing + waits, n_bytes <= cluster.memory, state, sent)


def half_seconds(n_bytes: float, cluster: Cluster) -> float:
    """Seconds of half of a ring's all-reduce of so many bytes: n - 1 messages of 1 / n of them."""
    n = cluster.devices
    return (n - 1) * (cluster.latency + n_bytes / n / cluster.bandwidth)


def _halves(
    stage: int, facts: Facts, passes: int, n: int, structure: Structure | None
) -> list[float]:
    """Bytes of each half of an all-reduce in a step."""
    if structure is None or not structure.blocks:
        return [facts.memory.gradients] * (2, 2, passes + 1, 3 * passes)[stage]
    if stage == 0:
        return [size for size, _ in _buckets(structure) for _ in range(2)]
    # a message per block, and one for the rest, which ZeRO-3 keeps until backward
    units = [padded_bytes(block.parameters, n) for block in structure.blocks]
    rest = padded_bytes(rest_of(structure), n)
    of_block = (0, 2, passes + 1, 3 * passes)[stage]
    of_rest = (0, 2, passes + 1, 2 * passes)[stage]
    return [*(unit for unit in units for _ in range(of_block)), *[rest] * of_rest]


def rest_of(structure: Structure) -> list[Parameter]:
    """The parameters that are in no block."""
    of_blocks = {each.key for block in structure.blocks for each in block.parameters}
    return [each for each in structure.parameters if each.key not in of_blocks]


def _buckets(structure: Structure) -> list[tuple[int, float]]:
    """(bytes, share of the backward pass after which it is ready) of DDP's messages, in order."""
    pieces = (structure.after, *structure.blocks[::-1], structure.before)
    last = {each.key: place for place, piece in enumerate(pieces) for each in piece.parameters}
    whole = sum(piece.backward for piece in pieces) or 1.0
    found: list[tuple[int, float]] = []
    size, done = 0, 0.0
    for place, piece in enumerate(pieces):
        done += piece.backward / whole
        for each in _trained(piece):
            if last[each.key] != place:  # shared with a part whose gradient comes later
                continue
            size += each.n_bytes
            if size >= (BUCKET_BYTES if found else FIRST_BUCKET_BYTES):
                found.append((size, done))
                size = 0
    return [*found, (size, done)] if size else found


def _trained(piece: Piece) -> list[Parameter]:
    """The parameters that get a gradient, the last first."""
    return [each for each in piece.parameters if each.trained][::-1]


def _waits_of_ddp(own: Work, cluster: Cluster, structure: Structure) -> float:
    """Seconds after the last backward pass in which gradients are still sent."""
    backward = own.backward / own.passes
    free = 0.0
    for n_bytes, ready in _buckets(structure):
        free = max(free, ready * backward) + 2 * half_seconds(n_bytes, cluster)
    return max(0.0, free - backward)
