"""Known mistakes of exercise ShardSampler, and right answers in other styles."""

import numpy
import torch
from torch.utils.data import Sampler

from course.engine.known_answers import alternative

MISTAKES = {
    "Blocks": (
        "Each rank gets a contiguous block of the order. Take strides: of the whole order the places rank, rank + "
        "world_size, rank + 2 * world_size and so on.",
        (
            "self.rank, len(self) * self.world_size, self.world_size\n",
            "self.rank * len(self), (self.rank + 1) * len(self)\n",
        ),
    ),
    "OwnPermutation": (
        "Each rank draws another permutation, so some samples appear on two ranks and others on none. Leave the rank "
        "out of the seed: all ranks draw the same permutation.",
        ("self.seed + self.epoch", "self.seed + self.epoch + self.rank"),
    ),
    "ShuffledInside": (
        "The rank's own items are shuffled, so a rank sees the same items in every epoch. Draw one permutation of all "
        "items first, the same on all ranks, and then take the strides.",
        ("range(self.n_items)", "range(self.rank, len(self) * self.world_size, self.world_size)"),
        (
            "randperm(self.n_items, generator=rng).tolist()",
            "tensor(order)[torch.randperm(len(self), generator=rng)].tolist()",
        ),
        (
            "itertools.islice(\n"
            "            itertools.cycle(order), self.rank, len(self) * self.world_size, self.world_size\n"
            "        )",
            "(place % self.n_items for place in order)",
        ),
    ),
    "ForgetsTheEpoch": (
        "The epoch plays no part in the order, so every epoch has the same batches. Keep it in set_epoch and seed the "
        "generator with seed + epoch.",
        ("self.epoch = epoch", "pass"),
    ),
    "KeptGenerator": (
        "The generator continues where the last iteration left it, so the order depends on how often somebody "
        "iterated. Make the generator in __iter__, from seed + epoch.",
        (
            "self.epoch = 0\n",
            "self.epoch = 0\n        self.rng = torch.Generator().manual_seed(seed)\n",
        ),
        ("torch.Generator().manual_seed(self.seed + self.epoch)", "self.rng"),
        ("self.epoch = epoch", "self.rng.manual_seed(self.seed + epoch)"),
    ),
    "SeedsEverything": (
        "The global random numbers are seeded, which changes every other random number of the program. Pass "
        "torch.randperm its own generator.",
        ("torch.Generator()", "torch"),
    ),
    "NoPadding": (
        "Some ranks get one index more than others, and in its last step such a rank would hang. Make the "
        "length of the order a multiple of world_size before you take the strides.",
        ("math.ceil(share)", "len(range(self.rank, self.n_items, self.world_size))"),
    ),
    "RepeatsTheLast": (
        "The last index is repeated to fill the order up. It is repeated from its start, so that "
        "different samples count twice.",
        ("itertools.cycle(order)", "itertools.chain(order, itertools.cycle(order[-1:]))"),
    ),
    "PadsOnce": (
        "The order is repeated once at most, which is not enough where there are more ranks than twice the items. "
        "Repeat it until its length is reached.",
        ("itertools.cycle(order)", "[*order, *order]"),
    ),
    "LengthOfAll": (
        "The length is the number of all items. A sampler gives only the indices of one rank, and a DataLoader takes "
        "the number of its batches from that length.",
        (
            "def __len__(self):",
            "def __len__(self):\n        return self.n_items\n\n    def share(self):",
        ),
        ("len(self)", "self.share()"),
    ),
}


@alternative
class IndexArithmetic(Sampler[int]):
    def __init__(self, n_items, world_size, rank, shuffle=True, seed=0, drop_last=False):
        if rank not in range(world_size):
            raise ValueError(f"rank {rank} of {world_size}")
        missing = -n_items % world_size
        self.total = n_items - n_items % world_size if drop_last else n_items + missing
        self.places = range(rank, self.total, world_size)
        self.n_items, self.shuffle, self.seed = n_items, shuffle, seed
        self.set_epoch(0)

    def set_epoch(self, epoch):
        self.epoch = epoch

    def __len__(self):
        return len(self.places)

    def __iter__(self):
        rng = torch.Generator()
        rng.manual_seed(self.seed + self.epoch)
        order = (
            torch.randperm(self.n_items, generator=rng)
            if self.shuffle
            else torch.arange(self.n_items)
        )
        for place in self.places:
            yield order[place % self.n_items].item()


@alternative
class RowsOfATable(Sampler):
    def __init__(self, n_items, world_size, rank, shuffle=True, seed=0, drop_last=False):
        if rank < 0 or rank >= world_size:
            raise ValueError(f"there is no rank {rank}")
        self.shape = (n_items // world_size if drop_last else -(-n_items // world_size), world_size)
        self.items, self.rank, self.seeds = torch.arange(n_items), rank, (seed, 0)
        self.shuffle = shuffle

    def set_epoch(self, epoch):
        self.seeds = self.seeds[0], epoch

    def __iter__(self):
        order = self.items
        if self.shuffle:
            order = torch.randperm(
                len(order), generator=torch.Generator().manual_seed(sum(self.seeds))
            )
        table = numpy.resize(order.numpy(), self.shape)  # repeats from the start, or cuts
        return iter(table[:, self.rank].tolist())

    def __len__(self):
        return self.shape[0]
