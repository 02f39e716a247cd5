"""Known mistakes of exercise random_order, and right answers in other styles."""

import random

import numpy as np
import torch

from course.checks.engine import alternative, mistake


def permutation(rows, *seeds):
    """A right order of all rows, the building stone of mistakes about the rest."""
    return torch.from_numpy(np.random.default_rng(seeds).permutation(rows))


@mistake(
    "random_order",
    "The order comes from the global random numbers, so every rank draws another one. Make a generator from seed and "
    "epoch, inside of the function.",
)
def no_generator(rows, seed, epoch, rank=0, world_size=1):
    return torch.randperm(rows)[rank::world_size]


@mistake(
    "random_order",
    "torch.manual_seed sets the random numbers of the whole program back. Seed a generator of your own: "
    "torch.Generator() or np.random.default_rng.",
)
def seeds_the_program(rows, seed, epoch, rank=0, world_size=1):
    torch.manual_seed(hash((seed, epoch)))
    return torch.randperm(rows)[rank::world_size]


@mistake(
    "random_order",
    "seed + epoch is one number for many pairs: epoch 1 of seed 0 is epoch 0 of seed 1, so two runs share their "
    "orders. Mix the two numbers: np.random.default_rng((seed, epoch)).",
)
def seed_plus_epoch(rows, seed, epoch, rank=0, world_size=1):
    return torch.randperm(rows, generator=torch.Generator().manual_seed(seed + epoch))[rank::world_size]


@mistake(
    "random_order",
    "torch's generator on the CPU keeps 32 bits of its seed, so the upper bits of a shifted seed are lost, and "
    "seeds share orders. Mix the two numbers: np.random.default_rng((seed, epoch)).",
)
def shifted_out_of_32_bits(rows, seed, epoch, rank=0, world_size=1):
    return torch.randperm(rows, generator=torch.Generator().manual_seed(seed << 20 | epoch))[rank::world_size]


@mistake(
    "random_order",
    "seed times a prime plus epoch is another number for each pair, but torch's generator keeps its last 32 bits only: "
    "pairs share orders. Mix the two numbers: np.random.default_rng((seed, epoch)).",
)
def times_a_prime(rows, seed, epoch, rank=0, world_size=1):
    return torch.randperm(rows, generator=torch.Generator().manual_seed(seed * 1_000_003 + epoch))[rank::world_size]


@mistake("random_order", "Every epoch has the same order, and so the same batches. Let the generator depend on epoch.")
def one_order_for_ever(rows, seed, epoch, rank=0, world_size=1):
    return permutation(rows, seed)[rank::world_size]


@mistake(
    "random_order",
    "Each epoch is the same order, begun at another place: the rows have the same neighbours for ever. Draw it anew.",
)
def begun_elsewhere(rows, seed, epoch, rank=0, world_size=1):
    return permutation(rows, seed).roll(epoch)[rank::world_size]


@mistake(
    "random_order",
    "Ranks draw orders of their own, so some rows come on two ranks and some on none. Leave the rank out of the seed.",
)
def seed_with_the_rank(rows, seed, epoch, rank=0, world_size=1):
    return permutation(rows, seed, epoch, rank)[rank::world_size]


@mistake(
    "random_order",
    "Each rank gets a block of the file and sees no other row in any epoch. Shuffle all rows first, then share out.",
)
def block_of_the_file(rows, seed, epoch, rank=0, world_size=1):
    block = torch.arange(rows).tensor_split(world_size)[rank]
    return block[permutation(len(block), seed, epoch)]


@mistake(
    "random_order",
    "Each rank shuffles the same rows in every epoch, since the file is shared out before it is shuffled. Shuffle all "
    "rows first.",
)
def shared_out_first(rows, seed, epoch, rank=0, world_size=1):
    mine = torch.arange(rows)[rank::world_size]
    return mine[permutation(len(mine), seed, epoch)]


@mistake(
    "random_order",
    "A rank gets a run of the order, not every world_size-th place. Take a slice with a step: [rank::world_size].",
)
def run_of_the_order(rows, seed, epoch, rank=0, world_size=1):
    return permutation(rows, seed, epoch).tensor_split(world_size)[rank]


@mistake(
    "random_order",
    "A rank gets a run of the order, cut off at equal lengths, so the last one has fewer rows. Take a slice with a "
    "step: [rank::world_size].",
)
def equal_runs(rows, seed, epoch, rank=0, world_size=1):
    n = -(-rows // world_size)
    return permutation(rows, seed, epoch)[rank * n : (rank + 1) * n]


@mistake(
    "random_order",
    "Some rows come twice, to give all ranks equally many, as DistributedSampler does. Here ranks may differ by one.",
)
def padded(rows, seed, epoch, rank=0, world_size=1):
    order = permutation(rows, seed, epoch)
    return order.repeat(world_size)[: -(-rows // world_size) * world_size][rank::world_size]


@mistake(
    "random_order",
    "The last rows of the order are left out, to give all ranks equally many. Here each row is read; ranks may differ "
    "by one.",
)
def cut_off(rows, seed, epoch, rank=0, world_size=1):
    return permutation(rows, seed, epoch)[: rows // world_size * world_size][rank::world_size]


@mistake("random_order", "The rows are drawn with replacement: some come twice, others never. Draw a permutation.")
def with_replacement(rows, seed, epoch, rank=0, world_size=1):
    return torch.from_numpy(np.random.default_rng((seed, epoch)).integers(rows, size=rows))[rank::world_size]


@mistake("random_order", "The order is a NumPy array. Make an int64 tensor of it, by torch.from_numpy.")
def stays_an_array(rows, seed, epoch, rank=0, world_size=1):
    return permutation(rows, seed, epoch).numpy()[rank::world_size]


@alternative("random_order")
def generator_of_torch(rows, seed, epoch, rank=0, world_size=1):
    rng = torch.Generator()
    rng.manual_seed(int(np.random.SeedSequence((seed, epoch)).generate_state(1)[0]))
    mine = [row for place, row in enumerate(torch.randperm(rows, generator=rng)) if place % world_size == rank]
    return torch.stack(mine) if mine else torch.zeros(0, dtype=torch.long)


@alternative("random_order")
def sample_of_python(rows, seed, epoch, rank=0, world_size=1):
    order = random.Random(f"{seed}, {epoch}").sample(range(rows), rows)
    return torch.tensor(order[rank::world_size], dtype=torch.int64)


@alternative("random_order")
def sorted_by_random_keys(rows, seed, epoch, rank=0, world_size=1):
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(hash((seed, epoch)))
        keys = torch.rand(rows, dtype=torch.float64)
    return torch.argsort(keys)[torch.arange(rows) % world_size == rank]
