"""Plain data as bytes and back, so that a probe's facts can be sent to a process or stored. Reading
executes nothing.

    8 bytes: length of the text | text: JSON | the raw bytes of all tensors, one after the other

JSON holds None, bool, int, float, str and lists as they are; a tensor, tuple, dict or complex
number is an object with one key. There is no pickle: whatever the other side sends, the result is
numbers, strings and tensors.
"""

import json
import math

import torch

DTYPES = {
    str(dtype)[6:]: dtype
    for dtype in (torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.complex128, torch.complex64,
                  torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8, torch.bool)
}  # fmt: skip
HEAD = 8
LONGEST_TEXT = 8_000_000  # bytes; the parsed JSON may take 25 times as many


class WireError(ValueError):
    """The bytes are not plain data."""


def pack(value) -> bytes:
    """`value`, plain data (see compare.plain), as bytes. A tensor without dense values becomes a
    string.
    """
    raw = []
    text = json.dumps(_lower(value, raw)).encode()
    return b"".join((len(text).to_bytes(HEAD, "little"), text, *raw))


def text_bytes(data) -> int:
    """The length of the text in `data`, which `pack` gave."""
    return int.from_bytes(data[:HEAD], "little")


def unpack(data):
    """The value that `pack` was given, with tensors on their device if this machine has it. Raises:
    WireError.
    """
    try:
        end = HEAD + text_bytes(data)
        if end > len(data):
            raise WireError("the text is cut off")
        if end > LONGEST_TEXT:
            raise WireError(f"a text of {end:,} bytes")
        return _lift(json.loads(bytes(data[HEAD:end])), data, end)[0]
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


def _lower(value, raw):
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


def _lower_tensor(tensor, raw):
    name, kind = str(tensor.dtype)[6:], tensor.device.type
    if tensor.layout != torch.strided or name not in DTYPES:
        return f"<a tensor with layout {tensor.layout} and dtype {tensor.dtype}>"
    if kind != "meta":  # such a tensor has no values
        dense = (
            tensor.detach()
            .cpu()
            .resolve_conj()
            .resolve_neg()
            .reshape(-1)
            .clone(memory_format=torch.contiguous_format)
        )
        raw.append(dense.as_strided(dense.shape, (1,)).view(torch.uint8).numpy().tobytes())
    return {"tensor": [name, list(tensor.shape), kind]}


def _lift(value, data, start):
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
        return _lift_tensor(*inner, data, start)
    items, start = _lift(inner, data, start)
    if kind == "tuple":
        return tuple(items), start
    if kind == "dict":
        return {str(key): item for key, item in items}, start
    raise WireError(f"unknown kind {kind!r}")


def _lift_tensor(name, shape, device, data, start):
    dtype = DTYPES[name]
    if not all(type(size) is int and 0 <= size < 2**40 for size in shape) or len(shape) > 64:
        raise WireError(f"a tensor of shape {shape}")
    if device == "meta":
        return torch.empty(shape, dtype=dtype, device="meta"), start
    end = start + math.prod(shape) * dtype.itemsize
    if end > len(data):
        raise WireError("the values of a tensor are cut off")
    flat = (
        torch.frombuffer(bytearray(data[start:end]), dtype=dtype)
        if end > start
        else torch.empty(0, dtype=dtype)
    )
    tensor = flat.reshape(shape)
    return (tensor.cuda() if device == "cuda" and torch.cuda.is_available() else tensor), end
