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
import linecache
import os
import sys
import threading
import time
import traceback
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace

import cloudpickle
import torch
import torch.distributed as dist
from torch.distributed import distributed_c10d as c10d

from course.errors import CourseError, RankError
from course.system.busy import PATIENCE, is_busy

_OPERATIONS = c10d.__file__
_HERE = os.path.dirname(__file__)
_COURSE = os.path.dirname(_HERE)
_LIBRARIES = tuple(os.path.dirname(module.__file__) for module in (torch, threading, cloudpickle))
_NOT_THEIRS = (*_LIBRARIES, __file__, os.path.join(_HERE, "distributed.py"))
GRACE = 0.5  # seconds in which a rank that computes must notice that the run is over
_here = threading.local()  # .rank: the virtual rank that runs in this thread


@dataclass(frozen=True)
class Network:
    """A network on which a message of b bytes takes `latency + b / bandwidth` seconds, between any
    two ranks.

    A message starts when both ends have come to it. A rank sends one message at a time and receives
    one at a time, and can do both at once; others wait for their turn.

    Args:
        latency: seconds per message, 0 or more.
        bandwidth: bytes per second.
    """

    latency: float
    bandwidth: float

    def route(self, source: int, target: int, n_bytes: int) -> tuple[tuple[Hashable, ...], float]:
        """(the links that a message of `n_bytes` occupies, the seconds that it occupies them)."""
        return (("out of", source), ("into", target)), self.latency + n_bytes / self.bandwidth


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
    fn: Callable, world_size: int, network: Network, *args, timeout: float = 60.0
) -> Simulation:
    """Call `fn(rank, world_size, *args)` for each rank on the virtual `network`, as run_ranks does
    on a real one.

    Each rank gets its own copy of the arguments; globals and torch's random numbers are shared.
    Computing takes no virtual time unless the rank says so by `advance`. Collectives of
    torch.distributed are refused, except barrier.

    Args:
        timeout: seconds on a real clock in which all ranks must have returned; more on a busy
            machine.

    Raises: the exception of the first rank that raised one, with its `rank` and `frames`; RankError
    at once if every
        rank waits, or if some have not returned in time: it says where each rank waits.
    """
    with _threads_have_groups():
        return _Run(fn, world_size, network, args).outcome(timeout)


def now() -> float:
    """Virtual seconds on this rank's clock.  Raises: CourseError outside a virtual rank."""
    return _this_rank().clock


def advance(seconds: float) -> None:
    """Move this rank's clock on, as computing for `seconds` would. Raises: CourseError outside a
    virtual rank.
    """
    _this_rank().clock += seconds


def position(number: int, frames: list[tuple[str, int, str]]) -> str:
    """One line on where a rank is: the operation of torch.distributed that it waits in, and its own
    line.

    Args:
        frames: (file, line number, function) of its stack, innermost first.
    """
    theirs = [
        i
        for i, (file, line, _) in enumerate(frames)
        if not file.startswith(_NOT_THEIRS) and _has(file, line)
    ]
    # a probe calls the answer
    theirs = [i for i in theirs if not frames[i][0].startswith(_COURSE)] or theirs
    operations = [
        name for path, _, name in frames[: theirs[0] if theirs else None] if path == _OPERATIONS
    ]
    if not theirs and operations:
        return f"rank {number} waits in {operations[-1]}, outside your code."
    if not theirs:
        return f"rank {number} does not say where it is: it may not have started yet."
    file, line, _ = frames[theirs[0]]
    waits = f"waits in {operations[-1]}, line" if operations else "is in line"
    short = "the cell" if "ipykernel_" in file or file.startswith("<") else Path(file).name
    return f"rank {number} {waits} {line} of {short}: {linecache.getline(file, line).strip()}"


def of_rank(error: BaseException, number: int) -> BaseException:
    """`error` with `rank` and `frames` set; a RankError instead of an exception that would end the
    caller too.
    """
    frames = [(frame.filename, frame.lineno) for frame in traceback.extract_tb(error.__traceback__)]
    if isinstance(error, (SystemExit, KeyboardInterrupt)):
        error = RankError(f"rank {number} ended itself by {type(error).__name__}: {error}")
    error.rank, error.frames = number, frames
    return error


def _has(file, line):
    """True if the source of a line can be shown: "<string>", from which Python starts a process,
    has none.
    """
    return not file.startswith("<") or bool(linecache.getline(file, line).strip())


def _this_rank():
    if not hasattr(_here, "rank"):
        raise CourseError(
            "asked for a virtual clock outside a virtual rank; call it in a function for simulate."
        )
    return _here.rank


class _Ended(BaseException):
    """Ends a rank when the run is over. A BaseException, so `except Exception` does not catch
    it.
    """


