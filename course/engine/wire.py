"""Plain data as bytes and back, so that facts can be sent or stored; reading executes nothing.

    8 bytes: length of the text | text: JSON | the raw bytes of all tensors, one after the other

JSON holds None, bool, int, float, str and lists as they are; a tensor, tuple, dict or complex
number is an object with one key. There is no pickle: whatever the other side sends, the result is
numbers, strings and tensors.
"""

import json
import math
from typing import Any

import torch

DTYPES = {
    "float64": torch.float64,
    "float32": torch.float32,
    "float16": torch.float16,
    "bfloat16": torch.bfloat16,
    "complex128": torch.complex128,
    "complex64": torch.complex64,
    "int64": torch.int64,
    "int32": torch.int32,
    "int16": torch.int16,
    "int8": torch.int8,
    "uint8": torch.uint8,
    "bool": torch.bool,
}
DTYPE_NAMES = {dtype: name for name, dtype in DTYPES.items()}
HEAD_BYTES = 8
LONGEST_TEXT = 8_000_000  # bytes; the parsed JSON may take 25 times as many
AXES_MAX = 64  # of a tensor
AXIS_LENGTH_MAX = 2**40


class WireError(ValueError):
    """The bytes are not plain data."""


def pack(value: Any) -> bytes:
    """`value`, plain data (see compare.plain), as bytes.

    A tensor without dense values becomes a string.
    """
    raw: list[bytes] = []
    text = json.dumps(_lower(value, raw)).encode()
    return b"".join((len(text).to_bytes(HEAD_BYTES, "little"), text, *raw))


def text_bytes(data: bytes | bytearray) -> int:
    """The length of the text in `data`, which `pack` gave."""
    return int.from_bytes(data[:HEAD_BYTES], "little")


def unpack(data: bytes | bytearray) -> Any:
    """The value that `pack` was given, with tensors on their device if this machine has it.

    Raises: WireError, whatever is wrong with `data`.
    """
    try:
        return _unpack(data)
    except WireError:
        raise
    except (
        ValueError,
        TypeError,
        KeyError,
        IndexError,
        RecursionError,
        RuntimeError,
        OverflowError,
    ) as error:
        raise WireError(f"not plain data: {str(error)[:200]}") from None


def _unpack(data: bytes | bytearray) -> Any:
    end = HEAD_BYTES + text_bytes(data)
    if end > len(data):
        raise WireError("the text is cut off")
    if end > LONGEST_TEXT:
        raise WireError(f"a text of {end:,} bytes")
    text = bytes(data[HEAD_BYTES:end])
    value, _ = _lift(json.loads(text), data, end)
    return value


def _lower(value: Any, raw: list[bytes]) -> Any:
    """`value` as what JSON holds; the bytes of its tensors are added to `raw`."""
    if isinstance(value, torch.Tensor):
        return _lower_tensor(value, raw)
    if isinstance(value, list):
        return [_lower(item, raw) for item in value]
    if isinstance(value, tuple):
        return {"tuple": [_lower(item, raw) for item in value]}
    if isinstance(value, dict):
        return {"dict": [[str(key), _lower(item, raw)] for key, item in value.items()]}
    if isinstance(value, complex):
        return {"complex": [value.real, value.imag]}
    return value


def _lower_tensor(tensor: torch.Tensor, raw: list[bytes]) -> Any:
    kind = tensor.device.type
    if tensor.layout != torch.strided or tensor.dtype not in DTYPE_NAMES:
        return f"<a tensor with layout {tensor.layout} and dtype {tensor.dtype}>"
    if kind != "meta":  # such a tensor has no values
        flat = tensor.detach().cpu().resolve_conj().resolve_neg().reshape(-1)
        dense = flat.clone(memory_format=torch.contiguous_format)
        raw.append(dense.as_strided(dense.shape, (1,)).view(torch.uint8).numpy().tobytes())
    return {"tensor": [DTYPE_NAMES[tensor.dtype], list(tensor.shape), kind]}


def _lift(value: Any, data: bytes | bytearray, start: int) -> tuple[Any, int]:
    """(the value of parsed JSON, where the bytes of the next tensor in `data` begin)."""
    if isinstance(value, list):
        items = []
        for item in value:
            item, start = _lift(item, data, start)
            items.append(item)
        return items, start
    if not isinstance(value, dict):
        return value, start
    ((kind, inner),) = value.items()
    if kind == "complex":
        return complex(*inner), start
    if kind == "tensor":
        name, shape, device = inner
        return _lift_tensor(name, shape, device, data, start)
    items, start = _lift(inner, data, start)
    if kind == "tuple":
        return tuple(items), start
    if kind == "dict":
        return {str(key): item for key, item in items}, start
    raise WireError(f"unknown kind {kind!r}")


def _lift_tensor(
    name: str, shape: list[int], device: str, data: bytes | bytearray, start: int
) -> tuple[torch.Tensor, int]:
    """As `_lift`, of a tensor."""
    dtype = DTYPES[name]
    is_shape = all(type(size) is int and 0 <= size < AXIS_LENGTH_MAX for size in shape)
    if not is_shape or len(shape) > AXES_MAX:
        raise WireError(f"a tensor of shape {shape}")
    if device == "meta":
        return torch.empty(shape, dtype=dtype, device="meta"), start
    end = start + math.prod(shape) * dtype.itemsize
    if end > len(data):
        raise WireError("the values of a tensor are cut off")
    if end > start:
        flat = torch.frombuffer(bytearray(data[start:end]), dtype=dtype)
    else:
        flat = torch.empty(0, dtype=dtype)
    tensor = flat.reshape(shape)
    if device == "cuda" and torch.cuda.is_available():
        tensor = tensor.cuda()
    return tensor, end
