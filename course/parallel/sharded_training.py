"""A small model trained by DDP, by the stages of ZeRO and by torch's `fully_shard`, to compare.

The stages are made of the learner's answers (`Answers`), and run on the virtual network, which
counts every message, or on real ranks. Part 7 of unit 02.

Source: Rajbhandari et al. 2020, "ZeRO", arXiv:1910.02054, sections 5 and 7.
"""

import math
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.func import functional_call
from torch.multiprocessing.reductions import StorageWeakRef
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel
from torch.utils.checkpoint import checkpoint

from course.parallel import network

STAGES = range(4)  # 0 is DDP
WIDTH = 128
CLASSES = 16
ROWS = 32  # of a batch

adam = partial(torch.optim.Adam, lr=1e-3)


@dataclass(frozen=True)
class Answers:
    """The halves of an all-reduce, and what is built of them."""

    reduce_scatter: Callable[[Tensor], Tensor]
    all_gather: Callable[[Tensor], Tensor]
    sharded_optimizer: type
    gathered: Callable[..., Tensor]


class Flat:
    """Parameters as views of one vector `weights`, gradients as views of `grads`, padded by zeros.

    The world size divides the length of both.
    """

    def __init__(self, module: nn.Module, world_size: int):
        length = sum(p.numel() for p in module.parameters())
        shard_length = math.ceil(length / world_size)
        self.weights = torch.zeros(shard_length * world_size)
        self.grads = torch.zeros_like(self.weights)
        start = 0
        for p in module.parameters():
            part = slice(start, start + p.numel())
            self.weights[part] = p.detach().flatten()
            p.data = self.weights[part].view_as(p)
            p.grad = self.grads[part].view_as(p)
            start = part.stop


class ShardedUnit(nn.Module):
    """A layer of which this rank keeps one shard, and gathers the weights when it needs them."""

    def __init__(self, module: nn.Module, gather: Callable[[Tensor], Tensor], keep: bool):
        super().__init__()
        world_size = dist.get_world_size()
        self.shapes = {name: p.shape for name, p in module.named_parameters()}
        shards = Flat(module, world_size).weights.chunk(world_size)
        self.shard = nn.Parameter(shards[dist.get_rank()].clone())
        self.gather = gather
        self.keep = keep  # the gathered weights stay until backward: stage 2
        self.layer = [module.to("meta")]  # in a list: its parameters are not this module's

    def compute(self, x: Tensor) -> Tensor:
        """What the layer returns for `x`."""
        flat = self.gather(self.shard)
        start = 0
        parameters = {}
        for name, shape in self.shapes.items():
            parameters[name] = flat[start : start + shape.numel()].view(shape)
            start += shape.numel()
        return functional_call(self.layer[0], parameters, (x,))

    def forward(self, x: Tensor) -> Tensor:
        """The same; without `keep`, backward gathers again, and computes again."""
        if self.keep:
            return self.compute(x)
        return checkpoint(self.compute, x, use_reentrant=False, preserve_rng_state=False)


# ---- the training


def layers() -> list[nn.Module]:
    """The layers of the model, the same on every rank."""
    torch.manual_seed(0)
    wide = [nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Tanh()) for _ in range(3)]
    return [*wide, nn.Linear(WIDTH, CLASSES)]


def n_parameters() -> int:
    """The number of parameters of the model."""
    return sum(p.numel() for layer in layers() for p in layer.parameters())


def batch(rank: int, step: int) -> tuple[Tensor, Tensor]:
    """Inputs and labels of a rank in a step."""
    rng = torch.Generator().manual_seed(1000 * step + rank)
    inputs = torch.randn(ROWS, WIDTH, generator=rng)
    return inputs, torch.randint(CLASSES, (ROWS,), generator=rng)


@dataclass
class _Training:
    """A model in one of the STAGES, and how many bytes of it a rank keeps."""

    model: nn.Module
    optimizer: Any
    weight_bytes: Callable[[], int]
    grad_bytes: Callable[[], int]
    after_backward: Callable[[], None] = lambda: None
    after_step: Callable[[], None] = lambda: None
    alive: list[StorageWeakRef] = field(default_factory=list)  # gathered weights of this step


def train(
    rank: int, world_size: int, stage: int, steps: int, answers: Answers
) -> tuple[Tensor, dict[str, int]]:
    """(all weights after some steps, {"parameters", "gradients", "optimizer": bytes kept})."""
    training = _replicated(stage, answers) if stage < 2 else _sharded(stage, answers)
    kept = {}
    for step in range(steps):
        inputs, labels = batch(rank, step)
        # before stage 2 gradients are views of one vector
        training.model.zero_grad(set_to_none=stage > 1)
        training.alive.clear()
        loss = F.cross_entropy(training.model(inputs), labels)
        kept["parameters"] = training.weight_bytes()
        loss.backward()
        training.after_backward()
        training.optimizer.step()
        training.after_step()
        kept["gradients"] = training.grad_bytes()
    kept["optimizer"] = _state_bytes(training.optimizer)
    if stage < 2:
        return _weights(training.model), kept
    units = list(training.model)
    return torch.cat([answers.all_gather(unit.shard.detach()) for unit in units]), kept


