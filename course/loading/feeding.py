"""How batches reach the device that trains: how long the loop waits, how long copies take.

Part 5 of unit 01 measures with it. What needs a GPU gives None on other machines, and a claim about
it stays undecided.
"""

import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd import DeviceType
from torch.profiler import ProfilerActivity, profile, record_function
from torch.utils.data import Dataset, default_collate

from course.device import cores
from course.loading.loaders import forked
from course.measure.comparison import (
    Comparison,
    Interval,
    compare,
    difference_interval,
    ratio_interval,
)

NO_GPU = "no GPU here"
Step = Callable[[object], object]
Spans = list[tuple[str, int, float, float]]  # label, number, start, end, in seconds

PAGEABLE = "pageable"
PINNED = "pinned"
WAITS, QUEUES = "waits for a batch", "queues the step"


class Waiting(NamedTuple):
    """How long the loop waits for its data in a pass."""

    first: float  # seconds, for the first batch
    share: float  # of the time after the first batch, from 0 to 1


def waiting(batches: Iterable, step: Step) -> Waiting:
    """The Waiting of a pass that calls step(batch) for each batch.

    A batch is dropped after its step, which is not waiting. In `for batch in batches`, that happens
    while the next one is asked for.
    """
    source = iter(batches)
    begin = time.perf_counter()
    batch = next(source, None)
    served = time.perf_counter()
    first, after_first = served - begin, served
    waited = 0.0
    while batch is not None:
        step(batch)
        batch = None
        asked = time.perf_counter()
        batch = next(source, None)
        waited += time.perf_counter() - asked
    whole = time.perf_counter() - after_first
    return Waiting(first, waited / whole)


def sleeping(seconds: float) -> Step:
    """A step that takes `seconds` and leaves the processor free, as a GPU does."""
    return lambda batch: time.sleep(seconds)


class WaitingRounds(NamedTuple):
    """The Waiting of some ways to load in several rounds."""

    first: dict[str, float]  # seconds, for the first batch of the last round
    share: dict[str, list[float]]  # percent of the time after the first batch, per round


def waiting_in_rounds(ways: Mapping[str, Iterable], step: Step, rounds: int) -> WaitingRounds:
    """The WaitingRounds of `rounds` passes over each of `ways`.

    One round before them, which starts workers, is not kept.
    """
    found = WaitingRounds({}, {})
    for way, waited in _in_rounds(waiting, ways, step, rounds).items():
        found.first[way] = waited[-1].first
        found.share[way] = [100 * one.share for one in waited]
    return found


def _in_rounds(
    measure: Callable[[Iterable, Step], Any], ways: Mapping[str, Iterable], step: Step, rounds: int
) -> dict[str, list]:
    """What `measure` gives of each way in each of `rounds` passes, after one that is not kept."""
    found: dict[str, list] = {way: [] for way in ways}
    for number in range(1 + rounds):
        for way, batches in ways.items():
            measured = measure(batches, step)
            if number > 0:
                found[way].append(measured)
    return found


class CopyTimes(NamedTuple):
    """How copies to a GPU from pinned memory compare with copies from pageable memory."""

    passes: Comparison | None  # None without a GPU
    pinned_ratio: Interval | None  # how many times as fast a copy from pinned memory is
    returns: dict[str, Interval]  # per memory: see compare_copies

    def __str__(self) -> str:
        return NO_GPU if self.passes is None else str(self.passes)


def compare_copies(nbytes: int, device: torch.device, seconds: float) -> CopyTimes:
    """The CopyTimes of `nbytes` from pageable memory, the base, and from pinned memory.

    `returns` has, per memory, the share of the copy's time after which the call with
    non_blocking=True returns. Without a GPU, nothing is copied.
    """
    if device.type != "cuda":
        return CopyTimes(None, None, {})
    host = {PAGEABLE: torch.ones(nbytes, dtype=torch.uint8)}
    host[PINNED] = host[PAGEABLE].pin_memory()
    copies = {name: lambda batch=batch: batch.to(device) for name, batch in host.items()}
    found = compare(copies, device=device, seconds=seconds)
    returns = {}
    for name, batch in host.items():
        rounds = [_returned_and_ended(batch, device) for _ in range(found.rounds)]
        returned, ended = torch.tensor(rounds, dtype=torch.float64).T
        returns[name] = ratio_interval(returned, ended)
    return CopyTimes(found, found.ratio(PINNED), returns)


def _returned_and_ended(batch, device):
    """Seconds until a call with non_blocking=True returns, and until its copy has ended."""
    torch.cuda.synchronize(device)
    begin = time.perf_counter()
    batch.to(device, non_blocking=True)
    returned = time.perf_counter()
    torch.cuda.synchronize(device)
    return returned - begin, time.perf_counter() - begin


def copy_share(
    bytes_per_item: float, items_per_second: float, gigabytes_per_second: float
) -> float:
    """The share of the time that copies of this speed take, from 0 to 1."""
    return bytes_per_item * items_per_second / (1e9 * gigabytes_per_second)


def stack_and_crop(images: Sequence[Tensor]) -> Tensor:
    """A corner of every image, of a batch that stays where it was stacked."""
    return torch.stack(list(images))[:, :, :8, :8].clone()


