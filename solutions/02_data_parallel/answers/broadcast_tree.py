"""Known mistakes of exercise broadcast_tree, and right answers in other styles."""

import torch.distributed as dist

from course.engine.known_answers import alternative, mistake

MISTAKES = {
    "rounds_rounded_down": (
        "log2 of the ranks is rounded down, so with three ranks the third gets nothing. Round up: math.ceil.",
        ("math.ceil(", "int("),
    ),
    "tree_from_zero": (
        "The tree always begins at rank 0. Count places from `src`: (rank - src) % world_size.",
        ("(rank - src)", "rank"),
    ),
    "places_for_ranks": (
        "A place is used as the number of a rank, so messages go astray unless src is 0. Add distances to the rank.",
        ("dist.send(tensor, (rank + distance)", "dist.send(tensor, (place + distance)"),
        ("dist.recv(tensor, (rank - distance)", "dist.recv(tensor, (place - distance)"),
    ),
    "tree_of_copies": (
        "What is received goes into a tensor of the function's own; the caller's is as before. Receive into `tensor`.",
        ("    rank = ", "    tensor = tensor.clone()\n    rank = "),
    ),
}


@mistake("The values are passed on from rank to rank: N - 1 rounds. Let all that have them send.")
def chain_and_no_tree(tensor, src):
    rank, world_size = dist.get_rank(), dist.get_world_size()
    if rank != src:
        dist.recv(tensor, (rank - 1) % world_size)
    if (rank + 1) % world_size != src:
        dist.send(tensor, (rank + 1) % world_size)


@mistake(
    "The source itself sends to every other rank, N - 1 messages one after the other. Let the others help."
)
def star(tensor, src):
    if dist.get_rank() != src:
        return dist.recv(tensor, src)
    for other in range(dist.get_world_size()):
        if other != src:
            dist.send(tensor, other)


@mistake(
    "A rank serves its short branches first and the longest last, so that one starts late. Turn the order round.",
)
def longest_branch_last(tensor, src):
    rank, world_size = dist.get_rank(), dist.get_world_size()
    place = (rank - src) % world_size
    if place:
        dist.recv(
            tensor, (rank - (place & -place)) % world_size
        )  # the lowest bit of a place leads to its parent
    distance = 1
    while distance < world_size and not place & distance:
        if place + distance < world_size:
            dist.send(tensor, (rank + distance) % world_size)
        distance *= 2


@mistake(
    "Half of the ranks, `world_size / 2`, is a float, and no rank is called 1.0. Compute with `//` or `2**k`.",
)
def float_ranks(tensor, src):
    rank, distance = dist.get_rank(), dist.get_world_size() / 2
    if rank < distance:
        dist.send(tensor, rank + distance)
    else:
        dist.recv(tensor, rank - distance)


@alternative
def from_the_highest_bit(tensor, src):
    rank, n = dist.get_rank(), dist.get_world_size()
    place, mask = (rank - src) % n, 1
    while mask < n:
        if place & mask:
            dist.recv(tensor, (place - mask + src) % n)
            break
        mask *= 2
    while mask > 1:
        mask //= 2
        if place + mask < n:
            dist.send(tensor, (place + mask + src) % n)


@alternative
def halves(tensor, src):
    """The first place of a stretch has the values; it gives them to the middle, and both go on with their half."""
    rank, n = dist.get_rank(), dist.get_world_size()
    place = (rank - src) % n

    def spread(first, last):
        if last - first < 2:
            return
        middle = (first + last + 1) // 2
        if place == first:
            dist.isend(tensor, (middle + src) % n).wait()
        if place == middle:
            dist.irecv(tensor, (first + src) % n).wait()
        spread(first, middle) if place < middle else spread(middle, last)

    spread(0, n)


@alternative
def list_of_places(tensor, src):
    rank, n = dist.get_rank(), dist.get_world_size()
    ranks = [*range(src, n), *range(src)]
    have = 1
    while have < n:
        for giver, taker in zip(ranks[:have], ranks[have:], strict=False):
            if rank == giver:
                dist.send(tensor, taker)
            elif rank == taker:
                dist.recv(tensor, giver)
        have += have
