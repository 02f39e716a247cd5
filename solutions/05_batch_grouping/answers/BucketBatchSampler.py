"""Known mistakes of exercise BucketBatchSampler, and right answers in other styles."""

import random

import torch
from torch.utils.data import Sampler

from course.checks.engine import alternative, mistake


class _Right(Sampler):
    """A right sampler in pieces, so that each mistake can spoil one of them."""

    def __init__(self, lengths, batch_size, window, seed=0):
        self.lengths, self.batch_size, self.window, self.seed, self.epoch = lengths, batch_size, window, seed, 0

    def set_epoch(self, epoch):
        self.epoch = epoch

    def __len__(self):
        return -(-len(self.lengths) // self.batch_size)

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

    def __iter__(self):
        rng = self.generator()
        batches = [batch for piece in self.pieces(self.order(rng)) for batch in self.cut(self.sort(piece))]
        return iter(self.shuffled(batches, rng))


@mistake(
    "BucketBatchSampler",
    "The last batch of every window is dropped if it is not full. Every index comes once per epoch.",
)
class SmallBatchDropped(_Right):
    def cut(self, piece):
        return [batch for batch in piece.split(self.batch_size) if len(batch) == self.batch_size]


@mistake("BucketBatchSampler", "The last, smaller batch is dropped. Every index comes once per epoch, so keep it.")
class LastBatchDropped(SmallBatchDropped):
    def __len__(self):
        return len(self.lengths) // self.batch_size


@mistake("BucketBatchSampler", "len() rounds down and forgets the last, smaller batch. Round up.")
class LengthRoundedDown(_Right):
    def __len__(self):
        return len(self.lengths) // self.batch_size


@mistake("BucketBatchSampler", "len() is the number of sequences. A batch sampler's length is its number of batches.")
class LengthOfTheSet(_Right):
    def __len__(self):
        return len(self.lengths)


@mistake(
    "BucketBatchSampler",
    "The epoch is ignored, so every epoch has the same batches. Seed the generator from seed and epoch.",
)
class EpochIgnored(_Right):
    def generator(self):
        return torch.Generator().manual_seed(self.seed)


@mistake(
    "BucketBatchSampler",
    "The generator is made once and runs on, so the batches depend on how often the sampler was iterated. Make it anew "
    "in every `__iter__`, from seed and epoch.",
)
class GeneratorOfTheSampler(_Right):
    def __init__(self, *given, **options):
        super().__init__(*given, **options)
        self.rng = torch.Generator().manual_seed(self.seed)

    def generator(self):
        return self.rng


@mistake("BucketBatchSampler", "The seed is ignored: two trainings with other seeds see the same batches.")
class SeedIgnored(_Right):
    def generator(self):
        return torch.Generator().manual_seed(self.epoch)


@mistake(
    "BucketBatchSampler",
    "seed + epoch gives epoch 0 of seed 5 the batches of epoch 1 of seed 4. Multiply one of them by a large number.",
)
class SeedPlusEpoch(_Right):
    def generator(self):
        return torch.Generator().manual_seed(self.seed + self.epoch)


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
        return order.split(self.window)


@mistake(
    "BucketBatchSampler",
    "A window has `window` sequences instead of `window` batches of them. Multiply by batch_size.",
)
class SortedInWindowsOfSequences(_Right):
    def pieces(self, order):
        return [torch.cat([self.sort(piece) for piece in order.split(self.window)])]

    def cut(self, piece):
        return piece.split(self.batch_size)

    def __iter__(self):
        rng = self.generator()
        (order,) = self.pieces(self.order(rng))
        return iter(self.shuffled(self.cut(order), rng))


@mistake(
    "BucketBatchSampler",
    "The whole set is sorted, so sequences meet the same others in every epoch. Sort inside windows only.",
)
class WindowIgnored(_Right):
    def pieces(self, order):
        return [order]


@mistake(
    "BucketBatchSampler",
    "argsort gives places inside the window, not indices of sequences. Index the window with it: "
    "`piece[lengths[piece].argsort()]`.",
)
class PlacesForIndices(_Right):
    def sort(self, piece):
        return self.lengths[piece].argsort()


@mistake(
    "BucketBatchSampler",
    "The sequences of a window are shuffled again after sorting, which undoes it. Shuffle the batches instead.",
)
class SequencesShuffledAgain(_Right):
    def __iter__(self):
        rng, batches = self.generator(), []
        for piece in self.pieces(self.order(rng)):
            piece = self.sort(piece)
            batches += self.cut(piece[torch.randperm(len(piece), generator=rng)])
        return iter(self.shuffled(batches, rng))


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


@mistake(
    "BucketBatchSampler",
    "Every epoch has the same batches, only in another order: the set is shuffled alike each time. Draw both orders "
    "from the generator of (seed, epoch).",
)
class SetShuffledAlike(_Right):
    def order(self, rng):
        return super().order(torch.Generator().manual_seed(self.seed))


@mistake("BucketBatchSampler", "The epoch is counted up in `__iter__`. Only set_epoch changes it.")
class EpochCountedUp(_Right):
    def __iter__(self):
        batches = super().__iter__()
        self.epoch += 1
        return batches


@mistake("BucketBatchSampler", "The batches are tensors. Yield lists of numbers: batch.tolist().")
class TensorsForLists(_Right):
    def shuffled(self, batches, rng):
        return [batches[i] for i in torch.randperm(len(batches), generator=rng).tolist()]


@mistake("BucketBatchSampler", "The batches hold lengths. Yield indices of sequences, sorted by their lengths.")
class LengthsForIndices(_Right):
    def sort(self, piece):
        return self.lengths[piece].sort().values


@mistake("BucketBatchSampler", "Single indices are yielded. Yield one list of indices per batch.")
class IndexByIndex(_Right):
    def __iter__(self):
        return (index for batch in super().__iter__() for index in batch)


@alternative("BucketBatchSampler")
class InPieces(_Right):
    pass


@alternative("BucketBatchSampler")
class WithRandom:
    def __init__(self, lengths, batch_size, window, seed=0):
        self.lengths = lengths.tolist()
        self.settings = batch_size, window, seed
        self.epoch = 0

    def set_epoch(self, epoch):
        self.epoch = epoch

    def __len__(self):
        size = self.settings[0]
        return (len(self.lengths) + size - 1) // size

    def __iter__(self):
        size, window, seed = self.settings
        rng = random.Random(f"{seed} {self.epoch}")
        order = list(range(len(self.lengths)))
        rng.shuffle(order)
        batches = []
        for first in range(0, len(order), window * size):
            piece = sorted(order[first : first + window * size], key=self.lengths.__getitem__, reverse=True)
            batches += [piece[i : i + size] for i in range(0, len(piece), size)]
        rng.shuffle(batches)
        yield from batches
