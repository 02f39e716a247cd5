"""Run the plans of a check-up on real ranks: *a GPT, a plan* -> seconds, bytes that were counted.

The functions run in ranks, each with one thread. A step has as many batches as there are ranks:
those of data parallel ranks at the same time, those of tensor and pipeline ranks as micro-batches.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel

from course.checkup import plan
from course.checkup.facts import Facts
from course.checkup.run import watch_steps
from course.checkup.structure import Structure, structure_of
from course.checkup.summary import summarise
from course.checkup.tensors import tensors_in
from course.checkup.watch import Watch
from course.measure.saved_tensors import peak_bytes_saved
from course.parallel.pipeline import Ends, Wire, gpipe_order
from course.training.ragged_transformer import RaggedTransformer, position_codes
from course.training.small_gpt import next_token_loss
from course.training.tensor_parallel import Answers, SplitBlock
from instructor.bench.slow_device import SlowDevice
from instructor.bench.slow_ring import slow_ring

WARM_UP = 2  # steps that are not timed
VOCABULARY = 256


@dataclass(frozen=True)
class Machine:
    """What a rank computes and sends with; infinity FLOP/s are those of its core."""

    flops: float  # per second, of matrix products
    latency: float  # seconds per message
    bandwidth: float  # bytes per second


@dataclass(frozen=True)
class Size:
    """A GPT and the batch of a rank."""

    dim: int
    blocks: int
    rows: int
    columns: int

    def model(self) -> RaggedTransformer:
        """The model, the same on every rank."""
        torch.manual_seed(0)
        return RaggedTransformer(VOCABULARY, self.dim, self.blocks)

    def tokens(self, seed: int) -> Tensor:
        """(rows, columns + 1): int64, random sequences."""
        rng = torch.Generator().manual_seed(seed)
        return torch.randint(VOCABULARY, (self.rows, self.columns + 1), generator=rng)


@dataclass(frozen=True)
class Parts:
    """Answers of unit 07 that tensor and pipeline ranks are made of."""

    tensor: Answers
    run_order: Callable[..., Any]


@dataclass(frozen=True)
class Ran:
    """What a plan took on one rank."""

    seconds: list[float] = field(repr=False)  # of each timed step
    sent: float  # bytes in a step
    state: int  # bytes of weights, gradients and optimizer
    saved: int  # bytes that autograd saves at most; ZeRO-3 saves weights, too


def optimizer_of(parameters: Any) -> torch.optim.Optimizer:
    """The optimizer of all plans."""
    return torch.optim.Adam(parameters, lr=1e-4)


# ---- watching


def watched(
    rank: int, ranks: int, size: Size, machine: Machine, steps: int, minutes: float
) -> tuple[Facts, Structure]:
    """(Facts, Structure) of a training of one process, watched while the other ranks train, too."""
    torch.set_num_threads(1)
    dist.barrier()
    dist.destroy_process_group()  # each rank trains alone
    model = size.model()
    optimizer = optimizer_of(model.parameters())

    def step(tokens: Tensor) -> None:
        optimizer.zero_grad()
        next_token_loss(model, tokens).backward()
        optimizer.step()

    structure: list[Structure] = []
    watch = Watch(steps, minutes, at_end=lambda: structure.append(structure_of(watch)))
    with SlowDevice(machine.flops):
        watch_steps([size.tokens(rank)], step, watch)
    return summarise(watch), structure[0]


# ---- running


def ran(
    rank: int,
    ranks: int,
    names: Sequence[str],
    size: Size,
    parts: Parts,
    machine: Machine,
    blocks: Sequence[int],
    steps: int,
) -> dict[str, Ran]:
    """{name of a plan: what it took on this rank}; each takes some steps.

    Args:
        blocks: of each pipeline rank.
    """
    torch.set_num_threads(1)
    mesh = init_device_mesh("cpu", (ranks,))  # of the group as it is
    setting = _Setting(size, parts, blocks, mesh)
    return {name: _ran(_maker(name), setting, machine, steps) for name in names}


def _ran(make: "Maker", setting: "_Setting", machine: Machine, steps: int) -> Ran:
    with slow_ring(machine.latency, machine.bandwidth) as ring, SlowDevice(machine.flops):
        step, parameters, optimizer = make(setting)
        saved = peak_bytes_saved(step, [_local(each) for each in parameters])
        seconds = []
        for number in range(WARM_UP + steps):
            ring.log.clear()
            dist.barrier()
            started = time.perf_counter()
            optimizer.zero_grad()
            step()
            optimizer.step()
            if number >= WARM_UP:
                seconds.append(time.perf_counter() - started)
        return Ran(seconds, ring.sent(), _state_bytes(parameters, optimizer), saved)


Made = tuple[Callable[[], object], list[Tensor], torch.optim.Optimizer]


@dataclass(frozen=True)
class _Setting:
    """What a plan is made of."""

    size: Size
    parts: Parts
    blocks: Sequence[int]  # of each pipeline rank
    mesh: DeviceMesh


Maker = Callable[[_Setting], Made]


def _maker(name: str) -> Maker:
    if name == plan.TENSOR:
        return _tensor
    if name == plan.PIPELINE:
        return _pipeline
    return _ddp if name == "DDP" else _zero


def _made(step: Callable[[], object], model: nn.Module) -> Made:
    parameters: list[Tensor] = list(model.parameters())
    return step, parameters, optimizer_of(parameters)


def _ddp(setting: _Setting) -> Made:
    model = DistributedDataParallel(setting.size.model())
    tokens = setting.size.tokens(dist.get_rank())
    return _made(lambda: next_token_loss(model, tokens).backward(), model)


def _zero(setting: _Setting) -> Made:
    """Stage 3, by torch's fully_shard on each block and on the model."""
    model = setting.size.model()
    for block in model.blocks:
        fully_shard(block, mesh=setting.mesh)
    fully_shard(model, mesh=setting.mesh)
    tokens = setting.size.tokens(dist.get_rank())
    return _made(lambda: next_token_loss(model, tokens).backward(), model)


