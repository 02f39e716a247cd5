"""Known mistakes of exercise shard_batches, and right answers in other styles."""

import itertools

from course.checks.engine import alternative, mistake


@mistake("shard_batches", "Every rank gets all batches. Rank r takes every world_size-th batch, from number r on.")
def every_rank_takes_all(batches, rank, world_size):
    return list(batches)


@mistake(
    "shard_batches",
    "Ranks get unequal numbers of batches: the rank with one more waits for the others for ever. Repeat a few.",
)
def unequal_ranks(batches, rank, world_size):
    return batches[rank::world_size]


@mistake("shard_batches", "Batches that do not divide among the ranks are dropped. Repeat a few, so that all are used.")
def remainder_dropped(batches, rank, world_size):
    return batches[: len(batches) // world_size * world_size][rank::world_size]


@mistake("shard_batches", "Batches that do not divide among the ranks are dropped. Repeat a few, so that all are used.")
def remainder_of_slices_dropped(batches, rank, world_size):
    share = len(batches) // world_size
    return batches[rank * share : (rank + 1) * share]


@mistake(
    "shard_batches",
    "Where world_size divides the number of batches, nothing is missing, and yet world_size batches are repeated.",
)
def repeated_without_need(batches, rank, world_size):
    missing = world_size - len(batches) % world_size
    return (batches + batches[:missing])[rank::world_size]


@mistake(
    "shard_batches",
    "As many batches are repeated as there are left over. Repeat as many as are missing to the next multiple.",
)
def remainder_repeated(batches, rank, world_size):
    return (batches + batches[: len(batches) % world_size])[rank::world_size]


@mistake(
    "shard_batches",
    "The list of the caller grows: += and extend() change it. Make a new list with `batches + ...`.",
)
def list_of_the_caller_changed(batches, rank, world_size):
    batches += batches[: -len(batches) % world_size]
    return batches[rank::world_size]


@mistake("shard_batches", "The batches themselves are divided: each rank gets a share of every batch's samples.")
def samples_divided(batches, rank, world_size):
    return [batch[rank::world_size] for batch in batches]


@alternative("shard_batches")
def around_a_circle(batches, rank, world_size):
    steps = -(-len(batches) // world_size)
    return list(itertools.islice(itertools.cycle(batches), rank, steps * world_size, world_size))


@alternative("shard_batches")
def slice_of_neighbours(batches, rank, world_size):
    steps = (len(batches) + world_size - 1) // world_size
    return [batches[i % len(batches)] for i in range(rank * steps, (rank + 1) * steps)]


@alternative("shard_batches")
def last_one_repeated(batches, rank, world_size):
    batches = list(batches)
    while len(batches) % world_size:
        batches.append(batches[len(batches) - world_size])
    return batches[rank::world_size]
