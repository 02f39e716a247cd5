"""Probe of exercise lean_loader: its workers are counted, not started."""

from collections.abc import Iterable
from typing import Any

import torch
from torch.utils.data import DataLoader, Dataset

from course.checks.parallel_loading.pretend_workers import pretend_workers
from course.engine.exercise import Answer, Facts, exercise
from course.engine.probing.laws import tried
from course.engine.probing.tensors import kind

# functions that turn an image into numbers or an array, and into floats
TO_NUMBERS = ("numpy", "__array__", "tolist", "item")
TO_FLOATS = ("float", "double", "to", "type", "div", "true_divide")
CONVERSIONS = TO_NUMBERS + TO_FLOATS


class _Items(Dataset):
    """`n` images of bytes, image i full of i.

    `turned` gets what they are turned into on their way into a batch.
    """

    def __init__(self, n: int, side: int) -> None:
        self.n = n
        self.side = side
        turned = []
        self.turned = turned

        class Bytes(torch.Tensor):
            @classmethod
            def __torch_function__(
                cls, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None
            ) -> Any:
                name = getattr(func, "__name__", "")
                if name in CONVERSIONS:
                    turned.append(name)
                return super().__torch_function__(func, types, args, kwargs)

        self.kind = Bytes

    def __len__(self) -> int:
        return self.n

    def __getitem__(self, i: int) -> torch.Tensor:
        number = range(self.n)[i]  # IndexError at the end, as a list
        image = torch.full((3, self.side, self.side), number, dtype=torch.uint8)
        return image.as_subclass(self.kind)


@exercise(returns_no_number=True)
def lean_loader(answer: Answer, device: torch.device, seed: int) -> Facts:
    """Three epochs with and without workers."""
    size = 4 + seed % 3
    workers = 2 + seed % 2
    n = 5 * size + 2
    side = 3 + seed % 29
    items = _Items(n, side)
    loader = answer(items, size, 0)
    yield "returns a DataLoader", isinstance(loader, DataLoader)
    torch.manual_seed(seed)
    epochs = _three_epochs(loader)
    yield "a batch", kind(epochs[0][0])
    turned = tried(len(items.turned), side)
    yield "images turned into numbers, arrays or floats on their way", turned
    yield "batches per epoch, all full", list(map(len, epochs))
    orders = list(map(_order, epochs))
    yield "no image comes twice in an epoch", [len(set(order)) == len(order) for order in orders]
    are_other = [orders[0] != sorted(orders[0]), orders[0] != orders[1]]
    yield "another order in each epoch", tried(are_other, side)
    with pretend_workers() as started:
        epochs = _three_epochs(answer(_Items(n, side), size, workers))
    yield "workers started in three epochs", len(started)
    yield "how they are started", tried(sorted(set(started)), side)
    yield "the batches that they build", [list(map(kind, epoch)) for epoch in epochs]
    pinned = [answer(_Items(n, side), size, 0, on).pin_memory for on in (False, True)]
    yield "pin_memory is handed on", tried(list(map(bool, pinned)), side)
    yield "by default nothing is pinned", bool(loader.pin_memory)


def _three_epochs(loader: Iterable[torch.Tensor]) -> list[list[torch.Tensor]]:
    """The batches of three epochs."""
    epochs = []
    for _ in range(3):
        epochs.append([batch.as_subclass(torch.Tensor) for batch in loader])
    return epochs


def _order(epoch: Iterable[torch.Tensor]) -> list[int]:
    """The numbers of the images of an epoch, in order."""
    numbers = []
    for batch in epoch:
        for image in batch:
            numbers.append(int(image[0, 0, 0]))
    return numbers
