"""What tensors are and share, and which of torch's operations a call runs."""

import functools
from collections.abc import Callable, Iterable
from typing import Any, NoReturn
from unittest import mock

import numpy as np
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from course.errors import CourseError


def kind(value: Any) -> list[Any] | str:
    """dtype and shape of a tensor, without its values; of anything else the name of its type."""
    if isinstance(value, torch.Tensor):
        return [f"Tensor {value.dtype}", value.shape]
    return type(value).__name__


def kind_and_device(value: Any) -> list[Any] | str:
    """dtype, shape, device type of a tensor; dtype and shape of an array; else the type's name."""
    if isinstance(value, torch.Tensor):
        return [f"Tensor {value.dtype}", tuple(value.shape), value.device.type]
    if isinstance(value, np.ndarray):
        return [f"array {value.dtype}", value.shape]
    return type(value).__name__


def tensors_in(value: Any) -> list[torch.Tensor]:
    """All tensors in `value`: those in lists, tuples and dicts included, in order."""
    return [leaf for leaf in tree_leaves(value) if isinstance(leaf, torch.Tensor)]


def storage(tensor: torch.Tensor) -> int:
    """The address of the memory that a tensor lies in, the same for all views of that memory."""
    return tensor.untyped_storage().data_ptr()


def is_view(value: Any, out: torch.Tensor) -> bool:
    """True if `value` is the beginning of the tensor `out`, not a copy of it."""
    if not isinstance(value, torch.Tensor):
        return False
    return value.data_ptr() == out.data_ptr() and value.stride() == out.stride()


def same_tensor(a: torch.Tensor, b: torch.Tensor) -> bool:
    """True if two tensors have the same shape, dtype and values."""
    return a.shape == b.shape and a.dtype == b.dtype and torch.equal(a, b)


def near(value: Any, truth: Any, relative: float = 0.0, absolute: float = 0.0) -> bool:
    """True if the number `value` is within `absolute + relative * |truth|` of `truth`."""
    return abs(float(value) - float(truth)) <= absolute + relative * abs(float(truth))


def snapped(seen: torch.Tensor, truth: torch.Tensor, tolerance: float) -> torch.Tensor:
    """`truth` as float32 if the tensor `seen` is near to it, else `seen`.

    So a fact can compare a float32 result with a float64 one more loosely than the engine does.

    Args:
        tolerance: how far `seen` may be off, relative to the norm of `truth`.
    """
    is_close = (seen.double() - truth).norm() <= tolerance * truth.norm()
    return truth.float() if is_close else seen


class NewTensors(TorchDispatchMode):
    """Inside `with`: counts torch's operations in this thread and the new memory of their results.

    Attributes:
        calls: number of operations.
        total, largest: bytes of new memory, of all pieces and of the largest one.
        found: the first shape whose memory holds more than `most` values, as in "one of shape
            (64, 20)"; "at most {unit}" as long as there is none.
    """

    def __init__(self, most: float = float("inf"), unit: str = "a batch") -> None:
        super().__init__()
        self.calls = 0
        self.total = 0
        self.largest = 0
        self.most = most
        self.found = f"at most {unit}"
        self._has_found = False

    def __torch_dispatch__(
        self, operation: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        known = {storage(tensor) for tensor in tensors_in((args, kwargs))}
        result = operation(*args, **(kwargs or {}))
        self.calls += 1
        for tensor in tensors_in(result):
            if storage(tensor) not in known:
                self._count(tensor)
        return result

    def _count(self, tensor: torch.Tensor) -> None:
        size = tensor.untyped_storage().nbytes()
        self.total += size
        self.largest = max(self.largest, size)
        if size // tensor.element_size() > self.most and not self._has_found:
            self._has_found = True
            self.found = f"one of shape {tuple(tensor.shape)}"


class Operations(TorchDispatchMode):
    """Inside `with`: what torch is asked to do.

    Attributes:
        paused: set by a probe while it computes for itself, which does not count.
        dtypes: names of those of new tensors.
        largest: elements of the largest new tensor.
        waits: how often a value of the device was waited for.
        work: elements gone through, where a view is free.
        read: elements of the tensors in `watched` that were read.
    """

    def __init__(self, watched: Iterable[torch.Tensor] = ()) -> None:
        super().__init__()
        self.watched = {storage(tensor) for tensor in watched}
        self.paused = False
        self.dtypes: set[str] = set()
        self.largest = 0
        self.waits = 0
        self.work = 0
        self.read = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        if self.paused:
            return result
        if func is torch.ops.aten._local_scalar_dense.default:
            self.waits += 1
        elif not _gives_view(func):
            self._count(tensors_in([args, kwargs]), tensors_in(result))
        return result

    def _count(self, given: list[torch.Tensor], got: list[torch.Tensor]) -> None:
        held = {storage(tensor) for tensor in given}
        for tensor in got:
            if storage(tensor) not in held:
                self.dtypes.add(str(tensor.dtype).removeprefix("torch."))
                self.largest = max(self.largest, tensor.numel())
        self.work += max((tensor.numel() for tensor in given + got), default=0)
        for tensor in given:
            if storage(tensor) in self.watched:
                self.read += tensor.numel()


def _gives_view(operation: Any) -> bool:
    """Whether a result of `operation` shares memory with an argument that it does not write."""
    returns = operation._schema.returns
    return any(each.alias_info and not each.alias_info.is_write for each in returns)


class NotTorch(CourseError):
    """An answer handed a tensor to NumPy, where no check sees what becomes of it."""


def torch_only(answer: Callable[..., Any]) -> Callable[..., Any]:
    """`answer`, except that handing a tensor to NumPy raises NotTorch: on a GPU that would fail."""

    def refuse(*_: Any, **__: Any) -> NoReturn:
        raise NotTorch(
            "a tensor is handed to NumPy: on a GPU that would fail. Compute with torch alone."
        )

    @functools.wraps(answer)
    def watched(*args: Any, **kwargs: Any) -> Any:
        with mock.patch.multiple(torch.Tensor, numpy=refuse, __array__=refuse, __dlpack__=refuse):
            return answer(*args, **kwargs)

    return watched


def form(tensor: torch.Tensor, name: str = "") -> dict[str, Any]:
    """{"dtype": ..., "shape": ..., "device": its type} of a tensor, without its values.

    Args:
        name: added to each key, as in "dtype of values".
    """
    found = {"dtype": tensor.dtype, "shape": tensor.shape, "device": tensor.device.type}
    if not name:
        return found
    return {f"{key} of {name}": value for key, value in found.items()}


def form_or_type(value: Any) -> dict[str, Any]:
    """Return `form` and the name of the type; all but the name is None if it is not a tensor."""
    return {
        "type": type(value).__name__,
        "dtype": getattr(value, "dtype", None),
        "shape": getattr(value, "shape", None),
        "device": getattr(getattr(value, "device", None), "type", None),
    }
