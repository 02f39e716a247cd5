"""Compare two pieces of plain data: two values -> *their Difference*, or None.

Says which numbers count as equal; what a report tells of a Difference is for report.py.
"""

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy
import torch

from course.engine.difference import Difference, Kind

# dtype -> (relative, absolute) tolerance: the rounding of a few hundred operations, not a wrong
# formula
TOLERANCE = {
    torch.float64: (1e-9, 1e-12),
    torch.float32: (1e-4, 1e-6),
    torch.float16: (1e-2, 1e-3),
    torch.bfloat16: (3e-2, 1e-2),
    torch.complex64: (1e-4, 1e-6),
    torch.complex128: (1e-9, 1e-12),
}
CUDA_FACTOR = 10  # sums in another order, fused multiply-adds, atomic additions


def tolerance(dtype: torch.dtype, device: torch.device | str) -> tuple[float, float]:
    """(relative, absolute) tolerance for values of `dtype` on `device`; (0, 0) for integers."""
    relative, absolute = TOLERANCE.get(dtype, (0.0, 0.0))
    factor = CUDA_FACTOR if torch.device(device).type == "cuda" else 1
    return relative * factor, absolute * factor


def plain(value: Any) -> Any:
    """`value` as plain data, so that no live object leaves a probe.

    Plain are detached copies of tensors, numbers, strings, None, and lists, tuples and dicts of
    these. Anything else becomes a string that names its type.
    """
    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in value.items()}
    if type(value) is list:
        return [plain(item) for item in value]
    if isinstance(value, (list, tuple)):
        return tuple(plain(item) for item in value)  # torch.Size, too
    return _plain_leaf(value)


def _plain_leaf(value: Any) -> Any:
    """As `plain`, of a value that holds no others."""
    if isinstance(value, torch.Tensor):
        return value.detach().clone()
    if isinstance(value, numpy.ndarray):
        return torch.from_numpy(value.copy())
    if isinstance(value, numpy.generic):
        return value.item()
    if value is None or type(value) in (bool, int, float, complex, str):
        return value
    if isinstance(value, (torch.dtype, torch.device)):
        return str(value)
    return f"<an object of type {type(value).__name__}>"


def differs(seen: Any, expected: Any) -> bool:
    """Whether two pieces of plain data differ by more than rounding."""
    return difference(seen, expected) is not None


def difference(seen: Any, expected: Any) -> Difference | None:
    """The first Difference of two pieces of plain data; None if they are equal within tolerance."""
    if expected is True and seen is False:
        return Difference(Kind.LAW, seen, expected)
    if isinstance(expected, torch.Tensor):
        return _of_tensors(seen, expected)
    if isinstance(expected, (list, tuple)):
        return _of_sequences(seen, expected)
    if isinstance(expected, dict):
        return _of_dicts(seen, expected)
    if _is_number(expected):
        is_same = _is_number(seen) and _same_number(seen, expected)
    else:
        is_same = type(seen) is type(expected) and seen == expected
    return None if is_same else Difference(Kind.VALUE, seen, expected)


def same_values(a: torch.Tensor, b: torch.Tensor) -> bool:
    """True if two tensors have the same shape and exactly the same values; NaN equals NaN."""
    return a.shape == b.shape and bool(torch.isclose(a, b, rtol=0, atol=0, equal_nan=True).all())


def _of_sequences(seen: Any, expected: Sequence[Any]) -> Difference | None:
    if type(seen) is not type(expected) or len(seen) != len(expected):
        return Difference(Kind.VALUE, seen, expected)
    for place, pair in enumerate(zip(seen, expected, strict=True)):
        found = difference(*pair)
        if found:
            return _inside(place, found)
    return None


def _of_dicts(seen: Any, expected: Mapping[str, Any]) -> Difference | None:
    if not isinstance(seen, dict):
        return Difference(Kind.VALUE, seen, list(expected))
    if seen.keys() != expected.keys():
        return Difference(Kind.VALUE, list(seen), list(expected))
    for key, right in expected.items():
        found = difference(seen[key], right)
        if found:
            return _inside(key, found)
    return None


def _inside(step: int | str, found: Difference) -> Difference:
    """The Difference `found` of an item, as one of what holds the item at `step`."""
    return dataclasses.replace(found, path=(step, *found.path))


def _of_tensors(seen: Any, expected: torch.Tensor) -> Difference | None:
    if not isinstance(seen, torch.Tensor):
        return Difference(Kind.VALUE, seen, expected)
    if seen.shape != expected.shape:
        return Difference(Kind.SHAPE, tuple(seen.shape), tuple(expected.shape))
    if seen.dtype != expected.dtype:
        return Difference(Kind.DTYPE, seen.dtype, expected.dtype)
    if seen.device.type != expected.device.type:
        return Difference(Kind.DEVICE, seen.device, expected.device)
    if seen.layout != expected.layout:
        return Difference(Kind.LAYOUT, seen.layout, expected.layout)
    relative, absolute = tolerance(seen.dtype, seen.device)
    close = torch.isclose(
        _wide(seen), _wide(expected), rtol=relative, atol=absolute, equal_nan=True
    )
    wrong = ~close  # `>` would let NaN pass
    if not wrong.any():
        return None
    index = tuple(wrong.nonzero()[0].tolist())
    return Difference(
        Kind.VALUE,
        seen[index].item(),
        expected[index].item(),
        index=index,
        n_wrong=int(wrong.sum()),
        n_values=wrong.numel(),
    )


def _wide(tensor: torch.Tensor) -> torch.Tensor:
    """`tensor` on the CPU, in double precision unless it holds integers."""
    if tensor.is_complex():
        return tensor.cpu().to(torch.complex128)
    if tensor.is_floating_point():
        return tensor.cpu().to(torch.float64)
    return tensor.cpu()


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _same_number(seen: float, expected: float) -> bool:
    """Whether `seen` is `expected`: exactly for an int, else within the rounding of float32."""
    if isinstance(expected, int):
        return seen == expected
    if math.isnan(expected) or math.isinf(expected):
        return seen == expected or (math.isnan(seen) and math.isnan(expected))
    # a Python float may have gone through float32
    relative, absolute = tolerance(torch.float32, "cpu")
    try:
        return abs(seen - expected) <= absolute + relative * abs(expected)
    except OverflowError:  # an int too large for a float
        return False