class InLoop:
    """The batches of `loader`, each passed through `move` when it is asked for."""

    def __init__(self, loader: Iterable, move: Callable[[object], object]):
        self.loader = loader
        self.move = move

    def __iter__(self) -> Iterator:
        return map(self.move, self.loader)


def ways_to_feed(
    dataset: Dataset,
    batch_size: int,
    device: torch.device,
    move: Callable[[object], object],
    prefetch: Callable[[Iterable], Iterable],
) -> dict[str, Iterable]:
    """{way: batches on `device`} from pinned or pageable memory; none without a GPU.

    Each batch of the loaders is a tuple of one tensor.

    Args:
        move: moves a batch in the loop that asks for it.
        prefetch: makes batches on the device of a loader.
    """
    ways: dict[str, Iterable] = {}
    if device.type != "cuda":
        return ways
    for memory in (PAGEABLE, PINNED):
        batches = forked(
            dataset,
            batch_size,
            cores(),
            pin_memory=memory == PINNED,
            collate_fn=_in_a_tuple,
        )
        ways[f"{memory}, copy in the loop"] = InLoop(batches, move)
        ways[f"{memory}, prefetcher"] = prefetch(batches)
    return ways


def _in_a_tuple(images):
    return (default_collate(images),)


def small_network(device: torch.device) -> Step:
    """A step on (images,): forward and backward pass of a small convolutional network."""
    torch.manual_seed(0)
    layers = [
        torch.nn.Conv2d(3, 64, 7, 4),
        torch.nn.ReLU(),
        torch.nn.Conv2d(64, 128, 5, 2),
        torch.nn.ReLU(),
        torch.nn.AdaptiveAvgPool2d(1),
        torch.nn.Flatten(),
        torch.nn.Linear(128, 2),
    ]
    net = torch.nn.Sequential(*layers).to(device)

    def train(batch: Sequence[Tensor]) -> None:
        net.zero_grad()
        net(batch[0]).square().mean().backward()

    return train


def idle_share(batches: Iterable, step: Step) -> float:
    """Share of the time of a pass, from 0 to 1, in which no step runs on the GPU."""
    torch.cuda.synchronize()
    begin = time.perf_counter()
    marks = []
    for batch in batches:
        started = torch.cuda.Event(enable_timing=True)
        ended = torch.cuda.Event(enable_timing=True)
        started.record()
        step(batch)
        ended.record()
        marks.append((started, ended))
    torch.cuda.synchronize()
    busy = sum(started.elapsed_time(ended) for started, ended in marks) / 1000
    return 1 - busy / (time.perf_counter() - begin)


def idle_in_rounds(ways: Mapping[str, Iterable], step: Step, rounds: int) -> dict[str, list[float]]:
    """Per way, the percent of the time of each of `rounds` passes in which no step runs on the GPU.

    One round before them, which starts workers and kernels, is not kept.
    """
    idle = _in_rounds(idle_share, ways, step, rounds)
    return {way: [100 * share for share in shares] for way, shares in idle.items()}


def least_idle(idle: Mapping[str, list[float]]) -> str | None:
    """The way that leaves the GPU idle least; None if there are none."""
    return min(idle, key=lambda way: sum(idle[way]), default=None)


def less_idle(idle: Mapping[str, list[float]], way: str, than: str) -> Interval | None:
    """By how many percentage points `way` leaves the GPU idle less; None if it is not there."""
    if way not in idle:
        return None
    return difference_interval(idle[than], idle[way])


def traced(name: str, batches: Iterable, step: Step, n: int) -> dict[str, Spans]:
    """What the processor, the copies and the GPU do in `n` steps: {row of a figure: spans}."""
    source = iter(batches)
    step(next(source))
    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as found:
        for _ in range(n):
            with record_function(WAITS):
                batch = next(source)
            with record_function(QUEUES):
                step(batch)
        torch.cuda.synchronize()
    rows: dict[str, Spans] = {f"{name}: {row}": [] for row in ("processor", "copies", "GPU")}
    events = found.events()
    origin = min(event.time_range.start for event in events if event.name in (WAITS, QUEUES))
    for number, event in enumerate(events):
        found_in = _row_and_label(event)
        if found_in is not None:
            row, label = found_in
            start = (event.time_range.start - origin) / 1e6
            end = (event.time_range.end - origin) / 1e6
            rows[f"{name}: {row}"].append((label, number, start, end))
    return rows


def _row_and_label(event):
    """The row of an event of the profiler, and what to call it there; None for the others."""
    if event.device_type == DeviceType.CPU:
        return ("processor", event.name) if event.name in (WAITS, QUEUES) else None
    if event.device_type != DeviceType.CUDA or event.name in (WAITS, QUEUES):
        return None
    is_copy = event.name.startswith("Memcpy HtoD")
    return ("copies", "copy to the GPU") if is_copy else ("GPU", "kernel")


def overlapped(rows: dict[str, Spans]) -> float:
    """Share of the time of all copies in which a kernel runs; NaN if the trace has no copy."""
    *_, copies, kernels = rows.values()
    both = 0.0
    for _, _, start, end in copies:
        for _, _, begin, stop in kernels:
            both += max(0.0, min(end, stop) - max(start, begin))
    copying = sum(end - start for _, _, start, end in copies)
    return both / copying if copying else math.nan
