"""Probe of exercise copy_ahead."""

import inspect
import weakref
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from course.engine.compare import differs
from course.engine.exercise import Answer, Facts, exercise
from course.engine.probing.errors import error_text
from course.engine.probing.tensors import storage

Log = list[tuple[str, int | None]]  # (what is done, number of the batch or copy), in order


class _Loader:
    """Batches (x, y) in one buffer: asking for a batch refills it.

    `log` records the calls of its iterator; asking for batch `fails_at` raises an error.
    """

    def __init__(
        self, tables: Sequence[torch.Tensor], log: Log, fails_at: int | None = None
    ) -> None:
        self.tables = tables
        self.log = log
        self.fails_at = fails_at
        self.buffer = torch.empty(9, 5)

    def __iter__(self) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        self.running = self._batches()  # kept: it would be closed with its last reference
        return self.running

    def _batches(self) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
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

    def close(self) -> None:
        self.log.append(("close of the iterable, not of its iterator", None))


class _LateCopies:
    """Stands in for DeviceCopies where there is no second device: copies come as late as possible.

    That is when a copy is waited for, or when the consumer computes (`compute`) and tensors() has
    asked it to wait. Every wait for copy `fails_at` raises.
    """

    def __init__(self, device: torch.device, log: Log, fails_at: int | None = None) -> None:
        self.device = device
        self.log = log
        self.fails_at = fails_at
        self.jobs = {}
        self.handles = []

    def start(self, tensors: Sequence[torch.Tensor]) -> "_LateCopy":
        number = len(self.handles)
        there = tuple(torch.full_like(x, float("nan"), device=self.device) for x in tensors)
        self.log.append(("start", number))
        self.jobs[number] = list(zip(tensors, there, strict=True))
        handle = _LateCopy(self, number, there)
        self.handles.append(weakref.ref(handle))
        return handle

    def make(self, number: int) -> None:
        """Make copy `number` now, unless it was made."""
        for here, there in self.jobs.pop(number, ()):
            there.copy_(here)

    def compute(self) -> None:
        """Begin the consumer's computation.

        It waits for every copy whose tensors() was called.
        """
        for what, number in self.log:
            if what == "tensors":
                self.make(number)

    def running(self) -> list[int]:
        """The numbers of the copies that were started and never waited for."""
        started = [number for what, number in self.log if what == "start"]
        return [number for number in started if ("wait", number) not in self.log]

    def kept(self) -> int:
        """How many copies are still referred to."""
        return sum(handle() is not None for handle in self.handles)


class _LateCopy:
    """The handle of a copy."""

    def __init__(self, copies: _LateCopies, number: int, there: tuple[torch.Tensor, ...]) -> None:
        self._copies = copies
        self._number = number
        self._there = there

    def tensors(self) -> tuple[torch.Tensor, ...]:
        self._copies.log.append(("tensors", self._number))
        return self._there

    def wait(self) -> None:
        self._copies.log.append(("wait", self._number))
        if self._number == self._copies.fails_at:
            raise RuntimeError("the device was lost")
        self._copies.make(self._number)


@dataclass
class _Seen:
    """What a consumer sees; a list has an entry for each batch that it was given."""

    log: Log
    early: Log  # what was done before the first batch was wanted
    given: list[str] = field(default_factory=list)  # what the batch is, in words
    batches: list[list[torch.Tensor]] = field(default_factory=list)
    own_copy: list[str] = field(default_factory=list)  # whether it was waited for
    next_copy: list[str] = field(default_factory=list)  # its state, in words
    kept: list[int] = field(default_factory=list)  # copies, or 2 if there are fewer
    running: list[int] = field(default_factory=list)  # copies under way when the consumer leaves
    left_at: int = 0  # the length of the log then

    def after(self) -> Log:
        """What was done after the consumer left."""
        return self.log[self.left_at :]


def _consume(
    answer: Answer, tables: Sequence[torch.Tensor], device: torch.device, take: int | None = None
) -> _Seen:
    """What a consumer sees that computes on `take` batches (default: all) and then leaves."""
    log = []
    copies = _LateCopies(device, log)
    loader = _Loader(tables, log)
    generator = answer(loader, copies)
    seen = _Seen(log=log, early=list(log))
    for i, batch in enumerate(generator):
        seen.given.append(_given(batch, loader))
        if i > len(tables) or seen.given[-1] != "tensors":
            break
        copies.compute()
        seen.batches.append([tensor.clone() for tensor in batch])
        seen.own_copy.append("waited for" if ("wait", i) in log else "not waited for")
        seen.next_copy.append(_state(log, i + 1))
        seen.kept.append(max(2, copies.kept()))
        if i + 1 == take:
            break
    seen.left_at = len(log)
    seen.running = copies.running()
    generator.close()
    return seen


