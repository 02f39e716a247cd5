"""The process group of a rank whose code runs in the learner's process, while its messages go through the probe's.

    learner's process:   Group(server, rank, size)      stands for the default group of the thread that runs the rank
    probe's process:     Operations()                   does with its own rank's group what that one asks

So what a probe notes of messages and counts of operations is noted and counted in its own process.  Tensors that take
part are shared (shared.py): what the probe's group writes into them is written in the learner's process, too.
"""

from collections.abc import Callable
from types import SimpleNamespace

import torch
import torch.distributed as dist

OPERATIONS = (
    "send recv recv_anysource barrier allreduce broadcast reduce allgather all_gather_single _allgather_base gather "
    "scatter reduce_scatter reduce_scatter_single _reduce_scatter_base alltoall alltoall_base"
).split()
OF_A_WORK = "wait", "is_completed", "_source_rank"
REDUCTIONS = "SUM AVG PRODUCT MIN MAX BAND BOR BXOR PREMUL_SUM".split()
FIELDS = "reduceOp", "rootRank"  # of torch's options of an operation: those that a probe's group reads


class Operations:
    """What a rank's code asks of its group from another process, where it numbers its operations.

    Called with the operations that it has started since, [[number, name, arguments, keywords], ...], and what it wants
    of the work of one of all these, if anything.
    """

    def __init__(self):
        self._works = {}

    def __call__(self, started, what=None, number=None):
        for new, name, args, options in started:
            if name not in OPERATIONS or type(new) is not int:
                raise AttributeError("this is the check's own, which no answer needs")
            options = {name: _options(value) for name, value in options.items()}
            self._works[new] = getattr(dist.group.WORLD, name)(*map(_options, args), **options)
        if what in OF_A_WORK:
            return getattr(self._works[number], what)()
        return None


def _options(fields):
    """An argument of an operation: its options, if these are their fields, else what it is."""
    if not isinstance(fields, dict):
        return fields
    if fields.get("reduceOp") in REDUCTIONS:
        fields = fields | {"reduceOp": getattr(dist.ReduceOp, fields["reduceOp"])}
    return SimpleNamespace(**fields)


class Buffer:
    """A tensor that takes part in an operation: what is written into it at the probe's end is written here."""

    def __init__(self, tensor: torch.Tensor):
        self.tensor = tensor


class Group(dist.ProcessGroup):
    """The process group of a rank.

    An operation that can neither fail nor wait is told to the probe's end with the next one that can, or when `told` is
    called: as long as this rank goes on, no other one does.

    Args:
        ask: function of what Operations take, which they answer.
    """

    def __init__(self, ask: Callable, rank: int, size: int):
        super().__init__(rank, size)
        self.ask, self.started, self.n_started, self.receiving = ask, [], 0, set()

    def getBackendName(self):  # a name that torch looks up
        return "virtual"

    def told(self, what: str | None = None, number: int | None = None):
        """Tell what was started, and return `what` of the work with this number."""
        started, self.started = self.started, []
        if what == "wait":
            self.receiving.discard(number)
        return self.ask(started, what, number) if started or what else None

    def start(self, name, args, options):
        self.n_started += 1
        options = {name: _crossing(value) for name, value in options.items()}
        self.started.append([self.n_started, name, [_crossing(value) for value in args], options])
        if not self._is_plain(name, args):
            self.told()
        if name == "recv":
            self.receiving.add(self.n_started)
        return _Work(self, self.n_started)

    def _is_plain(self, name, args):
        """Whether it is a message that the probe's group takes for sure: to or from a rank, in memory of its own."""
        if name not in ("send", "recv") or (name == "recv" and self.receiving):
            return False
        (tensor,), other, _ = args
        return type(other) is int and 0 <= other < self.size() and other != self.rank() and tensor.is_contiguous()


def _started(name):
    return lambda self, *args, **options: self.start(name, args, options)


for _name in OPERATIONS:
    setattr(Group, _name, _started(_name))


def _crossing(value):
    """An argument of an operation as it crosses."""
    if isinstance(value, torch.Tensor):
        return Buffer(value)
    if isinstance(value, (list, tuple)):
        return [_crossing(item) for item in value]
    if type(value).__name__.endswith("Options"):
        fields = {name: getattr(value, name) for name in FIELDS if hasattr(value, name)}
        if "reduceOp" in fields:
            fields["reduceOp"] = next((n for n in REDUCTIONS if fields["reduceOp"] == getattr(dist.ReduceOp, n)), None)
        return fields
    return value


class _Work:
    """An operation that is under way at the probe's end."""

    def __init__(self, group, number):
        self.group, self.number = group, number

    def wait(self, timeout=None):
        return self.group.told("wait", self.number)

    def is_completed(self):
        return self.group.told("is_completed", self.number)

    def _source_rank(self):  # what dist.recv asks for
        return self.group.told("_source_rank", self.number)
