"""Known mistakes of exercise reduce_tree, and right answers in other styles."""

import math

import torch
import torch.distributed as dist

from course.checks.engine import alternative, mistake


def others(root):
    return [rank for rank in range(dist.get_world_size()) if rank != root]


def gathered(tensor, dst):
    """The tensors of all ranks in rank `dst`, its own first; elsewhere None."""
    if dist.get_rank() != dst:
        return dist.send(tensor, dst)
    parts = [tensor.clone()] + [torch.empty_like(tensor) for _ in others(dst)]
    for part, other in zip(parts[1:], others(dst), strict=True):
        dist.recv(part, other)
    return parts


def rounded_up(world_size):
    return math.ceil(math.log2(world_size))


@mistake(
    "reduce_tree",
    "Half of the ranks, `world_size / 2`, is a float, and no rank is called 1.0. Compute with `//` or `2**k`.",
)
def float_ranks_of_a_sum(tensor, dst):
    rank, distance = dist.get_rank(), dist.get_world_size() / 2
    if rank < distance:
        dist.recv(torch.empty_like(tensor), rank + distance)
    else:
        dist.send(tensor, rank - distance)


def halving(tensor, dst, rounds=rounded_up, root=None, aside=True, own=False, rename=False):
    """A right reduce along a tree, with one idea to get wrong each."""
    rank, world_size = dist.get_rank(), dist.get_world_size()
    place = (rank - (dst if root is None else root)) % world_size
    total, part = tensor.clone() if aside else tensor, torch.empty_like(tensor)
    for k in reversed(range(rounds(world_size))):
        distance = 2**k
        if distance <= place < 2 * distance:
            dist.send(tensor if own else total, (rank - distance) % world_size)
        elif place < distance and place + distance < world_size:
            dist.recv(part, (rank + distance) % world_size)
            total += part
    if place == 0 and not rename:
        tensor.copy_(total)


@mistake(
    "reduce_tree",
    "Sums are gathered in the tensors of ranks that only pass them on. Add into a copy; only `dst` gets the sum.",
)
def sums_left_behind(tensor, dst):
    halving(tensor, dst, aside=False)


@mistake(
    "reduce_tree",
    "What a rank sends is its own tensor alone, not the sum that it gathers. Send what it has added up, and let the "
    "rounds of the broadcast run from the last to the first, so that it receives before it sends.",
)
def sends_its_own(tensor, dst):
    halving(tensor, dst, own=True)


@mistake("reduce_tree", "The sum stays in a tensor of the function's own. Write it into `tensor`: tensor.copy_(total).")
def sum_not_written_back(tensor, dst):
    halving(tensor, dst, rename=True)


@mistake(
    "reduce_tree", "log2 of the ranks is rounded down, so with three ranks the third is not added. Round up: math.ceil."
)
def reduce_rounded_down(tensor, dst):
    halving(tensor, dst, rounds=lambda world_size: int(math.log2(world_size)))


@mistake("reduce_tree", "The sum always ends in rank 0. Count places from `dst`: (rank - dst) % world_size.")
def tree_to_zero(tensor, dst):
    halving(tensor, dst, root=0)


@mistake(
    "reduce_tree",
    "Every rank sends to `dst` itself, which receives N - 1 messages one after the other. Let others add up as well.",
)
def star_of_sums(tensor, dst):
    parts = gathered(tensor, dst)
    if parts:
        tensor.copy_(sum(parts))


@alternative("reduce_tree")
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


@alternative("reduce_tree")
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
