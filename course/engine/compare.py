"""Compare two pieces of plain data: which numbers count as equal, and in words where two values
differ.
"""

import math

import numpy
import torch

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
    """(relative, absolute) tolerance for values of `dtype` computed on `device`; (0, 0) for whole
    numbers.
    """
    relative, absolute = TOLERANCE.get(dtype, (0.0, 0.0))
    factor = CUDA_FACTOR if torch.device(device).type == "cuda" else 1
    return relative * factor, absolute * factor


def plain(value):
    """`value` as plain data: detached copies of tensors, numbers, strings, None, and lists, tuples
    and dicts of these.

    Anything else becomes a string that names its type, so no live object leaves a probe.
    """
    if isinstance(value, torch.Tensor):
        return value.detach().clone()
    if isinstance(value, numpy.ndarray):
        return torch.from_numpy(value.copy())
    if isinstance(value, numpy.generic):
        return value.item()
    if isinstance(value, torch.Size):
        return tuple(value)
    if isinstance(value, (list, tuple)):
        return (
            type(value)(map(plain, value))
            if type(value) in (list, tuple)
            else tuple(map(plain, value))
        )
    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in value.items()}
    if value is None or type(value) in (bool, int, float, complex, str):
        return value
    if isinstance(value, (torch.dtype, torch.device)):
        return str(value)
    return f"<an object of type {type(value).__name__}>"


def differs(seen, expected) -> list[str] | None:
    """None if `seen` equals `expected` within tolerance, else lines of text: the learner's value,
    the expected one.
    """
    if expected is True and seen is False:
        return ["your answer does not do this"]
    if isinstance(expected, torch.Tensor):
        return _tensor_differs(seen, expected)
    if isinstance(expected, (list, tuple)):
        if type(seen) is not type(expected) or len(seen) != len(expected):
            return _both(seen, expected)
        found = ((i, differs(s, e)) for i, (s, e) in enumerate(zip(seen, expected, strict=True)))
        return next((_at(f"place {i}", lines) for i, lines in found if lines), None)
    if isinstance(expected, dict):
        if not isinstance(seen, dict) or seen.keys() != expected.keys():
            return _both(list(seen) if isinstance(seen, dict) else seen, list(expected))
        found = ((key, differs(seen[key], expected[key])) for key in expected)
        return next((_at(repr(key), lines) for key, lines in found if lines), None)
    if isinstance(expected, (int, float)) and not isinstance(expected, bool):
        number = isinstance(seen, (int, float)) and not isinstance(seen, bool)
        exact = isinstance(expected, int)
        if number and (seen == expected if exact else _close(seen, expected)):
            return None
        return _both(seen, expected)
    return None if type(seen) is type(expected) and seen == expected else _both(seen, expected)


def _at(place, lines):
    """`lines` with the place they are about in front: "at 'sizes', place 2:"."""
    if lines[0].startswith("at "):
        return [f"at {place}, {lines[0][3:]}", *lines[1:]]
    return [f"at {place}:", *lines]


def same_values(a: torch.Tensor, b: torch.Tensor) -> bool:
    """True if two tensors have the same shape and exactly the same values; NaN equals NaN."""
    return a.shape == b.shape and bool(torch.isclose(a, b, rtol=0, atol=0, equal_nan=True).all())


def _tensor_differs(seen, expected):
    if not isinstance(seen, torch.Tensor):
        return _both(seen, expected)
    if seen.shape != expected.shape:
        return [
            f"yours    has shape {tuple(seen.shape)}",
            f"expected shape {tuple(expected.shape)}",
        ]
    if seen.dtype != expected.dtype:
        return [f"yours    has dtype {seen.dtype}", f"expected dtype {expected.dtype}"]
    if seen.device.type != expected.device.type:
        return [
            f"yours    is on device {seen.device}",
            f"expected on {expected.device}, where the inputs are",
        ]
    if seen.layout != expected.layout:
        return [f"yours    has layout {seen.layout}", f"expected {expected.layout}"]
    relative, absolute = tolerance(seen.dtype, seen.device)
    wide = (
        torch.complex128
        if seen.is_complex()
        else torch.float64
        if seen.is_floating_point()
        else seen.dtype
    )
    pair = seen.cpu().to(wide), expected.cpu().to(wide)
    # `>` would let NaN pass
    off = ~torch.isclose(*pair, rtol=relative, atol=absolute, equal_nan=True)
    if not off.any():
        return None
    at = tuple(off.nonzero()[0].tolist())
    where = f" at {list(at)}" if at else ""
    count = f" ({int(off.sum())} of {off.numel()} values differ)" if off.numel() > 1 else ""
    return [
        f"yours    {_show(seen[at].item())}{where}{count}",
        f"expected {_show(expected[at].item())}",
    ]


def _close(seen, expected):
    # a Python float may have gone through float32
    relative, absolute = tolerance(torch.float32, "cpu")
    if math.isnan(expected) or math.isinf(expected):
        return seen == expected or (math.isnan(seen) and math.isnan(expected))
    try:
        return abs(seen - expected) <= absolute + relative * abs(expected)
    except OverflowError:  # a whole number too large for a float
        return False


def _both(seen, expected):
    return [f"yours    {_show(seen)}", f"expected {_show(expected)}"]


def _show(value):
    if isinstance(value, torch.Tensor):
        return f"a {str(value.dtype)[6:]} tensor of shape {tuple(value.shape)}"
    if isinstance(value, float):
        return f"{value:.6g}"
    text = repr(value)
    return text if len(text) <= 200 else text[:200] + " ..."
