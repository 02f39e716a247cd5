"""Known mistakes of exercise ring_all_reduce, and right answers in other styles."""

import itertools

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


def all_get_it(tensor, dst):
    parts = gathered(tensor, dst)
    if parts:
        tensor.copy_(sum(parts))
    received_in_place(tensor, dst)


def ring(
    tensor, split=torch.tensor_split, first=0, second=1, gather=None, wait=True, back=True, mean=False, add=False, on=1
):
    """A right ring, with one idea to get wrong each."""
    rank, world_size = dist.get_rank(), dist.get_world_size()
    flat = tensor.contiguous().view(-1)
    pieces, requests = split(flat, world_size), []

    def turn(sent):
        part = torch.empty_like(pieces[(sent - 1) % world_size])  # as long as what arrives, whoever adds it where
        requests.append(dist.isend(pieces[sent % world_size], (rank + 1) % world_size))
        dist.recv(part, (rank - 1) % world_size)
        if wait:
            requests[-1].wait()
        return part

    for step in range(world_size - 1):
        part = turn(rank - step)
        pieces[(rank - step - 1 + first) % world_size].add_(part)
    for step in range(world_size - 1 if gather is None else gather(world_size)):
        part = turn(rank + second - on * step)
        arrived = pieces[(rank + second - on * step - 1) % world_size]
        arrived.copy_(arrived + part if add else part)
    if mean:
        flat.copy_(flat / world_size)
    if back:
        tensor.copy_(flat.view(tensor.shape))


@mistake(
    "ring_all_reduce",
    "The second phase is missing: each rank holds one finished piece. Send the finished pieces round once more.",
)
def no_all_gather(tensor):
    ring(tensor, gather=lambda world_size: 0)


@mistake(
    "ring_all_reduce",
    "What arrives in the second phase is added. It is finished already, and replaces what lies there.",
)
def second_phase_adds(tensor):
    ring(tensor, add=True)


@mistake(
    "ring_all_reduce",
    "In every step of the second phase rank r sends its own finished piece, r + 1. Send on what the last step brought.",
)
def always_its_own_piece(tensor):
    ring(tensor, on=0)


@mistake(
    "ring_all_reduce",
    "The second phase has one step too many. N - 1 are enough, since one piece is there from the start.",
)
def as_many_steps_as_ranks(tensor):
    ring(tensor, gather=lambda world_size: world_size)


@mistake("ring_all_reduce", "That is the mean. Give the sum; DDP divides by the world size afterwards.")
def ring_of_means(tensor):
    ring(tensor, mean=True)


@mistake(
    "ring_all_reduce",
    "The second phase begins with piece r, which is not finished in rank r. It begins with the finished one, r + 1.",
)
def begins_with_its_own_again(tensor):
    ring(tensor, second=0)


@mistake(
    "ring_all_reduce",
    "What arrives is added to the piece that has just been sent. It belongs to the one before: r - step - 1.",
)
def added_to_the_piece_just_sent(tensor):
    ring(tensor, first=1)


@mistake(
    "ring_all_reduce",
    "isend is never waited for: the function may return, and its caller write, while a piece is sent. Wait for it.",
)
def isend_never_waited_for(tensor):
    ring(tensor, wait=False)


@mistake(
    "ring_all_reduce",
    "A tensor that is not contiguous is copied, and the sum stays in the copy. Write it back: tensor.copy_(...).",
)
def sum_stays_in_the_copy(tensor):
    ring(tensor, back=False)


def pieces_of_equal_length(flat, world_size):
    length = len(flat) // world_size
    return [flat[i * length : (i + 1) * length] for i in range(world_size)]


@mistake(
    "ring_all_reduce",
    "All pieces have len // N numbers, and the rest at the end is never summed. Use tensor_split.",
)
def rest_forgotten(tensor):
    ring(tensor, split=pieces_of_equal_length)


@mistake(
    "ring_all_reduce",
    "chunk makes fewer than N pieces of a short tensor, and the last one shorter than it must be. Take tensor_split.",
)
def pieces_by_chunk(tensor):
    ring(tensor, split=torch.chunk)


@mistake(
    "ring_all_reduce",
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
    "ring_all_reduce",
    "Every rank sends its whole tensor to every other one. Cut it into N pieces, and send to the next rank only.",
)
def everybody_to_everybody(tensor):
    own = tensor.clone(memory_format=torch.contiguous_format)
    requests = [dist.isend(own, other) for other in others(dist.get_rank())]
    for other in others(dist.get_rank()):
        part = torch.empty_like(own)
        dist.recv(part, other)
        tensor += part
    for request in requests:
        request.wait()


@mistake(
    "ring_all_reduce",
    "The tensor is reduced to rank 0 and broadcast from there, whole tensors over one link. Cut it into N pieces.",
)
def by_way_of_rank_zero(tensor):
    own = tensor.clone(memory_format=torch.contiguous_format)
    all_get_it(own, 0)
    tensor.copy_(own)


@alternative("ring_all_reduce")
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


@alternative("ring_all_reduce")
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


@alternative("ring_all_reduce")
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
