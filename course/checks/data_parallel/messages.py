"""Messages of a collective that an answer writes from send and recv: who sent what to whom, in how
many rounds.

A `Call` is what one call of the answer did in one rank; {case: [Call of each rank]} is what the
probes look at.
"""

from dataclasses import dataclass

import torch
import torch.distributed as dist

from course.checks.data_parallel.ranks import FREE, HANG, each_rank
from course.parallel.distributed import counted
from course.parallel.network import simulate

COLLECTIVES = tuple(
    f"torch.distributed.{name}"
    for name in "broadcast reduce all_reduce gather all_gather scatter reduce_scatter all_to_all".split()
)


@dataclass
class Call:
    """What one call of the answer did in one rank."""

    tensor: torch.Tensor  # all of its memory, afterwards
    log: list  # ("send" or "recv", the other rank or None for any, bytes), in order
    operations: set  # names of the operations of torch.distributed
    forgotten: int  # requests that nobody waited for

    @property
    def sends(self):
        """(receiver, bytes) of the messages that were sent."""
        return [(to, size) for kind, to, size in self.log if kind == "send"]


class LoggedGroup:
    """Stands before a process group and notes its messages: `log` as in Call, `works` the
    requests.
    """

    def __init__(self, group):
        self.group, self.log, self.works = group, [], []

    def __getattr__(self, name):
        return getattr(self.group, name)

    def send(self, tensors, to, tag):
        return self._noted("send", to, tensors, self.group.send, tensors, to, tag)

    def recv(self, tensors, source, tag):
        return self._noted("recv", source, tensors, self.group.recv, tensors, source, tag)

    def recv_anysource(self, tensors, tag):
        return self._noted("recv", None, tensors, self.group.recv_anysource, tensors, tag)

    def _noted(self, kind, other, tensors, operation, *args):
        rank, n = self.group.rank(), self.group.size()
        way = f"rank {rank} {'sends to' if kind == 'send' else 'receives from'}"
        if other == rank:  # gloo would wait for ever, here and below
            raise ValueError(
                f"{way} itself. A rank has its own tensor; only messages between two ranks are needed."
            )
        if other is not None and not 0 <= other < n:
            raise ValueError(
                f"{way} rank {other}, of ranks 0 to {n - 1}. Count modulo the world size."
            )
        # kept: a request that is forgotten may lose its message
        self.works.append(operation(*args))
        self.log.append((kind, other, sum(t.nbytes for t in tensors)))
        return self.works[-1]


def whole(tensor):
    """`tensor` itself: the view of a case in which the answer is given all of the memory."""
    return tensor


def calls_in_ranks(answer, world_size, cases):
    """{case: the Call of each rank}. A case is (a tensor for each rank, view of it to pass, further
    arguments).
    """
    calls = simulate(_calls, world_size, FREE, answer, cases, timeout=HANG).results  # [rank][case]
    return dict(zip(cases, zip(*calls, strict=True), strict=True))


def _calls(rank, world_size, answer, cases):
    calls = []
    for case, (tensors, view, args) in cases.items():
        try:
            calls.append(_call(answer, tensors[rank].clone(), view, args))
        except Exception as error:
            if error.args:
                error.args = (f"{error} (in the case {case})",)
            raise
    return calls


def _call(answer, tensor, view, args):
    with counted() as traffic:
        counting = dist.group.WORLD
        counting.inner = logged = LoggedGroup(counting.inner)
        answer(view(tensor.detach()), *args)  # an object of its own: what counts is its memory
    dist.barrier()  # a rank that waits here has returned from the answer
    operations = {operation for operation, _ in traffic}
    # with gloo it is wait that completes a work
    forgotten = sum(not work.is_completed() for work in logged.works)
    return Call(tensor, logged.log, operations, forgotten)


def calls_with_root(answer, seed, word, sizes=(2, 3, 4)):
    """(ranks, root of each case, {case: Calls}) of `answer(tensor, root)`; up to 4 ranks, each is
    the root once.

    Args:
        word: what the task calls the root, "src" or "dst".
    """
    rng = torch.Generator().manual_seed(seed)
    for n in sizes:
        roots = range(n) if n <= 4 else [seed % n]
        cases = {
            f"{word}={root}": (torch.randn(n, 3 + seed % 5, generator=rng), root) for root in roots
        }
        root = (seed + 1) % n
        rows = torch.randint(1000, (n, 2, 4), generator=rng, dtype=torch.int32)
        cases[f"{word}={root}, int32, two rows"] = rows, root
        cases = {case: (tensors, whole, (root,)) for case, (tensors, root) in cases.items()}
        yield n, [root for *_, (root,) in cases.values()], calls_in_ranks(answer, n, cases)


def held(did):
    """What every rank holds afterwards."""
    return {
        f"{case}, {rank}": call.tensor
        for case, calls in did.items()
        for rank, call in each_rank(calls).items()
    }


def held_by_root(roots, did):
    """What the root of each case holds afterwards."""
    return {
        case: calls[root].tensor for root, (case, calls) in zip(roots, did.items(), strict=True)
    }


def held_by_others(roots, did):
    """What every rank but the root holds afterwards."""
    return {
        f"{case}, rank {rank}": call.tensor
        for root, (case, calls) in zip(roots, did.items(), strict=True)
        for rank, call in enumerate(calls)
        if rank != root
    }


def sent(*calls):
    """The messages that some ranks send, in words."""
    sizes = [size for call in calls for _, size in call.sends]
    return f"{len(sizes)} messages, {sum(sizes)} bytes"


def sent_by_rank(did):
    """What every rank sends, in words."""
    return {
        f"{case}, {rank}": sent(call)
        for case, calls in did.items()
        for rank, call in each_rank(calls).items()
    }


def operations_and_requests(n, did):
    """The facts on messages that every collective has."""
    calls = [call for calls in did.values() for call in calls]
    yield (
        f"{n} ranks: only send and recv are used",
        sorted(set().union(*(call.operations for call in calls))),
    )
    yield (
        f"{n} ranks: every isend and irecv is waited for",
        not any(call.forgotten for call in calls),
    )


def tree_messages(n, did):
    """The facts on messages that both trees have."""
    yield from operations_and_requests(n, did)
    yield (
        f"{n} ranks: one message less than there are ranks, each the whole tensor",
        {case: sent(*calls) for case, calls in did.items()},
    )
    depth = (n - 1).bit_length()
    busiest = max(len(call.log) for calls in did.values() for call in calls)
    yield f"{n} ranks: no rank has a part in more than {depth} of the messages", busiest <= depth
    yield (
        f"{n} ranks: how many rounds it takes",
        {case: rounds(calls) for case, calls in did.items()},
    )


def rounds(calls):
    """Rounds in which the messages go if a rank has one message at a time, in the order of its
    code.
    """
    left, clock = [list(call.log) for call in calls], [0] * len(calls)
    while any(left):
        ready = _ready(left)
        if not ready:
            return "they do not fit together"
        pair = min(ready, key=lambda pair: max(clock[rank] for rank in pair))
        now = 1 + max(clock[rank] for rank in pair)
        for rank in pair:
            clock[rank] = now
            left[rank].pop(0)
    return max(clock)


def _ready(left):
    """(sender, receiver) of the messages that both ends have come to."""
    first = [log[0] if log else ("", None, 0) for log in left]
    return [
        (sender, receiver)
        for sender, (kind, receiver, _) in enumerate(first)
        if kind == "send" and first[receiver][0] == "recv" and first[receiver][1] in (sender, None)
    ]
