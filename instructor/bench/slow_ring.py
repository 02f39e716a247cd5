"""A slow card for every collective that the plans of a check-up use, each with the time of a ring.

The card is that of course.parallel.slow_wire, which slows all-reduces alone and takes their bytes
once. Here an all-reduce among n ranks takes 2 (n - 1) messages of 1 / n of the tensor, a gather or
a reduce-scatter half of them, and a message to another rank arrives when the card has sent it.
"""

import contextlib
import functools
import time
from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.distributed as dist

from course.checkup.patches import Patches
from course.parallel.counting import CountingGroup, OperationLog, group_in_place
from course.parallel.slow_wire import LateWork, Wire

# functions that do half of an all-reduce: names of torch 2.8, and the same of torch 2.13
HALVES = {
    "all_gather_into_tensor": "all_gather",
    "all_gather_single": "all_gather",
    "reduce_scatter_tensor": "reduce_scatter",
    "reduce_scatter_single": "reduce_scatter",
}


class Ring:
    """The card of this rank, and what it has sent: `log` of (operation, bytes of its tensor)."""

    def __init__(self, latency: float, bandwidth: float) -> None:
        self.wire = Wire(latency, bandwidth)
        self.log = OperationLog()
        self.ranks = dist.get_world_size()

    def seconds(self, n_bytes: float, halves: int) -> float:
        """Seconds of `halves` of an all-reduce of so many bytes."""
        message = self.wire.latency + n_bytes / self.ranks / self.wire.bandwidth
        return halves * (self.ranks - 1) * message

    def sent(self) -> float:
        """Bytes that this rank has sent."""
        total = 0.0
        for operation, n_bytes in self.log:
            if operation == "send":
                total += n_bytes
            else:
                halves = 2 if operation == "all_reduce" else 1
                total += halves * n_bytes * (self.ranks - 1) / self.ranks
        return total


class _RingGroup(CountingGroup):
    """A process group whose all-reduces and messages go over the ring's card."""

    def __init__(self, inner: dist.ProcessGroup, ring: Ring) -> None:
        super().__init__(inner, OperationLog())
        self.ring = ring

    def allreduce(self, tensors: list[torch.Tensor], *args: Any, **options: Any) -> LateWork:
        n_bytes = sum(tensor.nbytes for tensor in tensors)
        self.ring.log.append(("all_reduce", n_bytes))
        work = self.inner.allreduce(tensors, *args, **options)
        return self.ring.wire.launch(work, tensors, self.ring.seconds(n_bytes, halves=2))

    def send(self, tensors: list[torch.Tensor], target: int, tag: int) -> LateWork:
        n_bytes = sum(tensor.nbytes for tensor in tensors)
        self.ring.log.append(("send", n_bytes))
        wire = self.ring.wire
        seconds = wire.latency + n_bytes / wire.bandwidth
        work = _SentLater(lambda: self.inner.send(tensors, target, tag), seconds)
        return wire.launch(work, tensors, seconds)


class _SentLater(dist.Work):
    """A message that leaves when the card has taken its time."""

    def __init__(self, send: Callable[[], dist.Work], seconds: float) -> None:
        super().__init__()
        self._send = send
        self._seconds = seconds

    def wait(self, timeout: Any = None) -> bool:
        """Send it, and return True once it has arrived."""
        time.sleep(self._seconds)
        self._send().wait()
        return True


@contextlib.contextmanager
def slow_ring(latency: float, bandwidth: float) -> Iterator[Ring]:
    """Yield the Ring over which this rank's collectives and messages go inside the block.

    For gloo and tensors on the CPU. An object that keeps the group must be made inside the block.

    Args:
        latency: seconds per message.
        bandwidth: bytes per second.
    """
    ring = Ring(latency, bandwidth)
    patches = Patches()
    try:
        for name, operation in HALVES.items():
            if hasattr(dist, name):
                patches.replace(dist, name, functools.partial(_half, ring, operation))
        with group_in_place(lambda group: _RingGroup(group, ring)):
            yield ring
    finally:
        patches.close()


def _half(ring: Ring, operation: str, original: Callable[..., Any]) -> Callable[..., Any]:
    """What replaces a function that does half of an all-reduce."""

    @functools.wraps(original)
    def half(*args: Any, async_op: bool = False, **options: Any) -> Any:
        values = [*args, *options.values()]
        tensors = [value for value in values if isinstance(value, torch.Tensor)]
        n_bytes = max(tensor.nbytes for tensor in tensors)  # of the whole, not of a shard
        ring.log.append((operation, n_bytes))
        work = original(*args, async_op=True, **options)
        late = ring.wire.launch(work, tensors, ring.seconds(n_bytes, halves=1))
        if async_op:
            return late
        late.wait()
        return None

    return half
