"""Probe of exercise lean_loader: its workers are counted, not started."""

import torch
from torch.utils.data import DataLoader, Dataset

from course.checks.engine import exercise
from course.checks.parallel_loading.pretend_workers import pretend_workers


class _Bytes(torch.Tensor):
    """An item that notes what it is turned into on its way into a batch."""

    turned = []

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        name = getattr(func, "__name__", "")
        if name in ("numpy", "__array__", "tolist", "float", "double", "to", "type", "div", "true_divide", "item"):
            cls.turned.append(name)
        return super().__torch_function__(func, types, args, kwargs)


class _Items(Dataset):
    """`n` images of bytes, image i full of i."""

    def __init__(self, n, side):
        self.n, self.side = n, side

    def __len__(self):
        return self.n

    def __getitem__(self, i):
        return torch.full((3, self.side, self.side), i, dtype=torch.uint8).as_subclass(_Bytes)


@exercise()
def lean_loader(answer, device, seed):
    """Three epochs with and without workers."""
    size, workers = 4 + seed % 3, 2 + seed % 2
    data = _Items(5 * size + 2, 3 + seed % 29)
    loader = answer(data, size, 0)
    yield "returns a DataLoader", isinstance(loader, DataLoader)
    _Bytes.turned.clear()
    torch.manual_seed(seed)
    epochs = _epochs(loader)
    batch = epochs[0][0]
    yield "a batch", [batch.dtype, tuple(batch.shape)]
    yield "images turned into numbers, arrays or floats on their way", len(_Bytes.turned)
    yield "batches per epoch, all full", [len(epoch) for epoch in epochs]
    orders = [[int(image[0, 0, 0]) for batch in epoch for image in batch] for epoch in epochs]
    yield "no image comes twice in an epoch", [len(set(order)) == len(order) for order in orders]
    yield "another order in each epoch", [orders[0] != sorted(orders[0]), orders[0] != orders[1]]
    with pretend_workers() as started:
        loader = answer(data, size, workers)
        epochs = _epochs(loader)
    yield "workers started in three epochs", len(started)
    yield "how they are started", sorted(set(started))
    yield "the batches that they build", [[(b.dtype, tuple(b.shape)) for b in epoch] for epoch in epochs]
    yield "pin_memory is handed on", [bool(answer(data, size, 0, on).pin_memory) for on in (False, True)]
    yield "by default nothing is pinned", bool(loader.pin_memory)


def _epochs(loader):
    """The batches of three epochs, a list of lists of tensors."""
    return [[batch.as_subclass(torch.Tensor) for batch in loader] for _ in range(3)]
