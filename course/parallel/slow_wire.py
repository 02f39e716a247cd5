"""A slow network card for real ranks, and a record of launches, transfers and waits.

On one machine ranks exchange gradients through memory, so there is nothing to hide behind backward.
`slow_wire` gives
every rank a card with a latency and a bandwidth: an all-reduce is done for real, and its result is
returned when the card would have had it. The card sends one message at a time and computes nothing,
as a real one. Used by unit 02.
"""

import contextlib
import queue
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass

import torch
import torch.distributed as dist

from course.parallel.distributed import CountingGroup, Traffic, group_in_place


@dataclass
class Message:
    """One all-reduce of this rank; all times are those of `time.perf_counter`."""

    bytes: int
    launched: float
    started: float = 0.0  # when the card took it: after its launch, and after the message before
    ended: float = 0.0
    waited: float | None = None  # when a rank began to wait for it, or None


class Wire:
    """The card of one rank.

    `latency` (seconds per message) and `bandwidth` (bytes per second) may be changed between steps.
    `messages` lists what was sent, in the order of the launches; `messages.clear()` forgets it.
    """

    def __init__(self, latency: float = 0.0, bandwidth: float = float("inf")):
        self.latency, self.bandwidth, self.messages = latency, bandwidth, []
        self._queue, self._free = queue.SimpleQueue(), 0.0
        threading.Thread(target=self._send, daemon=True).start()

    def launch(self, work, tensors) -> "LateWork":
        """Put an all-reduce that has been started into the card's queue."""
        message = Message(sum(t.nbytes for t in tensors), time.perf_counter())
        self.messages.append(message)
        future = torch.futures.Future()
        self._queue.put(
            (message, work, tensors, future, self.latency + message.bytes / self.bandwidth)
        )
        return LateWork(message, future)

    def _send(self):
        while True:
            message, work, tensors, future, seconds = self._queue.get()
            message.started = max(message.launched, self._free)
            # returns when all ranks have come, and has its own time, which is part of the card's
            work.wait()
            time.sleep(max(0.0, message.started + seconds - time.perf_counter()))
            message.ended = self._free = time.perf_counter()
            future.set_result(tensors)


class LateWork(dist.Work):
    """What an asynchronous all-reduce over a slow wire returns."""

    def __init__(self, message, future):
        super().__init__()
        self.message, self.future = message, future

    def wait(self, timeout=None):
        """Return True once the card has the result."""
        self.message.waited = time.perf_counter()
        self.future.wait()
        return True

    def is_completed(self):
        """Whether the card has the result."""
        return self.future.done()

    def get_future(self):
        """The torch.futures.Future of the result, which torch's DDP asks for."""
        return self.future


class _SlowGroup(CountingGroup):
    """A process group whose all-reduces go over a wire; all other operations are as fast as
    before.
    """

    def __init__(self, inner, wire):
        super().__init__(inner, Traffic())
        self.wire = wire

    def allreduce(self, tensors, *args, **options):
        return self.wire.launch(self.inner.allreduce(tensors, *args, **options), tensors)


@contextlib.contextmanager
def slow_wire(latency: float = 0.0, bandwidth: float = float("inf")) -> Iterator[Wire]:
    """Yield the Wire over which this rank's all-reduces go inside the block; gloo only, tensors on
    the CPU.

    An object that keeps the group, as DDP does, must be made inside the block.

    Args:
        latency: seconds per message.
        bandwidth: bytes of the tensor per second.

    Raises: RankError where torch.distributed is not set up.
    """
    wire = Wire(latency, bandwidth)
    with group_in_place(lambda group: _SlowGroup(group, wire)):
        yield wire
