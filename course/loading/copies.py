"""Copies to a device that overlap with computation.

On a GPU a copy is queued on a separate stream, so it overlaps with the kernels of the current
stream if the source is pinned memory. On the CPU the copy is made immediately. When to start a copy
and when to wait for it is an exercise of unit 04. Source: "CUDA semantics" in the PyTorch
documentation.
"""

from collections.abc import Sequence

import torch
from torch import Tensor


class DeviceCopies:
    """Starts copies to `device`; on a GPU all of them share one side stream."""

    def __init__(self, device: torch.device | str):
        self.device = torch.device(device)
        self._side = torch.cuda.Stream(self.device) if self.device.type == "cuda" else None

    def start(self, tensors: Sequence[Tensor]) -> "DeviceCopy":
        """Start to copy the CPU tensors `tensors`, and return the copy without waiting for it."""
        return DeviceCopy(tensors, self.device, self._side)


class DeviceCopy:
    """One copy in progress.

    Tensors that are views of one buffer, as the x and y of a batch are, are copied together, from
    the first value to the last, padding included: copying only parts of rows would not run in the
    background.
    """

    def __init__(
        self, tensors: Sequence[Tensor], device: torch.device, side: torch.cuda.Stream | None
    ):
        views_of = {}  # (storage, dtype) -> the tensors that are views of it
        for tensor in tensors:
            views_of.setdefault(_buffer(tensor), []).append(tensor)
        # kept: memory being read must not be freed
        self._host = {buffer: _span(views) for buffer, views in views_of.items()}
        self._device = {}
        with torch.cuda.stream(side):  # None changes nothing
            for buffer, flat in self._host.items():
                self._device[buffer] = flat.to(device, non_blocking=True, copy=True)
            self._end = side.record_event() if side else None
        self._tensors = tuple(self._moved(tensor) for tensor in tensors)

    def tensors(self) -> tuple[Tensor, ...]:
        """The tensors on the device, a tuple in the given order, for use in the current stream.

        Work queued in that stream from now on starts after the copy has ended; the CPU does not
        wait.
        """
        if self._end:
            computing = torch.cuda.current_stream(self._end.device)
            computing.wait_event(self._end)
            for flat in self._device.values():
                # else the memory could be reused as soon as Python frees it
                flat.record_stream(computing)
        return self._tensors

    def wait(self) -> None:
        """Block until the copy has ended, so that the source may be refilled.

        A second call returns immediately.
        """
        if self._end:
            self._end.synchronize()
        self._host = None

    def _moved(self, tensor):
        """The view of the copy on the device that `tensor` is of its buffer."""
        here = self._host[_buffer(tensor)]
        there = self._device[_buffer(tensor)]
        offset = tensor.storage_offset() - here.storage_offset()
        return there.as_strided(tensor.shape, tensor.stride(), offset)


def _buffer(tensor):
    """What tensors share that are copied together."""
    return tensor.untyped_storage().data_ptr(), tensor.dtype


def _span(tensors):
    """A flat view of the memory from the first to the last value of `tensors`, of one storage."""
    first = min(tensor.storage_offset() for tensor in tensors)
    length = 0
    for tensor in tensors:
        if tensor.numel():
            length = max(length, _last(tensor) + 1 - first)
    return tensors[0].as_strided((length,), (1,), first)


def _last(tensor):
    """The place in its storage of the last value of a tensor that is not empty."""
    last = tensor.storage_offset()
    for n, stride in zip(tensor.shape, tensor.stride(), strict=True):
        last += (n - 1) * stride
    return last
