"""Ways to compute a batch on two devices, compared with the model alone: part 6 of unit 02.

`compared` runs two ranks, with a core or a GPU each. Rank 0 computes what one process can compute
(the model alone, a DataParallel by hand); both ranks take part where there are two processes.
"""

import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from course.device import device as course_device
from course.device import own_gpus
from course.measure.comparison import Comparison, Interval
from course.parallel.counting import Transfers
from course.parallel.distributed import run_ranks
from course.parallel.timing import compare_on_ranks, sgd_step
from course.training.models import FashionCNN
from course.training.recommender_loop import keep_freed_memory

RANKS = 2
PLACES = 4  # that one device plays
TIMEOUT_SECONDS = 600
FORWARD = "forward, the model alone"
FORWARD_BY_HAND = "forward, DataParallel by hand"
FORWARD_KEPT = "forward, replicas kept"
FORWARD_PROCESSES = "forward, two processes"
STEP = "step, the model alone"
STEP_BY_HAND = "step, DataParallel by hand"
STEP_DDP = "step, DDP"
ONE_PROCESS = (FORWARD, STEP, FORWARD_BY_HAND, FORWARD_KEPT, STEP_BY_HAND)
# on two GPUs only; on fewer it is the model alone
READY_MADE = ("forward, nn.DataParallel", "step, nn.DataParallel")


def places() -> list[torch.device]:
    """The places on which a batch is computed: all GPUs, or one device PLACES times below two."""
    gpus = [torch.device("cuda", number) for number in range(own_gpus())]
    return gpus or [course_device()] * PLACES


class ByHand(NamedTuple):
    """The functions of a DataParallel by hand; see part 6 of unit 02."""

    scatter: Callable[[Any, Transfers], list]
    replicate: Callable[[nn.Module, Transfers, int], list[nn.Module]]
    parallel_apply: Callable[[list[nn.Module], list], list[Tensor]]
    gather: Callable[[list[Tensor], Transfers], Tensor]
    data_parallel: Callable[[nn.Module, Any, Transfers], Tensor]


class Star(nn.Module):
    """`by_hand.data_parallel` around a module: every call copies the module to all devices."""

    def __init__(self, module: nn.Module, devices: Sequence[torch.device], by_hand: ByHand):
        super().__init__()
        self.module = module
        self.devices = devices
        self.by_hand = by_hand

    def forward(self, x: Tensor) -> Tensor:
        return self.by_hand.data_parallel(self.module, x, Transfers(self.devices))


class KeptStar(nn.Module):
    """The same with copies that are made once: right only while the weights stay as they are."""

    def __init__(self, module: nn.Module, devices: Sequence[torch.device], by_hand: ByHand):
        super().__init__()
        self.devices = devices
        self.by_hand = by_hand
        self.replicas = by_hand.replicate(module, Transfers(devices), len(devices))

    def forward(self, x: Tensor) -> Tensor:
        transfers = Transfers(self.devices)
        parts = self.by_hand.scatter(x, transfers)
        outputs = self.by_hand.parallel_apply(self.replicas[: len(parts)], parts)
        return self.by_hand.gather(outputs, transfers)


def compared(
    by_hand: ByHand,
    images: Tensor,
    labels: Tensor,
    batches: Sequence[int],
    seconds: float,
) -> dict[int, Comparison]:
    """{batch size: Comparison of the ways above}; the first way, FORWARD, is the base.

    Args:
        images, labels: of at least max(batches) samples of Fashion-MNIST, on the CPU.
        seconds: in all.
    """
    arguments = by_hand, images, labels, batches, seconds
    found = run_ranks(_side_by_side, RANKS, *arguments, timeout=TIMEOUT_SECONDS)[0]
    return dict(zip(batches, found, strict=True))


def alone(name: str) -> str:
    """The way that the model alone computes what the way `name` does: FORWARD or STEP."""
    return FORWARD if name.startswith("forward") else STEP