def _replicated(stage: int, answers: Answers) -> _Training:
    """Stages 0 and 1: all weights and gradients on every rank."""
    world_size = dist.get_world_size()
    model = nn.Sequential(*layers())
    flat = Flat(model, world_size)
    sizes = (lambda: flat.weights.nbytes, lambda: flat.grads.nbytes)
    if stage == 1:
        halves = (answers.reduce_scatter, answers.all_gather)
        optimizer = answers.sharded_optimizer(flat.weights, flat.grads, adam, *halves)

        def grad_bytes() -> int:
            mean = optimizer.shard.grad
            return flat.grads.nbytes + (0 if mean is None else mean.nbytes)

        def free_mean() -> None:
            optimizer.shard.grad = None

        weight_bytes = sizes[0]
        return _Training(model, optimizer, weight_bytes, grad_bytes, after_step=free_mean)

    def all_reduce() -> None:
        shards = answers.all_gather(answers.reduce_scatter(flat.grads))
        flat.grads.copy_(shards / world_size)

    return _Training(model, adam(model.parameters()), *sizes, all_reduce)


def _sharded(stage: int, answers: Answers) -> _Training:
    """Stages 2 and 3: a shard of each layer on every rank."""
    alive: list[StorageWeakRef] = []

    def watched_gather(shard: Tensor) -> Tensor:
        whole = answers.all_gather(shard)
        alive.append(StorageWeakRef(whole.untyped_storage()))
        return whole

    def gather(shard: Tensor) -> Tensor:
        return answers.gathered(shard, answers.reduce_scatter, watched_gather)

    units = [ShardedUnit(layer, gather, keep=stage == 2) for layer in layers()]

    def weight_bytes() -> int:
        total = 0
        for unit, gathered in zip(units, alive, strict=False):
            # while a layer is gathered, its shard is a part of it
            whole = 1 if gathered.expired() else dist.get_world_size()
            total += whole * unit.shard.nbytes
        return total

    def grad_bytes() -> int:
        return sum(unit.shard.grad.nbytes for unit in units)

    model = nn.Sequential(*units)
    return _Training(model, adam(model.parameters()), weight_bytes, grad_bytes, alive=alive)


def _state_bytes(optimizer: Any) -> int:
    """Bytes of the vectors that an optimizer, or a sharded one, keeps."""
    states = getattr(optimizer, "optimizer", optimizer).state.values()
    return sum(value.nbytes for state in states for value in state.values() if value.dim())


def _weights(model: nn.Module) -> Tensor:
    return torch.cat([p.detach().flatten() for p in model.parameters()])


def counted_stage(n_ranks: int, stage: int, answers: Answers) -> dict[str, int]:
    """{"parameters", "gradients", "optimizer": bytes that a rank keeps, "sent": bytes in a step}.

    On the virtual network.
    """
    wire = network.Network(0.0, 1e9)
    sent: Counter[int] = Counter()
    kept = {}
    # the difference is one step: gathering the weights at the end does not count
    for steps, sign in ((1, -1), (2, 1)):
        run = network.simulate(train, n_ranks, wire, stage, steps, answers)
        kept = run.results[0][1]
        for message in run.messages:
            sent[message.source] += sign * message.n_bytes
    return kept | {"sent": max(sent.values())}


def kept_bytes(of_stage: Mapping[str, float]) -> float:
    """Bytes of parameters, gradients and optimizer that a rank keeps, of what a stage counted."""
    return of_stage["parameters"] + of_stage["gradients"] + of_stage["optimizer"]


def relative_errors(
    counted: Mapping[int, Mapping[str, float]], predicted: Mapping[int, Mapping[str, float]]
) -> dict[tuple[int, str], float]:
    """{(stage, what): |counted / predicted - 1|} of bytes kept and sent in each stage."""
    errors = {}
    for stage, of_stage in counted.items():
        for what, n_bytes in of_stage.items():
            errors[stage, what] = abs(n_bytes / predicted[stage][what] - 1)
    return errors


# ---- torch's own


def differences_to_ddp(
    rank: int, world_size: int, steps: int, answers: Answers
) -> tuple[dict[str, float], int]:
    """({way: largest difference of any weight to torch's DDP}, bytes that fully_shard keeps).

    "start" is the way of the weights that are not trained.
    """
    of_ddp = _weights(_trained(DistributedDataParallel(nn.Sequential(*layers())), rank, steps))
    ways = {"start": _weights(nn.Sequential(*layers()))}
    for stage in STAGES:
        ways[f"stage {stage}"], _ = train(rank, world_size, stage, steps, answers)
    ways["fully_shard"], kept = _with_fully_shard(rank, world_size, steps)
    return {way: (of_ddp - weights).abs().max().item() for way, weights in ways.items()}, kept


def _trained(model: nn.Module, rank: int, steps: int) -> nn.Module:
    """`model`, which averages its gradients in backward, after some steps."""
    optimizer = adam(model.parameters())
    for step in range(steps):
        inputs, labels = batch(rank, step)
        optimizer.zero_grad()
        F.cross_entropy(model(inputs), labels).backward()
        optimizer.step()
    return model


def _with_fully_shard(rank: int, world_size: int, steps: int) -> tuple[Tensor, int]:
    """(all weights, bytes of them that this rank keeps) after some steps."""
    mesh = init_device_mesh("cpu", (world_size,))
    model = nn.Sequential(*layers())
    for layer in model:
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    parameters = list(_trained(model, rank, steps).parameters())
    weights = torch.cat([p.full_tensor().detach().flatten() for p in parameters])
    return weights, sum(p.to_local().nbytes for p in parameters)
