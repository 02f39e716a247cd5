"""Probe of exercise step_in_place."""

import torch

from course.checks.fast_loading.batches import one_number, scaled_table
from course.engine.compare import same_values
from course.engine.exercise import Answer, Facts, exercise
from course.engine.probing.tensors import Operations, torch_only


class _Case:
    """A batch that is a view of a buffer, what it is normalised with, and weights before a step."""

    def __init__(self, answer: Answer, device: torch.device, seed: int) -> None:
        rng = torch.Generator().manual_seed(seed)
        self.answer = answer
        self.columns = 4 + seed % 3
        self.rows = 21 + seed % 4
        self.lr = 0.05 + 0.01 * (seed % 3)
        self.table = scaled_table(rng, self.rows, self.columns, device)
        self.mean = (0.5 + torch.rand(self.columns, generator=rng)).to(device)
        self.std = (0.5 + torch.rand(self.columns, generator=rng)).to(device)
        self.w = (1 + torch.rand(self.columns, generator=rng)).to(device)
        self.b = (1 + torch.rand(1, generator=rng)).to(device)

    def step(self, rows: int, w: torch.Tensor, b: torch.Tensor) -> tuple[object, torch.Tensor]:
        """What the answer returns for the first `rows` rows, and the buffer that they lie in."""
        buffer = self.table[:rows].clone()
        x = buffer[:, : self.columns]
        y = buffer[:, self.columns]
        return self.answer(x, y, w, b, self.mean, self.std, self.lr), buffer


@exercise(changes_inputs=True, tolerates=("shape", "device"))
def step_in_place(answer: Answer, device: torch.device, seed: int) -> Facts:
    """Two steps on batches in a buffer, and what they allocate."""
    case = _Case(torch_only(answer), device, seed)
    w, b = case.w.clone(), case.b.clone()
    mean, std = case.mean.clone(), case.std.clone()
    writes = case.mean._version, case.std._version
    loss, buffer = case.step(case.rows, w, b)
    yield "returns the sum of squared residuals before the step, a tensor", one_number(loss)
    yield "w is changed, in place", not same_values(w, case.w)
    yield "w after the step", w
    yield "b after the step, in place", b
    yield "x is normalised where it lies", buffer[:, : case.columns]
    beyond = buffer[:, case.columns :], case.table[:, case.columns :]
    yield "y and the padding behind it stay as they are", same_values(*beyond)
    untouched = same_values(case.mean, mean) and same_values(case.std, std)
    # also where what is written is too small to change the values
    untouched = untouched and (case.mean._version, case.std._version) == writes
    yield "does not write into mean or std", untouched
    kept = loss.clone()
    second, _ = case.step(8, w, b)
    found = {"loss": one_number(second), "w": w, "b": b}
    yield "a second step, of 8 rows", found
    yield "the sum that the first step returned has not changed", same_values(loss, kept)
    x, y = case.table[:, : case.columns], case.table[:, case.columns]
    with Operations() as operations:
        answer(x, y, w, b, mean, std, case.lr)
    most = max(case.rows, case.columns)
    yield "no new tensor is longer than a column or a row of the batch", operations.largest <= most
    yield "times that it waits for the device (.item(), float(t), if t)", operations.waits
