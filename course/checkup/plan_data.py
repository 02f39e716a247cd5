"""Plans whose ranks compute other samples: *the blocks* -> what DDP and ZeRO hold, take and send.

Source: Rajbhandari et al. 2020, "ZeRO", arXiv:1910.02054, sections 5 and 7.
"""

from collections.abc import Sequence

from course.checkup.cluster import Cluster
from course.checkup.facts import Facts
from course.checkup.plan_costs import Row, Work, half_seconds, shard_bytes, work
from course.checkup.predict import BUCKET_BYTES, FIRST_BUCKET_BYTES
from course.checkup.structure import Parameter, Piece, Structure

PLANS = ("DDP", "ZeRO-1", "ZeRO-2", "ZeRO-3")


def data_row(plan: str, facts: Facts, cluster: Cluster, structure: Structure | None) -> Row:
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
    hidden = own.backward
    if stage <= 1:
        hidden /= own.passes  # gradients add up, and travel during the last backward pass
    if stage == 3:
        hidden += own.forward
    waits = max(0.0, messages - hidden) if cluster.overlap else messages
    if stage == 0 and cluster.overlap and structure is not None and structure.blocks:
        waits = _waits_of_ddp(own, cluster, structure)
    return Row(plan, n_bytes, computing + waits, n_bytes <= cluster.memory, state, sent)


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


def _halves(
    stage: int, facts: Facts, passes: int, n: int, structure: Structure | None
) -> list[float]:
    """Bytes of each half of an all-reduce in a step."""
    if structure is None or not structure.blocks:
        return [facts.memory.gradients] * (2, 2, passes + 1, 3 * passes)[stage]
    if stage == 0:
        return [size for size, _ in _buckets(structure) for _ in range(2)]
    # a message per block, and one for the rest, which ZeRO-3 keeps until backward
    units = [n * shard_bytes(block.parameters, n)[0] for block in structure.blocks]
    rest = n * shard_bytes(_rest_of(structure), n)[0]
    of_block = (0, 2, passes + 1, 3 * passes)[stage]
    of_rest = (0, 2, passes + 1, 2 * passes)[stage]
    return [*(unit for unit in units for _ in range(of_block)), *[rest] * of_rest]


def _rest_of(structure: Structure) -> list[Parameter]:
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
