"""A stand-in for torch.cuda that runs nothing and knows what waits for what.

By it a check sees the order of copies. `Cuda` is what a Prefetcher takes for torch.cuda, on a
machine with or without a GPU.  `Loader` gives batches in what looks like pinned memory, whose
copies `Cuda` notes.
"""

import contextlib
from collections.abc import Iterable, Iterator
from typing import Any

import torch

DeviceLike = torch.device | str | int | None


class Stream:
    """A queue of work.

    `after` holds the copies that have ended before whatever is queued next begins.
    """

    def __init__(self, cuda: "Cuda", device: DeviceLike) -> None:
        self.cuda = cuda
        self.device = cuda.device_of(device)
        self.after = set()

    def record_event(self, event: "Event | None" = None) -> "Event":
        """As of torch.cuda.Stream, like all that follows."""
        event = event or self.cuda.Event()
        event.record(self)
        return event

    def wait_event(self, event: "Event") -> None:
        """Queue nothing before this event."""
        self.after |= event.after

    def wait_stream(self, stream: "Stream") -> None:
        """Queue nothing before all that is queued on `stream` now."""
        self.after |= stream.after

    def synchronize(self) -> None:
        """Let the processor wait for all that is queued here."""
        self.cuda.stop(self.after)

    def query(self) -> bool:
        """True: nothing runs."""
        return True

    def __enter__(self) -> "Stream":
        self.block = self.cuda.stream(self)
        self.block.__enter__()
        return self

    def __exit__(self, *error: Any) -> bool | None:
        return self.block.__exit__(*error)


class Event:
    """A place in a queue: the copies that have ended when it is reached."""

    def __init__(self, cuda: "Cuda") -> None:
        self.cuda = cuda
        self.after = frozenset()

    def record(self, stream: Stream | None = None) -> None:
        """As of torch.cuda.Event, like all that follows."""
        self.after = frozenset((stream or self.cuda.current_stream()).after)

    def wait(self, stream: Stream | None = None) -> None:
        """Queue nothing on `stream` before this event."""
        (stream or self.cuda.current_stream()).wait_event(self)

    def synchronize(self) -> None:
        """Let the processor wait for this event."""
        self.cuda.stop(self.after)

    def query(self) -> bool:
        """True: nothing runs."""
        return True


class Cuda:
    """What `torch.cuda` is to a Prefetcher, for two GPUs that are not there.

    The first is the current one. Nothing runs. Every stream knows which copies come before its next
    piece of work, and that is what is asked about.
    """

    def __init__(self) -> None:
        self.gpu = 0  # the current one
        self.stops = 0  # how often the processor has waited
        self.copies = []
        self.default = {0: Stream(self, 0), 1: Stream(self, 1)}
        self.current = dict(self.default)
        self.streams = []

    def Stream(self, device: DeviceLike = None, priority: int = 0) -> "Stream":
        """A new stream."""
        self.streams.append(Stream(self, device))
        return self.streams[-1]

    def Event(self, *args: Any, **kwargs: Any) -> "Event":
        """A new event."""
        return Event(self)

    def device_of(self, device: DeviceLike) -> torch.device:
        """The torch.device meant by an index, a name, a torch.device or None (the current one)."""
        if isinstance(device, int):
            device = torch.device("cuda", device)
        else:
            device = torch.device(device or "cuda")
        return torch.device("cuda", self.gpu if device.index is None else device.index)

    def current_stream(self, device: DeviceLike = None) -> "Stream":
        """The stream on which work is queued now."""
        return self.current[self.device_of(device).index]

    def default_stream(self, device: DeviceLike = None) -> "Stream":
        """The stream that is the current one in the beginning."""
        return self.default[self.device_of(device).index]

    def set_stream(self, stream: "Stream") -> None:
        """Make `stream` the current one, and its GPU too."""
        self.gpu = stream.device.index
        self.current[self.gpu] = stream

    @contextlib.contextmanager
    def stream(self, stream: "Stream | None") -> "Iterator[Stream | None]":
        """Inside the block `stream` is the current one."""
        gpu_before = self.gpu
        current_before = dict(self.current)
        if stream is not None:
            self.set_stream(stream)
        try:
            yield stream
        finally:
            self.gpu = gpu_before
            self.current = current_before

    @contextlib.contextmanager
    def device(self, device: DeviceLike) -> Iterator[None]:
        """Inside the block `device` is the current GPU."""
        before = self.gpu
        self.gpu = self.device_of(device).index
        try:
            yield
        finally:
            self.gpu = before

    def current_device(self) -> int:
        """The index of the current GPU."""
        return self.gpu

    def is_available(self) -> bool:
        """True."""
        return True

    def synchronize(self, device: DeviceLike = None) -> None:
        """Let the processor wait for all copies."""
        self.stop(range(len(self.copies)))

    def stop(self, after: Iterable[int]) -> None:
        """Let the processor wait until the copies `after` have ended.

        They come before all that is queued from now on.
        """
        self.stops += 1
        for stream in (*self.default.values(), *self.streams):
            stream.after |= set(after)


