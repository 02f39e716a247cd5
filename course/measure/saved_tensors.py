"""Count the bytes that autograd keeps for the backward pass: saved-tensor hooks -> a number.

PyTorch's documentation calls them "hooks for saved tensors": `pack` sees each tensor that the
forward pass saves, `unpack` each one that the backward pass asks for. Memory that is kept for other
reasons is not seen here; on a GPU, `torch.cuda.max_memory_allocated` shows all of it.
"""

from collections.abc import Callable, Iterable

import torch
from torch import Tensor


def most_bytes_kept(run: Callable[[], object], owned: Iterable[Tensor]) -> int:
    """Most bytes that `run()` keeps between a forward pass and its backward pass.

    A forward pass ends when the backward pass asks for its first tensor. A storage counts once,
    however many tensors share it.

    Args:
        run: forward and backward passes, one after the other; several of them if it accumulates.
        owned: tensors whose bytes do not count, because they are there anyway: the parameters.
    """
    kept = _Kept({tensor.untyped_storage().data_ptr() for tensor in owned})
    with torch.autograd.graph.saved_tensors_hooks(kept.pack, kept.unpack):
        run()
    return kept.most


class _Kept:
    """The storages that the current forward pass has saved, and most bytes of any so far."""

    def __init__(self, owned: set[int]) -> None:
        self.owned = owned
        self.bytes_of: dict[int, int] = {}  # address of a storage -> its bytes
        self.is_backward = False
        self.most = 0

    def pack(self, tensor: Tensor) -> Tensor:
        """Count a tensor that is saved; after a backward pass, a new count begins."""
        if self.is_backward:
            self.bytes_of.clear()
            self.is_backward = False
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in self.owned:
            self.bytes_of[storage.data_ptr()] = storage.nbytes()
            self.most = max(self.most, sum(self.bytes_of.values()))
        return tensor

    def unpack(self, tensor: Tensor) -> Tensor:
        """Note that the backward pass has begun."""
        self.is_backward = True
        return tensor
