"""Copies to a device that overlap with computation.

On a GPU a copy is queued on a stream of its own, so it overlaps with the kernels of the current
stream if the source is pinned memory. On the CPU the copy is made at once. When to start a copy and
when to wait for it is an exercise of unit 04. Source: "CUDA semantics" in the PyTorch
documentation.
"""

import torch


class DeviceCopies:
    """Starts copies to `device`, a torch.device or its name; on a GPU all of them share one side
    stream.
    """

    def __init__(self, device):
        self.device = torch.device(device)
        self._side = torch.cuda.Stream(self.device) if self.device.type == "cuda" else None

    def start(self, tensors):
        """Start to copy `tensors`, a sequence of CPU tensors, and return the DeviceCopy without
        waiting for its end.
        """
        return DeviceCopy(tensors, self.device, self._side)


class DeviceCopy:
    """One copy in progress.

    Tensors that are views of one buffer, as the x and y of a batch are, are copied together, from
    the first value to
    the last, padding included: copying only parts of rows would not run in the background.
    """

    def __init__(self, tensors, device, side):
        groups = {}
        for tensor in tensors:
            groups.setdefault((tensor.untyped_storage().data_ptr(), tensor.dtype), []).append(
                tensor
            )
        # kept: memory being read must not be freed
        self._host = [_span(group) for group in groups.values()]
        with torch.cuda.stream(side):  # None changes nothing
            self._device = [flat.to(device, non_blocking=True, copy=True) for flat in self._host]
            self._end = side.record_event() if side else None
        flats = {
            key: (here, there)
            for key, here, there in zip(groups, self._host, self._device, strict=True)
        }
        self._tensors = tuple(
            _moved(t, *flats[t.untyped_storage().data_ptr(), t.dtype]) for t in tensors
        )

    def tensors(self):
        """The tensors on the device, a tuple in the given order, for use in the current stream.

        Work queued in that stream from now on starts after the copy has ended; the CPU does not
        wait.
        """
        if self._end:
            computing = torch.cuda.current_stream(self._end.device)
            computing.wait_event(self._end)
            for flat in self._device:
                # else the memory could be reused as soon as Python frees it
                flat.record_stream(computing)
        return self._tensors

    def wait(self):
        """Block until the copy has ended, so that the source may be refilled. A second call returns
        at once.
        """
        if self._end:
            self._end.synchronize()
        self._host = None


def _span(tensors):
    """A flat view of the memory from the first to the last value of `tensors`, which share a
    storage.
    """
    ends = [
        t.storage_offset() + sum((n - 1) * s for n, s in zip(t.shape, t.stride(), strict=True))
        for t in tensors
    ]
    first = min(t.storage_offset() for t in tensors)
    length = max(
        (end + 1 - first for t, end in zip(tensors, ends, strict=True) if t.numel()), default=0
    )
    return tensors[0].as_strided((length,), (1,), first)


def _moved(tensor, here, there):
    """The view of `there`, a copy of `here`, that `tensor` is of `here`."""
    return there.as_strided(
        tensor.shape, tensor.stride(), tensor.storage_offset() - here.storage_offset()
    )
