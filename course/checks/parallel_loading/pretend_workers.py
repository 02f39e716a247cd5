"""Loaders whose workers are noted, not started: the batches are built in this process.

So a check counts processes within a millisecond. After torch/utils/data/dataloader.py, whose
iterator over worker processes is replaced.
"""

import contextlib
import warnings
from collections.abc import Iterator
from typing import Any
from unittest import mock

from torch.utils.data import DataLoader, dataloader


@contextlib.contextmanager
def pretend_workers() -> Iterator[list[str]]:
    """Inside the block DataLoaders start no workers.

    Yields a list that gets the start method of each worker process that one would start.
    """
    started = []

    class Here(dataloader._BaseDataLoaderIter):
        """The batches of `loader`, built in this process."""

        def __init__(self, loader: DataLoader) -> None:
            super().__init__(loader)
            started.extend([_start_method(loader)] * loader.num_workers)

        def _next_data(self) -> Any:
            indices = self._next_index()
            if self._auto_collation:
                items = [self._dataset[i] for i in indices]
            else:
                items = self._dataset[indices]
            return self._collate_fn(items)

    with (
        mock.patch.object(dataloader, "_MultiProcessingDataLoaderIter", Here),
        warnings.catch_warnings(),
    ):
        warnings.simplefilter("ignore")  # torch warns of more workers than cores
        yield started


def _start_method(loader: DataLoader) -> str:
    context = loader.multiprocessing_context
    return context.get_start_method() if context is not None else "torch's default"
