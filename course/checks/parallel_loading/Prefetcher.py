"""Probe of exercise Prefetcher."""

import collections
import contextlib
import itertools

import torch

from course.checks.engine import exercise


class _Stream:
    """A queue of work.  `after` holds the copies that have ended before whatever is queued next begins."""

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


class _Event:
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


class _Cuda:
    """What `torch.cuda` is to a Prefetcher, for two GPUs that are not there; the first is the current one.

    Nothing runs.  Every stream knows which copies come before its next piece of work, and that is what is asked about.
    """

    def __init__(self):
        self.gpu, self.stops, self.copies = 0, 0, []
        self.default = {0: _Stream(self, 0), 1: _Stream(self, 1)}
        self.current, self.streams = dict(self.default), []

    def Stream(self, device=None, priority=0):
        self.streams.append(_Stream(self, device))
        return self.streams[-1]

    def Event(self, *args, **kwargs):
        return _Event(self)

    def device_of(self, device):
        """The torch.device meant by an index, a name, a torch.device or None (the current one)."""
        device = torch.device("cuda", device) if isinstance(device, int) else torch.device(device or "cuda")
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
        """The processor waits until the copies `after` have ended: they come before all that is queued from now on."""
        self.stops += 1
        for stream in (*self.default.values(), *self.streams):
            stream.after |= set(after)


class _Host(torch.Tensor):
    """A tensor in pinned memory, of batch number `batch`, that the _Cuda `cuda_of` copies; _Loader sets both."""

    def to(self, device=None, dtype=None, non_blocking=False, copy=False, **kwargs):
        if torch.device(device).type != "cuda":
            return super().to(device, dtype, non_blocking, copy, **kwargs)
        cuda, there = self.cuda_of, self.clone().as_subclass(_There)
        there.place, there.batch, there.non_blocking = len(cuda.copies), self.batch, bool(non_blocking)
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


class _There(torch.Tensor):
    """A copy on a GPU that is not there: on which stream it was queued, which streams its memory is kept for."""

    device = property(lambda self: self.gpu)
    is_cuda = True

    def record_stream(self, stream):
        self.marked.append(stream)

    def to(self, *args, **kwargs):
        return self


class _LoaderFailed(Exception):
    """An exception of a loader."""


class _Loader:
    """`n` batches of two tensors, drawn one by one and counted; each pass has values of its own."""

    def __init__(self, n, rng, kind=tuple, cuda=None, fails_at=None):
        self.n, self.kind, self.cuda, self.fails_at, self.drawn, self.passes = n, kind, cuda, fails_at, 0, 0
        self.values = torch.randn((n, 2, 3), generator=rng)

    def __len__(self):
        return self.n

    def __iter__(self):
        self.drawn, self.passes = 0, self.passes + 1
        for number, pair in enumerate(self.values * self.passes):
            if number == self.fails_at:
                raise _LoaderFailed("the loader failed")
            self.drawn += 1
            yield self.kind(self._tensor(values, number) for values in pair)

    def _tensor(self, values, number):
        tensor = values.clone()
        if self.cuda is not None:
            tensor = tensor.as_subclass(_Host)
            tensor.cuda_of, tensor.batch = self.cuda, number
        return tensor


def _values(batches):
    """The first values of each tensor of some batches."""
    return [[tensor.as_subclass(torch.Tensor).tolist() for tensor in batch] for batch in batches]


def _handed_out(prefetcher, loader, device):
    """The batches of a pass, and what held when each was handed out: name -> list, mostly of bools."""
    cuda, batches, held = loader.cuda, [], collections.defaultdict(list)
    computing = cuda.current_stream(device)
    for number, batch in enumerate(itertools.islice(prefetcher, loader.n + 2), 1):
        copies = [t for t in batch if isinstance(t, _There)]
        later = [t for t in cuda.copies if t.batch == number]
        held["copied"].append(len(copies) == 2)
        held["ahead"].append(bool(later) or number >= loader.n)
        held["no more"].append(loader.drawn <= number + 1)
        held["back"].append(cuda.current_stream(device) is computing and cuda.gpu == 0)
        held["waits"].append(all(t.place in computing.after for t in copies))
        held["free"].append(not any(t.place in computing.after for t in later))
        held["marked"].append(sum(bool(t.marked) for t in copies))
        held["kept"].append(all(any(stream is computing for stream in t.marked) for t in copies))
        batches.append(batch)
    return batches, held