def panels(
    found: Mapping[int, Comparison],
) -> tuple[dict[str, dict[str, list[Interval]]], list[Interval], str]:
    """({panel: {way: times as long as the model alone, per batch}}, controls, title) of a figure.

    Args:
        found: what `compared` returned.
    """
    curves = {"forward": {}, "step": {}}
    for name in next(iter(found.values())).seconds:
        base = alone(name)
        if name != base:
            panel, way = name.split(", ")
            curves[panel][way] = [of_batch.ratio(base, to=name) for of_batch in found.values()]
    ratios = [interval.estimate for interval in curves["step"]["DDP"]]
    smallest, *_, largest = found
    title = (
        f"A step of DDP takes {ratios[0]:.2f} times as long as the model alone "
        f"at batch {smallest}, {ratios[-1]:.2f} times at {largest}"
    )
    return curves, [of_batch.control for of_batch in found.values()], title


def _side_by_side(
    rank: int,
    world_size: int,
    by_hand: ByHand,
    images: Tensor,
    labels: Tensor,
    batches: Sequence[int],
    seconds: float,
) -> list[Comparison]:
    on_gpus = dist.get_backend() == "nccl"
    if on_gpus:
        devices = [torch.device("cuda", number) for number in range(world_size)]
    else:
        os.environ["CUDA_VISIBLE_DEVICES"] = ""
        devices = [torch.device("cpu")] * world_size
    torch.set_num_threads(1)
    keep_freed_memory()
    found = []
    for n in batches:
        batch = images[:n].to(devices[rank]), labels[:n].to(devices[rank])
        if rank == 0:
            ways = _of_one_process(batch, devices, by_hand)
        else:
            names = ONE_PROCESS + READY_MADE if on_gpus else ONE_PROCESS
            ways = dict.fromkeys(names, _do_nothing)
        shard = tuple(tensor.chunk(world_size)[rank] for tensor in batch)
        ways |= _of_processes(shard, devices[rank])
        found.append(compare_on_ranks(ways, seconds=seconds / len(batches)))
    return found


def _of_one_process(
    batch: tuple[Tensor, Tensor], devices: list[torch.device], by_hand: ByHand
) -> dict[str, Callable[[], object]]:
    """The ways that take one process, on all `devices`, in the order of their names above."""
    device = devices[0]
    star = Star(_model(device), devices, by_hand)
    ways = {
        FORWARD: _forward(_model(device), batch[0]),
        STEP: sgd_step(_model(device), batch),
        FORWARD_BY_HAND: _forward(star, batch[0]),
        FORWARD_KEPT: _forward(KeptStar(_model(device), devices, by_hand), batch[0]),
        STEP_BY_HAND: sgd_step(star, batch),
    }
    if device.type == "cuda":
        ready_made = nn.DataParallel(_model(device), devices)
        functions = _forward(ready_made, batch[0]), sgd_step(ready_made, batch)
        ways |= dict(zip(READY_MADE, functions, strict=True))
    return ways


def _of_processes(
    shard: tuple[Tensor, Tensor], device: torch.device
) -> dict[str, Callable[[], object]]:
    """The ways that take a process per device, each with its shard of the batch."""
    on_gpu = [device] if device.type == "cuda" else None
    ddp = DistributedDataParallel(_model(device), device_ids=on_gpu)
    return {
        FORWARD_PROCESSES: _forward(_model(device), shard[0]),
        STEP_DDP: sgd_step(ddp, shard),
    }


def _model(device: torch.device) -> nn.Module:
    return FashionCNN(dropout=0.0, norm=None).to(device)


def _forward(model: nn.Module, x: Tensor) -> Callable[[], object]:
    """A function that computes `model(x)` without gradients."""

    def forward() -> object:
        with torch.no_grad():
            return model(x)

    return forward


def _do_nothing() -> None:
    """Take no part in a way of another rank."""