def _tensor(setting: _Setting) -> Made:
    """Blocks that the ranks share; embedding, norms and scores are whole on each."""
    model = setting.size.model()
    model.blocks = nn.ModuleList(_Unmasked(block, setting.parts.tensor) for block in model.blocks)
    batches = [setting.size.tokens(seed) for seed in range(dist.get_world_size())]

    def step() -> None:
        for tokens in batches:
            (next_token_loss(model, tokens) / len(batches)).backward()

    return _made(step, model)


class _Unmasked(SplitBlock):
    """A SplitBlock that is called as a Block is."""

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        return super().forward(x)


def _pipeline(setting: _Setting) -> Made:
    """GPipe over the course's wire."""
    rank, ranks = dist.get_rank(), dist.get_world_size()
    model = setting.size.model()
    first = sum(setting.blocks[:rank])
    layers = _Blocks(model.blocks[first : first + setting.blocks[rank]])
    own = nn.ModuleList([layers])
    if rank == 0:
        own.append(model.embedding)
    if rank == ranks - 1:
        own.extend([model.norm, model.scores])
    batches = [setting.size.tokens(seed) for seed in range(ranks)]
    positions = position_codes(torch.arange(setting.size.columns), model.embedding.weight)

    def embedded(micro_batch: int) -> Tensor:
        return model.embedding(batches[micro_batch][:, :-1]) + positions

    def loss(micro_batch: int, output: Tensor) -> Tensor:
        scores = model.scores(model.norm(output))
        return F.cross_entropy(scores.flatten(0, 1), batches[micro_batch][:, 1:].flatten())

    ends = Ends(embedded, loss, ranks)
    order = gpipe_order(rank, ranks, ranks)
    like = torch.empty(setting.size.rows, setting.size.columns, setting.size.dim)

    def step() -> None:
        wire = Wire(ends, like)
        setting.parts.run_order(order, layers, wire)
        wire.finish()

    return _made(step, own)


class _Blocks(nn.Module):
    """Blocks one after the other."""

    def __init__(self, blocks: nn.ModuleList) -> None:
        super().__init__()
        self.blocks = blocks

    def forward(self, x: Tensor) -> Tensor:
        """Like `x`."""
        for block in self.blocks:
            x = block(x, None)
        return x


def _state_bytes(parameters: Sequence[Tensor], optimizer: torch.optim.Optimizer) -> int:
    """Bytes of weights, gradients and the optimizer's tensors that this rank keeps."""
    tensors = [*parameters, *(p.grad for p in parameters if p.grad is not None)]
    tensors += tensors_in([dict(state) for state in optimizer.state.values()])
    return sum(_local(tensor).nbytes for tensor in tensors)


def _local(tensor: Any) -> Tensor:
    """The shard that is here, of a DTensor."""
    return tensor.to_local() if hasattr(tensor, "to_local") else tensor
