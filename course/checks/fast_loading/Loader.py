"""Probe of exercise Loader."""

import collections
import itertools

import torch

from course.checks.engine import exercise
from course.checks.probing.errors import raised_at_all, type_name
from course.checks.probing.tensors import storage
from course.checks.probing.threads import END


class _Ahead:
    """Keeps the convention of read_ahead without a thread: it fills as far ahead as it may, at once.

    What it returns is kept here, so none ends because nobody holds it any more.
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
    """A table of rows, an order of them for each epoch, and a `fill`; all calls are noted.

    With `at_end` a short fill uses the end of its buffer.
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
    """(x, y) of all `batches` put together; each is copied when it comes."""
    x, y = zip(*((x.clone(), y.clone()) for x, y in batches), strict=True)
    return torch.cat(x), torch.cat(y)


@exercise()
def Loader(answer, device, seed):
    """Small tables; a stand-in of read_ahead that overwrites a buffer as early as it may."""
    columns, stride, batch = 3 + seed % 3, 8, 2 + seed % 4
    rows = 3 * batch  # of a buffer
    n = 5 * rows + batch + 1
    data, ahead = _Rows(seed, device, n, columns, stride), _Ahead()

    def loader(count=3, data=data, ahead=ahead, batch=batch, rows=rows):
        buffers = [torch.zeros(rows, stride, device=device) for _ in range(count)]
        return answer(data.order, data.fill, ahead, buffers, columns, batch), buffers

    def first_row(batches):
        """The first x of the next of `batches`, or in a word that there is none."""
        got = next(batches, END)
        return "at its end" if got is END else got[0][0]

    mine, buffers = loader()
    one = next(iter(mine), ())
    yield "a batch is a tuple of two", [type(one).__name__, len(one)]
    yield "shape of x, shape of y", [tuple(one[0].shape), tuple(one[1].shape)]
    yield "x and y are those of the first rows of the order", list(one)
    homes = {storage(buffer) for buffer in buffers}
    yield "x and y are views of a buffer, not copies", all(storage(part) in homes for part in one)
    yield "several buffers: ahead is called, and given all of them", [ahead.log, len(ahead.buffers or ())]

    data, ahead = _Rows(seed, device, n, columns, stride), _Ahead()
    mine, buffers = loader(data=data, ahead=ahead)
    yield "len() is the number of batches, the last, short one too", len(mine)
    yield "len() fills nothing", len(data.fills)
    yield "len() twice: order is asked once", len(mine) and len(data.asked)
    sizes = [len(y) for _, y in mine]
    yield "rows of each batch of an epoch", sizes
    yield "fill is given a buffer", all(any(b is buffer for b in buffers) for _, buffer in data.fills)
    yield "rows of each fill", [len(index) for index, _ in data.fills]
    order = data.order(0)
    yield "fill is given pieces of the order, not copies", all(storage(i) == storage(order) for i, _ in data.fills)
    mine.set_epoch(0)
    yield "x and y of a whole epoch, each row once", _epoch(mine)
    yield "at the end of an epoch, ahead has ended", ahead.log
    yield "the next iteration has the next epoch's order", _epoch(mine)
    mine.set_epoch(6)
    yield "after set_epoch(6): the order of epoch 6", _epoch(mine)
    yield "and then that of epoch 7", _epoch(mine)
    yield "len() has begun no epoch", [len(mine), first_row(iter(mine))]

    for count in (3, 1):
        text = f"{count} buffer{'s' * (count > 1)}"
        data, ahead = _Rows(seed, device, n, columns, stride), _Ahead()
        mine, _ = loader(count, data, ahead)
        old = iter(mine)
        next(old, END), next(old, END)
        if count == 1:
            yield "1 buffer: ahead is not called", len(ahead.log)
            yield "1 buffer: filled when it is needed, fills after two batches", len(data.fills)
        mine.set_epoch(4)
        yield f"{text}: set_epoch() leaves the running epoch as it is", first_row(old)
        new = iter(mine)
        if count > 1:
            yield f"{text}: iter() closes the old iterator at once", ahead.log
        yield f"{text}: the new one begins with its first rows", first_row(new)
        yield f"{text}: the old one is at its end", first_row(old)
        yield f"{text}: and that does not disturb the new one", _epoch(new)
        old, new = iter(mine), iter(mine)
        yield f"{text}: an old one that had not begun is at its end", first_row(old)
        yield f"{text}: every iter() counts, also without a batch", first_row(new)
        mine.close()
        yield f"{text}: close() ends what is running", first_row(new)
        if count > 1:
            yield f"{text}: close() closes what ahead returned", ahead.log
        mine.close()
        yield f"{text}: after close() the next epoch can begin", _epoch(mine)

        with mine as inside:
            new = iter(inside)
            next(new, END)
        yield f"{text}: `with` gives the loader itself", inside is mine
        yield f"{text}: the end of `with` closes what is running", first_row(new)

        def fail_inside(mine=mine):
            with mine:
                next(iter(mine), END)
                raise LookupError("the body of the with")

        yield f"{text}: an exception in `with` comes out", type_name(raised_at_all(fail_inside))
        if count > 1:
            yield f"{text}: and what ahead returned is closed", ahead.log
        data.refuses = ("fill",)
        yield f"{text}: an exception of fill comes out", type_name(raised_at_all(lambda m=mine: list(m)))
        data.refuses = (2,)
        mine.set_epoch(2)
        yield f"{text}: an exception of order comes out", type_name(raised_at_all(lambda m=mine: list(m)))
        data.refuses = ()
        mine.set_epoch(2)
        yield f"{text}: after these the loader goes on", _epoch(mine)
        new = iter(mine)
        next(new, END)
        new.close()
        yield f"{text}: an iterator that is closed itself is at its end", first_row(new)
        if count > 1:
            yield f"{text}: and what ahead returned for it is closed", ahead.log
        data.at_end = True
        yield f"{text}: a short fill returns the end of its buffer: x and y", _epoch(mine)

    for text, m in (("whole batches only", 2 * rows), ("fewer rows than a batch", batch - 1)):
        mine, _ = loader(data=_Rows(seed + 1, device, m, columns, stride))
        yield f"{text}: len(), rows of the batches", [len(mine), [len(y) for _, y in mine]]
    ahead = _Ahead()
    mine, _ = loader(2, _Rows(seed + 1, device, n, columns, stride), ahead, rows=batch)
    yield "two buffers, each of a batch", _epoch(mine)
    yield "two buffers: ahead is called", ahead.log
    for wrong in (rows - 1, batch - 1):
        yield (
            f"buffers of {wrong} rows, batch {batch}: raises",
            type_name(raised_at_all(lambda r=wrong: loader(rows=r))),
        )
    yield "a buffer of rows for 3 batches is right", type_name(raised_at_all(loader))
