"""Probe of exercise training_loader."""

import warnings

import torch
from torch.utils.data import DataLoader

from course.checks.parallel_loading.workers import Asked
from course.engine.exercise import Answer, Facts, exercise
from course.engine.probing.laws import tried

BATCHES_MIN = 20


@exercise(returns_no_number=True)
def training_loader(answer: Answer, device: torch.device, seed: int) -> Facts:
    """The batches of a dataset of numbers."""
    batch_size = 4 + seed % 3
    items = _numbers(batch_size * (BATCHES_MIN + seed % 5) + 2)
    loader = answer(items, batch_size)
    yield "returns a DataLoader", isinstance(loader, DataLoader)
    yield "its dataset", loader.dataset is items
    torch.manual_seed(seed)
    epochs = [_epoch(loader), _epoch(loader)]
    sizes = list(map(len, epochs[0]))
    yield "items per batch", max(sizes)
    yield "no batch that is not full", len(sizes)
    orders = [sum(batches, []) for batches in epochs]
    yield "no item comes twice in an epoch", [len(set(order)) == len(order) for order in orders]
    yield "a random order", tried(orders[0] != sorted(orders[0]), batch_size)
    yield "another one in the next epoch", tried(orders[0] != orders[1], batch_size)
    exact = answer(_numbers(batch_size), batch_size)
    yield "a last batch that is full stays", len(list(exact))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # more workers than this machine has cores
        found = [answer(items, batch_size, n).num_workers for n in (0, 1, 3)]
        yield "num_workers", tried(found, batch_size)
    yield "by default no workers", loader.num_workers


def _numbers(n: int) -> Asked:
    """A dataset whose item i is i."""
    return Asked(n, range(n).__getitem__)  # IndexError at the end, as a list


def _epoch(loader: DataLoader) -> list[list[int]]:
    """The numbers in each batch."""
    return [batch.tolist() for batch in loader]
