"""Run ranks on a virtual network, in one process: N threads with logical clocks.

A rank's code is what it would be in N processes: send, recv, isend and irecv of torch.distributed.
Nothing is sent; tensors are copied, and a clock per rank says when each message would have ended on
the given network. One rank runs at a time and the message that can start first is always the next
one, so results and times never vary. Clocks that move with messages are Lamport's (1978, "Time,
clocks, and the ordering of events in a distributed system"). Tensors on the device "meta" have a
size and no values: with them a gigabyte takes as long as a byte.
"""

import collections
import contextlib
import copy
import ctypes
import heapq
import itertools
import sys
import threading
import time
import traceback
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed import distributed_c10d as c10d

from course.errors import CourseError, RankError
from course.parallel.positions import of_rank, position
from course.system.busy import PATIENCE, is_busy

GRACE_SECONDS = 0.5  # in which a rank that computes must notice that the run is over
_here = threading.local()  # .rank: the virtual rank that runs in this thread


@dataclass(frozen=True)
class Network:
    """A network on which b bytes take `latency + b / bandwidth` seconds between any two ranks.

    A message starts when both ends have come to it. A rank can send one message while it receives
    one; other messages wait for their turn.

    Args:
        latency: seconds per message, 0 or more.
        bandwidth: bytes per second.
    """

    latency: float
    bandwidth: float

    def route(self, source: int, target: int, n_bytes: int) -> tuple[tuple[Hashable, ...], float]:
        """(the links that a message of `n_bytes` occupies, the seconds that it occupies them)."""
        links = (("out of", source), ("into", target))
        return links, self.latency + n_bytes / self.bandwidth


@dataclass(frozen=True)
class Machines(Network):
    """A Network of machines whose ranks share one network card for all that leaves the machine.

    A card sends one message while it receives one.

    Args:
        bandwidth: bytes per second between two ranks of a machine.
        ranks_per_machine: ranks 0 to this are on the first machine, and so on.
        card: bytes per second that a network card sends, and receives.
    """

    ranks_per_machine: int
    card: float

    def route(self, source: int, target: int, n_bytes: int) -> tuple[tuple[Hashable, ...], float]:
        links, seconds = super().route(source, target, n_bytes)
        start = source // self.ranks_per_machine
        end = target // self.ranks_per_machine
        if start == end:
            return links, seconds
        cards = (("out of machine", start), ("into machine", end))
        return links + cards, self.latency + n_bytes / self.card


@dataclass(frozen=True)
class Message:
    """A message that went through: ranks, bytes, virtual seconds of its start and end."""

    source: int
    target: int
    n_bytes: int
    start: float
    end: float


@dataclass(frozen=True)
class Simulation:
    """The result of each rank, virtual seconds until the last rank was done, all messages."""

    results: list
    seconds: float
    messages: list[Message] = field(repr=False)


def simulate(
    fn: Callable[..., Any], world_size: int, network: Network, *args: Any, timeout: float = 60.0
) -> Simulation:
    """Call `fn(rank, world_size, *args)` for each rank on the virtual `network`.

    run_ranks does the same on a real one. Each rank gets its own copy of the arguments; globals and
    torch's random numbers are shared. Computing takes no virtual time unless the rank says so by
    `advance`. Collectives of torch.distributed are refused, except barrier.

    Args:
        timeout: seconds on a real clock in which all ranks must have returned; more on a busy
            machine.

    Raises: the exception of the first rank that raised one, with its `rank` and `frames`; RankError
        if every rank waits, or if some have not returned in time: it says where each rank waits.
    """
    with _threads_have_groups():
        return _Run(fn, world_size, network, args).outcome(timeout)


def now() -> float:
    """Virtual seconds on this rank's clock. Raises: CourseError outside a virtual rank."""
    return _this_rank().clock


def advance(seconds: float) -> None:
    """Move this rank's clock on, as computing for `seconds` would.

    Raises: CourseError outside a virtual rank.
    """
    _this_rank().clock += seconds


def _this_rank() -> "_Rank":
    if not hasattr(_here, "rank"):
        raise CourseError(
            "asked for a virtual clock outside a virtual rank; call it in a function for simulate."
        )
    return _here.rank


class _Ended(BaseException):
    """Ends a rank when the run is over.

    A BaseException, so `except Exception` does not catch it.
    """


