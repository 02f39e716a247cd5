"""Probe of exercise fit."""

import time
from typing import Any
from unittest import mock

import torch

from course.engine.exercise import Answer, Facts, exercise
from course.engine.probing.laws import tried
from course.engine.probing.tensors import Operations, kind_and_device, near
from course.engine.probing.values import type_names, type_word

EPOCHS = 3
BATCH_SIZE = 8
LR = 0.1


class _Clock:
    """A clock whose time is the number of elements torch has processed.

    Counts its `readings`, those `unsynchronized` because no `synchronize` came right before, and of
    these the `idle` ones: nothing was computed since the reading before, or there was none.
    """

    def __init__(self) -> None:
        self.operations = Operations()
        self.synchronized_at = None
        self.read_at = 0
        self.readings = 0
        self.unsynchronized = 0
        self.idle = 0

    def synchronize(self) -> None:
        self.synchronized_at = self.operations.work

    def __call__(self) -> float:
        is_early = self.synchronized_at != self.operations.work
        self.readings += 1
        self.unsynchronized += is_early
        is_first = self.readings == 1
        self.idle += is_early and (is_first or self.read_at == self.operations.work)
        self.synchronized_at = None
        self.read_at = self.operations.work
        return 1000.0 + self.operations.work

    def without_synchronize(self) -> str:
        """Which readings came without a synchronize(), in words."""
        if not self.unsynchronized:
            return "none"
        if self.unsynchronized == self.readings:
            return "all"
        return "some" if self.idle else "some, all of them after work"


@exercise()
def fit(answer: Answer, device: torch.device, seed: int) -> Facts:
    """Results as the reference has them; seconds on a clock that counts work."""
    rng = torch.Generator().manual_seed(seed)
    rows = 37 + seed % 3
    columns = 6 + seed % 2
    x = 1 + 2 * torch.rand(rows, columns, generator=rng)
    w = 1 + torch.rand(columns, generator=rng)
    y = 5 + x @ w + 0.3 * torch.randn(rows, generator=rng)
    x = x.to(device)
    y = y.to(device)
    result = answer(x, y, EPOCHS, BATCH_SIZE, LR)
    yield from _form(result)
    yield from _weights_and_losses(answer, result, x, y)
    yield from _large_means(answer, result, x, y)
    yield from _seconds(answer, x, y)


def _form(result: Any) -> Facts:
    """The types in the dict that fit returns."""
    keys = sorted(map(str, result)) if isinstance(result, dict) else type_word(result)
    yield "returns a dict with these keys", keys
    kinds = [kind_and_device(result["w"]), kind_and_device(result["b"])]
    yield "w is float32 (D,), b is float32 (1,), on the device of x", kinds
    for key in ("losses", "seconds"):
        values = result[key]
        types = type_names(list(values)) if isinstance(values, (list, tuple)) else []
        found = [type_word(values), types, len(values)]
        yield f"{key} is a list of floats, one an epoch", found
    yield "total_seconds is a float", type_word(result["total_seconds"])


def _weights_and_losses(
    answer: Answer, result: dict[str, Any], x: torch.Tensor, y: torch.Tensor
) -> Facts:
    """What one step, four batches, three epochs and one large batch give."""
    one_batch = x[:BATCH_SIZE], y[:BATCH_SIZE]
    single = answer(*one_batch, 1, BATCH_SIZE, LR)
    yield "one step on all rows: its loss", single["losses"]
    yield "symptom 5, one step on all rows: x @ w + b", x @ single["w"] + single["b"]
    # to three digits: w and b are small differences of large numbers, and orders of summation
    # differ by 1e-4 of them
    yield "symptom 5, one step on all rows: w, for x as it is", single["w"].half()
    four_batches = x[: 4 * BATCH_SIZE], y[: 4 * BATCH_SIZE]
    even = answer(*four_batches, 1, BATCH_SIZE, LR)
    yield "symptom 1, four batches: w after an epoch", even["w"].half()
    yield "symptom 3, four batches: the loss, a mean over all rows", even["losses"]
    yield "symptom 2, a short batch at the end: w after three epochs", result["w"].half()
    yield "symptom 2, a short batch at the end: b", result["b"].half()
    yield "symptom 3, a short batch at the end: the losses", result["losses"]
    large = answer(x, y, 2, 5 * len(x), LR)
    yield "symptom 1, a batch size above the number of rows", [large["w"].half(), large["losses"]]


def _large_means(answer: Answer, result: dict[str, Any], x: torch.Tensor, y: torch.Tensor) -> Facts:
    """Columns whose mean hides their spread; standardised, they are what they were."""
    hard = 300 + 0.03 * (x - 2) / x.std(0)
    losses = answer(hard, y, EPOCHS, BATCH_SIZE, LR)["losses"]
    pairs = zip(losses, result["losses"], strict=False)
    right = len(losses) == EPOCHS and all(near(a, b, relative=0.01) for a, b in pairs)
    yield (
        "symptom 4, columns with mean 300 and std 0.03: the losses are right to 1 %",
        tried(right, x.shape),
    )


def _seconds(answer: Answer, x: torch.Tensor, y: torch.Tensor) -> Facts:
    """What is timed, on a clock that counts work."""
    clock = _Clock()
    with (
        clock.operations,
        mock.patch.object(time, "perf_counter", wraps=time.perf_counter) as other,
    ):
        result = answer(x, y, EPOCHS, 4, LR, clock=clock, synchronize=clock.synchronize)
    seconds = result["seconds"]
    total = result["total_seconds"]
    yield "symptom 6, reads the time with clock()", clock.readings > 0
    yield "and with no other clock", not other.called
    without = clock.without_synchronize()
    yield (
        "symptom 6, readings of the clock without a synchronize() right before",
        tried(without, x.shape),
    )
    size = x.numel()
    covered = all(s >= 1.5 * size for s in seconds)
    yield "symptom 6, the seconds of each epoch cover its batches", covered
    alike = max(seconds) <= 1.2 * min(seconds)
    yield "symptom 6, the seconds of an epoch hold no other epoch", alike
    yield "a batch computes with its own rows, not with all of x", max(seconds) <= 16 * size
    yield "symptom 6, the total is not less than all epochs", total >= sum(seconds)
    yield (
        "symptom 6, the total covers the statistics too",
        tried(total >= sum(seconds) + size, x.shape),
    )
    not_more = total <= clock.operations.work
    yield "symptom 6, the total is not more than the whole call takes", not_more
