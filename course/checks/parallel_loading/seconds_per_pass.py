"""Probe of exercise seconds_per_pass."""

import re

import torch

from course.engine.exercise import Answer, Facts, exercise
from course.engine.probing.errors import error_and_message
from course.engine.probing.tensors import form_or_type

LONG = 200  # batches of a loader that nobody should come to the end of


def _names_both(message, asked, found):
    return {str(asked), str(found)} <= set(re.findall(r"\d+", message))


class _Machine:
    """A loader, its workers, a GPU and a clock in one, without real time: each step has a cost and
    is written down.

    Args: seconds that a step costs in the first pass, twice as many in the second, three times in
        the third: `start` of the workers, each `batch`, what it leaves `queued` on the GPU;
        `waiting` is queued from the beginning.
        ends: {number of a pass: batches that the loader has in it}; LONG in all others.
    """

    def __init__(self, start=0.0, batch=0.0, queued=0.0, waiting=0.0, ends=()):
        self.start, self.batch, self.queued = start, batch, queued
        self.waiting, self.ends = waiting, dict(ends)
        self.now, self.passes, self.events = 1000.0, 0, []

    def clock(self):
        self.events.append("clock")
        return self.now

    def synchronize(self):
        self.events.append("synchronize")
        self.now, self.waiting = self.now + self.waiting, 0.0

    def __iter__(self):
        self.events.append("iter")
        self.passes += 1
        self.now += self.start * self.passes
        return self._batches(self.passes)

    def _batches(self, number):
        for _ in range(self.ends.get(number, LONG)):
            self.events.append("batch")
            self.now += self.batch * number
            self.waiting += self.queued * number
            yield number

    def drawn(self):
        """How many batches were drawn in each pass."""
        passes = " ".join(self.events).split("iter")[1:]
        return {f"pass {i}": steps.count("batch") for i, steps in enumerate(passes, 1)}


def _refusal(answer, *args):
    return error_and_message(answer, *args, none="no error")


@exercise()
def seconds_per_pass(answer: Answer, device: torch.device, seed: int) -> Facts:
    """Passes timed by a clock that the loader moves."""
    n, repeats = 6 + seed % 5, 3 + seed % 3
    machine = _Machine(batch=0.25)
    seconds = answer(machine, n, repeats, 2, None, machine.clock)
    yield "returns a float64 tensor, one value for each pass that counts", form_or_type(seconds)
    yield "iter(loader) is called once in each pass, also to warm up", machine.passes
    yield "every pass draws n_batches batches, not one more", machine.drawn()
    yield "the seconds of the passes, the two to warm up left out", seconds

    def measured(warmup=1, **costs):
        machine = _Machine(**costs)
        return answer(machine, n, repeats, warmup, machine.synchronize, machine.clock)

    yield "without warm-up every pass counts", measured(warmup=0, batch=0.5)
    yield "the start of the workers is inside the time", measured(start=2.0)
    yield "with synchronize: work that the pass left queued is inside", measured(queued=0.125)
    yield "with synchronize: work queued before the pass is not", measured(warmup=0, waiting=50.0)
    machine = _Machine()
    answer(machine, 2, 1, 0, machine.synchronize, machine.clock)
    yield "what happens in a pass of two batches, in this order", machine.events

    kind, _ = _refusal(answer, _Machine(ends={1: n, 2: n}), n, 1, 1, None, lambda: 0.0)
    yield "a loader that holds exactly n_batches is long enough", kind
    kind, message = _refusal(answer, _Machine(ends={1: n - 2}), n, 1, 0, None, lambda: 0.0)
    yield "a pass that ends early is a ValueError", kind
    yield (
        "its message contains the number asked for and the number found",
        _names_both(message, n, n - 2),
    )
    kind, message = _refusal(answer, _Machine(ends={1: n - 1}), n, 2, 1, None, lambda: 0.0)
    yield (
        "so is a pass to warm up that ends one batch early",
        [kind, _names_both(message, n, n - 1)],
    )
    kind, message = _refusal(answer, (i for i in range(n + 4)), n, 2, 0, None, lambda: 0.0)
    yield "so is a generator that the first pass has used up", [kind, _names_both(message, n, 4)]
    machine = _Machine(batch=0.5)
    yield (
        "by default one pass to warm up and five that count",
        answer(machine, n, clock=machine.clock),
    )
    yield "with the real clock all seconds are above 0", bool((answer(_Machine(), n) > 0).all())