class _RankThread(threading.Thread):
    """Ends without a word when the run is over, even if it is told so while it is ending."""

    def run(self) -> None:
        with contextlib.suppress(_Ended):
            super().run()


class _Rank:
    """One virtual rank: its thread, its clock, and the request or barrier for which it waits."""

    def __init__(self, number: int, body: Callable[["_Rank"], None]):
        self.number = number
        self.clock = 0.0
        self.waiting: object = None  # the request or the barrier for which it waits
        self.receiving: list[_Request] = []
        self.result = None
        self.returned = False
        self.baton = threading.Semaphore(0)  # who has it runs
        self.thread = _RankThread(target=body, args=(self,), daemon=True)

    def receive(self, request: "_Request") -> None:
        """Note a request to receive.

        Raises: RuntimeError if one that is in progress has the same memory.
        """
        self.receiving = [other for other in self.receiving if not other.waited]
        if any(_overlap(other.tensor, request.tensor) for other in self.receiving):
            raise RuntimeError(
                "two messages are received into the same memory, and the later one overwrites the "
                "other; wait for the first, or give each message its own tensor."
            )
        self.receiving.append(request)

    def state(self) -> str:
        """One line on where it is now."""
        if self.returned:
            return f"rank {self.number} has returned."
        stack = traceback.extract_stack(sys._current_frames().get(self.thread.ident))
        frames = [(frame.filename, frame.lineno, frame.name) for frame in reversed(stack)]
        return position(self.number, frames)


class _Request:
    """One end of a message: what isend and irecv return."""

    def __init__(self, run: "_Run", rank: _Rank, tensor: torch.Tensor):
        self.run = run
        self.rank = rank
        self.tensor = tensor
        self.posted = rank.clock  # virtual seconds
        self.end: float | None = None  # when the message has arrived; None before
        self.source: int | None = None
        self.waited = False
        self.error: Exception | None = None

    def wait(self, timeout: float | None = None) -> bool:
        """Block until the message has arrived; return True.

        Raises: ValueError if its ends differ in length.
        """
        if self.end is None:
            self.run.block(self.rank, self)
        if self.error:
            raise self.error
        self.rank.clock = max(self.rank.clock, self.end)
        self.waited = True
        return True

    def _source_rank(self) -> int:  # what dist.recv asks for
        return self.source

    def is_completed(self) -> bool:
        """True after wait(), which completes a request with gloo too."""
        return self.waited


