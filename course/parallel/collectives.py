"""Give virtual ranks the collectives of torch.distributed, each made of messages with clocks.

network.py carries messages only, because unit 02 builds collectives from them. Where collectives
are given, `simulate_collectives` runs the same code on the virtual network: every one sends the
bytes that a ring would, starts when it is called, and ends when its last message has arrived. So
`async_op=True` overlaps with what a rank computes (`network.advance`) as on real ranks.

A rank cuts its tensor into N pieces and sends piece r to rank r (reduce-scatter), or its piece to
every other rank (all-gather): N - 1 messages of 1/N of the tensor each, the bytes of a ring.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from course.errors import CourseError
from course.parallel.counting import group_in_place
from course.parallel.network import Network, Simulation, simulate

FIRST_TAG = 1000  # of messages that belong to collectives


def simulate_collectives(
    fn: Callable[..., Any], world_size: int, network: Network, *args: Any, timeout: float = 60.0
) -> Simulation:
    """Call `fn(rank, world_size, *args)` for each rank, as `simulate` does, with collectives.

    There are all_reduce, all_gather_into_tensor, reduce_scatter_tensor and broadcast, synchronous
    or not, of contiguous tensors.

    Raises: as `simulate`.
    """

    def in_rank(rank: int, world_size: int, *args: Any) -> Any:
        with group_in_place(CollectiveGroup):
            return fn(rank, world_size, *args)

    return simulate(in_rank, world_size, network, *args, timeout=timeout)


class Started:
    """A collective of torch.distributed that has started; `wait` returns its result."""

    def __init__(self, work: Any, result: Tensor) -> None:
        self.work = work
        self.result = result

    def wait(self) -> Tensor:
        """The result, as soon as it has arrived."""
        self.work.wait()
        return self.result


def start_all_gather(shard: Tensor) -> Started:
    """Start to gather the vectors `shard` of all ranks, one behind the other, in a new vector."""
    whole = shard.new_empty(dist.get_world_size() * len(shard))
    # the second name is that of torch before 2.13
    gather = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor
    return Started(gather(whole, shard.detach(), async_op=True), whole)


def start_reduce_scatter(flat: Tensor) -> Started:
    """Start to sum the vectors `flat` over all ranks; the result is this rank's piece of the sum.

    The world size divides the length of `flat`.
    """
    piece = flat.new_empty(len(flat) // dist.get_world_size())
    scatter = getattr(dist, "reduce_scatter_single", None) or dist.reduce_scatter_tensor
    return Started(scatter(piece, flat.detach(), async_op=True), piece)


class _Work:
    """A collective on its way: its messages, and what is done when all have arrived."""

    def __init__(self, requests: Sequence[Any], finish: Callable[[], None]) -> None:
        self.requests = list(requests)
        self.finish: Callable[[], None] | None = finish

    def wait(self, timeout: object = None) -> bool:
        """Block until the result is written; return True."""
        for request in self.requests:
            request.wait()
        self.requests = []
        if self.finish:
            finish = self.finish
            self.finish = None
            with torch.no_grad():
                finish()
        return True

    def is_completed(self) -> bool:
        """True after wait()."""
        return self.finish is None


class CollectiveGroup(dist.ProcessGroup):
    """A process group whose collectives are messages of the group `inner`."""

    def __init__(self, inner: dist.ProcessGroup) -> None:
        super().__init__(inner.rank(), inner.size())
        self.inner = inner
        self.calls = 0

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

    def _others(self) -> list[int]:
        """The other ranks, beginning with the next one, so that no rank is everybody's first."""
        size = self.size()
        return [(self.rank() + distance) % size for distance in range(1, size)]

    def _exchange(self, outgoing: Sequence[Tensor], incoming: Sequence[Tensor]) -> list[Any]:
        """Start to send `outgoing[r]` to each rank r, and to receive `incoming[r]` from it."""
        tag = FIRST_TAG + self.calls
        self.calls += 1
        requests = []
        for other in self._others():
            requests.append(self.inner.send([outgoing[other]], other, tag))
        for other in reversed(self._others()):
            requests.append(self.inner.recv([incoming[other]], other, tag))
        return requests

    def _start_gather(self, output: Tensor, shard: Tensor) -> _Work:
        """Write the shards of all ranks into `output`, N times as long."""
        pieces = output.view(self.size(), -1)
        mine = shard.detach().clone().view(-1)
        requests = self._exchange([mine] * self.size(), pieces)

        def finish() -> None:
            pieces[self.rank()].copy_(mine)

        return _Work(requests, finish)

    def _start_scatter(self, output: Tensor, flat: Tensor, options: Any) -> _Work:
        """Write this rank's piece of the sum of all ranks' `flat` into `output`."""
        _require_sum(options)
        mine = flat.detach().clone().view(self.size(), -1)
        parts = torch.empty_like(mine)
        requests = self._exchange(mine, parts)

        def finish() -> None:
            parts[self.rank()].copy_(mine[self.rank()])
            output.copy_(parts.sum(0).view_as(output))

        return _Work(requests, finish)

    def all_gather_single(self, output: Tensor, shard: Tensor, options: Any = None) -> _Work:
        return self._start_gather(output, shard)

    _allgather_base = all_gather_single  # the same before torch 2.12

    def reduce_scatter_single(self, output: Tensor, flat: Tensor, options: Any = None) -> _Work:
        return self._start_scatter(output, flat, options)

    _reduce_scatter_base = reduce_scatter_single

    def allreduce(self, tensors: list[Tensor], options: Any) -> _Work:
        """Sum over the ranks: a reduce-scatter, then an all-gather, when somebody waits."""
        tensor = tensors[0]
        flat = tensor.detach().reshape(-1)
        room = -len(flat) % self.size()
        padded = torch.cat([flat, flat.new_zeros(room)])
        shard = padded.new_empty(len(padded) // self.size())
        scatter = self._start_scatter(shard, padded, options)

        def finish() -> None:
            scatter.wait()
            whole = torch.empty_like(padded)
            self._start_gather(whole, shard).wait()
            tensor.copy_(whole[: len(flat)].view_as(tensor))

        return _Work([], finish)

    def broadcast(self, tensors: list[Tensor], options: Any) -> _Work:
        root = options.rootRank
        tag = FIRST_TAG + self.calls
        self.calls += 1
        flat = tensors[0].detach()
        if self.rank() != root:
            return _Work([self.inner.recv([flat], root, tag)], lambda: None)
        requests = [self.inner.send([flat], other, tag) for other in self._others()]
        return _Work(requests, lambda: None)


def _require_sum(options: Any) -> None:
    if options is not None and options.reduceOp != dist.ReduceOp.SUM:
        raise CourseError("collectives of virtual ranks sum; divide by the world size for a mean.")
