"""What tensors are and share, and which of torch's operations a call runs."""

import functools
from unittest import mock

import numpy as np
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from course.errors import CourseError


def kind(value):
    """dtype and shape of a tensor, without its values; of anything else the name of its type."""
    return (
        [f"Tensor {value.dtype}", value.shape]
        if isinstance(value, torch.Tensor)
        else type(value).__name__
    )


def kind_and_device(value):
    """dtype, shape and type of device of a tensor; dtype and shape of an array; else the name of
    the type.
    """
    if isinstance(value, torch.Tensor):
        return [f"Tensor {value.dtype}", tuple(value.shape), value.device.type]
    if isinstance(value, np.ndarray):
        return [f"array {value.dtype}", value.shape]
    return type(value).__name__


def tensors_in(value):
    """All tensors in `value`, a list: those in lists, tuples and dicts included, in order."""
    return [leaf for leaf in tree_leaves(value) if isinstance(leaf, torch.Tensor)]


def storage(tensor):
    """The address of the memory that a tensor lies in, the same for all views of that memory."""
    return tensor.untyped_storage().data_ptr()


def is_view(value, out):
    """True if `value` is the beginning of the tensor `out`, not a copy of it."""
    return (
        isinstance(value, torch.Tensor)
        and value.data_ptr() == out.data_ptr()
        and value.stride() == out.stride()
    )


def same_tensor(a, b):
    """True if two tensors have the same shape, dtype and values."""
    return a.shape == b.shape and a.dtype == b.dtype and torch.equal(a, b)


def near(value, truth, relative=0.0, absolute=0.0):
    """True if the number `value` is within `absolute + relative * |truth|` of `truth`."""
    return abs(float(value) - float(truth)) <= absolute + relative * abs(float(truth))


def snapped(seen, truth, tolerance):
    """`truth` as float32 if the tensor `seen` is as near to it as `tolerance`, relative to its
    norm; else `seen`.

    So a fact can compare a float32 result with a float64 one more loosely than the engine does.
    """
    close = (seen.double() - truth).norm() <= tolerance * truth.norm()
    return truth.float() if close else seen


class NewTensors(TorchDispatchMode):
    """Inside `with`: counts torch's operations in this thread and the bytes of new memory in their
    results.

    `calls` operations; `total` bytes of new memory, those of the `largest` piece; and in `found`
    the first shape whose memory holds more than `most` values, as in "one of shape (64, 20)".
    """

    calls = total = largest = 0

    def __init__(self, most=float("inf"), unit="a batch"):
        super().__init__()
        self.most, self.found = most, f"at most {unit}"
        self._fine = self.found

    def __torch_dispatch__(self, operation, types, args=(), kwargs=None):
        known = set(map(storage, tensors_in((args, kwargs))))
        result = operation(*args, **(kwargs or {}))
        self.calls += 1
        for tensor in tensors_in(result):
            if storage(tensor) not in known:
                self._note(tensor)
        return result

    def _note(self, tensor):
        size = tensor.untyped_storage().nbytes()
        self.total += size
        self.largest = max(self.largest, size)
        if size // tensor.element_size() > self.most and self.found == self._fine:
            self.found = f"one of shape {tuple(tensor.shape)}"


class Operations(TorchDispatchMode):
    """Inside `with`: what torch is asked to do, except while `paused` is set for the probe's own
    work.

    `dtypes` of new tensors; `largest`, the elements of the largest of them; `waits` for a value of
    the device; `work`, elements gone through, where a view is free; `read`, the elements of the
    tensors in `watched` that were read.
    """

    def __init__(self, watched=()):
        super().__init__()
        self.watched = set(map(storage, watched))
        self.dtypes, self.largest, self.waits, self.work, self.read, self.paused = (
            set(),
            0,
            0,
            0,
            0,
            False,
        )

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        if self.paused:
            return result
        if func is torch.ops.aten._local_scalar_dense.default:
            self.waits += 1
        elif not any(
            r.alias_info and not r.alias_info.is_write for r in func._schema.returns
        ):  # not a view
            self._note(tensors_in([args, kwargs]), tensors_in(result))
        return result

    def _note(self, given, got):
        held = set(map(storage, given))
        new = [tensor for tensor in got if storage(tensor) not in held]
        self.dtypes |= {str(tensor.dtype).removeprefix("torch.") for tensor in new}
        self.largest = max([self.largest, *(tensor.numel() for tensor in new)])
        self.work += max((tensor.numel() for tensor in given + got), default=0)
        self.read += sum(tensor.numel() for tensor in given if storage(tensor) in self.watched)


class NotTorch(CourseError):
    """An answer handed a tensor to NumPy, where no check sees what becomes of it."""


def torch_only(answer):
    """`answer`, except that handing a tensor to NumPy raises NotTorch: on a GPU that would fail."""

    def refuse(*_, **__):
        raise NotTorch(
            "a tensor is handed to NumPy: on a GPU that would fail. Compute with torch alone."
        )

    @functools.wraps(answer)
    def watched(*args, **kwargs):
        with mock.patch.multiple(torch.Tensor, numpy=refuse, __array__=refuse, __dlpack__=refuse):
            return answer(*args, **kwargs)

    return watched


def form(tensor, name=""):
    """{"dtype": ..., "shape": ..., "device": its type} of a tensor, without its values; `name` is
    added to each key.
    """
    found = {"dtype": tensor.dtype, "shape": tensor.shape, "device": tensor.device.type}
    return {f"{key} of {name}" if name else key: value for key, value in found.items()}


def form_or_type(value):
    """As `form`, with the name of the type; of what is no tensor only that name, all else None."""
    found = {name: getattr(value, name, None) for name in ("dtype", "shape")}
    return {
        "type": type(value).__name__,
        **found,
        "device": getattr(getattr(value, "device", None), "type", None),
    }
