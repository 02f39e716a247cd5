"""Known mistakes of exercise all_gather, and right answers in other styles."""

import torch
import torch.distributed as dist

from course.checks.engine import alternative, mistake


def turn(outgoing, incoming):
    rank, n = dist.get_rank(), dist.get_world_size()
    request = dist.isend(outgoing, (rank + 1) % n)
    dist.recv(incoming, (rank - 1) % n)
    request.wait()


def ring(shard, place=0, steps=None):
    """A right ring, with one idea to get wrong each."""
    rank, n = dist.get_rank(), dist.get_world_size()
    shards = [torch.zeros_like(shard) for _ in range(n)]
    shards[(rank + place) % n] = shard.clone()
    for step in range(n - 1 if steps is None else steps):
        turn(shards[(rank + place - step) % n], shards[(rank + place - step - 1) % n])
    return torch.cat(shards)


@mistake("all_gather", "Shards stand one place off: that of rank r belongs at place r. Start with pieces[rank].")
def one_place_off(shard):
    return ring(shard, place=1)


@mistake("all_gather", "Only the neighbour's shard arrives. Send on what you received: N - 1 steps.")
def one_step(shard):
    return ring(shard, steps=min(1, dist.get_world_size() - 1))


@mistake("all_gather", "The shards are added. Keep each at its place: the result is N times as long.")
def summed(shard):
    return ring(shard).view(dist.get_world_size(), -1).sum(0)


@mistake("all_gather", "Every rank sends its shard to all others. On a ring a rank sends to the next one only.")
def to_everybody(shard):
    rank, n = dist.get_rank(), dist.get_world_size()
    shards = [torch.empty_like(shard) for _ in range(n)]
    shards[rank] = shard.clone()
    requests = [dist.isend(shards[rank], other) for other in range(n) if other != rank]
    for other in range(n):
        if other != rank:
            dist.recv(shards[other], other)
    for request in requests:
        request.wait()
    return torch.cat(shards)


@mistake("all_gather", "The shards are in the order in which they arrive. Put them in the order of ranks.")
def in_order_of_arrival(shard):
    shards = [shard.clone()]
    for _ in range(dist.get_world_size() - 1):
        shards.append(torch.empty_like(shard))
        turn(shards[-2], shards[-1])
    return torch.cat(shards)


@mistake("all_gather", "A rank sends its own shard in every step. Pass on the one that came in the step before.")
def own_shard_each_step(shard):
    rank, n = dist.get_rank(), dist.get_world_size()
    shards = [shard.clone() for _ in range(n)]
    for step in range(n - 1):
        turn(shard, shards[(rank - step - 1) % n])
    return torch.cat(shards)


@mistake("all_gather", "The result begins with the rank's own shard. On every rank it begins with that of rank 0.")
def own_shard_first(shard):
    return ring(shard).roll(-dist.get_rank() * len(shard))


@alternative("all_gather")
def rolled_at_the_end(shard):
    n, shards = dist.get_world_size(), [shard.clone()]
    for _ in range(n - 1):
        shards.append(torch.empty_like(shard))
        turn(shards[-2], shards[-1])
    return torch.stack(shards).flip(0).roll(dist.get_rank() + 1, 0).flatten()


@alternative("all_gather")
def places_in_one_vector(shard):
    rank, n, size = dist.get_rank(), dist.get_world_size(), len(shard)
    out = shard.repeat(n)
    for step in range(n - 1):
        mine, theirs = (rank - step) % n * size, (rank - step - 1) % n * size
        sending = dist.isend(out[mine : mine + size], (rank + 1) % n)
        dist.irecv(out[theirs : theirs + size], (rank - 1) % n).wait()
        sending.wait()
    return out
