"""Facts that ranks find: an answer called in every rank, and what came of it put together.

`in_threads` runs ranks without processes: threads on the virtual network, with collectives over a
table in memory.
"""

import functools
import warnings

import torch
import torch.distributed as dist

from course.engine.compare import plain
from course.parallel.distributed import counted, group_in_place
from course.parallel.network import Network, simulate

HANG = 8  # seconds after which ranks that wait for each other are ended
FIRST_TAG = 1000  # of messages that belong to all-reduces
FREE = Network(latency=0.0, bandwidth=1.0)  # it matters what ranks send, not how long it takes
OPERATIONS = {
    "SUM": torch.sum,
    "AVG": torch.mean,
    "PRODUCT": torch.prod,
    "MAX": torch.amax,
    "MIN": torch.amin,
}


def import_compiler():
    """Import what the first step of an optimizer imports, a second, so that no rank is stopped in
    the midst of that.
    """
    import torch._dynamo  # noqa: F401


def each_rank(values):
    """{"rank 0": ..., "rank 1": ...} of values in the order of ranks."""
    return {f"rank {rank}": value for rank, value in enumerate(values)}


def together(answers):
    """(fact, {rank: what came of it there}) for each fact; `answers` are the dicts of the ranks."""
    for fact in answers[0]:
        yield fact, each_rank(facts[fact] for facts in answers)


def results_in_ranks(answer, *inputs):
    """For each of `inputs`, a list of the arguments of each rank: (result, operations, bytes sent)
    of each rank.
    """
    per_call = in_threads(_results, len(inputs[0]), answer, inputs)
    return list(zip(*per_call, strict=True))


def _results(rank, world_size, answer, inputs):
    results = []
    for of_ranks in inputs:
        with counted() as traffic:
            result = answer(*of_ranks[rank])
        results.append([plain(result), traffic.calls(), traffic.bytes()])
    return results


def in_threads(fn, world_size, *args):
    """[fn(rank, world_size, *args) for each rank], in threads of this process that have
    collectives.
    """
    table = {}  # what each rank has put on it, between two barriers

    def in_rank(rank, world_size, *args):
        with group_in_place(lambda group: _TableGroup(group, table)):
            return fn(rank, world_size, *args)

    with warnings.catch_warnings():  # what a rank in a process writes to stderr is not shown either
        warnings.simplefilter("ignore")
        return simulate(in_rank, world_size, FREE, *args, timeout=HANG).results


class _Done:
    """The work of an operation that is over when it returns."""

    def wait(self, timeout=None):
        return True

    def is_completed(self):
        return True


class _AllReduce:
    """An all-reduce that is under way: it has read its tensor, and writes it when somebody waits
    for it.
    """

    def __init__(self, group, number, tensor, reduce):
        own, self.tensor, self.reduce = (
            tensor.detach().clone(memory_format=torch.contiguous_format),
            tensor,
            reduce,
        )
        self.parts = [
            own if rank == group.rank() else torch.empty_like(own) for rank in range(group.size())
        ]
        others = [rank for rank in range(group.size()) if rank != group.rank()]
        self.requests = [group.send([own], other, FIRST_TAG + number) for other in others]
        self.requests += [
            group.recv([self.parts[other]], other, FIRST_TAG + number) for other in others
        ]

    def wait(self, timeout=None):
        while self.requests:
            self.requests.pop().wait()
        if self.parts:
            with torch.no_grad():
                self.tensor.copy_(self.reduce(torch.stack(self.parts), 0))
            self.parts = None
        return True

    def is_completed(self):
        return self.parts is None

    def get_future(self):
        return _Future(lambda: [self.wait() and self.tensor])


class _Future:
    """What get_future and then return; nothing happens before somebody waits."""

    def __init__(self, make):
        self.wait = self.value = functools.cache(make)

    def then(self, callback):
        return _Future(lambda: (self.wait(), callback(self))[1])


def _of_inner(name):
    return lambda self, *args, **options: getattr(self.inner, name)(*args, **options)


class _TableGroup(dist.ProcessGroup):
    """A process group of a thread whose collectives exchange tensors over a table that all ranks
    see.
    """

    def __init__(self, inner, table):
        super().__init__(inner.rank(), inner.size())
        self.inner, self.table, self.all_reduces = inner, table, 0

    send, recv, recv_anysource, barrier, scatter, reduce_scatter = map(
        _of_inner, "send recv recv_anysource barrier scatter reduce_scatter".split()
    )

    def getBackendName(self):  # a name that torch looks up
        return "virtual"

    def _exchanged(self, operation, value):
        """What each rank has brought to this operation."""
        self.table[self.rank()] = operation, value
        self.inner.barrier()
        entries = [self.table[rank] for rank in range(self.size())]
        self.inner.barrier()
        others = {name for name, _ in entries} - {operation}
        if others:
            raise RuntimeError(
                f"rank {self.rank()} calls {operation} while another rank calls {others.pop()}."
            )
        return [value for _, value in entries]

    def _operation(self, called, options):
        reduce = [
            f for name, f in OPERATIONS.items() if options.reduceOp == getattr(dist.ReduceOp, name)
        ]
        if not reduce:
            raise RuntimeError(
                f"gloo does not have the operation that was asked of {called}; take ReduceOp.SUM."
            )
        return reduce[0]

    def allreduce(self, tensors, options):
        self.all_reduces += 1
        return _AllReduce(
            self.inner, self.all_reduces, tensors[0], self._operation("all_reduce", options)
        )

    def reduce(self, tensors, options):
        reduce = self._operation("reduce", options)
        result = reduce(torch.stack(self._exchanged("reduce", tensors[0].detach().clone())), 0)
        if self.rank() == options.rootRank:
            tensors[0].copy_(result)
        return _Done()

    def broadcast(self, tensors, options):
        tensors[0].copy_(
            self._exchanged("broadcast", tensors[0].detach().clone())[options.rootRank]
        )
        return _Done()

    def allgather(self, outputs, tensors, options=None):
        for output, value in zip(
            outputs[0], self._exchanged("all_gather", tensors[0].detach().clone()), strict=True
        ):
            output.copy_(value)
        return _Done()

    def all_gather_single(self, output, tensor, options=None):
        output.copy_(
            torch.cat(self._exchanged("all_gather", tensor.detach().clone())).view_as(output)
        )
        return _Done()

    _allgather_base = all_gather_single

    def gather(self, outputs, tensors, options):
        values = self._exchanged("gather", tensors[0].detach().clone())
        if self.rank() == options.rootRank:
            for output, value in zip(outputs[0], values, strict=True):
                output.copy_(value)
        return _Done()
