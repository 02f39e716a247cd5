"""Known mistakes of exercise BucketBatchSampler, and right answers in other styles."""

import random

import torch
from torch.utils.data import Sampler

from course.checks.engine import alternative, mistake


class _Right(Sampler):
    """A right sampler in pieces, so that each mistake can spoil one of them."""

    def __init__(self, lengths, batch_size, window, seed=0, rank=0, world_size=1):
        self.lengths, self.batch_size, self.window, self.seed = lengths, batch_size, window, seed
        self.rank, self.world_size, self.epoch = rank, world_size, 0

    def set_epoch(self, epoch):
        self.epoch = epoch

    def __len__(self):
        batches = -(-len(self.lengths) // self.batch_size)
        return -(-batches // self.world_size)

    def generator(self):
        return torch.Generator().manual_seed(1000003 * self.seed + self.epoch)

    def order(self, rng):
        return torch.randperm(len(self.lengths), generator=rng)

    def pieces(self, order):
        return order.split(self.window * self.batch_size)

    def sort(self, piece):
        return piece[self.lengths[piece].argsort()]

    def cut(self, piece):
        return piece.split(self.batch_size)

    def shuffled(self, batches, rng):
        return [batches[i].tolist() for i in torch.randperm(len(batches), generator=rng).tolist()]

    def dealt(self, batches):
        return [batches[i % len(batches)] for i in range(self.rank, len(self) * self.world_size, self.world_size)]

    def __iter__(self):
        rng = self.generator()
        batches = [batch for piece in self.pieces(self.order(rng)) for batch in self.cut(self.sort(piece))]
        return iter(self.dealt(self.shuffled(batches, rng)))


@mistake(
    "BucketBatchSampler",
    "The last batch of every window is dropped if it is not full. Every index comes once per epoch.",
)
class SmallBatchDropped(_Right):
    def cut(self, piece):
        return [batch for batch in piece.split(self.batch_size) if len(batch) == self.batch_size]


@mistake(
    "BucketBatchSampler",
    "The epoch is ignored, so every epoch has the same batches. Seed the generator from seed and epoch.",
)
class EpochIgnored(_Right):
    def generator(self):
        return torch.Generator().manual_seed(self.seed)


@mistake("BucketBatchSampler", "The seed is ignored: two trainings with other seeds see the same batches.")
class SeedIgnored(_Right):
    def generator(self):
        return torch.Generator().manual_seed(self.epoch)


@mistake("BucketBatchSampler", "The batches of a window are not shuffled: they come from short to long in each window.")
class BatchesNotShuffled(_Right):
    def shuffled(self, batches, rng):
        return [batch.tolist() for batch in batches]


@mistake(
    "BucketBatchSampler",
    "Nothing is sorted: batches are cut from the shuffled order and waste as much as random ones.",
)
class NotSorted(_Right):
    def sort(self, piece):
        return piece


@mistake(
    "BucketBatchSampler",
    "A window has `window` sequences instead of `window` batches of them. Multiply by batch_size.",
)
class WindowOfSequences(_Right):
    def pieces(self, order):
        return order.split(max(self.window, self.batch_size))


@mistake(
    "BucketBatchSampler",
    "Windows are cut from the order of the set: neighbours stay together in every epoch. Shuffle first.",
)
class OrderOfTheSet(_Right):
    def order(self, rng):
        return torch.arange(len(self.lengths))


@mistake(
    "BucketBatchSampler",
    "torch's global random numbers are used and moved. Use a Generator of your own, seeded from both.",
)
class GlobalRandomNumbers(_Right):
    def generator(self):
        torch.manual_seed(1000003 * self.seed + self.epoch)

    def order(self, rng):
        return torch.randperm(len(self.lengths))


@mistake("BucketBatchSampler", "Every rank gets all batches. Rank r takes every world_size-th batch, from number r on.")
class EveryRankTakesAll(_Right):
    def dealt(self, batches):
        return batches


@mistake(
    "BucketBatchSampler",
    "Ranks get unequal numbers of batches: the rank with one more waits for the others for ever.",
)
class UnequalRanks(_Right):
    def dealt(self, batches):
        return batches[self.rank :: self.world_size]


@mistake(
    "BucketBatchSampler",
    "Batches that do not divide among the ranks are dropped. Repeat a few instead, so that all are used.",
)
class RemainderDropped(_Right):
    def dealt(self, batches):
        return batches[: len(batches) // self.world_size * self.world_size][self.rank :: self.world_size]


@alternative("BucketBatchSampler")
class InPieces(_Right):
    pass


@alternative("BucketBatchSampler")
class WithRandom:
    def __init__(self, lengths, batch_size, window, seed=0, rank=0, world_size=1):
        self.lengths = lengths.tolist()
        self.settings = batch_size, window, seed, rank, world_size
        self.epoch = 0

    def set_epoch(self, epoch):
        self.epoch = epoch

    def __len__(self):
        size, _, _, _, world_size = self.settings
        batches = (len(self.lengths) + size - 1) // size
        return (batches + world_size - 1) // world_size

    def __iter__(self):
        size, window, seed, rank, world_size = self.settings
        rng = random.Random(f"{seed} {self.epoch}")
        order = list(range(len(self.lengths)))
        rng.shuffle(order)
        batches = []
        for first in range(0, len(order), window * size):
            piece = sorted(order[first : first + window * size], key=self.lengths.__getitem__, reverse=True)
            batches += [piece[i : i + size] for i in range(0, len(piece), size)]
        rng.shuffle(batches)
        for number in range(len(self)):
            yield batches[(number * world_size + rank) % len(batches)]
