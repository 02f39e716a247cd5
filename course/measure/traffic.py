"""How many bytes torch's operations read and write.

Counted from shapes and not measured: what is in a cache is counted like what comes from memory. A
view moves nothing; `index_select` reads the rows that it copies, not the whole table; an operand
that is changed in place is read and written.
"""

import math
from typing import NamedTuple

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

# read as much of their source as they write
ROWS_ONLY = (
    "index_select",
    "index",
    "gather",
    "embedding",
)
# the first operand is written, not read
UNREAD = (
    "copy_",
    "fill_",
    "zero_",
    "zeros_like",
    "empty_like",
)


class Moved(NamedTuple):
    """Bytes that one operation of torch moves."""

    name: str  # such as "mv" or "sub_"
    read: int
    written: int
    new: int  # of those written, the ones in newly allocated memory


class Traffic(TorchDispatchMode):
    """Inside `with`: `operations`, a list of Moved, one for each operation of torch in this thread
    that moves bytes.
    """

    def __init__(self):
        super().__init__()
        self.operations = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        result = func(*args, **kwargs)
        if not any(
            r.alias_info and not r.alias_info.is_write for r in func._schema.returns
        ):  # not a view
            self._note(func.overloadpacket.__name__, args, kwargs, _tensors(result))
        return result

    def _note(self, name, args, kwargs, results):
        given = _tensors([args, {key: value for key, value in kwargs.items() if key != "out"}])
        held = {tensor.untyped_storage().data_ptr() for tensor in _tensors([args, kwargs])}
        written = sum(map(_bytes, results))
        new = sum(
            _bytes(tensor) for tensor in results if tensor.untyped_storage().data_ptr() not in held
        )
        if name in ROWS_ONLY:
            read = written + sum(map(_bytes, given[1:]))
        else:
            read = sum(map(_bytes, given[name in UNREAD :]))
        if read + written:
            self.operations.append(Moved(name, read, written, new))

    @property
    def read(self) -> int:
        """Bytes read by all operations."""
        return sum(operation.read for operation in self.operations)

    @property
    def written(self) -> int:
        """Bytes written by all operations."""
        return sum(operation.written for operation in self.operations)


def _tensors(values):
    return [leaf for leaf in tree_leaves(values) if isinstance(leaf, torch.Tensor)]


def _bytes(tensor):
    """Bytes of the elements of a tensor in memory; what is expanded counts once."""
    sizes = (n for n, stride in zip(tensor.shape, tensor.stride(), strict=True) if stride or not n)
    return tensor.element_size() * math.prod(sizes)
