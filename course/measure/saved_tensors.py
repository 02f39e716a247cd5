"""Count the bytes that autograd keeps for the backward pass: saved-tensor hooks -> a number.

PyTorch's documentation calls them "hooks for saved tensors": `pack` sees each tensor that the
forward pass saves, `unpack` each one that the backward pass asks for. Memory that is kept for other
reasons is not seen here; on a GPU, `torch.cuda.max_memory_allocated` shows all of it.
"""

from collections import Counter
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


def peak_bytes_saved(run: Callable[[], object], owned: Iterable[Tensor]) -> int:
    """Most bytes that autograd holds at any moment of `run()`; a storage counts once.

    Unlike `most_bytes_kept`, it sees what the backward pass frees on its way, and what a
    checkpointed block saves when it is computed again.

    Args:
        run: forward and backward passes.
        owned: tensors whose bytes do not count, because they are there anyway: the parameters.
    """
    ledger = _Ledger({tensor.untyped_storage().data_ptr() for tensor in owned})
    with torch.autograd.graph.saved_tensors_hooks(ledger.pack, ledger.unpack):
        run()
    return ledger.most


class _Ledger:
    """The storages that autograd holds now, and the most bytes that it held."""

    def __init__(self, owned: set[int]) -> None:
        self.owned = owned
        self.holders: Counter[int] = (
            Counter()
        )  # address of a storage -> saved tensors that share it
        self.now = 0
        self.most = 0

    def pack(self, tensor: Tensor) -> "_Saved":
        """Count the storage of a tensor that is saved, until autograd drops it."""
        storage = tensor.untyped_storage()
        n_bytes = 0 if storage.data_ptr() in self.owned else storage.nbytes()
        return _Saved(tensor, self, storage.data_ptr(), n_bytes)

    def unpack(self, saved: "_Saved") -> Tensor:
        """The tensor, which autograd asks for."""
        return saved.tensor

    def hold(self, address: int, n_bytes: int) -> None:
        """Count one more holder of a storage."""
        if not self.holders[address]:
            self.now += n_bytes
            self.most = max(self.most, self.now)
        self.holders[address] += 1

    def drop(self, address: int, n_bytes: int) -> None:
        """Count one holder less."""
        self.holders[address] -= 1
        if not self.holders[address]:
            self.now -= n_bytes


class _Saved:
    """A saved tensor: holds its storage in the ledger as long as autograd keeps this object."""

    def __init__(self, tensor: Tensor, ledger: _Ledger, address: int, n_bytes: int) -> None:
        self.tensor = tensor
        self.ledger = ledger
        self.place = address, n_bytes
        ledger.hold(*self.place)

    def __del__(self) -> None:
        self.ledger.drop(*self.place)


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
