"""Known mistakes of exercise reduce_naive, and right answers in other styles."""

import torch
import torch.distributed as dist

from course.engine.known_answers import alternative, mistake

MISTAKES = {
    "summed_and_renamed": (
        "`tensor = tensor + part` makes a new tensor, which the caller never sees. Write `tensor += part`.",
        ("tensor += part", "tensor = tensor + part"),
    ),
    "received_on_top": (
        "Each message is received into `tensor` itself, so only the last one is left. Receive into a second "
        "tensor, and add that.",
        ("dist.recv(part, other)\n                tensor += part", "dist.recv(tensor, other)"),
    ),
    "without_its_own": (
        "The values of `dst` itself are missing in the sum. Begin with them.",
        ("empty_like(tensor)", "empty_like(tensor)\n        tensor.zero_()"),
    ),
    "mean": (
        "That is the mean. A reduce gives the sum; who needs a mean divides afterwards.",
        ("tensor += part", "tensor += part\n        tensor.copy_(tensor / dist.get_world_size())"),
    ),
    "always_to_zero": (
        "Rank 0 always gets the sum. Let all send to `dst`.",
        ("    if dist.get_rank()", "    dst = 0\n    if dist.get_rank()"),
    ),
    "all_get_it": (
        "Every rank has the sum in the end: that is an all-reduce. The other ranks must keep their values.",
        ("dist.send(tensor, dst)", "dist.send(tensor, dst)\n        dist.recv(tensor, dst)"),
        (
            "tensor += part",
            "tensor += part\n        for other in range(dist.get_world_size()):\n            if other != dst:\n"
            "                dist.send(tensor, other)",
        ),
    ),
}


@mistake(
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
    "All messages are received into one buffer at the same time, and each overwrites the one before. Wait for a "
    "message and add it before you receive the next, or give each its own buffer.",
)
def one_buffer_for_all(tensor, dst):
    if dist.get_rank() != dst:
        return dist.send(tensor, dst)
    part = torch.empty_like(tensor)
    for request in [
        dist.irecv(part, other) for other in range(dist.get_world_size()) if other != dst
    ]:
        request.wait()
        tensor += part


@alternative
def first_come_first_added(tensor, dst):
    if dist.get_rank() == dst:
        for _ in range(dist.get_world_size() - 1):
            part = torch.zeros_like(tensor)
            dist.recv(part)
            tensor.add_(part)
        return
    dist.send(tensor, dst=dst)


@alternative
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
