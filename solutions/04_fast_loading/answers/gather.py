"""Known mistakes of exercise gather, and right answers in other styles."""

import numpy as np
import torch

from course.engine.known_answers import alternative

RETURN = "return torch.index_select(table, 0, index, out=out[:n])"
MISTAKES = {
    "new_tensor": (
        "The batch is a new tensor: memory is asked for in every step, and `out` is not used. Write into `out`.",
        (RETURN, "return table[index]"),
    ),
    "copied_twice": (
        "The rows are copied twice, because table[index], or np.take, collects them in new memory first. Let "
        "index_select write into `out` itself: out=...",
        (RETURN, "return out[:n].copy_(table.index_select(0, index))"),
    ),
    "whole_buffer": (
        "index_select is given all of `out`, and changes its shape to that of the batch. Pass out=out[:n].",
        ("out=out[:n]", "out=out"),
    ),
    "row_by_row": (
        "Each row is copied by a separate call from Python. Call torch once for the whole batch.",
        ("return torch", "for i in range(n):\n        torch"),
        ("index, out=out[:n])", "index[i : i + 1], out=out[i : i + 1])\n    return out[:n]"),
    ),
    "assigned_row_by_row": (
        "Each row is assigned by a separate call from Python, and negative row numbers are accepted. Call "
        "torch.index_select once for the whole batch.",
        (
            RETURN,
            "for i, row in enumerate(index):\n        out[i] = table[row]\n    return out[:n]",
        ),
    ),
    "clipped": (
        "Row numbers out of range are clipped, or wrapped, so you silently return wrong data. Raise an error.",
        (
            RETURN,
            'np.take(table.numpy(), index.numpy(), 0, out[:n].numpy(), mode="clip")\n    return out[:n]',
        ),
    ),
    "take_of_numpy": (
        "Negative row numbers are accepted, and the rows are copied twice. Call torch.index_select(..., out=out[:n]): "
        "it refuses them and copies once.",
        (RETURN, "np.take(table.numpy(), index.numpy(), 0, out[:n].numpy())\n    return out[:n]"),
    ),
    "all_of_out": (
        "The whole of `out` is returned; after a short last batch its end holds old rows. Return out[:n].",
        (RETURN, "torch.index_select(table, 0, index, out=out[:n])\n    return out"),
    ),
}


@alternative
def take_with_clip(table, index, out):
    n = index.numel()
    if out.dtype != table.dtype or out.size(1) != table.size(1) or out.size(0) < n:
        raise ValueError("out")
    if n and not (0 <= index.min() and index.max() < len(table)):
        raise IndexError("there is no such row")
    batch = out.narrow(0, 0, n)
    np.take(table.numpy(), index.numpy(), 0, batch.numpy(), mode="clip")
    return batch


@alternative
def gather_of_torch(table, index, out):
    batch = out[: index.shape[0]]
    if batch.shape != (len(index), table.shape[1]) or out.dtype is not table.dtype:
        raise ValueError(f"{tuple(out.shape)} {out.dtype}")
    torch.gather(table, 0, index.unsqueeze(1).expand(-1, table.shape[1]), out=batch)
    return batch
