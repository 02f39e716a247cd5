"""Facts that ranks find: an answer called in every rank, and what came of it put together.

`in_threads` runs ranks without processes: threads on the virtual network, with collectives over a
table in memory.
"""

import functools
import warnings
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import torch
import torch.distributed as dist

from course.engine.compare import plain
from course.engine.exercise import Answer, Facts
from course.parallel.counting import MessageGroup
from course.parallel.distributed import counted, group_in_place
from course.parallel.network import Network, simulate

HANG_SECONDS = 8  # after which ranks that wait for each other are ended
FIRST_TAG = 1000  # of messages that belong to all-reduces
FREE = Network(latency=0.0, bandwidth=1.0)  # it matters what ranks send, not how long it takes
OPERATIONS = {
    "SUM": torch.sum,
    "AVG": torch.mean,
    "PRODUCT": torch.prod,
    "MAX": torch.amax,
    "MIN": torch.amin,
}

Reduction = Callable[[torch.Tensor, int], torch.Tensor]  # of a stack along its first axis


class RankResult(NamedTuple):
    """What came of one call of an answer in one rank."""

    value: Any  # plain data
    operations: int
    bytes_sent: int


def import_compiler() -> None:
    """Import what the first step of an optimizer imports, which takes a second.

    So no rank is stopped in the midst of that.
    """
    import torch._dynamo  # noqa: F401


def each_rank(values: Iterable[Any]) -> dict[str, Any]:
    """{"rank 0": ..., "rank 1": ...} of values in the order of ranks."""
    return {f"rank {rank}": value for rank, value in enumerate(values)}


def together(answers: Sequence[dict[str, Any]]) -> Facts:
    """(fact, {rank: what came of it there}) for each fact; `answers` are the dicts of the ranks."""
    for fact in answers[0]:
        yield fact, each_rank(facts[fact] for facts in answers)


def results_in_ranks(answer: Answer, *inputs: Sequence[tuple]) -> list[tuple[RankResult, ...]]:
    """The results of each rank for each of `inputs`, which holds the arguments of each rank."""
    results_of_ranks = in_threads(_results, len(inputs[0]), answer, inputs)
    return list(zip(*results_of_ranks, strict=True))


def _results(
    rank: int, world_size: int, answer: Answer, inputs: Sequence[Sequence[tuple]]
) -> list[RankResult]:
    results = []
    for of_ranks in inputs:
        with counted() as traffic:
            result = answer(*of_ranks[rank])
        results.append(RankResult(plain(result), traffic.calls(), traffic.bytes()))
    return results


def in_threads(fn: Callable[..., Any], world_size: int, *args: Any) -> list[Any]:
    """[fn(rank, world_size, *args) for each rank], in threads of this process with collectives."""
    table = {}  # what each rank has put on it, between two barriers

    def in_rank(rank: int, world_size: int, *args: Any) -> Any:
        with group_in_place(lambda group: _TableGroup(group, table)):
            return fn(rank, world_size, *args)

    with warnings.catch_warnings():  # what a rank in a process writes to stderr is not shown either
        warnings.simplefilter("ignore")
        return simulate(in_rank, world_size, FREE, *args, timeout=HANG_SECONDS).results


class _Done:
    """The work of an operation that is over when it returns."""

    def wait(self, timeout: object = None) -> bool:
        return True

    def is_completed(self) -> bool:
        return True


class _AllReduce:
    """The work of an all-reduce: it has read its tensor, and writes it when somebody waits."""

    def __init__(
        self, group: dist.ProcessGroup, number: int, tensor: torch.Tensor, reduction: Reduction
    ) -> None:
        self.tensor = tensor
        self.reduction = reduction
        own = tensor.detach().clone(memory_format=torch.contiguous_format)
        self.parts = [torch.empty_like(own) for _ in range(group.size())]
        self.parts[group.rank()] = own
        self.requests = []
        tag = FIRST_TAG + number
        others = [rank for rank in range(group.size()) if rank != group.rank()]
        for other in others:
            self.requests.append(group.send([own], other, tag))
        for other in others:
            self.requests.append(group.recv([self.parts[other]], other, tag))

    def wait(self, timeout: object = None) -> bool:
        while self.requests:
            self.requests.pop().wait()
        if self.parts:
            with torch.no_grad():
                self.tensor.copy_(self.reduction(torch.stack(self.parts), 0))
            self.parts = None
        return True

    def is_completed(self) -> bool:
        return self.parts is None

    def get_future(self) -> "_Future":
        def reduced() -> list[torch.Tensor]:
            self.wait()
            return [self.tensor]

        return _Future(reduced)


