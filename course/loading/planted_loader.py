"""A loader with four faults, and one with the last of them: `course loader-report` judges both.

    course loader-report planted_loader.py:make_loader

It needs only torch. Unit 04/5 copies this file to your data folder, where you may change it.
"""

from collections.abc import Iterator, Sequence

import torch
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

SHARDS = 64
IN_SHARD = 64
BATCH = 32


class Samples(IterableDataset):
    """Samples in shards that are sorted by label."""

    epoch = 0

    def shards(self) -> Sequence[int]:
        """The shards to read, in order."""
        return range(SHARDS)

    def __iter__(self) -> Iterator[dict]:
        for shard in self.shards():
            for place in range(IN_SHARD):
                number = shard * IN_SHARD + place
                yield {"x": torch.full((256,), float(number)), "label": shard}


class Repaired(Samples):
    """The same, but each worker reads its share of the shards, in random order."""

    def shards(self) -> Sequence[int]:
        """This worker's shards, in the order of the epoch."""
        rng = torch.Generator().manual_seed(self.epoch)
        order = torch.randperm(SHARDS, generator=rng).tolist()
        worker = get_worker_info()
        if worker is None:  # in the main process
            return order
        return order[worker.id :: worker.num_workers]


class Epochs(DataLoader):
    """A DataLoader that tells its dataset the epoch, before workers copy it."""

    def __iter__(self) -> Iterator:
        self.dataset.epoch += 1
        return super().__iter__()


def make_loader() -> DataLoader:
    """The loader with four faults.

    Every sample comes twice, the shards come in file order, all epochs are alike, and neighbours
    meet in a batch.
    """
    return DataLoader(Samples(), BATCH, num_workers=2)


def make_repaired() -> DataLoader:
    """The loader whose workers share the shuffled shards; neighbours still meet in a batch."""
    return Epochs(Repaired(), BATCH, num_workers=2)
