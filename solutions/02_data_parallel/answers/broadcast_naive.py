"""Known mistakes of exercise broadcast_naive, and right answers in other styles."""

import torch
import torch.distributed as dist

from course.checks.engine import alternative, mistake


def others(root):
    return [rank for rank in range(dist.get_world_size()) if rank != root]


@mistake(
    "broadcast_naive",
    "What is received goes into a new tensor, and `tensor = ...` only renames it inside the function: the caller's "
    "tensor is as before. Receive into `tensor` itself.",
)
def received_and_renamed(tensor, src):
    if dist.get_rank() == src:
        for other in others(src):
            dist.send(tensor, other)
    else:
        received = torch.empty_like(tensor)
        dist.recv(received, src)
        tensor = received
    return tensor


@mistake("broadcast_naive", "Rank 0 is always the source. Send from `src`, receive from `src`.")
def always_from_zero(tensor, src):
    received_in_place(tensor, 0)


def received_in_place(tensor, src):
    if dist.get_rank() == src:
        for other in others(src):
            dist.send(tensor, other)
    else:
        dist.recv(tensor, src)


@mistake("broadcast_naive", "Every rank receives from rank 0. Receive from `src`, which may be any rank.")
def received_from_zero(tensor, src):
    if dist.get_rank() == src:
        for other in others(src):
            dist.send(tensor, other)
    else:
        dist.recv(tensor, 0)


@mistake("broadcast_naive", "The source sends to itself too, which torch refuses. Leave `src` out of the loop.")
def to_itself_too(tensor, src):
    if dist.get_rank() == src:
        for other in range(dist.get_world_size()):
            dist.send(tensor, other)
    else:
        dist.recv(tensor, src)


@mistake(
    "broadcast_naive",
    "The values are passed on from rank to rank. That is a chain; here the source itself sends to every other rank.",
)
def chain(tensor, src):
    pass_on(tensor, src)


def pass_on(tensor, src):
    rank, world_size = dist.get_rank(), dist.get_world_size()
    if rank != src:
        dist.recv(tensor, (rank - 1) % world_size)
    if (rank + 1) % world_size != src:
        dist.send(tensor, (rank + 1) % world_size)


@mistake(
    "broadcast_naive",
    "The requests of isend are forgotten, so the function may return while its tensor is still being sent. Keep them "
    "and wait for each.",
)
def never_waited(tensor, src):
    if dist.get_rank() == src:
        for other in others(src):
            dist.isend(tensor, other)
    else:
        dist.recv(tensor, src)


@alternative("broadcast_naive")
def all_at_once(tensor, src):
    if dist.get_rank() == src:
        requests = [dist.isend(tensor, other) for other in range(dist.get_world_size()) if other != src]
        while requests:
            requests.pop().wait()
    else:
        dist.irecv(tensor, src).wait()
    return tensor


@alternative("broadcast_naive")
def backwards_from_anybody(tensor, src):
    n = dist.get_world_size()
    if dist.get_rank() != src:
        return dist.recv(tensor)
    for step in range(1, n):
        dist.send(tensor.clone(), (src - step) % n)


@alternative("broadcast_naive")
def list_of_operations(tensor, src):
    if dist.get_rank() == src:
        operations = [dist.P2POp(dist.isend, tensor, r) for r in range(dist.get_world_size()) if r != src]
    else:
        operations = [dist.P2POp(dist.irecv, tensor, src)]
    for request in dist.batch_isend_irecv(operations):
        request.wait()
