"""How many bytes torch's operations read and write.

Counted from shapes and not measured: what is in a cache is counted like what comes from memory. A
view moves nothing; `index_select` reads the rows that it copies, not the whole table; an operand
that is changed in place is read and written.
"""

from typing import Any, NamedTuple

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

# read as much of their source as they write
ROWS_ONLY = ("index_select", "index", "gather", "embedding")
# the first operand is written, not read
UNREAD = ("copy_", "fill_", "zero_", "zeros_like", "empty_like")


class Moved(NamedTuple):
    """Bytes that one operation of torch moves."""

    name: str  # such as "mv" or "sub_"
    read: int
    written: int
    new: int  # of those written, the ones in newly allocated memory


class Traffic(TorchDispatchMode):
    """Notes the operations of torch in this thread, inside `with`, that move bytes.

    `operations` is a list of Moved.
    """

    def __init__(self):
        super().__init__()
        self.operations = []

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None
    ) -> Any:
        kwargs = kwargs or {}
        result = func(*args, **kwargs)
        if not _makes_view(func):
            self._note(func.overloadpacket.__name__, args, kwargs, _tensors(result))
        return result

    def _note(self, name, args, kwargs, results):
        options = {key: value for key, value in kwargs.items() if key != "out"}
        given = _tensors([args, options])
        held = {tensor.untyped_storage().data_ptr() for tensor in _tensors([args, kwargs])}
        written = 0
        new = 0
        for tensor in results:
            written += _bytes(tensor)
            if tensor.untyped_storage().data_ptr() not in held:
                new += _bytes(tensor)
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


def _makes_view(operation):
    """True if a result shares the memory of an argument and is not written."""
    for result in operation._schema.returns:
        if result.alias_info and not result.alias_info.is_write:
            return True
    return False


def _tensors(values):
    return [leaf for leaf in tree_leaves(values) if isinstance(leaf, torch.Tensor)]


def _bytes(tensor):
    """Bytes of the elements of a tensor in memory; what is expanded counts once."""
    n_bytes = tensor.element_size()
    for n, stride in zip(tensor.shape, tensor.stride(), strict=True):
        if stride or not n:
            n_bytes *= n
    return n_bytes