class _Rank:
    """One virtual rank: its thread, its clock, and the request or barrier for which it waits."""

    def __init__(self, number, body):
        self.number, self.clock, self.waiting, self.baton = (
            number,
            0.0,
            None,
            threading.Semaphore(0),
        )
        self.result, self.returned, self.receiving = None, False, []
        self.thread = threading.Thread(target=body, args=(self,), daemon=True)

    def receive(self, request):
        """Note a request to receive. Raises: RuntimeError if one that is in progress has the same
        memory.
        """
        self.receiving = [other for other in self.receiving if not other.waited]
        if any(_overlap(other.tensor, request.tensor) for other in self.receiving):
            raise RuntimeError(
                "two messages are received into the same memory, and the later one overwrites the other; "
                "wait for the first, or give each message its own tensor."
            )
        self.receiving.append(request)

    def state(self):
        """One line on where it is now."""
        if self.returned:
            return f"rank {self.number} has returned."
        frames = traceback.extract_stack(sys._current_frames().get(self.thread.ident))
        return position(self.number, [(f.filename, f.lineno, f.name) for f in reversed(frames)])


class _Request:
    """One end of a message: what isend and irecv return."""

    def __init__(self, run, rank, tensor):
        self.run, self.rank, self.tensor, self.posted = run, rank, tensor, rank.clock
        self.end, self.source, self.waited, self.error = None, None, False, None

    def wait(self, timeout=None):
        """Block until the message has arrived; return True. Raises: ValueError if its ends differ
        in length.
        """
        if self.end is None:
            self.run.block(self.rank, self)
        if self.error:
            raise self.error
        self.rank.clock, self.waited = max(self.rank.clock, self.end), True
        return True

    def _source_rank(self):  # what dist.recv asks for
        return self.source

    def is_completed(self):
        """True after wait(), which completes a request with gloo too."""
        return self.waited


class _Run:
    """All ranks of a simulation, and who runs next.

    One thread runs at a time: it holds the baton until it waits or returns. When nobody can run,
    the message that can start first is delivered. That order is safe: a rank that wakes up can only
    start messages later than that.
    """

    def __init__(self, fn, world_size, network, args):
        self.fn, self.network, self.args = fn, network, args
        self.ranks = [_Rank(number, self._body) for number in range(world_size)]
        self.ready, self.done = collections.deque(self.ranks), threading.Semaphore(0)
        self.sends, self.recvs = (
            collections.defaultdict(collections.deque),
            collections.defaultdict(collections.deque),
        )
        self.pending, self.order, self.free = [], itertools.count(), collections.defaultdict(float)
        self.at_barrier, self.messages, self.error, self.ended = [], [], None, False

    def outcome(self, timeout):
        """The Simulation, after all ranks have returned."""
        for rank in self.ranks:
            rank.thread.start()
        try:
            self._hand_over()
            if not self.done.acquire(timeout=timeout * (PATIENCE if is_busy() else 1)):
                raise RankError(
                    f"not all ranks returned within {timeout:g} seconds.\n{self._states()}"
                )
            if self.error:
                raise self.error
        finally:
            self._end()
        return Simulation(
            [r.result for r in self.ranks], max(r.clock for r in self.ranks), self.messages
        )

    def _body(self, rank):
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
        self._hand_over()

    def _states(self):
        return "\n".join(rank.state() for rank in self.ranks)

    def _end(self):
        """End every thread: waiting ones at once, a computing one at its next line."""
        self.ended = True
        for rank in self.ranks:
            rank.baton.release()
        for rank in self.ranks:
            rank.thread.join(timeout=0.1)
        until = time.monotonic() + GRACE
        while (
            alive := [r.thread for r in self.ranks if r.thread.is_alive()]
        ) and time.monotonic() < until:
            for thread in alive:  # repeatedly: an `except:` in its code can catch one
                ctypes.pythonapi.PyThreadState_SetAsyncExc(
                    ctypes.c_ulong(thread.ident), ctypes.py_object(_Ended)
                )
                thread.join(timeout=0.05)

    def block(self, rank, reason):
        """Let others run until `rank` is ready again."""
        rank.waiting = reason
        self._hand_over(rank)

    def _hand_over(self, rank=None):
        """Give the baton to the next rank; if `rank` gives it away, wait until it comes back."""
        if self.ended:
            if rank:
                raise _Ended
            return
        while not self.ready and self.pending:
            self._settle()
        if self.ready:
            following = self.ready.popleft()
            if following is rank:
                return
            following.baton.release()
        else:
            if not all(r.returned for r in self.ranks):
                self.error = self.error or RankError(
                    f"every rank waits for another one.\n{self._states()}"
                )
            self.done.release()
        if rank:
            rank.baton.acquire()
            if self.ended:
                raise _Ended

    def post(self, kind, rank, other, tensor, tag):
        """Return the request for one end of a message, `kind` "send" or "recv"; `other` is None for
        any source.
        """
        if self.ended:
            raise _Ended
        if not isinstance(other, int | None):
            raise TypeError(f"a rank is an int, found {other!r}; divide by //.")
        if not tensor.is_contiguous():
            raise ValueError(f"{kind} takes a contiguous tensor; call .contiguous() first.")
        request = _Request(self, rank, tensor.detach())
        if kind == "recv":
            rank.receive(request)
        mine, theirs = (self.sends, self.recvs) if kind == "send" else (self.recvs, self.sends)
        keys = (
            [(rank.number, other, tag), (None, other, tag)]
            if kind == "send"
            else [(other, rank.number, tag)]
        )
        if other is None:
            keys = [key for key, queue in theirs.items() if key[1:] == (rank.number, tag) and queue]
        partner = next((theirs[key].popleft() for key in keys if theirs[key]), None)
        if partner is None:
            ends = (rank.number, other) if kind == "send" else (other, rank.number)
            mine[(*ends, tag)].append(request)
        else:
            pair = (request, partner) if kind == "send" else (partner, request)
            self._push(max(request.posted, partner.posted), pair)
        return request

    def _push(self, start, pair):
        heapq.heappush(
            self.pending, (start, pair[0].rank.number, pair[1].rank.number, next(self.order), pair)
        )

    def _settle(self):
        """Deliver the message that can start first, or postpone it if its links are busy."""
        start, source, target, _, (send, recv) = heapq.heappop(self.pending)
        n_bytes = send.tensor.nbytes
        links, seconds = self.network.route(source, target, n_bytes)
        possible = max(start, *(self.free[link] for link in links))
        if possible > start:
            return self._push(possible, (send, recv))
        if recv.tensor.nbytes == n_bytes:
            with torch.no_grad():
                _bytes_of(recv.tensor).copy_(_bytes_of(send.tensor))
        else:
            recv.error = ValueError(
                f"received data size doesn't match expected size: rank {source} sends {n_bytes} bytes, "
                f"rank {target} receives into {recv.tensor.nbytes}."
            )
        self.messages.append(Message(source, target, n_bytes, start, start + seconds))
        self.free.update(dict.fromkeys(links, start + seconds))
        for request in (send, recv):
            request.end, request.source = start + seconds, source
            if request.rank.waiting is request:
                request.rank.waiting = None
                self.ready.append(request.rank)

    def barrier(self, rank):
        """Block until all ranks have come; their clocks then show the latest time."""
        self.at_barrier.append(rank)
        if len(self.at_barrier) < len(self.ranks):
            return self.block(rank, self.at_barrier)
        latest = max(r.clock for r in self.ranks)
        for other in self.at_barrier:
            other.clock = latest
            if other is not rank:
                self.ready.append(other)
        self.at_barrier = []


