"""Known mistakes of exercise random_order, and right answers in other styles."""

import random

import numpy as np
import torch

from course.engine.known_answers import alternative

MISTAKES = {
    "no_generator": (
        "The order comes from the global random numbers, so every rank draws another one. Make a generator from seed "
        "and epoch, inside the function.",
        ("torch.from_numpy(order)", "torch.randperm(rows)"),
    ),
    "seeds_the_program": (
        "torch.manual_seed or np.random.seed reseeds the whole program. Use your own generator: "
        "np.random.default_rng((seed, epoch)).",
        (
            "torch.from_numpy(order)",
            "torch.randperm(rows, generator=torch.manual_seed(hash((seed, epoch))))",
        ),
    ),
    "seed_plus_epoch": (
        "seed + epoch (or seed ^ epoch) is one number for many pairs: epoch 1 of seed 0 is epoch 0 of seed 1, so runs "
        "share orders. Mix the two numbers: np.random.default_rng((seed, epoch)).",
        ("(seed, epoch)", "seed + epoch"),
    ),
    "shifted_out_of_32_bits": (
        "torch's generator on the CPU keeps 32 bits of its seed, so the upper bits of a shifted seed are lost, and "
        "seeds share orders. Mix the two numbers: np.random.default_rng((seed, epoch)).",
        ("(seed, epoch)", "(seed << 20 | epoch) % 2**32"),
    ),
    "times_a_prime": (
        "seed times a prime plus epoch is another number for each pair, but torch's generator keeps its last 32 bits "
        "only: pairs share orders. Mix the two numbers: np.random.default_rng((seed, epoch)).",
        ("(seed, epoch)", "(seed * 1_000_003 + epoch) % 2**32"),
    ),
    "one_order_for_ever": (
        "Every epoch has the same order, and so the same batches. Let the generator depend on epoch.",
        ("(seed, epoch)", "seed"),
    ),
    "begun_elsewhere": (
        "Each epoch is the same order, begun at another place: the rows always have the same neighbours. Draw a new "
        "permutation.",
        ("(seed, epoch)", "seed"),
        ("(order)", "(order).roll(epoch)"),
    ),
    "seed_with_the_rank": (
        "Ranks draw different orders, so some rows appear on two ranks and some on none. Leave the rank out of the "
        "seed.",
        ("(seed, epoch)", "(seed, epoch, rank)"),
    ),
    "block_of_the_file": (
        "Each rank gets a block of the file and sees no other row in any epoch. Shuffle all rows first, then share.",
        ("permutation(rows)", "permutation(np.array_split(np.arange(rows), world_size)[rank])"),
        ("[rank::world_size]", ""),
    ),
    "shared_out_first": (
        "Each rank shuffles the same rows in every epoch, since the file is shared out before it is shuffled. Shuffle "
        "all rows first.",
        ("(order)[rank::world_size]", "(order)"),
        ("permutation(rows)", "permutation(np.arange(rows)[rank::world_size])"),
    ),
    "run_of_the_order": (
        "A rank gets a run of the order, not every world_size-th place. Take a slice with a step: [rank::world_size].",
        ("[rank::world_size]", ".tensor_split(world_size)[rank]"),
    ),
    "equal_runs": (
        "A rank gets a run of the order, cut off at equal lengths, so the last one has fewer rows. Take a slice with a "
        "step: [rank::world_size].",
        ("[rank::world_size]", "[(n := -(-rows // world_size)) * rank : n * (rank + 1)]"),
    ),
    "runs_by_division": (
        "A rank gets a run of the order, from rank * rows // world_size on. Take a slice with a step: "
        "[rank::world_size].",
        ("[rank::world_size]", "[rank * rows // world_size : (rank + 1) * rows // world_size]"),
    ),
    "padded": (
        "Some rows come twice, to give all ranks equally many, like DistributedSampler. Here ranks may differ by one.",
        ("(order)[", "(order).repeat(world_size)[: -(-rows // world_size) * world_size]["),
    ),
    "cut_off": (
        "The last rows of the order are left out, to give all ranks equally many. Here each row is read; ranks may "
        "differ by one.",
        ("(order)[", "(order)[: rows // world_size * world_size]["),
    ),
    "with_replacement": (
        "The rows are drawn with replacement: some come twice, others never. Draw a permutation.",
        ("permutation(rows)", "integers(rows, size=rows)"),
    ),
    "stays_an_array": (
        "The order is a NumPy array. Make an int64 tensor of it, by torch.from_numpy.",
        ("torch.from_numpy(order)", "order"),
    ),
}


@alternative
def generator_of_torch(rows, seed, epoch, rank=0, world_size=1):
    rng = torch.Generator()
    rng.manual_seed(int(np.random.SeedSequence((seed, epoch)).generate_state(1)[0]))
    mine = [
        row
        for place, row in enumerate(torch.randperm(rows, generator=rng))
        if place % world_size == rank
    ]
    return torch.stack(mine) if mine else torch.zeros(0, dtype=torch.long)


@alternative
def sample_of_python(rows, seed, epoch, rank=0, world_size=1):
    order = random.Random(f"{seed}, {epoch}").sample(range(rows), rows)
    return torch.tensor(order[rank::world_size], dtype=torch.int64)


@alternative
def sorted_by_random_keys(rows, seed, epoch, rank=0, world_size=1):
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(hash((seed, epoch)))
        keys = torch.rand(rows, dtype=torch.float64)
    return torch.argsort(keys)[torch.arange(rows) % world_size == rank]
