"""A slow network card for real ranks, and a record of launches, transfers and waits.

On one machine ranks exchange gradients through memory, so there is nothing to hide behind backward.
`slow_wire` gives every rank a card with a latency and a bandwidth: an all-reduce is done for real,
and its result is returned when the card would have had it. The card sends one message at a time and
computes nothing, as a real one. Its clock runs from the start on this rank: where the other rank
starts later, the message ends when that has come, and takes no time of its own after it. Used by
unit 02.
"""

import contextlib
import queue
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist

from course.parallel.counting import CountingGroup, OperationLog, group_in_place


@dataclass
class Message:
    """One all-reduce of this rank; all times are those of `time.perf_counter`."""

    bytes: int
    launched: float
    started: float = 0.0  # when the card took it: after its launch, and after the message before
    ended: float = 0.0
    waited: float | None = None  # when a rank began to wait for it, or None


@dataclass
class _Job:
    """A message in the queue of the card."""

    message: Message
    work: dist.Work  # the all-reduce that was started
    tensors: list[torch.Tensor]
    future: torch.futures.Future
    seconds: float  # that the card takes for it


class Wire:
    """The card of one rank.

    `latency` (seconds per message) and `bandwidth` (bytes per second) may be changed between steps.
    `messages` lists what was sent, in the order of the launches; `messages.clear()` forgets it.
    """

    def __init__(self, latency: float = 0.0, bandwidth: float = float("inf")):
        self.latency = latency
        self.bandwidth = bandwidth
        self.messages: list[Message] = []
        self._queue: queue.SimpleQueue[_Job] = queue.SimpleQueue()
        self._free = 0.0  # when the last message ends
        threading.Thread(target=self._send, daemon=True).start()

    def launch(
        self, work: dist.Work, tensors: list[torch.Tensor], seconds: float | None = None
    ) -> "LateWork":
        """Put an all-reduce that has been started into the card's queue.

        Args:
            seconds: that the card takes; None: the latency, and the bytes at its bandwidth.
        """
        message = Message(sum(tensor.nbytes for tensor in tensors), time.perf_counter())
        self.messages.append(message)
        future = torch.futures.Future()
        if seconds is None:
            seconds = self.latency + message.bytes / self.bandwidth
        self._queue.put(_Job(message, work, tensors, future, seconds))
        return LateWork(message, future)

    def _send(self) -> None:
        while True:
            job = self._queue.get()
            message = job.message
            message.started = max(message.launched, self._free)
            # returns when all ranks have come, and has its own time, which is part of the card's
            job.work.wait()
            time.sleep(max(0.0, message.started + job.seconds - time.perf_counter()))
            message.ended = time.perf_counter()
            self._free = message.ended
            job.future.set_result(job.tensors)


class LateWork(dist.Work):
    """What an asynchronous all-reduce over a slow wire returns."""

    def __init__(self, message: Message, future: torch.futures.Future):
        super().__init__()
        self.message = message
        self.future = future

    def wait(self, timeout: Any = None) -> bool:
        """Return True once the card has the result."""
        self.message.waited = time.perf_counter()
        self.future.wait()
        return True

    def is_completed(self) -> bool:
        """Whether the card has the result."""
        return self.future.done()

    def get_future(self) -> torch.futures.Future:
        """The torch.futures.Future of the result, which torch's DDP asks for."""
        return self.future


class _SlowGroup(CountingGroup):
    """A process group whose all-reduces go over a wire; the other operations are not slowed."""

    def __init__(self, inner: dist.ProcessGroup, wire: Wire):
        super().__init__(inner, OperationLog())
        self.wire = wire

    def allreduce(self, tensors: list[torch.Tensor], *args: Any, **options: Any) -> LateWork:
        return self.wire.launch(self.inner.allreduce(tensors, *args, **options), tensors)


@contextlib.contextmanager
def slow_wire() -> Iterator[Wire]:
    """Yield the Wire over which this rank's all-reduces go inside the block.

    It takes no time until its latency or bandwidth is set. For gloo and tensors on the CPU. An
    object that keeps the group, as DDP does, must be made inside the block.

    Raises: RankError where torch.distributed is not set up.
    """
    wire = Wire()
    with group_in_place(lambda group: _SlowGroup(group, wire)):
        yield wire
