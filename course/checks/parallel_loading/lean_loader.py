"""Probe of exercise lean_loader: its workers are counted, not started."""

import torch
from torch.utils.data import DataLoader, Dataset

from course.checks.parallel_loading.pretend_workers import pretend_workers
from course.engine.exercise import Answer, Facts, exercise
from course.engine.probing.tensors import kind

TURNING = (
    "numpy",
    "__array__",
    "tolist",
    "float",
    "double",
    "to",
    "type",
    "div",
    "true_divide",
    "item",
)


class _Items(Dataset):
    """`n` images of bytes, image i full of i; `turned` gets what they are turned into on their way
    into a batch.
    """

    def __init__(self, n, side):
        self.n, self.side, self.turned = n, side, turned = n, side, []

        class Bytes(torch.Tensor):
            @classmethod
            def __torch_function__(cls, func, types, args=(), kwargs=None):
                if (name := getattr(func, "__name__", "")) in TURNING:
                    turned.append(name)
                return super().__torch_function__(func, types, args, kwargs)

        self.kind = Bytes

    def __len__(self):
        return self.n

    def __getitem__(self, i):
        number = range(self.n)[i]  # IndexError at the end, as a list
        return torch.full((3, self.side, self.side), number, dtype=torch.uint8).as_subclass(
            self.kind
        )


@exercise(returns_no_number=True)
def lean_loader(answer: Answer, device: torch.device, seed: int) -> Facts:
    """Three epochs with and without workers."""
    size, workers = 4 + seed % 3, 2 + seed % 2
    data = 5 * size + 2, 3 + seed % 29
    items = _Items(*data)
    loader = answer(items, size, 0)
    yield "returns a DataLoader", isinstance(loader, DataLoader)
    torch.manual_seed(seed)
    epochs = _epochs(loader)
    yield "a batch", kind(epochs[0][0])
    yield "images turned into numbers, arrays or floats on their way", len(items.turned)
    yield "batches per epoch, all full", [len(epoch) for epoch in epochs]
    orders = [[int(image[0, 0, 0]) for batch in epoch for image in batch] for epoch in epochs]
    yield "no image comes twice in an epoch", [len(set(order)) == len(order) for order in orders]
    yield "another order in each epoch", [orders[0] != sorted(orders[0]), orders[0] != orders[1]]
    with pretend_workers() as started:
        epochs = _epochs(answer(_Items(*data), size, workers))
    yield "workers started in three epochs", len(started)
    yield "how they are started", sorted(set(started))
    yield "the batches that they build", [[kind(batch) for batch in epoch] for epoch in epochs]
    pinned = [answer(_Items(*data), size, 0, on).pin_memory for on in (False, True)]
    yield "pin_memory is handed on", [*map(bool, pinned)]
    yield "by default nothing is pinned", bool(loader.pin_memory)


def _epochs(loader):
    """The batches of three epochs, a list of lists of tensors."""
    return [[batch.as_subclass(torch.Tensor) for batch in loader] for _ in range(3)]
