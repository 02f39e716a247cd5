"""Plans that cut the model: *its blocks* -> what tensor and pipeline ranks hold, take and send.

A step has `devices` times the watched batch, as those of data parallel ranks. Here all ranks
compute it together, as `devices` micro-batches of the watched size.

Source: Shoeybi et al. 2019, "Megatron-LM", arXiv:1909.08053, section 3; Huang et al. 2019, "GPipe",
arXiv:1811.06965, section 2.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from course.checkup.cluster import Cluster
from course.checkup.facts import Facts
from course.checkup.plan_costs import Row, Work, half_seconds, shard_bytes, work
from course.checkup.structure import Pair, Parameter, Piece, Structure

TENSOR = "tensor"
PIPELINE = "pipeline"
STAGES_SHOWN = 8


def no_tensor(structure: Structure, cluster: Cluster) -> str:
    """Why tensor ranks are not known; "" if they are."""
    if structure.no_pairs:
        return structure.no_pairs
    for pair in _pairs(structure):
        if pair.width % cluster.devices:
            return f"{cluster.devices} devices do not divide the {pair.width} numbers of a layer"
    return ""


def no_pipeline(structure: Structure, cluster: Cluster) -> str:
    """Why a pipeline is not known; "" if it is."""
    if structure.no_blocks:
        return structure.no_blocks
    n_blocks = len(structure.blocks)
    if n_blocks < cluster.devices:
        return f"{structure.name} has {n_blocks} blocks for {cluster.devices} devices"
    return ""


def _pairs(structure: Structure) -> list[Pair]:
    return [pair for block in structure.blocks for pair in block.pairs]


def _scale(structure: Structure, own: Work) -> tuple[float, float]:
    """Seconds (forward, backward) of a pass of the step per second of the structure's pass."""
    pieces = structure.before, *structure.blocks, structure.after
    forward = sum(piece.forward for piece in pieces) or 1.0
    backward = sum(piece.backward for piece in pieces) or 1.0
    return own.forward / own.passes / forward, own.backward / own.passes / backward


# ---- tensor


def tensor_row(facts: Facts, cluster: Cluster, structure: Structure) -> Row:
    """What a tensor rank holds, takes and sends: all its messages are waited for."""
    n = cluster.devices
    own = work(facts, cluster)
    split = frozenset().union(*(pair.split for pair in _pairs(structure)))
    cut = [each for each in structure.parameters if each.key in split]
    whole = [each for each in structure.parameters if each.key not in split]
    state = sum(shard_bytes(whole, 1)) + _cut_bytes(cut, n)
    spared = sum(sum(pair.saved.values()) for pair in _pairs(structure)) * (1 - 1 / n)
    n_bytes = state + max(0.0, (facts.memory.activations or 0) - spared)
    passes = n * own.passes
    computing = n * (own.forward + own.backward) - passes * _shared_seconds(structure, own, n)
    updated = state / sum(shard_bytes(structure.parameters, 1))
    computing += n * own.loss + own.code + own.optimizer * updated
    sizes = [size for pair in _pairs(structure) for size in (pair.n_output, pair.n_input)]
    waits = passes * sum(2 * half_seconds(size, cluster) for size in sizes)
    sent = passes * sum(2 * size * (n - 1) / n for size in sizes)
    return Row(TENSOR, n_bytes, computing + waits, n_bytes <= cluster.memory, state, sent)


def _cut_bytes(parameters: Iterable[Parameter], n: int) -> float:
    """Weights, gradients and optimizer of parameters of which a rank has 1 / n."""
    total = 0.0
    for each in parameters:
        gradient = each.n_bytes if each.trained else 0
        total += (each.n_bytes + gradient + each.state) / n + each.scalars
    return total


def _shared_seconds(structure: Structure, own: Work, n: int) -> float:
    """Seconds of a forward and backward pass that a rank saves, because the others compute it."""
    forward, backward = _scale(structure, own)
    saved = 0.0
    for block in structure.blocks:
        share = sum(pair.share for pair in block.pairs)
        saved += share * (block.forward * forward + block.backward * backward)
    return saved * (1 - 1 / n)


# ---- pipeline


@dataclass(frozen=True)
class Stage:
    """The blocks of one pipeline rank, with the ends of the model on the first and the last.

    What lies behind the blocks is computed when the backward pass of a micro-batch begins.
    """

    pieces: tuple[Piece, ...]  # of a forward pass
    behind: Piece | None  # of a backward pass: what follows the blocks, on the last stage
    n_blocks: int
    forward: float  # seconds of a micro-batch
    backward: float
    sends: int  # bytes to the next stage, and of the gradient that comes back; 0 for the last

    @property
    def parameters(self) -> dict[int, Parameter]:
        """Its parameters, each once."""
        pieces = [*self.pieces, self.behind or Piece(())]
        return {each.key: each for piece in pieces for each in piece.parameters}

    @property
    def saved(self) -> dict[int, int]:
        """The storages that autograd saves in a forward pass."""
        storages: dict[int, int] = {}
        for piece in self.pieces:
            storages |= piece.saved
        return storages


