"""Known mistakes of exercise ring_all_reduce, and right answers in other styles."""

import itertools

import torch
import torch.distributed as dist

from course.engine.known_answers import alternative, mistake

MISTAKES = {
    "no_reduce_scatter": (
        "The first phase is missing: nothing is summed before the second one copies. Send each piece round once, and "
        "let every rank add its own.",
        ("range(world_size - 1):  # reduce-scatter", "range(0):"),
    ),
    "arrived_piece_replaces": (
        "What arrives in the first phase replaces the rank's own piece. Add it to that piece.",
        ("incoming += part", "incoming[:] = part"),
    ),
    "ends_of_other_lengths": (
        "The two ends of a message have different lengths, because pieces may differ by one number. Receive into "
        "`part[: len(incoming)]`, and let step s send piece r - s, which the next rank expects.",
        (
            "exchange(outgoing, following, part[: len(incoming)], previous)",
            "exchange(outgoing, following, part, previous)",
        ),
    ),
    "begins_one_piece_too_early": (
        "The first phase begins with piece r - 1, so it finishes piece r in rank r. Begin with piece r: the second "
        "phase needs piece r + 1.",
        ("incoming = pieces[(rank - step - 1) ", "incoming = pieces[(rank - step - 2) "),
        ("outgoing = pieces[(rank - step) ", "outgoing = pieces[(rank - step - 1) "),
    ),
    "always_its_own_piece": (
        "In every step of the first phase rank r sends its own piece r. Send on the sum that the last step made.",
        ("outgoing = pieces[(rank - step) % world_size]", "outgoing = pieces[rank]"),
        ("incoming = pieces[(rank - step - 1) ", "incoming = pieces[(rank - 1) "),
    ),
    "as_many_steps_as_ranks": (
        "The first phase has one step too many. After N - 1 steps each rank holds one finished piece.",
        ("range(world_size - 1):  # reduce-scatter", "range(world_size):"),
    ),
    "begins_one_piece_too_late": (
        "No sum arrives in piece r + 1, which the second phase sends first. Either the sum is a new tensor (write into "
        "the piece: `+=` on the view), or the first phase begins with piece r + 1 (begin with piece r).",
        ("outgoing = pieces[(rank - step) ", "outgoing = pieces[(rank - step + 1) "),
        ("incoming = pieces[(rank - step - 1) ", "incoming = pieces[(rank - step) "),
    ),
    "ring_of_means": (
        "That is the mean. Give the sum; DDP divides by the world size afterwards.",
        ("flat.view(tensor.shape)", "flat.view(tensor.shape) / world_size"),
    ),
    "added_to_the_piece_just_sent": (
        "What arrives is added to the piece that has just been sent. It belongs to the one before: r - step - 1.",
        ("incoming +=", "outgoing +="),
    ),
    "isend_never_waited_for": (
        "isend is never waited for: the function may return, and its caller write, while a piece is sent. Wait for it.",
        (
            "    rank = dist.get_rank()",
            "    def exchange(outgoing, to, incoming, source):\n        dist.isend(outgoing, to)\n"
            "        dist.recv(incoming, source)\n\n    rank = dist.get_rank()",
        ),
    ),
    "sum_stays_in_the_copy": (
        "A tensor that is not contiguous is copied, and the sum stays in the copy. Write it back: tensor.copy_(...).",
        ("tensor.copy_(flat.view(tensor.shape))", "pass"),
    ),
    "rest_forgotten": (
        "All pieces have len // N numbers, and the rest at the end is never summed. Use tensor_split.",
        ("flat.tensor_split", "flat[: len(flat) // world_size * world_size].tensor_split"),
    ),
    "pieces_by_chunk": (
        "chunk makes fewer than N pieces of a short tensor, and the last one shorter than it "
        "must be. Take tensor_split.",
        ("flat.tensor_split", "flat.chunk"),
    ),
}


@mistake(
    "Whole tensors go round the ring: right sums, N / 2 times the bytes. Cut the tensor into N pieces.",
)
def whole_tensors_round_the_ring(tensor):
    rank, world_size = dist.get_rank(), dist.get_world_size()
    passed = tensor.clone(memory_format=torch.contiguous_format)
    for _ in range(world_size - 1):
        arrived = torch.empty_like(passed)
        request = dist.isend(passed, (rank + 1) % world_size)
        dist.recv(arrived, (rank - 1) % world_size)
        request.wait()
        tensor += arrived
        passed = arrived


