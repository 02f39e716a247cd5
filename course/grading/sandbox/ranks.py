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
    """What a rank's code asks of its group from another process: an operation, or something of one that is under way.

    An operation gives a number, by which its work is asked for.
    """

    def __init__(self):
        self._works = []

    def __call__(self, what, *args, **options):
        if what in OF_A_WORK:
            return getattr(self._works[args[0]], what)()
        if what not in OPERATIONS:
            raise AttributeError("this is the check's own, which no answer needs")
        options = {name: _options(value) for name, value in options.items()}
        self._works.append(getattr(dist.group.WORLD, what)(*map(_options, args), **options))
        return len(self._works) - 1


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

    Args:
        ask: function of the name of an operation, or of OF_A_WORK, and arguments that can cross.
    """

    def __init__(self, ask: Callable, rank: int, size: int):
        super().__init__(rank, size)
        self.ask = ask

    def getBackendName(self):  # a name that torch looks up
        return "virtual"


def _asked(name):
    def operation(self, *args, **options):
        options = {name: _crossing(value) for name, value in options.items()}
        return _Work(self.ask, self.ask(name, *map(_crossing, args), **options))

    return operation


for _name in OPERATIONS:
    setattr(Group, _name, _asked(_name))


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

    def __init__(self, ask, number):
        self.ask, self.number = ask, number

    def wait(self, timeout=None):
        return self.ask("wait", self.number)

    def is_completed(self):
        return self.ask("is_completed", self.number)

    def _source_rank(self):  # what dist.recv asks for
        return self.ask("_source_rank", self.number)