class _Future:
    """What get_future and then return; nothing happens before somebody waits."""

    def __init__(self, make: Callable[[], Any]) -> None:
        self.wait = functools.cache(make)
        self.value = self.wait

    def then(self, callback: Callable[["_Future"], Any]) -> "_Future":
        def called_back() -> Any:
            self.wait()
            return callback(self)

        return _Future(called_back)


class _TableGroup(MessageGroup):
    """A process group of a thread whose collectives exchange tensors over a table.

    All ranks see the table; messages, barriers and scatters are those of the group `inner`.
    """

    def __init__(self, inner: dist.ProcessGroup, table: dict[int, tuple[str, Any]]) -> None:
        super().__init__(inner)
        self.table = table
        self.all_reduces = 0

    def scatter(self, *args: Any, **options: Any) -> Any:
        return self.inner.scatter(*args, **options)

    def reduce_scatter(self, *args: Any, **options: Any) -> Any:
        return self.inner.reduce_scatter(*args, **options)

    def _exchanged(self, operation: str, tensor: torch.Tensor) -> list[torch.Tensor]:
        """What each rank has brought to this operation."""
        self.table[self.rank()] = operation, tensor.detach().clone()
        self.inner.barrier()
        entries = [self.table[rank] for rank in range(self.size())]
        self.inner.barrier()
        others = {name for name, _ in entries} - {operation}
        if others:
            raise RuntimeError(
                f"rank {self.rank()} calls {operation} while another rank calls {others.pop()}."
            )
        return [value for _, value in entries]

    def _reduction(self, called: str, options: Any) -> Reduction:
        for name, reduction in OPERATIONS.items():
            if options.reduceOp == getattr(dist.ReduceOp, name):
                return reduction
        raise RuntimeError(
            f"gloo does not have the operation that was asked of {called}; take ReduceOp.SUM."
        )

    def allreduce(self, tensors: list[torch.Tensor], options: Any) -> _AllReduce:
        self.all_reduces += 1
        reduction = self._reduction("all_reduce", options)
        return _AllReduce(self.inner, self.all_reduces, tensors[0], reduction)

    def reduce(self, tensors: list[torch.Tensor], options: Any) -> _Done:
        reduction = self._reduction("reduce", options)
        values = self._exchanged("reduce", tensors[0])
        result = reduction(torch.stack(values), 0)
        if self.rank() == options.rootRank:
            tensors[0].copy_(result)
        return _Done()

    def broadcast(self, tensors: list[torch.Tensor], options: Any) -> _Done:
        values = self._exchanged("broadcast", tensors[0])
        tensors[0].copy_(values[options.rootRank])
        return _Done()

    def allgather(
        self,
        outputs: list[list[torch.Tensor]],
        tensors: list[torch.Tensor],
        options: Any = None,
    ) -> _Done:
        values = self._exchanged("all_gather", tensors[0])
        for output, value in zip(outputs[0], values, strict=True):
            output.copy_(value)
        return _Done()

    def all_gather_single(
        self, output: torch.Tensor, tensor: torch.Tensor, options: Any = None
    ) -> _Done:
        values = self._exchanged("all_gather", tensor)
        output.copy_(torch.cat(values).view_as(output))
        return _Done()

    _allgather_base = all_gather_single

    def gather(
        self, outputs: list[list[torch.Tensor]], tensors: list[torch.Tensor], options: Any
    ) -> _Done:
        values = self._exchanged("gather", tensors[0])
        if self.rank() == options.rootRank:
            for output, value in zip(outputs[0], values, strict=True):
                output.copy_(value)
        return _Done()
