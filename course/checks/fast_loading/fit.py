"""Probe of exercise fit."""

import time
from unittest import mock

import torch

from course.engine.exercise import Answer, Facts, exercise
from course.engine.probing.tensors import Operations, kind_and_device, near


class _Clock:
    """A clock whose time is the number of elements torch has processed; counts readings without a
    `synchronize`.
    """

    def __init__(self):
        self.operations, self.synchronized_at, self.read_at = Operations(), None, 0
        self.readings, self.unsynchronized, self.idle = 0, 0, 0

    def synchronize(self):
        self.synchronized_at = self.operations.work

    def __call__(self):
        is_early = self.synchronized_at != self.operations.work
        self.readings += 1
        self.unsynchronized += is_early
        # nothing was computed since the last reading
        self.idle += is_early and self.read_at == self.operations.work
        self.synchronized_at, self.read_at = None, self.operations.work
        return 1000.0 + self.operations.work


@exercise()
def fit(answer: Answer, device: torch.device, seed: int) -> Facts:
    """Results as the reference has them; seconds on a clock that counts work."""
    rng = torch.Generator().manual_seed(seed)
    rows, columns, epochs, batch_size, lr = 37 + seed % 3, 6 + seed % 2, 3, 8, 0.1
    x = 1 + 2 * torch.rand(rows, columns, generator=rng)
    y = 5 + x @ (1 + torch.rand(columns, generator=rng)) + 0.3 * torch.randn(rows, generator=rng)
    x, y = x.to(device), y.to(device)

    result = answer(x, y, epochs, batch_size, lr)
    yield (
        "returns a dict with these keys",
        sorted(map(str, result)) if isinstance(result, dict) else type(result).__name__,
    )
    yield (
        "w is float32 (D,), b is float32 (1,), on the device of x",
        [kind_and_device(result[key]) for key in "wb"],
    )
    for key in ("losses", "seconds"):
        values = result[key]
        kinds = (
            {type(value).__name__ for value in values} if isinstance(values, (list, tuple)) else {}
        )
        yield (
            f"{key} is a list of floats, one an epoch",
            [type(values).__name__, sorted(kinds), len(values)],
        )
    yield "total_seconds is a float", type(result["total_seconds"]).__name__
    single = answer(x[:batch_size], y[:batch_size], 1, batch_size, lr)
    yield "one step on all rows: its loss", single["losses"]
    yield "symptom 5, one step on all rows: x @ w + b", x @ single["w"] + single["b"]
    # to three digits: w and b are small differences of large numbers, and orders of summation
    # differ by 1e-4 of them
    yield "symptom 5, one step on all rows: w, for x as it is", single["w"].half()
    even = answer(x[: 4 * batch_size], y[: 4 * batch_size], 1, batch_size, lr)
    yield "symptom 1, four batches: w after an epoch", even["w"].half()
    yield "symptom 3, four batches: the loss, a mean over all rows", even["losses"]
    yield "symptom 2, a short batch at the end: w after three epochs", result["w"].half()
    yield "symptom 2, a short batch at the end: b", result["b"].half()
    yield "symptom 3, a short batch at the end: the losses", result["losses"]
    large = answer(x, y, 2, 5 * rows, lr)
    yield "symptom 1, a batch size above the number of rows", [large["w"].half(), large["losses"]]

    hard = 300 + 0.03 * (x - 2) / x.std(0)
    losses = answer(hard, y, epochs, batch_size, lr)["losses"]
    # standardised, the columns are what they were
    pairs = zip(losses, result["losses"], strict=False)
    right = len(losses) == epochs and all(near(a, b, relative=0.01) for a, b in pairs)
    yield "symptom 4, columns with mean 300 and std 0.03: the losses are right to 1 %", right

    clock = _Clock()
    with (
        clock.operations,
        mock.patch.object(time, "perf_counter", wraps=time.perf_counter) as other,
    ):
        result = answer(x, y, epochs, 4, lr, clock=clock, synchronize=clock.synchronize)
    seconds, total = result["seconds"], result["total_seconds"]
    yield "symptom 6, reads the time with clock()", clock.readings > 0
    yield "and with no other clock", not other.called
    some = "some" if clock.idle else "some, all of them after work"
    without = {0: "none", clock.readings: "all"}.get(clock.unsynchronized, some)
    yield "symptom 6, readings of the clock without a synchronize() right before", without
    size = x.numel()
    yield (
        "symptom 6, the seconds of each epoch cover its batches",
        all(s >= 1.5 * size for s in seconds),
    )
    yield (
        "symptom 6, the seconds of an epoch hold no other epoch",
        max(seconds) <= 1.2 * min(seconds),
    )
    yield "a batch computes with its own rows, not with all of x", max(seconds) <= 16 * size
    yield "symptom 6, the total is not less than all epochs", total >= sum(seconds)
    yield "symptom 6, the total covers the statistics too", total >= sum(seconds) + size
    yield (
        "symptom 6, the total is not more than the whole call takes",
        total <= clock.operations.work,
    )
