"""Loaders whose workers are not started: the batches are built here, and what would have been
started is noted.

So a check counts processes within a millisecond. After torch/utils/data/dataloader.py, whose
iterator over worker processes is replaced.
"""

import contextlib
import warnings
from unittest import mock

from torch.utils.data import dataloader


@contextlib.contextmanager
def pretend_workers():
    """A list that gets, for each worker process that a DataLoader would start inside the block, its
    start method.
    """
    started = []

    class Here(dataloader._BaseDataLoaderIter):
        """The batches of `loader`, built in this process."""

        def __init__(self, loader):
            super().__init__(loader)
            started.extend([_start_method(loader)] * loader.num_workers)

        def _next_data(self):
            indices = self._next_index()
            if loader_of_items := self._auto_collation:
                items = [self._dataset[i] for i in indices]
            return (
                self._collate_fn(items)
                if loader_of_items
                else self._collate_fn(self._dataset[indices])
            )

    with (
        mock.patch.object(dataloader, "_MultiProcessingDataLoaderIter", Here),
        warnings.catch_warnings(),
    ):
        warnings.simplefilter("ignore")  # torch warns of more workers than cores
        yield started


def _start_method(loader):
    context = loader.multiprocessing_context
    return context.get_start_method() if context is not None else "torch's default"
