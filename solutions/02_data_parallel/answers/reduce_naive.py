"""Known mistakes of exercise reduce_naive, and right answers in other styles."""

import torch
import torch.distributed as dist

from course.checks.engine import alternative, mistake


def others(root):
    return [rank for rank in range(dist.get_world_size()) if rank != root]


def received_in_place(tensor, src):
    if dist.get_rank() == src:
        for other in others(src):
            dist.send(tensor, other)
    else:
        dist.recv(tensor, src)


def gathered(tensor, dst):
    """The tensors of all ranks in rank `dst`, its own first; elsewhere None."""
    if dist.get_rank() != dst:
        return dist.send(tensor, dst)
    parts = [tensor.clone()] + [torch.empty_like(tensor) for _ in others(dst)]
    for part, other in zip(parts[1:], others(dst), strict=True):
        dist.recv(part, other)
    return parts


@mistake(
    "reduce_naive",
    "`tensor = tensor + part` makes a new tensor, which the caller never sees. Write `tensor += part`.",
)
def summed_and_renamed(tensor, dst):
    parts = gathered(tensor, dst)
    if parts:
        tensor = sum(parts)
    return tensor


@mistake(
    "reduce_naive", "It is received straight into the tensor, so the last message is all that is left. Receive aside."
)
def received_on_top(tensor, dst):
    parts = gathered(tensor, dst)
    if parts:
        tensor.copy_(parts[-1])


@mistake("reduce_naive", "The values of `dst` itself are missing in the sum. Begin with them.")
def without_its_own(tensor, dst):
    parts = gathered(tensor, dst)
    if parts:
        tensor.copy_(sum(parts[1:]))


@mistake("reduce_naive", "That is the mean. A reduce gives the sum; who needs a mean divides afterwards.")
def mean(tensor, dst):
    parts = gathered(tensor, dst)
    if parts:
        tensor.copy_(sum(parts) / len(parts))


@mistake("reduce_naive", "Rank 0 always gets the sum. Let all send to `dst`.")
def always_to_zero(tensor, dst):
    parts = gathered(tensor, 0)
    if parts:
        tensor.copy_(sum(parts))


@mistake(
    "reduce_naive",
    "Every rank has the sum in the end: that is an all-reduce. The other ranks must keep their values.",
)
def all_get_it(tensor, dst):
    parts = gathered(tensor, dst)
    if parts:
        tensor.copy_(sum(parts))
    received_in_place(tensor, dst)


@mistake(
    "reduce_naive",
    "Partial sums go from rank to rank, and stay in tensors that should keep their values. Send each tensor to `dst`.",
)
def sum_in_a_chain(tensor, dst):
    rank, world_size = dist.get_rank(), dist.get_world_size()
    if rank != (dst + 1) % world_size:
        part = torch.empty_like(tensor)
        dist.recv(part, (rank - 1) % world_size)
        tensor += part
    if rank != dst:
        dist.send(tensor, (rank + 1) % world_size)


@mistake(
    "reduce_naive",
    "All messages are received into one buffer at the same time, and each overwrites the one before. Wait for a "
    "message and add it before you receive the next, or give each a buffer of its own.",
)
def one_buffer_for_all(tensor, dst):
    if dist.get_rank() != dst:
        return dist.send(tensor, dst)
    part = torch.empty_like(tensor)
    for request in [dist.irecv(part, other) for other in others(dst)]:
        request.wait()
        tensor += part


@alternative("reduce_naive")
def first_come_first_added(tensor, dst):
    if dist.get_rank() == dst:
        for _ in range(dist.get_world_size() - 1):
            part = torch.zeros_like(tensor)
            dist.recv(part)
            tensor.add_(part)
        return
    dist.send(tensor, dst=dst)


@alternative("reduce_naive")
def table_of_all(tensor, dst):
    rank, n = dist.get_rank(), dist.get_world_size()
    if rank != dst:
        dist.isend(tensor, dst).wait()
        return tensor
    table = tensor.new_zeros((n, *tensor.shape))
    requests = [dist.irecv(table[r], r) for r in range(n) if r != dst]
    table[dst] = tensor
    for request in requests:
        request.wait()
    torch.sum(table, dim=0, out=tensor)
    return tensor