def _given(batch: Any, loader: _Loader) -> str:
    """What the consumer was given, in words."""
    if isinstance(batch, _LateCopy):
        return "the handle of a copy"
    if not isinstance(batch, (tuple, list)):
        return type(batch).__name__
    return "the batch of the loader" if storage(loader.buffer) in map(storage, batch) else "tensors"


def _state(log: Log, number: int) -> str:
    """The state of copy `number` while the consumer computes on the batch before it, in words."""
    if ("wait", number) in log:
        return "over: it was waited for"
    if ("tensors", number) in log:
        return "awaited too: its tensors() were called"
    return "under way" if ("start", number) in log else "not started"


def _early(log: Log) -> str:
    """A sentence about the first copy that was not waited for before the next batch was wanted."""
    for at, (what, number) in enumerate(log):
        before = log[:at]
        if what == "ask" and ("start", number - 1) in before and ("wait", number - 1) not in before:
            return f"batch {number} was asked for before copy {number - 1} was waited for"
    return "each in time"


def _end(seen: _Seen) -> str:
    """What happened after the consumer left, in order."""
    wanted = [("wait", number) for number in seen.running]
    wanted.append(("close", None))
    wanted_events = [event for event in seen.after() if event in wanted]
    if wanted_events[: len(wanted)] == wanted:
        return "the copy under way is waited for, then the loader is closed"
    words = []
    for what, number in seen.after():
        words.append(what if number is None else f"{what} {number}")
    return ", then ".join(words) or "nothing"


@exercise()
def copy_ahead(answer: Answer, device: torch.device, seed: int) -> Facts:
    """Copies as late as possible, from a loader that refills its buffer as early as possible."""
    rng = torch.Generator().manual_seed(seed)
    n = 5 + seed % 3
    rows = 4 + seed % 2
    # x, y, a column of padding
    tables = [torch.rand(rows, 5, generator=rng) for _ in range(n - 1)]
    tables.append(torch.rand(rows - 2, 5, generator=rng))
    made = inspect.isgenerator(answer(iter(()), _LateCopies(device, [])))
    yield "returns a generator", made
    if not made:
        return
    seen = _consume(answer, tables, device)
    yield "asks the loader for nothing before the first batch is wanted", seen.early == []
    yield "hands out tensors on the device", seen.given
    yield "number of batches", len(seen.batches)
    yield "each copy is waited for before the loader is asked for more", _early(seen.log)
    yield "the copy of a batch that is handed out", seen.own_copy
    yield "copies that are never waited for", seen.running
    yield "the next copy, while a batch is computed on", seen.next_copy[:-1]
    yield "the values, from a loader with one buffer", seen.batches
    right = [[table[:, :3].to(device), table[:, 3].to(device)] for table in tables]
    if differs(seen.batches, right):
        return
    yield "copies that are kept then: at most 2", seen.kept
    for count in (0, 1):
        yield f"a loader of {count} batches", _consume(answer, tables[:count], device).batches
    for take in (1, 2):
        end = _end(_consume(answer, tables, device, take))
        yield f"the consumer leaves at batch {take - 1}", end
    yield from _failure(answer, tables, device, "an error of the loader", loader_fails_at=2)
    yield from _failure(answer, tables, device, "an error of wait()", wait_fails_at=1)
    batches = [(table[:, :3], table[:, 3]) for table in tables]
    handed_out = list(answer(batches, _LateCopies(device, [])))
    yield "a list of batches, which has no close()", len(handed_out)


def _failure(
    answer: Answer,
    tables: Sequence[torch.Tensor],
    device: torch.device,
    text: str,
    loader_fails_at: int | None = None,
    wait_fails_at: int | None = None,
) -> Facts:
    log = []
    copies = _LateCopies(device, log, wait_fails_at)
    loader = _Loader(tables, log, loader_fails_at)
    yield f"{text} reaches the consumer", error_text(list, answer(loader, copies))
    yield f"{text}: copies that were never waited for", copies.running()
    yield f"{text}: the loader is closed", ("close", None) in log
