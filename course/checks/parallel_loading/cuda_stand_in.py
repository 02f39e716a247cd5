"""A stand-in for torch.cuda that runs nothing and knows what waits for what: by it a check sees the
order of copies.

`Cuda` is what a Prefetcher takes for torch.cuda, on a machine with or without a GPU.  `Loader`
gives batches in what looks like pinned memory, whose copies `Cuda` notes.
"""

import contextlib

import torch


class Stream:
    """A queue of work.  `after` holds the copies that have ended before whatever is queued next
    begins.
    """

    def __init__(self, cuda, device):
        self.cuda, self.device, self.after = cuda, cuda.device_of(device), set()

    def record_event(self, event=None):
        event = event or self.cuda.Event()
        event.record(self)
        return event

    def wait_event(self, event):
        self.after |= event.after

    def wait_stream(self, stream):
        self.after |= stream.after

    def synchronize(self):
        self.cuda.stop(self.after)

    def query(self):
        return True

    def __enter__(self):
        self.block = self.cuda.stream(self)
        self.block.__enter__()
        return self

    def __exit__(self, *error):
        return self.block.__exit__(*error)


class Event:
    """A place in a queue: the copies that have ended when it is reached."""

    def __init__(self, cuda):
        self.cuda, self.after = cuda, frozenset()

    def record(self, stream=None):
        self.after = frozenset((stream or self.cuda.current_stream()).after)

    def wait(self, stream=None):
        (stream or self.cuda.current_stream()).wait_event(self)

    def synchronize(self):
        self.cuda.stop(self.after)

    def query(self):
        return True


class Cuda:
    """What `torch.cuda` is to a Prefetcher, for two GPUs that are not there; the first is the
    current one.

    Nothing runs. Every stream knows which copies come before its next piece of work, and that is
    what is asked about.
    """

    def __init__(self):
        self.gpu, self.stops, self.copies = 0, 0, []
        self.default = {0: Stream(self, 0), 1: Stream(self, 1)}
        self.current, self.streams = dict(self.default), []

    def Stream(self, device=None, priority=0):
        self.streams.append(Stream(self, device))
        return self.streams[-1]

    def Event(self, *args, **kwargs):
        return Event(self)

    def device_of(self, device):
        """The torch.device meant by an index, a name, a torch.device or None (the current one)."""
        device = (
            torch.device("cuda", device)
            if isinstance(device, int)
            else torch.device(device or "cuda")
        )
        return torch.device("cuda", self.gpu if device.index is None else device.index)

    def current_stream(self, device=None):
        return self.current[self.device_of(device).index]

    def default_stream(self, device=None):
        return self.default[self.device_of(device).index]

    def set_stream(self, stream):
        self.gpu = stream.device.index
        self.current[self.gpu] = stream

    @contextlib.contextmanager
    def stream(self, stream):
        before = self.gpu, dict(self.current)
        if stream is not None:
            self.set_stream(stream)
        try:
            yield stream
        finally:
            self.gpu, self.current = before

    @contextlib.contextmanager
    def device(self, device):
        before, self.gpu = self.gpu, self.device_of(device).index
        try:
            yield
        finally:
            self.gpu = before

    def current_device(self):
        return self.gpu

    def is_available(self):
        return True

    def synchronize(self, device=None):
        self.stop(range(len(self.copies)))

    def stop(self, after):
        """The processor waits until the copies `after` have ended: they come before all that is
        queued from now on.
        """
        self.stops += 1
        for stream in (*self.default.values(), *self.streams):
            stream.after |= set(after)


class Host(torch.Tensor):
    """A tensor in pinned memory, of batch number `batch`, that the Cuda `cuda_of` copies; Loader
    sets both.
    """

    def to(self, device=None, dtype=None, non_blocking=False, copy=False, **kwargs):
        if torch.device(device).type != "cuda":
            return super().to(device, dtype, non_blocking, copy, **kwargs)
        cuda, there = self.cuda_of, self.clone().as_subclass(There)
        there.place, there.batch, there.non_blocking = (
            len(cuda.copies),
            self.batch,
            bool(non_blocking),
        )
        there.gpu = cuda.device_of(device)
        there.stream, there.marked = cuda.current_stream(there.gpu), []
        cuda.copies.append(there)
        there.stream.after.add(there.place)
        if not non_blocking:
            cuda.stop([there.place])
        return there

    def cuda(self, device=None, non_blocking=False, **kwargs):
        return self.to("cuda" if device is None else device, non_blocking=non_blocking)

    def pin_memory(self, device=None):
        return self

    def is_pinned(self, device=None):
        return True


class There(torch.Tensor):
    """A copy on a GPU that is not there: on which stream it was queued, which streams its memory is
    kept for.
    """

    device = property(lambda self: self.gpu)
    is_cuda = True

    def record_stream(self, stream):
        self.marked.append(stream)

    def to(self, *args, **kwargs):
        return self


class Loader:
    """`n` batches of two tensors, drawn one by one and counted; each pass has values of its own."""

    def __init__(self, n, rng, cuda):
        self.n, self.cuda, self.drawn, self.passes = n, cuda, 0, 0
        self.values = torch.randn((n, 2, 3), generator=rng)

    def __len__(self):
        return self.n

    def __iter__(self):
        self.drawn, self.passes = 0, self.passes + 1
        for number, pair in enumerate(self.values * self.passes):
            self.drawn += 1
            yield tuple(self._tensor(values, number) for values in pair)

    def _tensor(self, values, number):
        tensor = values.clone().as_subclass(Host)
        tensor.cuda_of, tensor.batch = self.cuda, number
        return tensor


def values_of(batches):
    """The first values of each tensor of some batches."""
    return [[tensor.as_subclass(torch.Tensor).tolist() for tensor in batch] for batch in batches]
