"""Probe of exercise seconds_per_pass."""

import re
from collections.abc import Iterator
from typing import Any

import torch

from course.engine.exercise import Answer, Facts, exercise
from course.engine.probing.errors import error_and_message
from course.engine.probing.laws import tried
from course.engine.probing.tensors import form_or_type

LONG = 200  # batches of a loader that nobody should come to the end of


class _Machine:
    """A loader, its workers, a GPU and a clock in one: steps have a cost and are written down.

    No real time passes. A step costs so many seconds in the first pass, twice as many in the
    second, three times as many in the third.

    Args:
        start: seconds that the workers need to start.
        batch: seconds of a batch.
        queued: seconds of work that a batch leaves on the GPU.
        waiting: seconds of work that is queued there from the beginning.
        ends: {number of a pass: batches that the loader has in it}; LONG in all others.
    """

    def __init__(
        self,
        start: float = 0.0,
        batch: float = 0.0,
        queued: float = 0.0,
        waiting: float = 0.0,
        ends: dict[int, int] | None = None,
    ) -> None:
        self.start = start
        self.batch = batch
        self.queued = queued
        self.waiting = waiting
        self.ends = ends or {}
        self.now = 1000.0
        self.passes = 0
        self.events = []

    def clock(self) -> float:
        self.events.append("clock")
        return self.now

    def synchronize(self) -> None:
        self.events.append("synchronize")
        self.now += self.waiting
        self.waiting = 0.0

    def __iter__(self) -> Iterator[int]:
        self.events.append("iter")
        self.passes += 1
        self.now += self.start * self.passes
        return self._batches(self.passes)

    def _batches(self, number: int) -> Iterator[int]:
        for _ in range(self.ends.get(number, LONG)):
            self.events.append("batch")
            self.now += self.batch * number
            self.waiting += self.queued * number
            yield number

    def drawn(self) -> dict[str, int]:
        """How many batches were drawn in each pass."""
        passes = " ".join(self.events).split("iter")[1:]
        return {f"pass {i}": steps.count("batch") for i, steps in enumerate(passes, 1)}


@exercise()
def seconds_per_pass(answer: Answer, device: torch.device, seed: int) -> Facts:
    """Passes timed by a clock that the loader moves."""
    n = 6 + seed % 5
    repeats = 3 + seed % 3
    yield from _what_is_timed(answer, n, repeats)
    yield from _short_loaders(answer, n)
    machine = _Machine(batch=0.5)
    by_default = answer(machine, n, clock=machine.clock)
    yield "by default one pass to warm up and five that count", by_default
    yield "with the real clock all seconds are above 0", bool((answer(_Machine(), n) > 0).all())


def _what_is_timed(answer: Answer, n: int, repeats: int) -> Facts:
    machine = _Machine(batch=0.1)  # no sum of halves, so float32 would round it
    seconds = answer(machine, n, repeats, 2, None, machine.clock)
    yield "returns a float64 tensor, one value for each pass that counts", form_or_type(seconds)
    yield "iter(loader) is called once in each pass, also to warm up", machine.passes
    yield "every pass draws n_batches batches, not one more", machine.drawn()
    yield "the seconds of the passes, the two to warm up left out", seconds

    def measured(warmup: int = 1, **costs: float) -> Any:
        machine = _Machine(**costs)
        return answer(machine, n, repeats, warmup, machine.synchronize, machine.clock)

    yield "without warm-up every pass counts", measured(warmup=0, batch=0.5)
    yield "the start of the workers is inside the time", measured(start=2.0)
    yield "with synchronize: work that the pass left queued is inside", measured(queued=0.125)
    yield "with synchronize: work queued before the pass is not", measured(warmup=0, waiting=50.0)
    machine = _Machine()
    answer(machine, 2, 1, 0, machine.synchronize, machine.clock)
    yield "what happens in a pass of two batches, in this order", machine.events


def _short_loaders(answer: Answer, n: int) -> Facts:
    """What is raised where a pass ends before `n` batches."""
    kind, _ = _refusal(answer, _Machine(ends={1: n, 2: n}), n, repeats=1, warmup=1)
    yield "a loader that holds exactly n_batches is long enough", kind
    kind, message = _refusal(answer, _Machine(ends={1: n - 2}), n, repeats=1, warmup=0)
    yield "a pass that ends early is a ValueError", tried(kind, n)
    names_both = _names_both(message, n, n - 2)
    yield "its message contains the number asked for and the number found", tried(names_both, n)
    kind, message = _refusal(answer, _Machine(ends={1: n - 1}), n, repeats=2, warmup=1)
    found = [kind, _names_both(message, n, n - 1)]
    yield "so is a pass to warm up that ends one batch early", tried(found, n)
    used_up = (i for i in range(n + 4))
    kind, message = _refusal(answer, used_up, n, repeats=2, warmup=0)
    found = [kind, _names_both(message, n, 4)]
    yield "so is a generator that the first pass has used up", tried(found, n)


def _refusal(answer: Answer, loader: Any, n: int, repeats: int, warmup: int) -> tuple[str, str]:
    """(type, message) of what is raised, on a clock that stands still."""
    arguments = loader, n, repeats, warmup, None, lambda: 0.0
    return error_and_message(answer, *arguments, none="no error")


def _names_both(message: str, asked: int, found: int) -> bool:
    return {str(asked), str(found)} <= set(re.findall(r"\d+", message))
