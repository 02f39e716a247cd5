"""Count what ranks and devices send each other.

`counted` lists the operations of torch.distributed that a rank calls, `wire_bytes` asks Linux what
went through the connections of a process, and `Transfers` logs copies between the devices of one
process. How many bytes torch's own operations read and write is counted in measure/traffic.py.
"""

import contextlib
import os
import socket
import struct
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
from torch.distributed import distributed_c10d as c10d

from course.errors import RankError

# Linux: the option of a TCP socket that gives its struct tcp_info, how many bytes of it to ask for,
# and where in it two 64-bit numbers stand: bytes sent, bytes resent
TCP_INFO = 11
TCP_INFO_BYTES = 256
TCP_INFO_SENT_OFFSET = 200


class OperationLog(list):
    """The operations that one rank called, in order: tuples (name, bytes of its tensors)."""

    def calls(self, name: str | None = None) -> int:
        """Number of calls, of the operation `name` or of all."""
        return sum(name in (None, operation) for operation, _ in self)

    def bytes(self, name: str | None = None) -> int:
        """Bytes of the tensors in these calls.

        A tensor counts once per call, however it travels.
        """
        return sum(n_bytes for operation, n_bytes in self if name in (None, operation))


def in_words(calls: Sequence[tuple[str, int]]) -> str:
    """These calls as a line like "2 broadcast 1,208 bytes, 1 all_reduce 400 bytes"."""
    of_operation: dict[str, list[int]] = {}
    for operation, n_bytes in calls:
        of_operation.setdefault(operation, []).append(n_bytes)
    texts = [f"{len(n)} {operation} {sum(n):,} bytes" for operation, n in of_operation.items()]
    return ", ".join(texts) or "nothing"


def bytes_of_each(calls: Sequence[tuple[str, int]], operation: str | None = None) -> list[int]:
    """Bytes of each of these calls, in order: the calls of one `operation`, or all."""
    return [n_bytes for name, n_bytes in calls if operation in (None, name)]


@contextlib.contextmanager
def counted() -> Iterator[OperationLog]:
    """Yield the OperationLog of this rank's calls to the default process group inside the block.

    Calls by DDP count too. Operations have the names of torch.distributed: "all_reduce",
    "broadcast", "send", "recv" (isend, irecv too), ... An object that keeps the group, as DDP does,
    must be made inside the block.

    Raises: RankError where torch.distributed is not set up.
    """
    log = OperationLog()
    with group_in_place(lambda group: CountingGroup(group, log)):
        yield log


@contextlib.contextmanager
def group_in_place(
    make: Callable[[dist.ProcessGroup], dist.ProcessGroup],
) -> Iterator[dist.ProcessGroup]:
    """Replace the default process group by `make(that group)` inside the block; yield the new one.

    Raises: RankError where torch.distributed is not set up.
    """
    if not dist.is_initialized():
        raise RankError("found no process group; do it in a function that run_ranks calls.")
    world = c10d._world
    group = dist.group.WORLD
    made = make(group)
    for table in (world.pg_map, world.pg_names, world.pg_group_ranks, world.pg_backend_config):
        table[made] = table[group]
    c10d._update_default_pg(made)
    try:
        yield made
    finally:
        c10d._update_default_pg(group)


class MessageGroup(dist.ProcessGroup):
    """A process group that leaves messages and barriers to the group `inner`.

    Classes below it make collectives of them.
    """

    def __init__(self, inner: dist.ProcessGroup) -> None:
        super().__init__(inner.rank(), inner.size())
        self.inner = inner

    def getBackendName(self) -> str:  # a name that torch looks up
        return "virtual"

    def send(self, *args: Any, **options: Any) -> Any:
        return self.inner.send(*args, **options)

    def recv(self, *args: Any, **options: Any) -> Any:
        return self.inner.recv(*args, **options)

    def recv_anysource(self, *args: Any, **options: Any) -> Any:
        return self.inner.recv_anysource(*args, **options)

    def barrier(self, *args: Any, **options: Any) -> Any:
        return self.inner.barrier(*args, **options)


def _counted(method: str, operation: str, own: int = 0) -> Callable[..., Any]:
    """Make a `method` of a process group that logs the call as `operation` and passes it on.

    Argument number `own` holds what this rank brings or gets.
    """

    def call(self, *args, **options):
        tensors = args[own] if len(args) > own else None
        if isinstance(tensors, torch.Tensor):
            tensors = [tensors]
        n_bytes = 0
        if isinstance(tensors, list):
            n_bytes = sum(each.nbytes for each in tensors if isinstance(each, torch.Tensor))
        self.log.append((operation, n_bytes))
        return getattr(self.inner, method)(*args, **options)

    return call


