"""Messages of a collective that an answer writes from send and recv: how many, to whom, how large.

A `Call` is what one call of the answer did in one rank; {case: [Call of each rank]} is what the
probes look at.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
import torch.distributed as dist

from course.checks.data_parallel.ranks import FREE, HANG_SECONDS, each_rank
from course.engine.exercise import Answer, Facts
from course.engine.probing.laws import tried
from course.parallel.distributed import counted
from course.parallel.network import simulate

COLLECTIVES = (
    "torch.distributed.broadcast",
    "torch.distributed.reduce",
    "torch.distributed.all_reduce",
    "torch.distributed.gather",
    "torch.distributed.all_gather",
    "torch.distributed.scatter",
    "torch.distributed.reduce_scatter",
    "torch.distributed.all_to_all",
)


class Message(NamedTuple):
    """One end of a message, as its rank sees it."""

    kind: str  # "send" or "recv"
    other: int | None  # the rank at the other end, None for any
    n_bytes: int


@dataclass
class Call:
    """What one call of the answer did in one rank."""

    tensor: torch.Tensor  # all of its memory, afterwards
    log: list[Message]  # in order
    operations: set[str]  # names of the operations of torch.distributed
    forgotten: int  # requests that nobody waited for

    @property
    def sends(self) -> list[Message]:
        """The messages that were sent, in order."""
        return [message for message in self.log if message.kind == "send"]

    @property
    def receivers(self) -> list[int | None]:
        """The receiver of each message that was sent, in order."""
        return [message.other for message in self.sends]

    @property
    def sizes(self) -> list[int]:
        """Bytes of each message that was sent, in order."""
        return [message.n_bytes for message in self.sends]


Calls = dict[str, list[Call]]  # the Call of each rank, of each case
# a tensor for each rank, the view of it that the answer is given, its further arguments
Case = tuple[Sequence[torch.Tensor], Callable[[torch.Tensor], torch.Tensor], tuple]


class LoggedGroup:
    """A process group that notes its messages: `log` as in Call, `works` the requests."""

    def __init__(self, group: dist.ProcessGroup) -> None:
        self.group = group
        self.log = []
        self.works = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self.group, name)

    def send(self, tensors: list[torch.Tensor], to: int, tag: int) -> Any:
        """Note the message, and send it; returns the request."""
        return self._noted("send", to, tensors, self.group.send, tensors, to, tag)

    def recv(self, tensors: list[torch.Tensor], source: int, tag: int) -> Any:
        """Note the message, and receive it; returns the request."""
        return self._noted("recv", source, tensors, self.group.recv, tensors, source, tag)

    def recv_anysource(self, tensors: list[torch.Tensor], tag: int) -> Any:
        """As `recv`, from whichever rank sends first."""
        return self._noted("recv", None, tensors, self.group.recv_anysource, tensors, tag)

    def _noted(
        self,
        kind: str,
        other: int | None,
        tensors: list[torch.Tensor],
        operation: Callable[..., Any],
        *args: Any,
    ) -> Any:
        rank = self.group.rank()
        n = self.group.size()
        way = f"rank {rank} {'sends to' if kind == 'send' else 'receives from'}"
        if other == rank:  # gloo would hang, here and below
            raise ValueError(
                f"{way} itself. A rank has its own tensor; "
                "only messages between two ranks are needed."
            )
        if other is not None and not 0 <= other < n:
            raise ValueError(
                f"{way} rank {other}, of ranks 0 to {n - 1}. Count modulo the world size."
            )
        # kept: a request that is forgotten may lose its message
        self.works.append(operation(*args))
        self.log.append(Message(kind, other, sum(t.nbytes for t in tensors)))
        return self.works[-1]


def whole(tensor: torch.Tensor) -> torch.Tensor:
    """`tensor` itself: the view of a case in which the answer is given all of the memory."""
    return tensor


def calls_in_ranks(answer: Answer, world_size: int, cases: dict[str, Case]) -> Calls:
    """{case: the Call of each rank}."""
    simulation = simulate(_calls, world_size, FREE, answer, cases, timeout=HANG_SECONDS)
    calls_of_cases = zip(*simulation.results, strict=True)  # results: [rank][case]
    return dict(zip(cases, map(list, calls_of_cases), strict=True))


def _calls(rank: int, world_size: int, answer: Answer, cases: dict[str, Case]) -> list[Call]:
    calls = []
    for case, (tensors, view, args) in cases.items():
        try:
            calls.append(_call(answer, tensors[rank].clone(), view, args))
        except Exception as error:
            if error.args:
                error.args = (f"{error} (in the case {case})",)
            raise
    return calls


def _call(
    answer: Answer,
    tensor: torch.Tensor,
    view: Callable[[torch.Tensor], torch.Tensor],
    args: tuple,
) -> Call:
    with counted() as traffic:
        counting = dist.group.WORLD
        logged = LoggedGroup(counting.inner)
        counting.inner = logged
        answer(view(tensor.detach()), *args)  # a new object with the same memory: only that counts
    dist.barrier()  # a rank that waits here has returned from the answer
    operations = {operation for operation, _ in traffic}
    # with gloo it is wait that completes a work
    forgotten = sum(not work.is_completed() for work in logged.works)
    return Call(tensor, logged.log, operations, forgotten)


def calls_with_root(
    answer: Answer, seed: int, word: str, sizes: Sequence[int] = (2, 3, 4)
) -> Iterator[tuple[int, list[int], Calls]]:
    """(ranks, root of each case, Calls) of `answer(tensor, root)`, for each number of ranks.

    Up to 4 ranks, each is the root once; of more, one that the seed picks.

    Args:
        word: what the task calls the root, "src" or "dst".
        sizes: the numbers of ranks.
    """
    rng = torch.Generator().manual_seed(seed)
    for n in sizes:
        cases = {}
        for root in range(n) if n <= 4 else [seed % n]:
            values = torch.randn(n, 3 + seed % 5, generator=rng)
            cases[f"{word}={root}"] = values, whole, (root,)
        root = (seed + 1) % n
        rows = torch.randint(1000, (n, 2, 4), generator=rng, dtype=torch.int32)
        cases[f"{word}={root}, int32, two rows"] = rows, whole, (root,)
        roots = [root for _, _, (root,) in cases.values()]
        yield n, roots, calls_in_ranks(answer, n, cases)


def tensors_held(calls: list[Call]) -> dict[str, torch.Tensor]:
    """What every rank holds after one case."""
    return each_rank(call.tensor for call in calls)


def held(did: Calls) -> dict[str, torch.Tensor]:
    """What every rank holds afterwards."""
    tensors = {}
    for case, calls in did.items():
        for rank, tensor in tensors_held(calls).items():
            tensors[f"{case}, {rank}"] = tensor
    return tensors


def held_by_root(roots: list[int], did: Calls) -> dict[str, torch.Tensor]:
    """What the root of each case holds afterwards."""
    tensors = {}
    for root, (case, calls) in zip(roots, did.items(), strict=True):
        tensors[case] = calls[root].tensor
    return tensors


def held_by_others(roots: list[int], did: Calls) -> dict[str, torch.Tensor]:
    """What every rank but the root holds afterwards."""
    tensors = {}
    for root, (case, calls) in zip(roots, did.items(), strict=True):
        for rank, call in enumerate(calls):
            if rank != root:
                tensors[f"{case}, rank {rank}"] = call.tensor
    return tensors


def sent(*calls: Call) -> str:
    """The messages that some ranks send, in words."""
    messages = 0
    n_bytes = 0
    for call in calls:
        messages += len(call.sends)
        n_bytes += sum(call.sizes)
    return f"{messages} messages, {n_bytes} bytes"


def sent_by_rank(did: Calls) -> dict[str, str]:
    """What every rank sends, in words."""
    words = {}
    for case, calls in did.items():
        for rank, call in each_rank(calls).items():
            words[f"{case}, {rank}"] = sent(call)
    return words


def operations_and_requests(n: int, did: Calls) -> Facts:
    """The facts on messages that every collective has."""
    operations = set()
    forgotten = 0
    shapes = []
    for calls in did.values():
        shapes.append(calls[0].tensor.shape)
        for call in calls:
            operations |= call.operations
            forgotten += call.forgotten
    yield f"{n} ranks: only send and recv are used", sorted(operations)
    yield f"{n} ranks: every isend and irecv is waited for", tried(not forgotten, shapes)


def tree_messages(n: int, did: Calls) -> Facts:
    """The facts on messages that both trees have."""
    yield from operations_and_requests(n, did)
    messages = {case: sent(*calls) for case, calls in did.items()}
    yield f"{n} ranks: one message less than there are ranks, each the whole tensor", messages
    depth = (n - 1).bit_length()
    busiest = 0
    for calls in did.values():
        busiest = max(busiest, *(len(call.log) for call in calls))
    yield f"{n} ranks: no rank has a part in more than {depth} of the messages", busiest <= depth
    rounds_of_cases = {case: rounds(calls) for case, calls in did.items()}
    yield f"{n} ranks: how many rounds it takes", rounds_of_cases


def rounds(calls: list[Call]) -> int | str:
    """Rounds that the messages take if a rank has one at a time, in the order of its code."""
    left = [list(call.log) for call in calls]
    clock = [0] * len(calls)  # the rounds that each rank has taken part in or waited for

    def free_at(pair: tuple[int, int]) -> int:
        sender, receiver = pair
        return max(clock[sender], clock[receiver])

    while any(left):
        pairs = _ready(left)
        if not pairs:
            return "they do not fit together"
        pair = min(pairs, key=free_at)
        end = free_at(pair) + 1
        for rank in pair:
            clock[rank] = end
            left[rank].pop(0)
    return max(clock)


def _ready(left: list[list[Message]]) -> list[tuple[int, int]]:
    """(sender, receiver) of the messages that both ends have come to."""
    pairs = []
    for sender, messages in enumerate(left):
        if not messages or messages[0].kind != "send":
            continue
        receiver = messages[0].other
        if left[receiver]:
            there = left[receiver][0]
            if there.kind == "recv" and there.other in (sender, None):
                pairs.append((sender, receiver))
    return pairs
