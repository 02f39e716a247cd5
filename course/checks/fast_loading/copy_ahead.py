"""Probe of exercise copy_ahead."""

import inspect
import weakref
from types import SimpleNamespace

import torch

from course.checks.compare import differs
from course.checks.engine import exercise
from course.checks.probing.errors import error_text


class _Loader:
    """Batches (x, y) in `buffers` buffers used in turn: asking for a batch refills the buffer it comes in.

    `log` records the calls of its iterator; asking for batch `fails_at` raises an error.
    """

    def __init__(self, tables, buffers, log, fails_at=None):
        self.tables, self.log, self.fails_at = tables, log, fails_at
        self.buffers = [torch.empty_like(tables[0]) for _ in range(buffers)] if tables else []

    def __iter__(self):
        return _AskedBatches(self)

    def close(self):
        self.log.append(("close of the iterable, not of its iterator", None))


class _AskedBatches:
    """An iterator over a _Loader that can be closed, as a generator can."""

    def __init__(self, loader):
        self.loader, self.asked = loader, 0

    def __iter__(self):
        return self

    def __next__(self):
        loader, i = self.loader, self.asked
        self.asked += 1
        loader.log.append(("ask", i))
        if i == loader.fails_at:
            raise OSError("the disk is gone")
        if not loader.buffers:
            raise StopIteration
        buffer = loader.buffers[i % len(loader.buffers)].fill_(-1)  # here the batch that was in it is gone
        if i >= len(loader.tables):
            raise StopIteration
        filled = buffer[: len(loader.tables[i])].copy_(loader.tables[i])
        return filled[:, :-2], filled[:, -2]

    def close(self):
        self.loader.log.append(("close", None))


class _LateCopies:
    """Stands in for DeviceCopies where there is no second device: each copy is made as late as it can be.

    That is when it is waited for, or when the consumer computes (`compute`) and tensors() has asked it to wait.  The
    start of copy `fails_at` raises, and so does every wait for copy `wait_fails_at`.
    """

    def __init__(self, device, log, fails_at=None, wait_fails_at=None):
        self.device, self.log, self.fails_at, self.wait_fails_at = device, log, fails_at, wait_fails_at
        self.jobs, self.handles = [], []

    def start(self, tensors):
        number = len(self.jobs)
        if number == self.fails_at:
            raise RuntimeError("the device is out of memory")
        self.log.append(("start", number))
        pairs = [(here, torch.full(here.shape, float("nan"), device=self.device)) for here in tensors]
        self.jobs.append(pairs)
        handle = _LateCopy(self, number, tuple(there for _, there in pairs))
        self.handles.append(weakref.ref(handle))
        return handle

    def make(self, number):
        """Make copy `number` now, unless it was made."""
        for here, there in self.jobs[number]:
            there.copy_(here)
        self.jobs[number] = []

    def compute(self):
        """Begin the consumer's computation, which waits for every copy whose tensors() was called."""
        for what, number in self.log:
            if what == "tensors":
                self.make(number)

    def held(self):
        """How many handles are kept."""
        return sum(handle() is not None for handle in self.handles)

    def running(self):
        """The numbers of the copies that were started and never waited for."""
        return [number for what, number in self.log if what == "start" and ("wait", number) not in self.log]


class _LateCopy:
    def __init__(self, copies, number, there):
        self._copies, self._number, self._there = copies, number, there

    def tensors(self):
        self._copies.log.append(("tensors", self._number))
        return self._there

    def wait(self):
        self._copies.log.append(("wait", self._number))
        if self._number == self._copies.wait_fails_at:
            raise RuntimeError("the device was lost")
        self._copies.make(self._number)


def _tables(rng, n, rows):
    """`n` batches of `rows` rows, the last one smaller: x, y and a column of padding."""
    sizes = [rows] * (n - 1) + [rows - 2] * (n > 0)
    return [torch.rand(size, 5, generator=rng) for size in sizes]


def _state(log, number):
    """The state of copy `number` while the consumer computes on the batch before it, in words."""
    for event, text in (("wait", "over: it was waited for"), ("tensors", "awaited too: its tensors() were called")):
        if (event, number) in log:
            return text
    return "under way" if ("start", number) in log else "not started"


def _consume(answer, tables, buffers, device, take=None):
    """What a consumer sees that computes on `take` batches (default: all) and then leaves: a namespace."""
    log = []
    copies = _LateCopies(device, log)
    loader = _Loader(tables, buffers, log)
    generator = answer(loader, copies)
    seen = SimpleNamespace(log=log, early=list(log), given=[], batches=[], own=[], next=[], held=[])
    for i, batch in enumerate(generator):
        seen.given.append(_given(batch, loader))
        if i > len(tables) or seen.given[-1] != "tensors":
            break
        copies.compute()
        seen.batches.append([tensor.clone() for tensor in batch])
        seen.own.append("waited for" if ("wait", i) in log else "not waited for")
        seen.next.append(_state(log, i + 1))
        seen.held.append(max(2, copies.held()))
        if i + 1 == take:
            break
    seen.left_at, seen.running = len(log), copies.running()
    generator.close()
    return seen