@mistake(
    "Every rank sends its whole tensor to every other one. Cut it into N pieces, and send to the next rank only.",
)
def everybody_to_everybody(tensor):
    own = tensor.clone(memory_format=torch.contiguous_format)
    others = [rank for rank in range(dist.get_world_size()) if rank != dist.get_rank()]
    requests = [dist.isend(own, other) for other in others]
    for other in others:
        part = torch.empty_like(own)
        dist.recv(part, other)
        tensor += part
    for request in requests:
        request.wait()


@mistake(
    "The tensor is reduced to rank 0 and broadcast from there, whole tensors over one link. Cut it into N pieces.",
)
def by_way_of_rank_zero(tensor):
    own = tensor.clone(memory_format=torch.contiguous_format)
    if dist.get_rank():
        dist.send(own, 0)
        dist.recv(own, 0)
    else:
        others, part = range(1, dist.get_world_size()), torch.empty_like(own)
        for other in others:
            dist.recv(part, other)
            own += part
        for other in others:
            dist.send(own, other)
    tensor.copy_(own)


@alternative
def two_loops(tensor):
    rank, n = dist.get_rank(), dist.get_world_size()
    if n == 1:
        return tensor
    right, left = (rank + 1) % n, (rank + n - 1) % n
    work = tensor.detach().clone(memory_format=torch.contiguous_format).flatten()
    chunks = list(torch.tensor_split(work, n))
    current = rank
    for _ in range(n - 1):
        sending = dist.isend(chunks[current], right)
        current = (current - 1) % n
        received = torch.zeros_like(chunks[current])
        dist.irecv(received, left).wait()
        sending.wait()
        chunks[current] += received
    for _ in range(n - 1):
        sending = dist.isend(chunks[current], right)
        current = (current - 1) % n
        dist.irecv(chunks[current], left).wait()
        sending.wait()
    tensor.copy_(work.reshape(tensor.size()))
    return tensor


@alternative
def odd_ranks_receive_first(tensor):
    """Blocking calls: one rank at least receives first, so the ring moves.  Ends with piece r, and skips empty ones."""
    rank, n = dist.get_rank(), dist.get_world_size()
    flat = tensor.reshape(-1).contiguous()
    bounds = [0, *itertools.accumulate(len(flat) // n + (i < len(flat) % n) for i in range(n))]

    def piece(i):
        return flat[bounds[i % n] : bounds[i % n + 1]]

    def exchange(mine, size):
        part = flat.new_empty(size)
        calls = [lambda: dist.send(mine, (rank + 1) % n), lambda: dist.recv(part, (rank - 1) % n)]
        needed = [len(mine) > 0, size > 0]
        for which in (1, 0) if rank % 2 else (0, 1):
            if needed[which]:
                calls[which]()
        return part

    for i in range(rank - 1, rank - n, -1):
        piece(i - 1).add_(exchange(piece(i), len(piece(i - 1))))
    for i in range(rank, rank - n + 1, -1):
        piece(i - 1).copy_(exchange(piece(i), len(piece(i - 1))))
    if tensor.shape:
        tensor[:] = flat.view(tensor.shape)
    else:
        tensor.fill_(flat[0])


@alternative
def batches_of_two(tensor):
    rank, n = dist.get_rank(), dist.get_world_size()
    parts = [part.clone() for part in tensor.flatten().tensor_split(n)]
    for step in range(2 * n - 2):
        out, into = (rank - step) % n, (rank - step - 1) % n
        part = torch.empty_like(parts[into])
        both = [
            dist.P2POp(dist.irecv, part, (rank - 1) % n),
            dist.P2POp(dist.isend, parts[out], (rank + 1) % n),
        ]
        for request in dist.batch_isend_irecv(both):
            request.wait()
        parts[into] = part if step >= n - 1 else parts[into] + part
    tensor.copy_(torch.cat(parts).view_as(tensor))
