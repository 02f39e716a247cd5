"""One backward of the small GPT on a simulated wire: wrappers -> *when gradients and messages are
ready*.

`over_wires` runs inside a rank. The wire is in course.parallel.slow_wire, the model in
small_gpt.py, the plots are in course.plots.data_parallel.
"""

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

from course.measure.comparison import Comparison, Interval
from course.parallel.slow_wire import Wire, slow_wire
from course.parallel.timing import compare_measured_on_ranks
from course.training.small_gpt import BLOCKS, next_token_loss, random_tokens, small_gpt

PLAIN = "no wrapper"
# torch's DDP cuts its buckets after the first backward
WARM_UPS = 2

Wrap = Callable[[nn.Module], nn.Module]
# (when each bucket is ready, how long the card needs for each) -> when the last message ends
Formula = Callable[[list[float], list[float]], float]
# of one backward, in seconds from its start: "seconds" until all gradients are averaged, "hooks"
# [(number of the parameter, when its gradient was ready)], "sent" [[launched, started, ended,
# waited]], and "bytes" of each message
Record = dict[str, Any]


@dataclass
class WireRuns:
    """What `over_wires` found on one wire."""

    bandwidth: float  # bytes per second
    compared: Comparison  # of the ways, PLAIN first
    records: dict[str, list[Record]]  # of each way


@dataclass
class Sweep:
    """Until when all gradients are averaged on each wire, in backwards without a wrapper."""

    computed: dict[str, list[float]]  # for each size of buckets
    measured: dict[str, list[Interval]]
    flat: dict[str, float]  # with one message after backward
    needs: dict[str, float]  # what the wire needs for all gradients


def gradient_bytes() -> int:
    """Bytes of all gradients of the small GPT."""
    return sum(p.nbytes for p in small_gpt().parameters())


def block_bytes() -> int:
    """Bytes of the gradients of one block."""
    return gradient_bytes() // BLOCKS


def over_wires(
    rank: int,
    world_size: int,
    wraps: Mapping[str, Wrap],
    loads: Sequence[float],
    rows: int,
    seconds: float,
) -> list[WireRuns]:
    """Compare PLAIN and `wraps` on wires that need `loads` times a backward for all gradients.

    Args:
        wraps: {way: function that wraps the model of this rank}.
        rows: sequences in a batch.
        seconds: see `compare`, per wire.
    """
    torch.set_num_threads(1)
    found = []
    with slow_wire() as wire:
        ways = {PLAIN: lambda module: module, **wraps}
        runs = {way: recorded_backward(wrap, rows, wire) for way, wrap in ways.items()}
        alone = torch.tensor(statistics.median(runs[PLAIN]()["seconds"] for _ in range(5)))
        dist.all_reduce(alone, dist.ReduceOp.MAX)
        for load in loads:
            wire.bandwidth = gradient_bytes() / (load * alone.item())
            found.append(_on_one_wire(runs, wire.bandwidth, seconds))
        wire.bandwidth = float("inf")
    return found


def _on_one_wire(
    runs: Mapping[str, Callable[[], Record]], bandwidth: float, seconds: float
) -> WireRuns:
    records: dict[str, list[Record]] = {way: [] for way in runs}

    def measure(way: str) -> float:
        record = runs[way]()
        records[way].append(record)
        return record["seconds"]

    compared = compare_measured_on_ranks(list(runs), measure, seconds=seconds)
    return WireRuns(bandwidth, compared, records)


def recorded_backward(wrap: Wrap, rows: int, wire: Wire) -> Callable[[], Record]:
    """A function without arguments: one backward of the wrapped small GPT, as a Record."""
    module = small_gpt()
    hooks = []
    for number, parameter in enumerate(module.parameters()):  # before the hooks of the wrapper
        parameter.register_post_accumulate_grad_hook(
            lambda _, number=number: hooks.append((number, time.perf_counter()))
        )
    model = wrap(module)
    tokens = random_tokens(rows, seed=dist.get_rank())

    def run() -> Record:
        model.zero_grad()
        loss = next_token_loss(model, tokens)
        dist.barrier()
        hooks.clear()
        wire.messages.clear()
        start = time.perf_counter()
        loss.backward()
        if hasattr(model, "average_gradients"):
            model.average_gradients()
        return _record(start, hooks, wire)

    for _ in range(WARM_UPS):
        run()
    return run


