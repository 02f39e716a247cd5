"""Probe of exercise sgd_step_."""

from collections.abc import Callable, Sequence

import torch

from course.checks.fast_loading.batches import Batches, one_number, scaled_table
from course.engine.compare import same_values
from course.engine.exercise import Answer, Facts, exercise
from course.engine.probing.tensors import Operations, kind_and_device, torch_only


class _Case:
    """A table, what its columns are scaled with, the weights before a step, and `scratch`."""

    def __init__(self, answer: Answer, device: torch.device, seed: int) -> None:
        self.answer = answer
        self.device = device
        self.rng = torch.Generator().manual_seed(seed)
        self.columns = 4 + seed % 3
        self.sizes = [8, 8 + seed % 2, 3]
        self.rows = sum(self.sizes)
        self.lr = 0.05 + 0.01 * (seed % 3)
        self.table = scaled_table(self.rng, self.rows, self.columns, device)
        self.mean = self._uniform(0.5, 2.5, self.columns)
        self.std = self._uniform(0.5, 2.5, self.columns)
        self.first_w = self._uniform(1, 2, self.columns)
        self.first_b = self._uniform(1, 2, 1)
        self.scratch = self.new_scratch()

    def _uniform(self, low: float, high: float, n: int) -> torch.Tensor:
        return (low + (high - low) * torch.rand(n, generator=self.rng)).to(self.device)

    def new_scratch(self) -> dict[str, torch.Tensor]:
        """Buffers that hold NaN, large enough for all rows in one block."""
        sizes = {"residual": self.rows + 2, "scaled": self.columns, "gradient": self.columns}
        scratch = {}
        for name, n in sizes.items():
            scratch[name] = torch.full((n,), float("nan"), device=self.device)
        return scratch

    def first_weights(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Copies of w and b before a step."""
        return self.first_w.clone(), self.first_b.clone()

    def step(
        self,
        sizes: Sequence[int],
        w: torch.Tensor,
        b: torch.Tensor,
        asked: Callable[[], object] = lambda: None,
    ) -> tuple[torch.Tensor, Batches]:
        """What the answer returns for blocks of `sizes` rows, and these blocks."""
        batches = Batches(self.table, self.columns, sizes, asked=asked)
        loss = self.answer(iter(batches), w, b, self.mean, self.std, self.lr, self.scratch)
        return loss, batches


@exercise(changes_inputs=True, tolerates=("shape", "device"))
def sgd_step_(answer: Answer, device: torch.device, seed: int) -> Facts:
    """Steps on blocks in one buffer; scratch holds NaN before the first step."""
    case = _Case(torch_only(answer), device, seed)
    yield from _two_steps(case)
    yield from _several_blocks(case)
    yield from _blocks_in_a_list(case)


def _two_steps(case: _Case) -> Facts:
    w, b = case.first_weights()
    mean_and_std = case.mean.clone(), case.std.clone()
    writes = case.mean._version, case.std._version
    loss, batches = case.step([case.rows], w, b)
    is_one_number = isinstance(loss, torch.Tensor) and loss.numel() == 1
    kind = "a tensor with one element" if is_one_number else kind_and_device(loss)
    yield "returns a tensor with one element", kind
    yield "the sum of squared residuals before the step", one_number(loss)
    yield "w is changed, in place", not same_values(w, case.first_w)
    yield "w after the step", w
    yield "b after the step, in place", b
    yield "does not write into x or y", batches.unchanged
    untouched = all(map(same_values, (case.mean, case.std), mean_and_std))
    # also where what is written is too small to change the values
    untouched = untouched and (case.mean._version, case.std._version) == writes
    yield "does not write into mean or std", untouched
    shapes = {name: tuple(tensor.shape) for name, tensor in case.scratch.items()}
    yield "the tensors of scratch keep their shapes", shapes

    first_loss = loss
    before = loss.clone()
    loss, _ = case.step([5], w, b)
    found = {"loss": one_number(loss), "w": w, "b": b}
    yield "a second step, of 5 rows, with scratch as the first left it", found
    yield "the sum that the first step returned has not changed", same_values(first_loss, before)


def _several_blocks(case: _Case) -> Facts:
    w, b = case.first_weights()
    waited = []

    def note_whether_unchanged() -> None:
        waited.append(same_values(w, case.first_w) and same_values(b, case.first_b))

    loss, _ = case.step(case.sizes, w, b, asked=note_whether_unchanged)
    yield "w and b wait for the last block", all(waited)
    yield "several blocks: the sum of squared residuals of all rows", one_number(loss)
    yield "several blocks: w after the step, as if they were one", w
    yield "several blocks: b after the step", b


def _blocks_in_a_list(case: _Case) -> Facts:
    """Blocks whose y has a stride of 2, in another memory than x."""
    w, b = case.first_weights()
    y = case.table[:, case.columns]
    spread = torch.stack([y, y], 1)
    scratch = case.new_scratch()
    scratch["residual"] = scratch["residual"][: max(case.sizes)]
    with Operations([case.table]) as operations:
        blocks = []
        parts = zip(case.table.split(case.sizes), spread.split(case.sizes), strict=True)
        for rows, ys in parts:
            blocks.append((rows[:, : case.columns], ys[:, 0]))
        case.answer(blocks, w, b, case.mean, case.std, case.lr, scratch)
    yield "blocks in a list, y with another stride: w after the step", w
    yield "elements of the largest new tensor, or 1", max(1, operations.largest)
    read_twice_at_most = operations.read <= 2 * case.rows * case.columns
    yield "reads each block of x at most twice", read_twice_at_most
    yield "times that it waits for the device (.item(), float(t), if t)", operations.waits