class Host(torch.Tensor):
    """A tensor in pinned memory that the Cuda `cuda_of` copies, of batch number `batch`.

    Loader sets both.
    """

    def to(
        self,
        device: DeviceLike = None,
        dtype: torch.dtype | None = None,
        non_blocking: bool = False,
        copy: bool = False,
        **kwargs: Any,
    ) -> torch.Tensor:
        """A copy on a GPU, which the Cuda notes."""
        if torch.device(device).type != "cuda":
            return super().to(device, dtype, non_blocking, copy, **kwargs)
        cuda = self.cuda_of
        there = self.clone().as_subclass(There)
        there.place = len(cuda.copies)
        there.batch = self.batch
        there.non_blocking = bool(non_blocking)
        there.gpu = cuda.device_of(device)
        there.stream = cuda.current_stream(there.gpu)
        there.marked = []
        cuda.copies.append(there)
        there.stream.after.add(there.place)
        if not non_blocking:
            cuda.stop([there.place])
        return there

    def cuda(
        self, device: DeviceLike = None, non_blocking: bool = False, **kwargs: Any
    ) -> torch.Tensor:
        """As `to`."""
        return self.to("cuda" if device is None else device, non_blocking=non_blocking)

    def pin_memory(self, device: DeviceLike = None) -> torch.Tensor:
        """The tensor itself."""
        return self

    def is_pinned(self, device: DeviceLike = None) -> bool:
        """True."""
        return True


class There(torch.Tensor):
    """A copy on a GPU that is not there.

    `stream` it was queued on; `marked` the streams that its memory is kept for; `place` its number
    among all copies.
    """

    device = property(lambda self: self.gpu)
    is_cuda = True

    def record_stream(self, stream: Stream) -> None:
        """Keep the memory for `stream`."""
        self.marked.append(stream)

    def is_kept_for(self, stream: Stream) -> bool:
        """True if the memory is kept for this very stream."""
        return any(marked is stream for marked in self.marked)

    def to(self, *args: Any, **kwargs: Any) -> torch.Tensor:
        """The tensor itself."""
        return self


class Loader:
    """`n` batches of two tensors, drawn one by one and counted; each pass has other values."""

    def __init__(self, n: int, rng: torch.Generator, cuda: Cuda) -> None:
        self.n = n
        self.cuda = cuda
        self.drawn = 0  # in this pass
        self.passes = 0
        self.values = torch.randn((n, 2, 3), generator=rng)

    def __len__(self) -> int:
        return self.n

    def __iter__(self) -> Iterator[tuple[Host, Host]]:
        self.drawn = 0
        self.passes += 1
        for number, (first, second) in enumerate(self.values * self.passes):
            self.drawn += 1
            yield self._tensor(first, number), self._tensor(second, number)

    def _tensor(self, values: torch.Tensor, number: int) -> Host:
        tensor = values.clone().as_subclass(Host)
        tensor.cuda_of = self.cuda
        tensor.batch = number
        return tensor


def values_of(batches: Iterable[Iterable[torch.Tensor]]) -> list[list]:
    """The values of each tensor of some batches, as lists of numbers."""
    values = []
    for batch in batches:
        values.append([tensor.as_subclass(torch.Tensor).tolist() for tensor in batch])
    return values
