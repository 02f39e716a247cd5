"""Probe of exercise Loader."""

import collections
import itertools

import torch

from course.checks.engine import exercise
from course.checks.probing.errors import raised_at_all, type_name
from course.checks.probing.tensors import storage
from course.checks.probing.threads import END


class _Ahead:
    """Stands in for read_ahead, without a thread: it fills as many buffers as it may, at once.

    It keeps the generators that it returns, so none ends merely because the loader dropped it.
    """

    def __init__(self):
        self.log, self.buffers, self.streams = [], None, []

    def __call__(self, fill, work, buffers):
        self.streams.append(self.stream(fill, work, buffers))
        return self.streams[-1]

    def stream(self, fill, work, buffers):
        self.log.append("begun")
        self.buffers = buffers
        turn, items, filled = itertools.cycle(buffers), iter(work), collections.deque()
        try:
            filled.extend(fill(item, next(turn)) for item in itertools.islice(items, len(buffers)))
            while filled:
                yield filled.popleft()
                filled.extend(fill(item, next(turn)) for item in itertools.islice(items, 1))
        finally:
            self.log.append("ended")


class _Rows:
    """A table of rows, an order for each epoch, and a `fill`; records all calls.

    With `at_end` a short fill puts its rows at the end of the buffer.
    """

    at_end = False

    def __init__(self, seed, device, n, columns, stride):
        self.seed, self.n = seed, n
        rng = torch.Generator().manual_seed(seed)
        self.table = torch.rand(n, stride, generator=rng).to(device)
        self.table[:, columns + 1 :] = -1.0  # padding
        self.orders, self.asked, self.fills, self.refuses = {}, [], [], ()

    def order(self, epoch):
        if epoch in self.refuses:
            raise LookupError(f"no order of epoch {epoch}")
        self.asked.append(epoch)
        if epoch not in self.orders:
            rng = torch.Generator().manual_seed(1000 * self.seed + epoch)
            self.orders[epoch] = torch.randperm(self.n, generator=rng)
        return self.orders[epoch]

    def fill(self, index, buffer):
        if "fill" in self.refuses:
            raise LookupError("a row cannot be read")
        self.fills.append((index, buffer))
        rows = buffer[-len(index) :] if self.at_end else buffer[: len(index)]
        return rows.copy_(self.table[index.to(self.table.device)])


def _epoch(batches):
    """(x, y) of all `batches`, concatenated; each batch is copied before the next is asked for."""
    x, y = zip(*((x.clone(), y.clone()) for x, y in batches), strict=True)
    return torch.cat(x), torch.cat(y)


class _Case:
    """Loaders over small tables, with buffers of `rows` = 3 batches; `fresh` replaces the table and the records."""

    def __init__(self, answer, device, seed):
        self.answer, self.device, self.seed = answer, device, seed
        self.columns, self.stride, self.batch = 3 + seed % 3, 8, 2 + seed % 4
        self.rows = 3 * self.batch  # of a buffer
        self.n = 5 * self.rows + self.batch + 1
        self.fresh()

    def fresh(self, n=None, seed=None):
        seed = self.seed if seed is None else seed
        self.data = _Rows(seed, self.device, self.n if n is None else n, self.columns, self.stride)
        self.ahead = _Ahead()

    def loader(self, count=3, rows=None):
        """A loader with `count` buffers, which are kept in `buffers`."""
        rows = rows or self.rows
        self.buffers = [torch.zeros(rows, self.stride, device=self.device) for _ in range(count)]
        return self.answer(self.data.order, self.data.fill, self.ahead, self.buffers, self.columns, self.batch)


def _first_row(batches):
    """The first row of x in the next batch, or "at its end"."""
    got = next(batches, END)
    return "at its end" if got is END else got[0][0]


@exercise()
def Loader(answer, device, seed):
    """Small tables, and a stand-in for read_ahead that overwrites a buffer as early as it may."""
    case = _Case(answer, device, seed)
    yield from _one_batch(case)
    yield from _epochs(case)
    for count in (3, 1):
        text = f"{count} buffer{'s' * (count > 1)}"
        mine = yield from _left_early(case, text, count)
        yield from _closed(case, text, mine, count)
        yield from _failures(case, text, mine, count)
        yield from _after_failures(case, text, mine, count)
    yield from _sizes(case)


def _one_batch(case):
    mine = case.loader()  # held: a loader that is dropped may close what ahead returned
    one = next(iter(mine), ())
    yield "a batch is a tuple of two", [type(one).__name__, len(one)]
    yield "shape of x, shape of y", [tuple(one[0].shape), tuple(one[1].shape)]
    yield "x and y are those of the first rows of the order", list(one)
    homes = {storage(buffer) for buffer in case.buffers}
    yield "x and y are views of a buffer, not copies", all(storage(part) in homes for part in one)
    yield "several buffers: ahead is called, and given all of them", [case.ahead.log, len(case.ahead.buffers or ())]