def _overlap(one, other):
    if one.is_meta or not one.nbytes or not other.nbytes:
        return False
    return (
        one.data_ptr() < other.data_ptr() + other.nbytes
        and other.data_ptr() < one.data_ptr() + one.nbytes
    )


def _bytes_of(tensor):
    return tensor.view(-1).view(torch.uint8)


class _Group(dist.ProcessGroup):
    """The process group of one virtual rank."""

    def __init__(self, run, rank):
        super().__init__(rank.number, len(run.ranks))
        self.run, self.mine = run, rank

    def getBackendName(self):  # a name that torch looks up
        return "virtual"

    def send(self, tensors, to, tag):
        return self.run.post("send", self.mine, to, tensors[0], tag)

    def recv(self, tensors, source, tag):
        return self.run.post("recv", self.mine, source, tensors[0], tag)

    def recv_anysource(self, tensors, tag):
        return self.run.post("recv", self.mine, None, tensors[0], tag)

    def barrier(self, *_, **options):
        self.run.barrier(self.mine)
        return SimpleNamespace(wait=lambda timeout=None: True)

    def _refused(self, *_, **options):
        raise CourseError(
            "the virtual network carries send, recv, isend and irecv; write the collective from them."
        )

    allreduce = broadcast = reduce = allgather = all_gather_single = gather = scatter = (
        reduce_scatter
    ) = _refused
    _allgather_base = _reduce_scatter_base = reduce_scatter_single = alltoall = alltoall_base = (
        _refused
    )


class _World(threading.local, type(c10d._world)):
    """The state of torch.distributed, with a default group per thread."""


@contextlib.contextmanager
def _threads_have_groups():
    """Give each thread a default group of its own inside the block."""
    outer, c10d._world = c10d._world, _World()
    try:
        yield
    finally:
        c10d._world = outer


@contextlib.contextmanager
def _group_of_thread(group):
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
