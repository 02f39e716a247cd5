"""Fully sharded layers, made of answers of unit 07, part 2, on virtual ranks and next to torch's.

A model is a stack of equal layers, tanh(x W + b), each of which is one vector of numbers. Rank r
keeps piece r of every vector. Virtual seconds are milliseconds here.

Source: Zhao et al. 2023, "PyTorch FSDP", arXiv:2304.11277, section 3.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.multiprocessing.reductions import StorageWeakRef
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel

from course.parallel import network
from course.parallel.collectives import (
    Started,
    simulate_collectives,
    start_all_gather,
    start_reduce_scatter,
)
from course.parallel.network import Network

DIM = 32
N_LAYERS = 4  # of the model that is trained
ROWS = 16  # of the batch of one rank
LR = 0.1
LAYER_NUMBERS = DIM * DIM + DIM  # 2, 4 and 8 ranks divide it
LAYER_BYTES = 4 * LAYER_NUMBERS
COMPUTE = 1.0  # virtual milliseconds of a layer
# on which four ranks gather a layer in COMPUTE: each sends 3/4 of it
BALANCED = Network(0.0, LAYER_BYTES * 3 / 4 / COMPUTE)

StartGather = Callable[[Tensor], Started]
GatheredAhead = Callable[[Sequence[Tensor], StartGather], Iterator[Tensor]]
Bars = list[tuple[str, int, float, float]]  # (lane, layer, start, end)


class FullShard:
    """A shard that is sent and trained in float32; used like a MasterShard."""

    def __init__(self, values: Tensor) -> None:
        self.master = values.clone()

    def to_send(self) -> Tensor:
        """The shard in float32."""
        return self.master

    def step(self, grad: Tensor, lr: float) -> None:
        """Take a step of SGD."""
        self.master -= lr * grad


class RoundedShard(FullShard):
    """A shard that is sent and trained in bfloat16, without a float32 copy."""

    def __init__(self, values: Tensor) -> None:
        super().__init__(values.bfloat16())


@dataclass(frozen=True)
class Answers:
    """What a sharded training is made of."""

    gathered_ahead: GatheredAhead
    layer_backward: Callable[..., tuple[Tensor, Started]]
    shard: type = FullShard  # keeps, sends and steps the numbers of a rank


def compute(whole: Tensor, x: Tensor) -> Tensor:
    """What a layer with the numbers `whole` returns for `x`, (rows, DIM)."""
    numbers = whole.to(x.dtype)
    weight = numbers[: DIM * DIM].view(DIM, DIM)
    return torch.tanh(F.linear(x, weight, numbers[DIM * DIM :]))


def gathered_when_needed(shards: Sequence[Tensor], start_gather: StartGather) -> Iterator[Tensor]:
    """Yield the whole layer of each shard; each is waited for where it is needed."""
    for shard in shards:
        yield start_gather(shard).wait()


def timed_forward(
    rank: int, world_size: int, gathered: GatheredAhead, n_layers: int
) -> tuple[Bars, int]:
    """(what was gathered and computed when, bytes of whole layers that lived at most); of a rank.

    Computing a layer moves the rank's clock on by COMPUTE.
    """
    shards = [torch.zeros(LAYER_NUMBERS // world_size) for _ in range(n_layers)]
    watch = _Watch()
    bars: Bars = []
    wholes = gathered(shards, watch.start_gather)
    for layer in range(n_layers):
        whole = next(wholes)
        start = network.now()
        network.advance(COMPUTE)
        bars.append(("compute", layer, start, network.now()))
        del whole
    for layer, (start, end) in enumerate(zip(watch.started, watch.ended, strict=True)):
        bars.append(("gather", layer, start, end))
    return bars, watch.live_bytes_max


class _Watch:
    """Gathers whose clocks and living bytes are noted."""

    def __init__(self) -> None:
        self.started: list[float] = []
        self.ended: list[float] = []
        self.living: list[tuple[StorageWeakRef, int]] = []
        self.live_bytes_max = 0

    def start_gather(self, shard: Tensor) -> Started:
        """Start a gather, and note when it began and what is alive now."""
        work = start_all_gather(shard)
        whole = work.result
        self.started.append(network.now())
        self.living.append((StorageWeakRef(whole.untyped_storage()), whole.nbytes))
        live = sum(n_bytes for storage, n_bytes in self.living if not storage.expired())
        self.live_bytes_max = max(self.live_bytes_max, live)
        return Started(_Noted(work.work, self), whole)


class _Noted:
    """A work that tells the watch when its messages have arrived."""

    def __init__(self, work: Any, watch: _Watch) -> None:
        self.work = work
        self.watch = watch

    def wait(self) -> None:
        """Wait for the messages."""
        ends = [0.0]
        requests = list(self.work.requests)
        self.work.wait()
        for request in requests:
            ends.append(request.end)
        self.watch.ended.append(max(ends))


# ---- training


def first_weights() -> list[Tensor]:
    """The numbers of each layer before training, the same on every rank."""
    torch.manual_seed(0)
    vectors = []
    for _ in range(N_LAYERS):
        layer = nn.Linear(DIM, DIM)
        vectors.append(torch.cat([layer.weight.detach().flatten(), layer.bias.detach()]))
    return vectors


def batch(rank: int, step: int) -> tuple[Tensor, Tensor]:
    """Inputs and targets of a rank in a step."""
    rng = torch.Generator().manual_seed(1000 * step + rank)
    inputs = torch.randn(ROWS, DIM, generator=rng)
    return inputs, torch.rand(ROWS, DIM, generator=rng)


def train(rank: int, world_size: int, answers: Answers, steps: int) -> list[Tensor]:
    """The master shards of each layer after some steps; of a rank."""
    masters = [answers.shard(whole.chunk(world_size)[rank]) for whole in first_weights()]
    for step in range(steps):
        _take_step(masters, answers, *batch(rank, step))
    return [master.master for master in masters]


def _take_step(masters: Sequence[Any], answers: Answers, x: Tensor, target: Tensor) -> None:
    """One step of SGD on the mean squared error."""
    inputs = []
    shards = [master.to_send() for master in masters]
    wholes = answers.gathered_ahead(shards, start_all_gather)
    with torch.no_grad():
        for _ in masters:
            whole = next(wholes)
            inputs.append(x)
            x = compute(whole, x)
            del whole
    grad = 2 * (x - target) / x.numel()
    handles = []
    wholes = answers.gathered_ahead(shards[::-1], start_all_gather)
    for of_layer in inputs[::-1]:
        whole = next(wholes).float()  # gradients have 32 bits
        grad, handle = answers.layer_backward(compute, whole, of_layer, grad, start_reduce_scatter)
        handles.append(handle)
        del whole
    for master, handle in zip(masters[::-1], handles, strict=True):
        master.step(handle.wait(), LR)


@dataclass(frozen=True)
class VirtualTraining:
    """What a sharded training on virtual ranks sent, and where it ended."""

    sent: float  # bytes per step and rank
    difference: float  # the largest to one process with the mean gradient
    moved: float  # the largest change of a weight


def trained_on_virtual_ranks(world_size: int, answers: Answers, steps: int) -> VirtualTraining:
    """Train on virtual ranks, and compare with one process."""
    run = simulate_collectives(train, world_size, Network(0.0, 1e9), answers, steps)
    sent = sum(message.n_bytes for message in run.messages) / world_size / steps
    ours = torch.cat([torch.cat(pieces) for pieces in zip(*run.results, strict=True)])
    right = torch.cat(_in_one_process(world_size, steps))
    start = torch.cat(first_weights())
    return VirtualTraining(sent, _largest(ours - right), _largest(right - start))


def ddp_bytes(world_size: int) -> float:
    """Bytes that a rank of DDP sends in a step, by a ring."""
    return 2 * (world_size - 1) / world_size * LAYER_BYTES * N_LAYERS


def _in_one_process(world_size: int, steps: int) -> list[Tensor]:
    """The numbers of each layer after some steps with the mean gradient of all ranks' batches."""
    wholes = [whole.requires_grad_() for whole in first_weights()]
    for step in range(steps):
        losses = []
        for rank in range(world_size):
            x, target = batch(rank, step)
            for whole in wholes:
                x = compute(whole, x)
            losses.append(F.mse_loss(x, target))
        gradients = torch.autograd.grad(torch.stack(losses).mean(), wholes)
        with torch.no_grad():
            for whole, gradient in zip(wholes, gradients, strict=True):
                whole -= LR * gradient
    return [whole.detach() for whole in wholes]