def _epochs(case):
    case.fresh()
    mine, data = case.loader(), case.data
    yield "len() is the number of batches, the last, short one too", len(mine)
    yield "len() fills nothing", len(data.fills)
    yield "len() twice: order is asked once", len(mine) and len(data.asked)
    yield "rows of each batch of an epoch", [len(y) for _, y in mine]
    yield "fill is given a buffer", all(any(b is buffer for b in case.buffers) for _, buffer in data.fills)
    yield "rows of each fill", [len(index) for index, _ in data.fills]
    order = data.order(0)
    yield "fill is given pieces of the order, not copies", all(storage(i) == storage(order) for i, _ in data.fills)
    mine.set_epoch(0)
    yield "x and y of a whole epoch, each row once", _epoch(mine)
    yield "at the end of an epoch, ahead has ended", case.ahead.log
    yield "the next iteration has the next epoch's order", _epoch(mine)
    mine.set_epoch(6)
    yield "after set_epoch(6): the order of epoch 6", _epoch(mine)
    yield "and then that of epoch 7", _epoch(mine)
    yield "len() has begun no epoch", [len(mine), _first_row(iter(mine))]


def _left_early(case, text, count):
    """Facts about an epoch that is abandoned for the next one; returns the loader."""
    case.fresh()
    mine = case.loader(count)
    old = iter(mine)
    next(old, END), next(old, END)
    if count == 1:
        yield "1 buffer: ahead is not called", len(case.ahead.log)
        yield "1 buffer: filled when it is needed, fills after two batches", len(case.data.fills)
    mine.set_epoch(4)
    yield f"{text}: set_epoch() leaves the running epoch as it is", _first_row(old)
    new = iter(mine)
    if count > 1:
        yield f"{text}: iter() closes the old iterator at once", case.ahead.log
    yield f"{text}: the new one begins with its first rows", _first_row(new)
    yield f"{text}: the old one is at its end", _first_row(old)
    yield f"{text}: and that does not disturb the new one", _epoch(new)
    old, new = iter(mine), iter(mine)
    yield f"{text}: an old one that had not begun is at its end", _first_row(old)
    yield f"{text}: every iter() counts, also without a batch", _first_row(new)
    mine.close()
    yield f"{text}: close() ends what is running", _first_row(new)
    return mine


def _closed(case, text, mine, count):
    if count > 1:
        yield f"{text}: close() closes what ahead returned", case.ahead.log
    mine.close()
    yield f"{text}: after close() the next epoch can begin", _epoch(mine)
    with mine as inside:
        new = iter(inside)
        next(new, END)
    yield f"{text}: `with` gives the loader itself", inside is mine
    yield f"{text}: the end of `with` closes what is running", _first_row(new)


def _failures(case, text, mine, count):
    def fail_inside():
        with mine:
            next(iter(mine), END)
            raise LookupError("the body of the with")

    yield f"{text}: an exception in `with` comes out", type_name(raised_at_all(fail_inside))
    if count > 1:
        yield f"{text}: and what ahead returned is closed", case.ahead.log
    case.data.refuses = ("fill",)
    yield f"{text}: an exception of fill comes out", type_name(raised_at_all(list, mine))
    case.data.refuses = (2,)
    mine.set_epoch(2)
    yield f"{text}: an exception of order comes out", type_name(raised_at_all(list, mine))
    case.data.refuses = ()
    mine.set_epoch(2)
    yield f"{text}: after these the loader goes on", _epoch(mine)


def _after_failures(case, text, mine, count):
    new = iter(mine)
    next(new, END)
    new.close()
    yield f"{text}: an iterator that is closed itself is at its end", _first_row(new)
    if count > 1:
        yield f"{text}: and what ahead returned for it is closed", case.ahead.log
    case.data.at_end = True
    yield f"{text}: a short fill returns the end of its buffer: x and y", _epoch(mine)


def _sizes(case):
    rows, batch = case.rows, case.batch
    for text, m in (("whole batches only", 2 * rows), ("fewer rows than a batch", batch - 1)):
        case.fresh(m, case.seed + 1)
        mine = case.loader()
        yield f"{text}: len(), rows of the batches", [len(mine), [len(y) for _, y in mine]]
    case.fresh(seed=case.seed + 1)
    yield "two buffers, each of a batch", _epoch(case.loader(2, rows=batch))
    yield "two buffers: ahead is called", case.ahead.log
    for wrong in (rows - 1, batch - 1):
        error = raised_at_all(case.loader, rows=wrong)
        yield f"buffers of {wrong} rows, batch {batch}: raises", type_name(error)
    yield "a buffer of rows for 3 batches is right", type_name(raised_at_all(case.loader))
