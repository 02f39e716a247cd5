"""Known mistakes of exercise broadcast_naive, and right answers in other styles."""

import torch.distributed as dist

from course.engine.known_answers import alternative, mistake

MISTAKES = {
    "received_elsewhere": (
        "The values arrive in other memory: `tensor = ...` renames it inside the function, `tensor.data = ...` swaps "
        "its memory, and tensors that share the old memory see nothing. Receive into `tensor` itself.",
        (
            "dist.recv(tensor, src)",
            "tensor.data = torch.empty_like(tensor)\n        dist.recv(tensor, src)",
        ),
    ),
    "always_from_zero": (
        "Rank 0 is always the source. Send from `src`, receive from `src`.",
        ("    if dist.get_rank()", "    src = 0\n    if dist.get_rank()"),
    ),
    "received_from_zero": (
        "Every rank receives from rank 0. Receive from `src`, which may be any rank.",
        ("recv(tensor, src)", "recv(tensor, 0)"),
    ),
    "to_itself_too": (
        "A rank sends to itself, which torch refuses. Only the rank `src` sends, and `src` is left out of its loop.",
        ("other != src", "True"),
    ),
    "to_itself_by_isend": (
        "The source sends to itself too. Leave `src` out of the loop over the other ranks.",
        ("other != src", "True"),
        ("dist.send", "dist.isend"),
    ),
    "never_to_zero": (
        "The loop leaves out rank 0 instead of the source. Leave out `src`, which may be any rank.",
        ("other != src", "other != 0"),
    ),
    "source_receives": (
        "The source receives too, from itself. Call recv in the `else` branch: all ranks receive except `src`.",
        ("    else:\n        dist.recv", "    dist.recv"),
    ),
    "never_waited": (
        "The requests of isend are forgotten, so the function may return while its tensor is still being sent. "
        "Keep them and wait for each.",
        ("dist.send", "dist.isend"),
    ),
}


@mistake(
    "The values are passed on from rank to rank. That is a chain; here the source itself sends to every other rank.",
)
def chain(tensor, src):
    rank, world_size = dist.get_rank(), dist.get_world_size()
    if rank != src:
        dist.recv(tensor, (rank - 1) % world_size)
    if (rank + 1) % world_size != src:
        dist.send(tensor, (rank + 1) % world_size)


@alternative
def all_at_once(tensor, src):
    if dist.get_rank() == src:
        requests = [
            dist.isend(tensor, other) for other in range(dist.get_world_size()) if other != src
        ]
        while requests:
            requests.pop().wait()
    else:
        dist.irecv(tensor, src).wait()
    return tensor


@alternative
def backwards_from_anybody(tensor, src):
    n = dist.get_world_size()
    if dist.get_rank() != src:
        return dist.recv(tensor)
    for step in range(1, n):
        dist.send(tensor.clone(), (src - step) % n)


@alternative
def list_of_operations(tensor, src):
    if dist.get_rank() == src:
        operations = [
            dist.P2POp(dist.isend, tensor, r) for r in range(dist.get_world_size()) if r != src
        ]
    else:
        operations = [dist.P2POp(dist.irecv, tensor, src)]
    for request in dist.batch_isend_irecv(operations):
        request.wait()
