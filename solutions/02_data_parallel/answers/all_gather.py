"""Known mistakes of exercise all_gather, and right answers in other styles."""

import torch
import torch.distributed as dist

from course.engine.known_answers import alternative, mistake

MISTAKES = {
    "one_place_off": (
        "Shards are one place off: the shard of rank r belongs at place r. Start with pieces[rank].",
        ("dist.get_rank()", "dist.get_rank() + 1"),
    ),
    "one_step": (
        "Only the neighbour's shard arrives. Send on what you received: N - 1 steps.",
        ("range(world_size - 1)", "range(min(1, world_size - 1))"),
    ),
    "summed": (
        "The shards are added. Keep each at its place: the result is N times as long.",
        ("torch.cat(pieces)", "torch.stack(pieces).sum(0)"),
    ),
    "in_order_of_arrival": (
        "The shards are in the order in which they arrive. Put them in the order of ranks.",
        (
            "pieces[(rank - step) % world_size], pieces[(rank - step - 1) % world_size]",
            "pieces[step], pieces[step + 1]",
        ),
    ),
    "own_shard_each_step": (
        "A rank sends its own shard in every step. Pass on the one that came in the step before.",
        ("pieces[(rank - step) % world_size]", "shard"),
    ),
    "alone_the_same": (
        "On one rank the result is the shard itself, and writing into one changes the other. Return a new vector "
        "there, too.",
        ("    pieces =", "    if world_size == 1:\n        return shard\n    pieces ="),
    ),
    "own_shard_first": (
        "The result begins with the rank's own shard. On every rank it must begin with rank 0's.",
        ("torch.cat(pieces)", "torch.cat(pieces[rank:] + pieces[:rank])"),
    ),
}


@mistake("Every rank sends its shard to all others. On a ring a rank sends to the next one only.")
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


@alternative
def rolled_at_the_end(shard):
    rank, n = dist.get_rank(), dist.get_world_size()
    shards = [shard.clone()]
    for _ in range(n - 1):
        request = dist.isend(shards[-1], (rank + 1) % n)
        shards.append(torch.empty_like(shard))
        dist.recv(shards[-1], (rank - 1) % n)
        request.wait()
    return torch.stack(shards).flip(0).roll(rank + 1, 0).flatten()


@alternative
def places_in_one_vector(shard):
    rank, n, size = dist.get_rank(), dist.get_world_size(), len(shard)
    out = shard.repeat(n)
    for step in range(n - 1):
        mine, theirs = (rank - step) % n * size, (rank - step - 1) % n * size
        sending = dist.isend(out[mine : mine + size], (rank + 1) % n)
        dist.irecv(out[theirs : theirs + size], (rank - 1) % n).wait()
        sending.wait()
    return out