class _Run:
    """All ranks of a simulation, and who runs next.

    One thread runs at a time: it holds the baton until it waits or returns. When nobody can run,
    the message that can start first is delivered. That order is safe: a rank that wakes up can only
    start messages later than that.
    """

    def __init__(
        self, fn: Callable[..., Any], world_size: int, network: Network, args: tuple[Any, ...]
    ):
        self.fn = fn
        self.args = args
        self.network = network
        self.ranks = [_Rank(number, self._body) for number in range(world_size)]
        self.ready = collections.deque(self.ranks)
        self.at_barrier: list[_Rank] = []
        # requests without a partner: {(source, target, tag): deque}, source is None for any
        self.sends = collections.defaultdict(collections.deque)
        self.recvs = collections.defaultdict(collections.deque)
        # a heap of messages whose ends have both come, the one that can start first on top
        self.pending: list[tuple] = []
        self.order = itertools.count()  # decides between equal starts and ranks
        self.free = collections.defaultdict(float)  # {link: when its last message ends}
        self.messages: list[Message] = []
        self.error: BaseException | None = None
        self.ended = False
        self.done = threading.Semaphore(0)

    def outcome(self, timeout: float) -> Simulation:
        """The Simulation, after all ranks have returned."""
        for rank in self.ranks:
            rank.thread.start()
        try:
            self._run_next()
            patience = PATIENCE if is_busy() else 1
            if not self.done.acquire(timeout=timeout * patience):
                message = f"not all ranks returned within {timeout:g} seconds."
                raise RankError(f"{message}\n{self._states()}")
            if self.error:
                raise self.error
        finally:
            self._end()
        results = [rank.result for rank in self.ranks]
        seconds = max(rank.clock for rank in self.ranks)
        return Simulation(results, seconds, self.messages)

    def _body(self, rank: _Rank) -> None:
        """What the thread of `rank` does."""
        rank.baton.acquire()
        _here.rank = rank
        try:
            if not self.ended:
                with _group_of_thread(_Group(self, rank)):
                    rank.result = self.fn(rank.number, len(self.ranks), *copy.deepcopy(self.args))
                rank.returned = True
        except _Ended:
            return
        except BaseException as error:
            self.error = self.error or of_rank(error, rank.number)
            self.done.release()
            return
        finally:
            del _here.rank
        if not self.ended:
            self._run_next()

    def _states(self) -> str:
        return "\n".join(rank.state() for rank in self.ranks)

    def _end(self) -> None:
        """End every thread: a waiting one immediately, a computing one at its next line."""
        self.ended = True
        for rank in self.ranks:
            rank.baton.release()
        for rank in self.ranks:
            rank.thread.join(timeout=0.1)
        until = time.monotonic() + GRACE_SECONDS
        alive = self._alive()
        while alive and time.monotonic() < until:
            for thread in alive:  # repeatedly: an `except:` in its code can catch one
                ctypes.pythonapi.PyThreadState_SetAsyncExc(
                    ctypes.c_ulong(thread.ident), ctypes.py_object(_Ended)
                )
                thread.join(timeout=0.05)
            alive = self._alive()

    def _alive(self) -> list[threading.Thread]:
        return [rank.thread for rank in self.ranks if rank.thread.is_alive()]

    def block(self, rank: _Rank, reason: object) -> None:
        """Let others run until `rank` is ready again."""
        rank.waiting = reason
        if self.ended:
            raise _Ended
        if self._run_next(rank):
            return
        rank.baton.acquire()
        if self.ended:
            raise _Ended

    def _run_next(self, current: _Rank | None = None) -> bool:
        """Give the baton to the next rank that can run; True if that is `current`.

        If there is none, the run is done.
        """
        while not self.ready and self.pending:
            self._deliver_first()
        if self.ready:
            following = self.ready.popleft()
            if following is current:
                return True
            following.baton.release()
            return False
        if not all(rank.returned for rank in self.ranks):
            message = f"every rank waits for another one.\n{self._states()}"
            self.error = self.error or RankError(message)
        self.done.release()
        return False

    def post(
        self, kind: str, rank: _Rank, other: int | None, tensor: torch.Tensor, tag: int
    ) -> _Request:
        """Return the request for one end of a message.

        Args:
            kind: "send" or "recv".
            other: the rank at the other end; None receives from any.
        """
        if self.ended:
            raise _Ended
        if not isinstance(other, int | None):
            raise TypeError(f"a rank is an int, found {other!r}; divide by //.")
        if not tensor.is_contiguous():
            raise ValueError(f"{kind} takes a contiguous tensor; call .contiguous() first.")
        request = _Request(self, rank, tensor.detach())
        if kind == "send":
            recv = _first(self.recvs, [(rank.number, other, tag), (None, other, tag)])
            if recv is None:
                self.sends[rank.number, other, tag].append(request)
            else:
                self._pair(request, recv)
        else:
            rank.receive(request)
            sources = [other]
            if other is None:  # all that have sent to this rank, in the order of their first
                sources = [key[0] for key in self.sends if key[1:] == (rank.number, tag)]
            send = _first(self.sends, [(source, rank.number, tag) for source in sources])
            if send is None:
                self.recvs[other, rank.number, tag].append(request)
            else:
                self._pair(send, request)
        return request

    def _pair(self, send: _Request, recv: _Request) -> None:
        """Note that both ends of a message have come."""
        self._push(max(send.posted, recv.posted), send, recv)

    def _push(self, start: float, send: _Request, recv: _Request) -> None:
        entry = (start, send.rank.number, recv.rank.number, next(self.order), send, recv)
        heapq.heappush(self.pending, entry)

    def _deliver_first(self) -> None:
        """Deliver the message that can start first, or postpone it if its links are busy."""
        start, source, target, _, send, recv = heapq.heappop(self.pending)
        n_bytes = send.tensor.nbytes
        links, seconds = self.network.route(source, target, n_bytes)
        possible = max(start, *(self.free[link] for link in links))
        if possible > start:
            self._push(possible, send, recv)
            return
        end = start + seconds
        if recv.tensor.nbytes == n_bytes:
            with torch.no_grad():
                _bytes_of(recv.tensor).copy_(_bytes_of(send.tensor))
        else:
            recv.error = ValueError(
                f"received data size doesn't match expected size: rank {source} sends {n_bytes} "
                f"bytes, rank {target} receives into {recv.tensor.nbytes}."
            )
        self.messages.append(Message(source, target, n_bytes, start, end))
        for link in links:
            self.free[link] = end
        for request in (send, recv):
            request.end = end
            request.source = source
            if request.rank.waiting is request:
                request.rank.waiting = None
                self.ready.append(request.rank)

    def barrier(self, rank: _Rank) -> None:
        """Block until all ranks have come; their clocks then show the latest time."""
        self.at_barrier.append(rank)
        if len(self.at_barrier) < len(self.ranks):
            self.block(rank, self.at_barrier)
            return
        latest = max(other.clock for other in self.ranks)
        for other in self.at_barrier:
            other.clock = latest
            if other is not rank:
                self.ready.append(other)
        self.at_barrier = []


