"""Probe of exercise sgd_step_."""

import torch

from course.checks.fast_loading.batches import Batches, scaled_table
from course.engine.compare import same_values
from course.engine.exercise import Answer, Facts, exercise
from course.engine.probing.tensors import Operations, kind_and_device, torch_only


@exercise(changes_inputs=True, tolerates=("shape", "device"))
def sgd_step_(answer: Answer, device: torch.device, seed: int) -> Facts:
    """Steps on blocks in one buffer; scratch holds NaN before the first step."""
    answer = torch_only(answer)
    rng = torch.Generator().manual_seed(seed)
    columns = 4 + seed % 3
    sizes = [8, 8 + seed % 2, 3]
    rows, lr = sum(sizes), 0.05 + 0.01 * (seed % 3)
    table = scaled_table(rng, rows, columns, device)

    def uniform(low, high, n=columns):
        return (low + (high - low) * torch.rand(n, generator=rng)).to(device)

    mean, std = uniform(0.5, 2.5), uniform(0.5, 2.5)
    first_w, first_b = uniform(1, 2), uniform(1, 2, 1)
    buffers = {"residual": rows + 2, "scaled": columns, "gradient": columns}
    scratch = {name: torch.full((n,), float("nan"), device=device) for name, n in buffers.items()}

    def step(sizes, w, b, operations=None, asked=lambda: None, table=table):
        batches = Batches(table, columns, sizes, operations, asked)
        return answer(iter(batches), w, b, mean, std, lr, scratch), batches

    def copies():
        return first_w.clone(), first_b.clone()

    w, b = copies()
    given = mean.clone(), std.clone()
    loss, batches = step([rows], w, b)
    number = isinstance(loss, torch.Tensor) and loss.numel() == 1
    yield (
        "returns a tensor with one element",
        "a tensor with one element" if number else kind_and_device(loss),
    )
    yield "the sum of squared residuals before the step", loss.reshape(())
    yield "w is changed, in place", not same_values(w, first_w)
    yield "w after the step", w
    yield "b after the step, in place", b
    yield "does not write into x or y", batches.unchanged
    yield "does not write into mean or std", all(map(same_values, (mean, std), given))
    yield (
        "the tensors of scratch keep their shapes",
        {name: tuple(tensor.shape) for name, tensor in scratch.items()},
    )

    first, before = loss, loss.clone()
    loss, _ = step([5], w, b)
    yield (
        "a second step, of 5 rows, with scratch as the first left it",
        {"loss": loss.reshape(()), "w": w, "b": b},
    )
    yield "the sum that the first step returned has not changed", same_values(first, before)

    w, b = copies()
    waited = []
    loss, _ = step(
        sizes,
        w,
        b,
        asked=lambda: waited.append(same_values(w, first_w) and same_values(b, first_b)),
    )
    yield "w and b wait for the last block", all(waited)
    yield "several blocks: the sum of squared residuals of all rows", loss.reshape(())
    yield "several blocks: w after the step, as if they were one", w
    yield "several blocks: b after the step", b

    w, b = copies()
    # y with a stride of 2, in another memory than x
    spread = torch.stack([table[:, columns]] * 2, 1)
    scratch = {name: torch.full((n,), float("nan"), device=device) for name, n in buffers.items()}
    scratch["residual"] = scratch["residual"][: max(sizes)]
    with Operations([table]) as operations:
        parts = zip(table.split(sizes), spread.split(sizes), strict=True)
        answer([(part[:, :columns], y[:, 0]) for part, y in parts], w, b, mean, std, lr, scratch)
    yield "blocks in a list, y with another stride: w after the step", w
    yield "elements of the largest new tensor, or 1", max(1, operations.largest)
    yield "reads each block of x at most twice", operations.read <= 2 * rows * columns
    yield "times that it waits for the device (.item(), float(t), if t)", operations.waits
