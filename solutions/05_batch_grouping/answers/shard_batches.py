"""Known mistakes of exercise shard_batches, and right answers in other styles."""

from course.engine.known_answers import alternative

MISTAKES = {
    "every_rank_takes_all": (
        "Every rank gets all batches. Rank r takes every world_size-th batch, from number r on.",
        ("[rank::world_size]", ""),
    ),
    "unequal_ranks": (
        "Ranks get unequal numbers of batches: the rank with one more hangs. Repeat a few.",
        ("batches + batches[: -len(batches) % world_size]", "batches"),
    ),
    "remainder_dropped": (
        "Batches that do not divide among the ranks are dropped. Repeat a few, so that all are used.",
        ("batches + batches[: -len(batches) % world_size]", "batches[: len(batches) // world_size * world_size]"),
    ),
    "remainder_of_slices_dropped": (
        "Batches that do not divide among the ranks are dropped. Repeat a few, so that all are used.",
        ("batches = batches + batches[: -len(batches) % world_size]", "share = len(batches) // world_size"),
        ("[rank::world_size]", "[rank * share : (rank + 1) * share]"),
    ),
    "repeated_without_need": (
        "Where world_size divides the number of batches, none is missing, and yet world_size batches are repeated.",
        ("-len", "world_size - len"),
    ),
    "remainder_repeated": (
        "As many batches are repeated as there are left over. Repeat as many as are missing to the next multiple.",
        ("-len", "len"),
    ),
    "list_of_the_caller_changed": (
        "The list of the caller grows: += and extend() change it. Make a new list with `batches + ...`.",
        ("batches = batches +", "batches +="),
    ),
    "samples_divided": (
        "The batches themselves are divided: each rank gets a share of every batch's samples.",
        ("batches[rank::world_size]", "[batch[rank::world_size] for batch in batches]"),
    ),
}


@alternative
def slice_of_neighbours(batches, rank, world_size):
    steps = (len(batches) + world_size - 1) // world_size
    return [batches[i % len(batches)] for i in range(rank * steps, (rank + 1) * steps)]


@alternative
def last_one_repeated(batches, rank, world_size):
    batches = list(batches)
    while len(batches) % world_size:
        batches.append(batches[len(batches) - world_size])
    return batches[rank::world_size]