def _first(waiting: dict[tuple, collections.deque], keys: Sequence[tuple]) -> _Request | None:
    """Take the request that has waited longest at the first of `keys` at which one waits."""
    for key in keys:
        if waiting[key]:
            return waiting[key].popleft()
    return None


def _overlap(one: torch.Tensor, other: torch.Tensor) -> bool:
    if one.is_meta or not one.nbytes or not other.nbytes:
        return False
    starts_before_end = one.data_ptr() < other.data_ptr() + other.nbytes
    ends_after_start = other.data_ptr() < one.data_ptr() + one.nbytes
    return starts_before_end and ends_after_start


def _bytes_of(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.view(-1).view(torch.uint8)


class _Group(dist.ProcessGroup):
    """The process group of one virtual rank."""

    def __init__(self, run: _Run, rank: _Rank):
        super().__init__(rank.number, len(run.ranks))
        self.run = run
        self.mine = rank

    def getBackendName(self) -> str:  # a name that torch looks up
        return "virtual"

    def send(self, tensors: list[torch.Tensor], target: int, tag: int) -> _Request:
        return self.run.post("send", self.mine, target, tensors[0], tag)

    def recv(self, tensors: list[torch.Tensor], source: int, tag: int) -> _Request:
        return self.run.post("recv", self.mine, source, tensors[0], tag)

    def recv_anysource(self, tensors: list[torch.Tensor], tag: int) -> _Request:
        return self.run.post("recv", self.mine, None, tensors[0], tag)

    def barrier(self, *_: Any, **options: Any) -> SimpleNamespace:
        self.run.barrier(self.mine)
        return SimpleNamespace(wait=lambda timeout=None: True)

    def _refused(self, *_: Any, **options: Any) -> None:
        raise CourseError(
            "the virtual network carries send, recv, isend and irecv; "
            "write the collective from them."
        )

    allreduce = _refused
    broadcast = _refused
    reduce = _refused
    allgather = _refused
    all_gather_single = _refused
    _allgather_base = _refused
    gather = _refused
    scatter = _refused
    reduce_scatter = _refused
    _reduce_scatter_base = _refused
    reduce_scatter_single = _refused
    alltoall = _refused
    alltoall_base = _refused


class _World(threading.local, type(c10d._world)):
    """The state of torch.distributed, with a default group per thread."""


@contextlib.contextmanager
def _threads_have_groups() -> Iterator[None]:
    """Give each thread a default group of its own inside the block."""
    outer = c10d._world
    c10d._world = _World()
    try:
        yield
    finally:
        c10d._world = outer


@contextlib.contextmanager
def _group_of_thread(group: _Group) -> Iterator[None]:
    """Make `group` the default process group of this thread inside the block."""
    world = c10d._world
    entries = [
        (world.pg_map, ("virtual", None)),
        (world.pg_names, "virtual"),
        (world.pg_backend_config, "cpu:virtual"),
        (world.pg_group_ranks, {rank: rank for rank in range(group.size())}),
    ]
    for table, value in entries:
        table[group] = value
    world.default_pg = group
    try:
        yield
    finally:
        for table, _ in entries:
            table.pop(group)