def _held(answer, tables, device):
    """How many copies are kept while each batch is computed on, at least 2."""
    return _consume(answer, tables, 1, device).held


def _given(batch, loader):
    """What the consumer was given, in words."""
    if isinstance(batch, _LateCopy):
        return "the handle of a copy"
    if not isinstance(batch, (tuple, list)):
        return type(batch).__name__
    memory = {buffer.untyped_storage().data_ptr() for buffer in loader.buffers}
    return "the batch of the loader" if {t.untyped_storage().data_ptr() for t in batch} & memory else "tensors"


def _early(log):
    """A sentence about the first copy not waited for before the loader was asked for its next batch."""
    found = (
        f"batch {number} was asked for before copy {copy} was waited for"
        for at, (what, number) in enumerate(log)
        for copy in range(number if what == "ask" else 0)
        if ("start", copy) in log[:at] and ("wait", copy) not in log[:at]
    )
    return next(found, "each in time")


def _end(seen):
    """What happened after the consumer left, in order."""
    after = seen.log[seen.left_at :]
    wanted = [*(("wait", number) for number in seen.running), ("close", None)]
    if [event for event in after if event in wanted][: len(wanted)] == wanted:
        return "the copy under way is waited for, then the loader is closed"
    return ", then ".join(what if number is None else f"{what} {number}" for what, number in after) or "nothing"


@exercise()
def copy_ahead(answer, device, seed):
    """Copies that are made as late as possible, from loaders that refill their buffers as early as possible."""
    rng = torch.Generator().manual_seed(seed)
    n, rows = 5 + seed % 3, 4 + seed % 2
    tables = _tables(rng, n, rows)
    right = [[table[:, :3].to(device), table[:, 3].to(device)] for table in tables]
    made = inspect.isgenerator(answer(iter(()), _LateCopies(device, [])))
    yield "returns a generator", made
    if not made:
        return
    seen = _consume(answer, tables, 1, device)
    yield "asks the loader for nothing before the first batch is wanted", seen.early == []
    yield "hands out tensors on the device", seen.given
    yield "number of batches", len(seen.batches)
    yield "each copy is waited for before the loader is asked for more", _early(seen.log)
    yield "the copy of a batch that is handed out", seen.own
    yield "copies that are never waited for", seen.running
    yield "the next copy, while a batch is computed on", seen.next[:-1]
    yield "the values, from a loader with one buffer", seen.batches
    if differs(seen.batches, right):
        return
    yield "copies that are kept then: at most 2", _held(answer, tables, device)

    for buffers in (2, 3):
        seen = _consume(answer, tables, buffers, device)
        yield f"{buffers} buffers: each copy is waited for before the loader is asked for more", _early(seen.log)
        yield f"{buffers} buffers: the values", seen.batches
    for count in (0, 1, 2):
        yield f"a loader of {count} batches", _consume(answer, tables[n - count :], 1, device).batches
    for take in (1, 2, n - 1, n):
        yield f"the consumer leaves at batch {take - 1}", _end(_consume(answer, tables, 1, device, take))
    yield "the consumer takes all batches", _consume(answer, tables, 1, device).log.count(("close", None)) > 0

    for text, loader_fails, copy_fails, wait_fails in (
        ("an error of the loader", 2, None, None),
        ("an error of its first batch", 0, None, None),
        ("an error of start()", None, 2, None),
        ("an error of wait()", None, None, 1),
    ):
        log = []
        copies = _LateCopies(device, log, copy_fails, wait_fails)
        loader = _Loader(tables, 1, log, loader_fails)
        given = loader, copies
        yield f"{text} reaches the consumer", error_text(lambda given=given: _exhaust(answer(*given), given[1]))
        yield f"{text}: copies that were never waited for", copies.running()
        yield f"{text}: the loader is closed", ("close", None) in log
    log = []
    copies = _LateCopies(device, log)
    generator = answer(_Loader(tables, 1, log), copies)
    next(generator)
    error = ValueError("the loss is NaN")
    yield "an error of the consumer is not held back", error_text(lambda: generator.throw(error))
    yield "an error of the consumer: copies that were never waited for", copies.running()
    yield "an error of the consumer: the loader is closed", ("close", None) in log

    batches, copies, found = [(table[:, :3], table[:, 3]) for table in tables], _LateCopies(device, []), []
    for batch in answer(batches, copies):
        copies.compute()
        found.append([tensor.clone() for tensor in batch])
    yield "a list of batches, which has no close()", found


def _exhaust(generator, copies):
    for _ in generator:
        copies.compute()
