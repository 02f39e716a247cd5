"""Known mistakes of exercise BucketBatchSampler, and right answers in other styles."""

import random

import numpy as np
import torch
from torch.utils.data import Sampler

from course.engine.known_answers import alternative

MISTAKES = {
    "SmallBatchDropped": (
        "The last batch of every window is dropped if it is not full. Every index comes once per epoch.",
        (
            "+= piece.split(self.batch_size)",
            "+= [b for b in piece.split(self.batch_size) if len(b) == self.batch_size]",
        ),
    ),
    "LastBatchDropped": (
        "The last, smaller batch is dropped. Every index comes once per epoch, so keep it.",
        (
            "+= piece.split(self.batch_size)",
            "+= [b for b in piece.split(self.batch_size) if len(b) == self.batch_size]",
        ),
        ("-(-len(self.lengths) // self.batch_size)", "len(self.lengths) // self.batch_size"),
    ),
    "LengthRoundedDown": (
        "len() rounds down and forgets the last, smaller batch. Round up.",
        ("-(-len(self.lengths) // self.batch_size)", "len(self.lengths) // self.batch_size"),
    ),
    "LengthOfTheSet": (
        "len() is the number of sequences. A batch sampler's length is its number of batches.",
        ("-(-len(self.lengths) // self.batch_size)", "len(self.lengths)"),
    ),
    "EpochIgnored": (
        "The epoch is ignored, so every epoch has the same batches. Seed the generator from seed and epoch.",
        ("((self.seed, self.epoch))", "(self.seed)"),
    ),
    "GeneratorOfTheSampler": (
        "The generator is made once: batches depend on past iterations. Make one in `__iter__`, from seed and epoch.",
        (
            "self.epoch = 0",
            "self.epoch = 0\n        self.rng = np.random.default_rng(seed)",
        ),
        ("np.random.default_rng((self.seed, self.epoch))", "self.rng"),
    ),
    "SeedIgnored": (
        "The seed is ignored: trainings with different seeds see the same batches.",
        ("((self.seed, self.epoch))", "(self.epoch)"),
    ),
    "SeedOfAHash": (
        "hash() of a text differs from process to process, so ranks disagree. Seed with (seed, epoch) themselves.",
        ("((self.seed, self.epoch))", "(hash(f'{self.seed} {self.epoch}') % 2**32)"),
    ),
    "BatchesNotShuffled": (
        "The batches of a window are not shuffled: they come from short to long in each window.",
        ("rng.permutation(len(batches))", "range(len(batches))"),
    ),
    "ShuffledInsideWindows": (
        "Batches are shuffled only inside their window. Gather the batches of all windows, then shuffle them.",
        (
            "batches += piece.split(self.batch_size)",
            "of_window = piece.split(self.batch_size)\n"
            "            batches += [of_window[i] for i in rng.permutation(len(of_window))]",
        ),
        ("rng.permutation(len(batches))", "range(len(batches))"),
    ),
    "OneOrderOfBatches": (
        "Every epoch puts its batches in one order. Draw this order with the epoch's generator.",
        (
            "in rng.permutation(len(batches))",
            "in np.random.default_rng(self.seed).permutation(len(batches))",
        ),
    ),
    "NotSorted": (
        "Nothing is sorted: batches are cut from the shuffled order and waste as much as random ones.",
        ("piece[self.lengths[piece].argsort()]", "piece"),
    ),
    "WindowOfSequences": (
        "A window has `window` sequences instead of `window` batches of them. Multiply by batch_size.",
        ("self.window * self.batch_size", "self.window"),
    ),
    "SortedInWindowsOfSequences": (
        "A window has `window` sequences instead of `window` batches of them. Multiply by batch_size.",
        ("self.window * self.batch_size", "self.window"),
        ("batches += piece.split(self.batch_size)", "batches.append(piece)"),
        (
            "        for i in",
            "        batches = torch.cat(batches).split(self.batch_size)\n        for i in",
        ),
    ),
    "WindowIgnored": (
        "The whole set is sorted, so sequences meet the same others in every epoch. Sort inside windows only.",
        ("order.split(self.window * self.batch_size)", "[order]"),
    ),
    "PlacesForIndices": (
        "argsort gives places in the window, not sequences. Index the window: `piece[lengths[piece].argsort()]`.",
        ("piece[self.lengths[piece].argsort()]", "self.lengths[piece].argsort()"),
    ),
    "PlacesInTheOrder": (
        "You yield places in the shuffled order, not the sequences at these places. Index it: `order[places]`.",
        (
            "piece = piece[self.lengths[piece].argsort()]",
            "piece = self.lengths[piece].argsort() + sum(map(len, batches))",
        ),
    ),
    "SequencesShuffledAgain": (
        "The sequences of a window are shuffled again after sorting, which undoes it. Shuffle the batches instead.",
        ("argsort()]", "argsort()][torch.from_numpy(rng.permutation(len(piece)))]"),
    ),
    "OrderOfTheSet": (
        "Windows are cut from the order of the set: neighbours stay together in every epoch. Shuffle first.",
        ("torch.from_numpy(rng.permutation(len(self.lengths)))", "torch.arange(len(self.lengths))"),
    ),
    "GlobalRandomNumbers": (
        "You draw from torch's global random numbers. Use np.random.default_rng((seed, epoch)).",
        ("rng = np", "torch.manual_seed(1_000 * self.seed + self.epoch)\n        rng = np"),
        (
            "torch.from_numpy(rng.permutation(len(self.lengths)))",
            "torch.randperm(len(self.lengths))",
        ),
    ),
    "SetShuffledAlike": (
        "Each epoch has the same batches in another order. Draw both orders from the generator of (seed, epoch).",
        (
            "rng.permutation(len(self.lengths))",
            "np.random.default_rng(self.seed).permutation(len(self.lengths))",
        ),
    ),
    "EpochCountedUp": (
        "The epoch is counted up in `__iter__`. Only set_epoch changes it.",
        ("        order = torch", "        self.epoch += 1\n        order = torch"),
    ),
    "TensorsForLists": (
        "The batches are tensors. Yield lists of numbers: batch.tolist().",
        ("batches[i].tolist()", "batches[i]"),
    ),
    "LengthsForIndices": (
        "The batches hold lengths. Yield indices of sequences, sorted by their lengths.",
        ("piece[self.lengths[piece].argsort()]", "self.lengths[piece].sort().values"),
    ),
    "IndexByIndex": (
        "You yield single indices. Yield one list of indices per batch.",
        ("yield batches", "yield from batches"),
    ),
}


@alternative
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
            piece = sorted(
                order[first : first + window * size], key=self.lengths.__getitem__, reverse=True
            )
            batches += [piece[i : i + size] for i in range(0, len(piece), size)]
        rng.shuffle(batches)
        yield from batches


@alternative
class ListOfBatches(Sampler):
    def __init__(self, lengths, batch_size, window, seed=0):
        self.lengths, self.batch_size, self.window, self.seed, self.epoch = (
            lengths,
            batch_size,
            window,
            seed,
            0,
        )

    def set_epoch(self, epoch):
        self.epoch = epoch

    def __len__(self):
        return -(-len(self.lengths) // self.batch_size)

    def __iter__(self):
        (state,) = np.random.SeedSequence((self.seed, self.epoch)).generate_state(1)
        rng = torch.Generator().manual_seed(int(state))
        windows = torch.randperm(len(self.lengths), generator=rng).split(
            self.window * self.batch_size
        )
        ordered = [window[self.lengths[window].argsort()] for window in windows]
        batches = [batch.tolist() for window in ordered for batch in window.split(self.batch_size)]
        return iter([batches[i] for i in torch.randperm(len(batches), generator=rng).tolist()])