def _largest(difference: Tensor) -> float:
    return difference.abs().max().item()


def unchanged_share(dtype: torch.dtype) -> float:
    """The share of weights that stay as they are in the first step, if they are kept in `dtype`."""
    start = torch.cat(first_weights())
    step = torch.cat(_in_one_process(1, 1)) - start
    before = start.to(dtype)
    after = (before.float() + step).to(dtype)
    return (before == after).double().mean().item()


# ---- torch's own


@dataclass(frozen=True)
class ComparedWithTorch:
    """Trainings by answers and by fully_shard, next to DistributedDataParallel; of a rank."""

    differences: dict[str, float]  # {way: the largest of a weight}
    kept: float  # share of the weights that the rank keeps under fully_shard


def compared_with_torch(
    rank: int, world_size: int, answers: Answers, steps: int
) -> ComparedWithTorch:
    """Train the same model in three ways; a function of ranks."""
    by_ddp = _stack()
    _train_module(DistributedDataParallel(by_ddp), rank, steps)
    right = torch.cat([p.detach().flatten() for p in by_ddp.parameters()])
    shards = train(rank, world_size, answers, steps)
    ours = torch.cat([start_all_gather(shard).wait() for shard in shards])
    by_torch = _stack()
    mesh = init_device_mesh("cpu", (world_size,))
    for layer in by_torch:
        fully_shard(layer, mesh=mesh)
    fully_shard(by_torch, mesh=mesh)
    _train_module(by_torch, rank, steps)
    full = []
    kept = 0
    for weights in by_torch.parameters():
        full.append(weights.full_tensor().detach().flatten())
        kept += weights.to_local().numel()
    differences = {
        "your answers": _largest(ours - right),
        "fully_shard": _largest(torch.cat(full) - right),
    }
    return ComparedWithTorch(differences, kept / len(right))


def _stack() -> nn.Sequential:
    """The model as a module."""
    layers = []
    for whole in first_weights():
        linear = nn.Linear(DIM, DIM)
        nn.utils.vector_to_parameters(whole, linear.parameters())
        layers.append(nn.Sequential(linear, nn.Tanh()))
    return nn.Sequential(*layers)


def _train_module(model: nn.Module, rank: int, steps: int) -> None:
    optimizer = torch.optim.SGD(model.parameters(), lr=LR)
    for step in range(steps):
        x, target = batch(rank, step)
        optimizer.zero_grad()
        F.mse_loss(model(x), target).backward()
        optimizer.step()