def _record(start, hooks, wire):
    """The Record of a backward that began at `start` and is over."""
    seconds = time.perf_counter() - start
    last_hook = max(when for _, when in hooks)
    sent = []
    for message in wire.messages:
        waited = message.waited or max(last_hook, message.launched)
        times = (message.launched, message.started, message.ended, waited)
        sent.append([when - start for when in times])
    return {
        "seconds": seconds,
        "hooks": [(number, when - start) for number, when in hooks],
        "sent": sent,
        "bytes": [message.bytes for message in wire.messages],
    }


def typical(records: Sequence[Record]) -> Record:
    """The record of median length."""
    by_length = sorted(records, key=lambda record: record["seconds"])
    return by_length[len(by_length) // 2]


def slowest(runs: Sequence[WireRuns], way: str) -> list[Record]:
    """Of each run of `way`, the record of the rank that took longest.

    Args:
        runs: of every rank, on one wire.
    """
    rounds = zip(*(run.records[way] for run in runs), strict=True)
    return [max(of_ranks, key=lambda record: record["seconds"]) for of_ranks in rounds]


def buckets_ready(records: Sequence[Record], n_bytes: Sequence[int]) -> list[float]:
    """Seconds of backward after which each bucket is complete: the median of `records`.

    Args:
        records: of a way that sends nothing.
        n_bytes: of the buckets, in the order of their launches, filled with the last parameters
            first.
    """
    sizes = [parameter.nbytes for parameter in small_gpt().parameters()]
    times = torch.tensor([[when for _, when in sorted(record["hooks"])] for record in records])
    when_ready = times.median(0).values.tolist()
    ready = []
    number = len(sizes)
    for room in n_bytes:
        latest = 0.0
        while room > 0:
            number -= 1
            room -= sizes[number]
            latest = max(latest, when_ready[number])
        ready.append(latest)
    return ready


def sweep(
    runs_of_ranks: Sequence[Sequence[WireRuns]],
    wires: Sequence[str],
    caps: Sequence[int],
    flat: str,
    last_message_ends: Formula,
) -> Sweep:
    """The Sweep over wires and sizes of buckets.

    Args:
        runs_of_ranks: what `over_wires` returned on each rank.
        wires: their names, in the same order.
        caps: bytes of a bucket; each is a way of the Comparisons.
        flat: the way with one message after backward.
    """
    swept = Sweep({}, {}, {}, {})
    for number, wire in enumerate(wires):
        runs = [runs_of_rank[number] for runs_of_rank in runs_of_ranks]
        compared = runs[0].compared
        backward = statistics.median(record["seconds"] for record in slowest(runs, PLAIN))
        swept.needs[wire] = gradient_bytes() / runs[0].bandwidth / backward
        swept.flat[wire] = compared.ratio(PLAIN, to=flat).estimate
        swept.computed[wire] = []
        swept.measured[wire] = []
        for cap in caps:
            computed = _computed_seconds(runs, cap, last_message_ends) / backward
            swept.computed[wire].append(computed)
            swept.measured[wire].append(compared.ratio(PLAIN, to=cap))
    return swept


def _computed_seconds(runs: Sequence[WireRuns], cap: int, last_message_ends: Formula) -> float:
    """Seconds of a step with buckets of `cap` bytes, by the formula.

    The median over the rounds, in each of which the slowest rank says when gradients are ready.
    """
    bucket_bytes = runs[0].records[cap][-1]["bytes"]
    wire_seconds = [n_bytes / runs[0].bandwidth for n_bytes in bucket_bytes]
    step_seconds = []
    for record in slowest(runs, PLAIN):
        ready = buckets_ready([record], bucket_bytes)
        last_ends = last_message_ends(ready, wire_seconds)
        step_seconds.append(max(record["seconds"], last_ends))
    return statistics.median(step_seconds)
