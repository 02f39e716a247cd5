"""Probe of exercise copy_ahead."""

import inspect
import weakref
from types import SimpleNamespace

import torch

from course.engine.compare import differs
from course.engine.exercise import Answer, Facts, exercise
from course.engine.probing.errors import error_text
from course.engine.probing.tensors import storage


class _Loader:
    """Batches (x, y) in one buffer: asking for a batch refills it.

    `log` records the calls of its iterator; asking for batch `fails_at` raises an error.
    """

    def __init__(self, tables, log, fails_at=None):
        self.tables, self.log, self.fails_at = tables, log, fails_at
        self.buffer = torch.empty(9, 5)

    def __iter__(self):
        self.running = self._batches()  # kept: it would be closed with its last reference
        return self.running

    def _batches(self):
        try:
            for i, table in enumerate([*self.tables, None]):
                self.log.append(("ask", i))
                self.buffer.fill_(-1)  # here the batch that was in it is gone
                if i == self.fails_at:
                    raise OSError("the disk is gone")
                if table is not None:
                    filled = self.buffer[: len(table)].copy_(table)
                    yield filled[:, :-2], filled[:, -2]
        finally:
            self.log.append(("close", None))

    def close(self):
        self.log.append(("close of the iterable, not of its iterator", None))


class _LateCopies:
    """Stands in for DeviceCopies where there is no second device: each copy is made as late as it
    can be.

    That is when it is waited for, or when the consumer computes (`compute`) and tensors() has asked
    it to wait. Every wait for copy `fails_at` raises.
    """

    def __init__(self, device, log, fails_at=None):
        self.device, self.log, self.fails_at, self.jobs, self.handles = (
            device,
            log,
            fails_at,
            {},
            [],
        )

    def start(self, tensors):
        number, there = (
            len(self.handles),
            tuple(torch.full_like(x, float("nan"), device=self.device) for x in tensors),
        )
        self.log.append(("start", number))
        self.jobs[number] = list(zip(tensors, there, strict=True))
        handle = _LateCopy(self, number, there)
        self.handles.append(weakref.ref(handle))
        return handle

    def make(self, number):
        """Make copy `number` now, unless it was made."""
        for here, there in self.jobs.pop(number, ()):
            there.copy_(here)

    def compute(self):
        """Begin the consumer's computation, which waits for every copy whose tensors() was
        called.
        """
        for what, number in self.log:
            if what == "tensors":
                self.make(number)

    def running(self):
        """The numbers of the copies that were started and never waited for."""
        return [
            number
            for what, number in self.log
            if what == "start" and ("wait", number) not in self.log
        ]


class _LateCopy:
    def __init__(self, copies, number, there):
        self._copies, self._number, self._there = copies, number, there

    def tensors(self):
        self._copies.log.append(("tensors", self._number))
        return self._there

    def wait(self):
        self._copies.log.append(("wait", self._number))
        if self._number == self._copies.fails_at:
            raise RuntimeError("the device was lost")
        self._copies.make(self._number)


def _state(log, number):
    """The state of copy `number` while the consumer computes on the batch before it, in words."""
    for event, text in (
        ("wait", "over: it was waited for"),
        ("tensors", "awaited too: its tensors() were called"),
    ):
        if (event, number) in log:
            return text
    return "under way" if ("start", number) in log else "not started"


def _consume(answer, tables, device, take=None):
    """What a consumer sees that computes on `take` batches (default: all) and then leaves: a
    namespace.
    """
    log = []
    copies, loader = _LateCopies(device, log), _Loader(tables, log)
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
        seen.held.append(max(2, sum(handle() is not None for handle in copies.handles)))
        if i + 1 == take:
            break
    seen.left_at, seen.running = len(log), copies.running()
    generator.close()
    return seen


def _given(batch, loader):
    """What the consumer was given, in words."""
    if not isinstance(batch, (tuple, list)):
        return "the handle of a copy" if isinstance(batch, _LateCopy) else type(batch).__name__
    return "the batch of the loader" if storage(loader.buffer) in map(storage, batch) else "tensors"


def _early(log):
    """A sentence about the first copy not waited for before the loader was asked for its next
    batch.
    """
    for at, (what, number) in enumerate(log):
        before = log[:at]
        if what == "ask" and ("start", number - 1) in before and ("wait", number - 1) not in before:
            return f"batch {number} was asked for before copy {number - 1} was waited for"
    return "each in time"


def _end(seen):
    """What happened after the consumer left, in order."""
    after = seen.log[seen.left_at :]
    wanted = [*(("wait", number) for number in seen.running), ("close", None)]
    if [event for event in after if event in wanted][: len(wanted)] == wanted:
        return "the copy under way is waited for, then the loader is closed"
    return (
        ", then ".join(what if number is None else f"{what} {number}" for what, number in after)
        or "nothing"
    )


@exercise()
def copy_ahead(answer: Answer, device: torch.device, seed: int) -> Facts:
    """Copies that are made as late as possible, from a loader that refills its buffer as early as
    possible.
    """
    rng = torch.Generator().manual_seed(seed)
    n, rows = 5 + seed % 3, 4 + seed % 2
    # x, y, a column of padding
    tables = [torch.rand(rows - 2 * (i == n - 1), 5, generator=rng) for i in range(n)]
    made = inspect.isgenerator(answer(iter(()), _LateCopies(device, [])))
    yield "returns a generator", made
    if not made:
        return
    seen = _consume(answer, tables, device)
    yield "asks the loader for nothing before the first batch is wanted", seen.early == []
    yield "hands out tensors on the device", seen.given
    yield "number of batches", len(seen.batches)
    yield "each copy is waited for before the loader is asked for more", _early(seen.log)
    yield "the copy of a batch that is handed out", seen.own
    yield "copies that are never waited for", seen.running
    yield "the next copy, while a batch is computed on", seen.next[:-1]
    yield "the values, from a loader with one buffer", seen.batches
    if differs(
        seen.batches, [[table[:, :3].to(device), table[:, 3].to(device)] for table in tables]
    ):
        return
    yield "copies that are kept then: at most 2", seen.held
    for count in (0, 1):
        yield f"a loader of {count} batches", _consume(answer, tables[:count], device).batches
    for take in (1, 2):
        yield (
            f"the consumer leaves at batch {take - 1}",
            _end(_consume(answer, tables, device, take)),
        )
    for text, loader_fails, wait_fails in (
        ("an error of the loader", 2, None),
        ("an error of wait()", None, 1),
    ):
        log = []
        copies = _LateCopies(device, log, wait_fails)
        loader = _Loader(tables, log, loader_fails)
        yield f"{text} reaches the consumer", error_text(list, answer(loader, copies))
        yield f"{text}: copies that were never waited for", copies.running()
        yield f"{text}: the loader is closed", ("close", None) in log
    batches = [(table[:, :3], table[:, 3]) for table in tables]
    yield (
        "a list of batches, which has no close()",
        len(list(answer(batches, _LateCopies(device, [])))),
    )
