"""Known mistakes of exercise gather, and right answers in other styles."""

import numpy as np
import torch

from course.checks.engine import alternative, mistake


def _refuse(table, index, out):
    if len(out) < len(index) or out.shape[1] != table.shape[1] or out.dtype != table.dtype:
        raise ValueError("out does not fit")


@mistake(
    "gather",
    "The batch is a new tensor: memory is asked for in every step, and `out` is not used. Write into `out`.",
)
def new_tensor(table, index, out):
    _refuse(table, index, out)
    return table[index]


@mistake(
    "gather",
    "The rows are copied twice, because table[index], or np.take, collects them in new memory first. Let index_select "
    "write into `out` itself: out=...",
)
def copied_twice(table, index, out):
    _refuse(table, index, out)
    if (index < 0).any():
        raise IndexError("a negative number")
    out[: len(index)] = table[index]
    return out[: len(index)]


@mistake(
    "gather",
    "index_select is given all of `out`, and changes its shape to that of the batch. Pass out=out[:n].",
)
def whole_buffer(table, index, out):
    _refuse(table, index, out)
    return torch.index_select(table, 0, index, out=out)


@mistake(
    "gather",
    "An `out` of another shape goes to index_select, which gives it other memory and only warns. Check its shape.",
)
def unchecked(table, index, out):
    if out.dtype != table.dtype:
        raise ValueError("another dtype")
    return torch.index_select(table, 0, index, out=out[: len(index)])


@mistake(
    "gather",
    "Each row is copied by a call of its own, from Python. Call torch once for the whole batch.",
)
def row_by_row(table, index, out):
    _refuse(table, index, out)
    for i, row in enumerate(index.tolist()):
        if not 0 <= row < len(table):
            raise IndexError(f"row {row}")
        out[i] = table[row]
    return out[: len(index)]


@mistake(
    "gather",
    "A number that is no row is bent to the nearest one: wrong rows, without a word. Refuse it.",
)
def clipped(table, index, out):
    _refuse(table, index, out)
    np.take(table.numpy(), index.numpy(), axis=0, out=out[: len(index)].numpy(), mode="clip")
    return out[: len(index)]


@mistake(
    "gather",
    "Negative numbers are taken, and the rows go into new memory before they are written into `out`: table[index] does "
    "so, np.take unless mode is given. Use torch.index_select with out=out[:n].",
)
def take_of_numpy(table, index, out):
    _refuse(table, index, out)
    np.take(table.numpy(), index.numpy(), axis=0, out=out[: len(index)].numpy())
    return out[: len(index)]


@mistake(
    "gather",
    "The whole of `out` is returned; after a short last batch its end holds old rows. Return out[:n].",
)
def all_of_out(table, index, out):
    _refuse(table, index, out)
    torch.index_select(table, 0, index, out=out[: len(index)])
    return out


@mistake(
    "gather",
    "An `out` that does not fit is refused, but not by a ValueError: torch's own error does not say which argument is "
    "wrong. Compare lengths and dtype first, and raise ValueError.",
)
def asserted(table, index, out):
    assert len(out) >= len(index) and out.shape[1] == table.shape[1] and out.dtype == table.dtype
    return torch.index_select(table, 0, index, out=out[: len(index)])


@alternative("gather")
def take_with_clip(table, index, out):
    n = index.numel()
    if out.dtype != table.dtype or out.size(1) != table.size(1) or out.size(0) < n:
        raise ValueError("out")
    if n and not (0 <= index.min() and index.max() < len(table)):
        raise IndexError("there is no such row")
    batch = out.narrow(0, 0, n)
    np.take(table.numpy(), index.numpy(), 0, batch.numpy(), mode="clip")
    return batch


@alternative("gather")
def gather_of_torch(table, index, out):
    batch = out[: index.shape[0]]
    if batch.shape != (len(index), table.shape[1]) or out.dtype is not table.dtype:
        raise ValueError(f"{tuple(out.shape)} {out.dtype}")
    torch.gather(table, 0, index.unsqueeze(1).expand(-1, table.shape[1]), out=batch)
    return batch
