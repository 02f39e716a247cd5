"""What a batch of any loader holds: nested batches -> a column per field, a value per sample.

A batch may be a tensor, an array, a dict, a tuple, a list of samples, or these in each other. A
column has an entry per sample. judge.py asks these columns how random the batches are.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch

SAMPLES_MIN = 9  # so many tensors of one kind in a list are samples, not fields
WHOLE = "batch"  # the field of a batch that is one tensor
SHOWN_MAX = 6  # fields that `described` names

Column = torch.Tensor | Sequence[Any]


def columns(batch: Any) -> dict[str, Column]:
    """{field: column} of a batch, each column with an entry per sample.

    The first column decides how many samples there are; fields of another length, such as the
    offsets of a flat batch, are left out.
    """
    found = dict(_fields(batch, ""))
    if not found:
        return {}
    n = len(next(iter(found.values())))
    return {name: column for name, column in found.items() if len(column) == n}


def _fields(item: Any, name: str) -> Iterator[tuple[str, Column]]:
    """(name, column) of each field of `item`, whose own name is `name`."""
    if isinstance(item, np.ndarray):
        item = _without_numpy(item)
    if isinstance(item, torch.Tensor):
        if item.dim():
            yield name or WHOLE, item
    elif isinstance(item, list | tuple):
        yield from _fields_of_sequence(item, name)
    else:
        for key, value in _parts(item).items():
            yield from _fields(value, _joined(name, key))


def _without_numpy(array: np.ndarray) -> torch.Tensor | list:
    if array.dtype.kind in "OUS":  # objects and texts
        return array.tolist()
    return torch.from_numpy(np.ascontiguousarray(array))


def _parts(item: Any) -> Mapping[Any, Any]:
    """The fields of a mapping, or the public attributes of another object."""
    if isinstance(item, Mapping):
        return item
    named = getattr(item, "__dict__", {})
    return {key: value for key, value in named.items() if not key.startswith("_")}


def _fields_of_sequence(items: Sequence[Any], name: str) -> Iterator[tuple[str, Column]]:
    if not items:
        return
    if isinstance(items[0], str | bytes | int | float):
        yield name or WHOLE, items
    elif _are_samples(items):
        yield from _of_samples(items, name)
    else:
        names = getattr(items, "_fields", range(len(items)))  # of a named tuple
        for key, item in zip(names, items, strict=True):
            yield from _fields(item, _joined(name, key))


def _joined(name: str, key: object) -> str:
    return f"{name}.{key}" if name else str(key)


def _are_samples(items: Sequence[Any]) -> bool:
    """Whether a list holds samples; else it holds the fields of a batch, as [x, y] does."""
    if not isinstance(items, list):
        return False
    if all(isinstance(item, torch.Tensor) for item in items):
        lengths = {len(item) if item.dim() else None for item in items}
        return lengths == {None} or len(lengths) > 1 or len(items) >= SAMPLES_MIN
    return all(isinstance(item, Mapping | tuple) for item in items)


def _of_samples(samples: Sequence[Any], name: str) -> Iterator[tuple[str, Column]]:
    """The columns of a list of samples, each a tensor, a dict or a tuple of the same fields."""
    first = samples[0]
    if isinstance(first, torch.Tensor):
        yield name or WHOLE, samples
        return
    keys = list(first) if isinstance(first, Mapping) else range(len(first))
    for key in keys:
        try:
            yield _joined(name, key), [sample[key] for sample in samples]
        except (KeyError, IndexError):  # a field that not every sample has
            continue


def values(column: Column) -> list[float] | list[str]:
    """A value per sample: the mean of its numbers, its text, or NaN if it has neither."""
    if isinstance(column, torch.Tensor):
        return _means(column).tolist()
    if isinstance(column[0], str):
        return [str(item) for item in column]
    return [_value(item) for item in column]


def _means(column: torch.Tensor) -> torch.Tensor:
    numbers = column.detach().cpu()
    if numbers.is_complex():
        numbers = numbers.abs()
    if not numbers.is_floating_point():
        numbers = numbers.double()
    means = numbers.reshape(len(numbers), -1).mean(1, dtype=torch.float64)
    return means.nan_to_num()


def _value(item: Any) -> float:
    if isinstance(item, bytes):
        return float(len(item))
    if isinstance(item, torch.Tensor):
        return _means(item.reshape(1, -1)).item()
    try:
        return float(np.mean(item))
    except (TypeError, ValueError):  # a picture, a dict of a sample
        return float("nan")


def n_bytes(batch: Any) -> int:
    """Bytes of all tensors, texts and byte strings of a batch."""
    total = 0
    for _, column in _fields(batch, ""):
        if isinstance(column, torch.Tensor):
            total += column.nbytes
        else:
            total += sum(map(_bytes_of, column))
    return total


def _bytes_of(item: Any) -> int:
    if isinstance(item, torch.Tensor | np.ndarray):
        return item.nbytes
    if isinstance(item, str | bytes):
        return len(item)
    return 8 if isinstance(item, int | float) else 0


def described(batch: Any) -> str:
    """The fields of a batch in words: "x: float32 (64, 3, 32, 32), label: int64 (64)"."""
    texts = []
    for name, column in columns(batch).items():
        if isinstance(column, torch.Tensor):
            shape = ", ".join(map(str, column.shape))
            kind = f"{str(column.dtype).removeprefix('torch.')} ({shape})"
        else:
            kind = f"{len(column)} of {type(column[0]).__name__}"
        texts.append(f"{name}: {kind}")
    more = len(texts) - SHOWN_MAX
    return ", ".join(texts[:SHOWN_MAX]) + (f", and {more} more" if more > 0 else "")


def read_all(batch: Any) -> None:
    """Read every number of a batch once: the least that a step does with it."""
    for _, column in _fields(batch, ""):
        tensors = [column] if isinstance(column, torch.Tensor) else column
        for tensor in tensors:
            if isinstance(tensor, torch.Tensor):
                tensor.sum()
