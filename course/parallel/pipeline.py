"""A pipeline's schedule as data: *the passes of each rank* -> a picture, a bubble, a run on ranks.

A pass is the forward ("F") or backward ("B") of one micro-batch on one rank. Rank 0 has the first
layers, the last rank the last ones. How the layers are cut is left to training/split_depth.py, and
which order of passes is good is the task of unit 07, part 4.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from typing import NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor

from course.errors import CourseError
from course.parallel.network import advance, now

Kind = str  # "F" or "B"
Order = Sequence[tuple[Kind, int]]  # (kind, micro-batch) of one rank, first to last
ONE_SLOT = {"F": 1, "B": 1}
COLUMNS = 67  # of a drawing's slots, which a check prints in 80 columns


class Pass(NamedTuple):
    """One pass of a schedule; a tuple."""

    rank: int
    time: float  # when it begins; a slot, or seconds
    kind: Kind
    micro_batch: int


Schedule = Sequence[tuple[int, float, Kind, int]]  # of passes


def gpipe_order(rank: int, ranks: int, micro_batches: int) -> list[tuple[Kind, int]]:
    """The passes of one rank under GPipe: all forward passes, then all backward passes.

    Source: Huang et al. 2019, "GPipe", arXiv:1811.06965, section 2.3.
    """
    forward = [("F", each) for each in range(micro_batches)]
    return forward + [("B", each) for each in range(micro_batches)]


def needed(rank: int, kind: Kind, micro_batch: int, ranks: int) -> tuple[int, Kind, int] | None:
    """The (rank, kind, micro-batch) that must be over before this pass begins; None for an input.

    A forward pass needs the output of the rank before, a backward pass the gradient of the next
    rank. On the last rank it needs the loss.
    """
    if kind == "F":
        return (rank - 1, "F", micro_batch) if rank > 0 else None
    if rank == ranks - 1:
        return rank, "F", micro_batch
    return rank + 1, "B", micro_batch


def timetable(orders: Sequence[Order]) -> list[Pass]:
    """The schedule in which each rank does its passes in order, each in the first slot it can.

    Args:
        orders: of rank 0, 1, ...

    Raises: CourseError if ranks wait for each other forever; it shows the picture.
    """
    schedule, left = _placed(orders)
    if any(left):
        raise CourseError(f"these passes wait for each other:\n{order_drawing(orders)}")
    return schedule


def _placed(orders: Sequence[Order]) -> tuple[list[Pass], list[Order]]:
    """(the passes that can begin, what is left of each order)."""
    done: dict[tuple[int, Kind, int], int] = {}  # the slot after a pass
    schedule: list[Pass] = []
    left = [list(order) for order in orders]
    free = [0] * len(orders)
    moved = True
    while moved:
        moved = False
        for rank, order in enumerate(left):
            if not order:
                continue
            kind, micro_batch = order[0]
            need = needed(rank, kind, micro_batch, len(orders))
            if need is not None and need not in done:
                continue
            start = max(free[rank], 0 if need is None else done[need])
            schedule.append(Pass(rank, start, kind, micro_batch))
            free[rank] = start + 1
            done[rank, kind, micro_batch] = start + 1
            del order[0]
            moved = True
    return schedule, list(left)


def bubble(schedule: Schedule, lasts: Mapping[Kind, int] = ONE_SLOT) -> Fraction:
    """The share of all ranks' time in which they wait, exactly.

    Args:
        lasts: how long a pass takes, by kind.
    """
    passes = [Pass(*each) for each in schedule]
    ranks = 1 + max(each.rank for each in passes)
    end = max(Fraction(each.time) + lasts[each.kind] for each in passes)
    busy = sum(lasts[each.kind] for each in passes)
    return 1 - Fraction(busy) / (ranks * end)


# ---- drawings, for messages and for print


def drawing(schedule: Schedule) -> str:
    """A line per rank, a column per slot: "F0" is the forward pass of micro-batch 0.

    A "!" marks a pass that begins before what it needs is over, "++" two passes in one slot.
    """
    passes = [Pass(*each) for each in schedule]
    ranks = 1 + max((each.rank for each in passes), default=-1)
    rows = _rows(passes, ranks)
    return _text(rows, slots=1 + max((int(each.time) for each in passes), default=-1))


def order_drawing(orders: Sequence[Order]) -> str:
    """As `drawing`, of the timetable of `orders`; a "?" marks passes that would wait forever."""
    schedule, left = _placed(orders)
    rows = _rows(schedule, len(orders))
    length = 1 + max((int(each.time) for each in schedule), default=-1)
    for row, waiting in zip(rows, left, strict=True):
        for place, (kind, micro_batch) in enumerate(waiting):
            row[length + place] = f"{kind}{micro_batch}?"
    return _text(rows, length + max(map(len, left), default=0))


def _rows(passes: Sequence[Pass], ranks: int) -> list[dict[int, str]]:
    """What stands in each slot, a dict per rank."""
    begins = {(each.rank, each.kind, each.micro_batch): each.time for each in passes}
    crowd = Counter((each.rank, each.time) for each in passes)
    rows: list[dict[int, str]] = [{} for _ in range(ranks)]
    for each in passes:
        need = needed(each.rank, each.kind, each.micro_batch, ranks)
        early = need is not None and begins.get(need, each.time) >= each.time
        cell = f"{each.kind}{each.micro_batch}{'!' if early else ''}"
        if crowd[each.rank, each.time] > 1:
            cell = "++"
        rows[each.rank][int(each.time)] = cell
    return rows


def _text(rows: Sequence[Mapping[int, str]], slots: int) -> str:
    """The lines of a drawing, of COLUMNS characters at most, and what its marks mean."""
    cells = [cell for row in rows for cell in row.values()]
    width = 1 + max(map(len, cells), default=1)
    shown = min(slots, COLUMNS // width)
    lines = []
    for rank, row in enumerate(rows):
        text = "".join(row.get(slot, ".").ljust(width) for slot in range(shown))
        more = " ..." if slots > shown else ""
        lines.append(f"rank {rank} |{text.rstrip()}{more}")
    text = "\n".join(lines)
    if "!" in text:
        lines.append("! begins before what it needs is over")
    if "++" in text:
        lines.append("++ two passes in one slot")
    if "?" in text:
        lines.append("? waits forever")
    return "\n".join(lines)


# ---- a run


class Ends(NamedTuple):
    """What lies before the first rank and behind the last one."""

    first: Callable[[int], Tensor]  # micro-batch -> the input of rank 0, perhaps with a graph
    loss: Callable[[int, Tensor], Tensor]  # (micro-batch, output of the last rank) -> its loss
    micro_batches: int


class Wire:
    """Bring a rank's passes what they need, and send what they made to where it is needed.

    Messages start and do not wait, so two ranks may send to each other.

    Args:
        ends: what comes before the first and after the last rank; the gradient that the last rank
            receives is that of the mean of all micro-batches' losses.
        like: a tensor of the shape and dtype of what is sent.
        lasts: virtual seconds of a pass, by kind; None outside a virtual network.
    """

    def __init__(self, ends: Ends, like: Tensor, lasts: Mapping[Kind, float] | None = None) -> None:
        self.ends = ends
        self.like = like
        self.lasts = lasts
        self.rank = dist.get_rank()
        self.is_last = self.rank == dist.get_world_size() - 1
        self.passes: list[Pass] = []  # in the order in which they began
        self._inputs: dict[int, Tensor] = {}  # of rank 0
        self._outputs: dict[int, Tensor] = {}  # of the last rank
        self._sent: list[tuple[dist.Work, Tensor]] = []

    def receive(self, kind: Kind, micro_batch: int) -> Tensor:
        """Wait for what this pass needs: the layers' input ("F") or the gradient of their output.

        The pass begins when it is there.
        """
        tensor = self._arrived(kind, micro_batch)
        if self.lasts is not None:
            self.passes.append(Pass(self.rank, now(), kind, micro_batch))
            advance(self.lasts[kind])
        return tensor

    def send(self, kind: Kind, micro_batch: int, tensor: Tensor) -> None:
        """Start to send what this pass made: the output ("F") or the gradient of the input."""
        tensor = tensor.detach().contiguous()
        if kind == "F" and self.is_last:
            self._outputs[micro_batch] = tensor
        elif kind == "B" and self.rank == 0:
            before = self._inputs.pop(micro_batch)
            if before.requires_grad:
                before.backward(tensor)
        else:
            target = self.rank + (1 if kind == "F" else -1)
            self._sent.append((dist.isend(tensor, target, tag=micro_batch), tensor))

    def finish(self) -> None:
        """Wait until all that was sent has arrived."""
        for request, _ in self._sent:
            request.wait()
        self._sent.clear()

    def _arrived(self, kind: Kind, micro_batch: int) -> Tensor:
        if kind == "F" and self.rank == 0:
            self._inputs[micro_batch] = self.ends.first(micro_batch)
            return self._inputs[micro_batch].detach()
        if kind == "B" and self.is_last:
            output = self._outputs.pop(micro_batch).requires_grad_()
            (self.ends.loss(micro_batch, output) / self.ends.micro_batches).backward()
            assert output.grad is not None
            return output.grad
        tensor = torch.empty_like(self.like)
        dist.recv(tensor, self.rank + (-1 if kind == "F" else 1), tag=micro_batch)
        return tensor