class CountingGroup(dist.ProcessGroup):
    """A process group that logs every operation and lets the group `inner` do it.

    DDP's reducer, which is written in C++, calls it too.
    """

    def __init__(self, inner: dist.ProcessGroup, log: OperationLog):
        super().__init__(inner.rank(), inner.size())
        self.inner = inner
        self.log = log

    def getBackendName(self) -> str:  # a name that torch looks up
        return "counting"

    allreduce = _counted("allreduce", "all_reduce")
    broadcast = _counted("broadcast", "broadcast")
    reduce = _counted("reduce", "reduce")
    allgather = _counted("allgather", "all_gather", own=1)
    # all_gather_into_tensor, since torch 2.12 and before
    all_gather_single = _counted("all_gather_single", "all_gather", own=1)
    _allgather_base = _counted("_allgather_base", "all_gather", own=1)
    gather = _counted("gather", "gather", own=1)
    scatter = _counted("scatter", "scatter")
    reduce_scatter = _counted("reduce_scatter", "reduce_scatter")
    send = _counted("send", "send")
    recv = _counted("recv", "recv")
    recv_anysource = _counted("recv_anysource", "recv")
    barrier = _counted("barrier", "barrier")


def wire_bytes() -> int | None:
    """Bytes that this process has sent through its open TCP connections; None unless on Linux.

    Linux counts them. Gloo connects ranks by TCP, also on one machine. Its headers count too, some
    hundred bytes per call.
    """
    if not sys.platform.startswith("linux"):
        return None
    total = 0
    for descriptor in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):  # the handle that listed the folder is gone
            if os.readlink(f"/proc/self/fd/{descriptor}").startswith("socket:"):
                total += _sent_by(int(descriptor))
    return total


def _sent_by(descriptor: int) -> int:
    """Bytes that the socket with this descriptor has sent by TCP, without what it sent again."""
    with socket.socket(fileno=os.dup(descriptor)) as connection:
        is_internet = connection.family in (socket.AF_INET, socket.AF_INET6)
        if not is_internet or connection.type != socket.SOCK_STREAM:
            return 0
        info = connection.getsockopt(socket.IPPROTO_TCP, TCP_INFO, TCP_INFO_BYTES)
        sent, resent = struct.unpack_from("QQ", info, TCP_INFO_SENT_OFFSET)
        return sent - resent


def sent_shares(
    rank: int, world_size: int, all_reduces: Sequence[Callable[[torch.Tensor], object]]
) -> list[float]:
    """How many times its tensor this rank sends in each of `all_reduces`; a function of ranks.

    Linux counts the bytes; elsewhere the shares are nan. The tensor has 4 MB.
    """
    x = torch.ones(1_000_000)
    shares = []
    for all_reduce in all_reduces:
        dist.barrier()
        before = wire_bytes()
        all_reduce(x)
        after = wire_bytes()
        dist.barrier()
        is_counted = before is not None and after is not None
        shares.append((after - before) / x.nbytes if is_counted else float("nan"))
    return shares


class Transfer(NamedTuple):
    """A message from one device to another; both are places (indices) in a list of devices."""

    source: int
    target: int
    n_bytes: int


class Transfers:
    """Copies tensors between the devices of one process, and logs each copy in `log`.

    Args:
        devices: list of torch.device or str; a device that is listed several times plays several.
    """

    def __init__(self, devices: Sequence[torch.device | str]):
        self.devices = [torch.device(device) for device in devices]
        self.log: list[Transfer] = []
        # of each message in the log: (source, target, bytes of each gradient that came back)
        self._gradients: list[tuple[int, int, list[int]]] = []

    def send(self, tensors: Sequence[torch.Tensor], source: int, target: int) -> list[torch.Tensor]:
        """Copy `tensors` to the device at place `target`, as one message, and return the copies.

        Gradients flow back through the copies.
        """
        n_bytes = sum(tensor.nbytes for tensor in tensors)
        self.log.append(Transfer(source, target, n_bytes))
        gradient_bytes = []
        self._gradients.append((source, target, gradient_bytes))
        copies = [tensor.to(self.devices[target], copy=True) for tensor in tensors]
        for copied in copies:
            if copied.requires_grad:
                copied.register_hook(lambda gradient: gradient_bytes.append(gradient.nbytes))
        return copies

    @property
    def returned(self) -> list[Transfer]:
        """The messages in which autograd has sent gradients back, one per message sent."""
        messages = []
        for source, target, gradient_bytes in self._gradients:
            if gradient_bytes:
                messages.append(Transfer(target, source, sum(gradient_bytes)))
        return messages

    @property
    def crossing(self) -> list[Transfer]:
        """The messages from one place to another."""
        return [message for message in self.log if message.source != message.target]