def stages_of(facts: Facts, cluster: Cluster, structure: Structure) -> list[Stage]:
    """The stages whose slowest is as fast as it can be."""
    own = work(facts, cluster)
    forward, backward = _scale(structure, own)
    blocks = structure.blocks
    seconds = [block.forward * forward + block.backward * backward for block in blocks]
    before, after = structure.before, structure.after
    seconds[0] += before.forward * forward + before.backward * backward
    seconds[-1] += after.forward * forward + after.backward * backward + own.loss / own.passes
    ends = _balanced(seconds, cluster.devices)
    stages = []
    for start, end in zip([0, *ends[:-1]], ends, strict=True):
        is_last = end == len(blocks)
        pieces = (*[before] * (start == 0), *blocks[start:end])
        back = backward * sum(piece.backward for piece in pieces)
        if is_last:
            back += forward * after.forward + own.loss / own.passes + backward * after.backward
        stage = Stage(
            pieces=pieces,
            behind=after if is_last else None,
            n_blocks=end - start,
            forward=forward * sum(piece.forward for piece in pieces),
            backward=back,
            sends=0 if is_last else blocks[end - 1].sends,
        )
        stages.append(stage)
    return stages


def _balanced(seconds: Sequence[float], parts: int) -> list[int]:
    """Where each of so many consecutive parts ends, so that the longest is as short as it can be.

    Args:
        seconds: as many as there are parts, or more.
    """
    n = len(seconds)
    # {end: (longest part, ends)} of the first parts
    best: dict[int, tuple[float, list[int]]] = {0: (0.0, [])}
    for _ in range(parts):
        following: dict[int, tuple[float, list[int]]] = {}
        for start, (longest, ends) in best.items():
            for end in range(start + 1, n + 1):
                found = max(longest, sum(seconds[start:end])), [*ends, end]
                following[end] = min(following.get(end, found), found)
        best = following
    return best[n][1]


def pipeline_row(facts: Facts, cluster: Cluster, structure: Structure) -> Row:
    """What the fullest pipeline rank holds, and what a step of GPipe takes and sends."""
    n = cluster.devices
    own = work(facts, cluster)
    stages = stages_of(facts, cluster, structure)
    micro_batches = n * own.passes
    states = [sum(shard_bytes(stage.parameters.values(), 1)) for stage in stages]
    saved = [micro_batches * sum(stage.saved.values()) for stage in stages]
    # what lies behind the blocks, and the loss, of one micro-batch
    storages: dict[int, int] = {}
    for stage in stages:
        storages |= stage.saved
    saved[-1] += max(0, (facts.memory.activations or 0) - sum(storages.values()))
    n_bytes = max(state + kept for state, kept in zip(states, saved, strict=True))
    tied = tied_bytes(structure)
    seconds = _seconds(stages, micro_batches, cluster) + own.code
    seconds += own.optimizer * max(states) / sum(states)
    seconds += 2 * cluster.latency + tied / cluster.bandwidth if tied else 0.0
    sent = _sent(stages, micro_batches)
    sent[0] += tied
    sent[-1] += tied
    counts = [stage.n_blocks for stage in stages]
    blocks = "+".join(map(str, counts)) if n <= STAGES_SHOWN else f"{min(counts)} to {max(counts)}"
    bubble = (n - 1) / (micro_batches + n - 1)
    note = f"; {blocks} blocks, bubble {bubble:.0%}"
    fits = n_bytes <= cluster.memory
    return Row(PIPELINE, n_bytes, seconds, fits, max(states), max(sent), note)


def _seconds(stages: Sequence[Stage], micro_batches: int, cluster: Cluster) -> float:
    """Seconds of all passes of GPipe.

    All forward passes go through stages and links one after the other: the first micro-batch
    through all of them, and each other one behind it at the pace of the slowest. So do the
    backward passes.
    """
    links = [cluster.latency + stage.sends / cluster.bandwidth for stage in stages[:-1]]
    total = 0.0
    for times in ([s.forward for s in stages], [s.backward for s in stages]):
        total += sum(times) + sum(links) + (micro_batches - 1) * max(*times, *links)
    return total


def _sent(stages: Sequence[Stage], micro_batches: int) -> list[float]:
    """Bytes that each rank sends in a step: outputs to the next one, gradients to the one before.

    A gradient has the bytes of the output that it belongs to.
    """
    received = [0, *(stage.sends for stage in stages[:-1])]
    pairs = zip(stages, received, strict=True)
    return [float(micro_batches * (stage.sends + before)) for stage, before in pairs]


def tied_bytes(structure: Structure) -> int:
    """Bytes of the weights that both ends use, whose gradients the two ranks add up."""
    behind = {each.key for each in structure.after.parameters}
    return sum(each.n_bytes for each in structure.before.parameters if each.key in behind)
