"""Known mistakes of exercise ShardSampler, and right answers in other styles."""

import numpy
import torch
from torch.utils.data import Sampler

from course.checks.engine import alternative, mistake


class Sharded(Sampler):
    """A right sampler, for mistakes that change one part of it."""

    def __init__(self, n_items, world_size, rank, shuffle=True, seed=0, drop_last=False):
        if not 0 <= rank < world_size:
            raise ValueError("no such rank")
        self.n_items, self.world_size, self.rank = n_items, world_size, rank
        self.shuffle, self.seed, self.drop_last, self.epoch = shuffle, seed, drop_last, 0

    def __len__(self):
        return (self.n_items if self.drop_last else self.n_items + self.world_size - 1) // self.world_size

    def permutation(self):
        rng = torch.Generator().manual_seed(self.seed + self.epoch)
        return torch.randperm(self.n_items, generator=rng).tolist()

    def order(self):
        return self.permutation() if self.shuffle else list(range(self.n_items))

    def fitted(self, order):
        total = len(self) * self.world_size
        while 0 < len(order) < total:
            order = order + order[: total - len(order)]
        return order[:total]

    def shard(self, order):
        return order[self.rank :: self.world_size]

    def __iter__(self):
        return iter(self.shard(self.fitted(self.order())))

    def set_epoch(self, epoch):
        self.epoch = epoch


@mistake(
    "ShardSampler",
    "Each rank gets a contiguous block of the order. Take strides: of the whole order the places rank, rank + "
    "world_size, rank + 2 * world_size and so on.",
)
class Blocks(Sharded):
    def shard(self, order):
        return order[self.rank * len(self) : (self.rank + 1) * len(self)]


@mistake(
    "ShardSampler",
    "Each rank draws a permutation of its own, so some samples come on two ranks and others on none. Leave the rank "
    "out of the seed: all ranks draw the same permutation.",
)
class OwnPermutation(Sharded):
    def permutation(self):
        rng = torch.Generator().manual_seed(self.seed + self.epoch + self.rank)
        return torch.randperm(self.n_items, generator=rng).tolist()


@mistake(
    "ShardSampler",
    "The rank's own items are shuffled, so a rank sees the same items in every epoch. Draw one permutation of all "
    "items first, the same on all ranks, and then take the strides.",
)
class ShuffledInside(Sharded):
    def __iter__(self):
        shard = self.shard(self.fitted(list(range(self.n_items))))
        if self.shuffle:
            rng = torch.Generator().manual_seed(self.seed + self.epoch)
            shard = [shard[i] for i in torch.randperm(len(shard), generator=rng).tolist()]
        return iter(shard)


@mistake(
    "ShardSampler",
    "The epoch plays no part in the order, so every epoch has the same batches. Keep it in set_epoch and seed the "
    "generator with seed + epoch.",
)
class ForgetsTheEpoch(Sharded):
    def set_epoch(self, epoch):
        pass


@mistake(
    "ShardSampler",
    "The generator goes on where the last iteration left it, so the order depends on how often somebody looked. Make "
    "the generator in __iter__, from seed + epoch.",
)
class KeptGenerator(Sharded):
    def __init__(self, *args, seed=0, **settings):
        super().__init__(*args, seed=seed, **settings)
        self.rng = torch.Generator().manual_seed(seed)

    def permutation(self):
        return torch.randperm(self.n_items, generator=self.rng).tolist()

    def set_epoch(self, epoch):
        self.rng.manual_seed(self.seed + epoch)


@mistake(
    "ShardSampler",
    "The global random numbers are seeded, which changes every other random number of the program. Give "
    "torch.randperm a generator of its own.",
)
class SeedsEverything(Sharded):
    def permutation(self):
        torch.manual_seed(self.seed + self.epoch)
        return torch.randperm(self.n_items).tolist()


@mistake(
    "ShardSampler",
    "Some ranks get one index more than others, and in its last step such a rank would wait for ever. Make the length "
    "of the order a multiple of world_size before you take the strides.",
)
class NoPadding(Sharded):
    def __len__(self):
        return len(range(self.rank, self.n_items, self.world_size)) if not self.drop_last else super().__len__()

    def fitted(self, order):
        return order if not self.drop_last else super().fitted(order)


@mistake(
    "ShardSampler",
    "The last index is repeated to fill the order up. It is repeated from its start, so that different samples count "
    "twice.",
)
class RepeatsTheLast(Sharded):
    def fitted(self, order):
        total = len(self) * self.world_size
        return (order + order[-1:] * (total - len(order)))[:total]


@mistake(
    "ShardSampler",
    "The order is repeated once at most, which is not enough where there are more ranks than twice the items. Repeat "
    "it until its length is reached.",
)
class PadsOnce(Sharded):
    def fitted(self, order):
        total = len(self) * self.world_size
        return (order + order)[:total]


@mistake(
    "ShardSampler",
    "The length is the number of all items. A sampler gives only the indices of one rank, and a DataLoader takes the "
    "number of its batches from that length.",
)
class LengthOfAll(Sharded):
    def __iter__(self):
        return iter(self.shard(self.fitted(self.order())))

    def fitted(self, order):
        total = super().__len__() * self.world_size
        return (order * self.world_size)[:total]

    def __len__(self):
        return self.n_items


@alternative("ShardSampler")
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
        order = torch.randperm(self.n_items, generator=rng) if self.shuffle else torch.arange(self.n_items)
        for place in self.places:
            yield order[place % self.n_items].item()


@alternative("ShardSampler")
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
            order = torch.randperm(len(order), generator=torch.Generator().manual_seed(sum(self.seeds)))
        table = numpy.resize(order.numpy(), self.shape)  # repeats from the start, or cuts
        return iter(table[:, self.rank].tolist())

    def __len__(self):
        return self.shape[0]
