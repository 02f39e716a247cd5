"""Known mistakes of exercise reduce_tree, and right answers in other styles."""

import torch
import torch.distributed as dist

from course.engine.known_answers import alternative, mistake

MISTAKES = {
    "sums_left_behind": (
        "Sums are gathered in the tensors of ranks that only pass them on. Add into a copy; only `dst` gets the sum.",
        ("tensor.clone()", "tensor"),
    ),
    "sends_its_own": (
        "What a rank sends is its own tensor alone, not the sum that it gathers. Send what it has added up, and let "
        "the rounds of the broadcast run from the last to the first, so that it receives before it sends.",
        ("send(total", "send(tensor"),
    ),
    "sum_not_written_back": (
        "The sum stays in a tensor of the function's own. Write it into `tensor`: tensor.copy_(total).",
        ("tensor.copy_(total)", "pass"),
    ),
    "reduce_rounded_down": (
        "log2 of the ranks is rounded down, so with three ranks the third is not added. Round up: math.ceil.",
        ("math.ceil(", "int("),
    ),
    "tree_to_zero": (
        "The sum always ends in rank 0. Count places from `dst`: (rank - dst) % world_size.",
        ("    rank = ", "    dst = 0\n    rank = "),
    ),
}


@mistake(
    "Half of the ranks, `world_size / 2`, is a float, and no rank is called 1.0. Compute with `//` or `2**k`.",
)
def float_ranks_of_a_sum(tensor, dst):
    rank, distance = dist.get_rank(), dist.get_world_size() / 2
    if rank < distance:
        dist.recv(torch.empty_like(tensor), rank + distance)
    else:
        dist.send(tensor, rank - distance)


@mistake(
    "Every rank sends to `dst` itself, which receives N - 1 messages one after the other. Let others add up as well.",
)
def star_of_sums(tensor, dst):
    if dist.get_rank() != dst:
        return dist.send(tensor, dst)
    part = torch.empty_like(tensor)
    for other in range(dist.get_world_size()):
        if other != dst:
            dist.recv(part, other)
            tensor += part


@alternative
def from_the_lowest_bit(tensor, dst):
    rank, n = dist.get_rank(), dist.get_world_size()
    place, mask, total = (rank - dst) % n, 1, tensor
    while mask < n and not place & mask:
        if place | mask < n:
            part = torch.empty_like(tensor)
            dist.recv(part, (rank + mask) % n)
            total = total + part
        mask <<= 1
    if place:
        dist.send(total, (rank - mask) % n)
    else:
        tensor.copy_(total)


@alternative
def by_halves(tensor, dst):
    rank, n = dist.get_rank(), dist.get_world_size()
    place = (rank - dst) % n

    def gathered(first, last):
        if last - first == 1:
            return tensor.clone()
        middle = (first + last + 1) // 2
        if place >= middle:
            mine = gathered(middle, last)
            if place == middle:
                dist.send(mine, (first + dst) % n)
            return mine
        mine = gathered(first, middle)
        if place == first:
            part = torch.empty_like(mine)
            dist.recv(part, src=(middle + dst) % n)
            mine += part
        return mine

    total = gathered(0, n)
    if rank == dst:
        tensor[...] = total