@exercise()
def Prefetcher(answer, device, seed):
    """Order of the copies, watched through a stand-in for torch.cuda; then the same loop on the device at hand."""
    rng = torch.Generator().manual_seed(seed)
    n = 4 + seed % 4
    gpu = torch.device("cuda", 0)

    def make(n=n, kind=tuple, target=gpu, **options):
        cuda = _Cuda()
        loader = _Loader(n, rng, kind, cuda, **options)
        return cuda, loader, answer(loader, target, cuda)

    cuda, loader, prefetcher = make()
    yield "its length is that of the loader", len(prefetcher)
    try:
        next(iter(prefetcher))
    except NotImplementedError:
        raise
    except (RuntimeError, AssertionError):  # what torch.cuda raises on a machine without a GPU
        pass
    yield "a side stream is made by the argument `cuda`", len(cuda.streams) > 0
    cuda, loader, prefetcher = make()
    batches, held = _handed_out(prefetcher, loader, gpu)
    main = cuda.current_stream(gpu)
    yield "as many batches as the loader has", len(batches)
    yield "the batches of the loader, in order", _values(batches)
    yield "every tensor of a batch is a copy on the device", all(held["copied"])
    yield "each tensor is copied once", len(cuda.copies)
    yield "tuples stay tuples", [type(batch).__name__ for batch in batches]
    yield "the copies are made with non_blocking=True", all(t.non_blocking for t in cuda.copies)
    yield "the copies are queued on a stream of their own", all(t.stream is not main for t in cuda.copies)
    yield "when a batch is handed out, the caller's stream is the current one", all(held["back"])
    yield "when a batch is handed out, the copy of the next one is queued", all(held["ahead"])
    yield "when a batch is handed out, no more than the next one has been drawn", all(held["no more"])
    yield "the computing stream waits for something on the side stream", bool(main.after)
    yield "the computing stream waits for the copy of its batch", all(held["waits"])
    yield "and not for the copy of the next batch", all(held["free"])
    yield "the processor waits for nothing: no synchronize", cuda.stops == 0
    yield "record_stream is called on both tensors of a batch", held["marked"]
    yield "record_stream is told the computing stream, which will read them", all(held["kept"])

    def values(loader, prefetcher):
        return _values(_handed_out(prefetcher, loader, gpu)[0])

    yield "a second pass: the batches that the loader gives then", values(loader, prefetcher)
    next(iter(prefetcher))
    yield "a pass after one that was broken off starts from the first batch", values(loader, prefetcher)
    cuda, loader, prefetcher = make(kind=list)
    yield "lists stay lists", [type(batch).__name__ for batch in _handed_out(prefetcher, loader, gpu)[0]]
    yield "a loader of one batch", values(*make(1)[1:])
    yield "an empty loader gives no batch", values(*make(0)[1:])
    yield "an exception of the loader reaches the caller", [_fails(make(fails_at=at)[2]) for at in (0, 2)]
    cuda, loader, prefetcher = make()
    with cuda.stream(_Stream(cuda, gpu)):
        held = _handed_out(prefetcher, loader, gpu)[1]
    yield (
        "a caller that computes on a stream of its own",
        {"it waits for its batch": all(held["waits"]), "the memory is kept for it": all(held["kept"])},
    )
    cuda, loader, prefetcher = make()
    other, batches = _Stream(cuda, gpu), iter(prefetcher)
    next(batches)
    with cuda.stream(other):
        batch = next(batches)
        held = [t.place in other.after and any(stream is other for stream in t.marked) for t in batch]
    yield "a caller that changes its stream in the middle of a pass", all(held)
    second = torch.device("cuda", 1)
    cuda, loader, prefetcher = make(target="cuda:1")
    held = _handed_out(prefetcher, loader, second)[1]
    main = cuda.current_stream(second)
    yield (
        "the second of two GPUs, by name, while the first is the current one",
        {
            "the copies are on it": all(t.gpu == second for t in cuda.copies),
            "its own stream waits for the batch": all(held["waits"]),
            "the copies are on a side stream of it": all(t.stream is not main for t in cuda.copies)
            and all(stream.device == second for stream in cuda.streams),
            "the memory is kept for its own stream": all(held["kept"]),
        },
    )

    def on_cpu(n, target, kind=tuple):
        cuda, loader = _Cuda(), _Loader(n, rng, kind)
        batches = list(itertools.islice(answer(loader, target, cuda), n + 2))
        return {
            "batches": _values(batches),
            "types": sorted({type(batch).__name__ for batch in batches}),
            "devices": sorted({tensor.device.type for batch in batches for tensor in batch}),
            "streams made": len(cuda.streams),
        }

    yield "on the CPU", on_cpu(n, torch.device("cpu"))
    yield "on the CPU, by name, lists", on_cpu(n, "cpu", list)
    yield "on the CPU: one batch, and none", [on_cpu(n, "cpu") for n in (1, 0)]
    loader = _Loader(3, rng)
    prefetcher = answer(loader, "cpu")
    yield "on the CPU: two passes", [_values(itertools.islice(prefetcher, 5)) for _ in range(2)]
    yield "on the CPU: the length", len(prefetcher)
    meta = [[tensor.device.type for tensor in batch] for batch in answer(_Loader(2, rng), "meta")]
    yield 'on a device of another kind, "meta"', meta
    if device.type == "cuda":
        yield "on this GPU: sums that are computed while the next batch is copied", _sums(answer, device, rng)


def _fails(prefetcher):
    """True if a pass ends with the exception of the loader."""
    try:
        collections.deque(prefetcher, maxlen=0)
    except _LoaderFailed:
        return True
    return False


def _sums(answer, device, rng):
    """Sum of each batch, taken on the GPU behind a long computation that the next copies could overtake."""
    batches = [(torch.randint(9, (1 << 20,), generator=rng).pin_memory(),) for _ in range(8)]
    work, sums = torch.eye(2048, device=device), []
    for (values,) in answer(batches, device):
        for _ in range(10):
            work = work @ work
        sums.append(values.sum() + work[0, 1].long())
        del values
    return torch.stack(sums)
