"""Known mistakes of exercise shard_batches, and right answers in other styles."""

from course.engine.known_answers import alternative, mistake

TAKEN = "[batches[i % len(batches)] for i in range(rank, steps * world_size, world_size)]"

MISTAKES = {
    "every_rank_takes_all": (
        "Every rank gets all batches. Rank r takes every world_size-th batch, from number r on.",
        (TAKEN, "list(batches)"),
    ),
    "unequal_ranks": (
        "Ranks get unequal numbers of batches: the rank with one more hangs. Repeat a few.",
        (TAKEN, "batches[rank::world_size]"),
    ),
    "repeated_at_most_once": (
        "With fewer batches than ranks, some ranks get none, and the others wait for them. Repeat batches more than "
        "once.",
        (TAKEN, "(batches + batches[: -len(batches) % world_size])[rank::world_size]"),
    ),
    "remainder_dropped": (
        "Batches that do not divide among the ranks are dropped. Repeat a few, so that all are used.",
        ("-(-len(batches) // world_size)", "len(batches) // world_size"),
    ),
    "remainder_of_slices_dropped": (
        "Batches that do not divide among the ranks are dropped. Repeat a few, so that all are used.",
        ("-(-len(batches) // world_size)", "len(batches) // world_size"),
        (TAKEN, "batches[rank * steps : (rank + 1) * steps]"),
    ),
    "repeated_without_need": (
        "If world_size divides the number of batches, no batch is missing, but you repeat world_size batches.",
        ("-(-len(batches) // world_size)", "len(batches) // world_size + 1"),
    ),
    "remainder_repeated": (
        "As many batches are repeated as there are left over. Repeat as many as are missing to the next multiple.",
        (TAKEN, "(batches + batches[: len(batches) % world_size])[rank::world_size]"),
    ),
    "samples_divided": (
        "The batches themselves are divided: each rank gets a share of every batch's samples.",
        (TAKEN, "[batch[rank::world_size] for batch in batches]"),
    ),
}


@mistake(
    "The list of the caller grows: += and extend() change it. Make a new list with `batches + ...`."
)
def list_of_the_caller_changed(batches, rank, world_size):
    n = len(batches)
    for i in range(-n % world_size):
        batches.append(batches[i % n])
    return batches[rank::world_size]


@alternative
def slice_of_neighbours(batches, rank, world_size):
    steps = (len(batches) + world_size - 1) // world_size
    return [batches[i % len(batches)] for i in range(rank * steps, (rank + 1) * steps)]


@alternative
def repeated_until_even(batches, rank, world_size):
    batches = list(batches)
    while len(batches) % world_size:
        batches.append(batches[0])
    return batches[rank::world_size]
