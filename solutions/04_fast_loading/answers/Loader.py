"""Known mistakes of exercise Loader, and right answers in other styles."""

import collections
import contextlib
import itertools

import torch

from course.checks.engine import alternative, mistake


class _Loader:
    """A right loader in pieces, so that each mistake can spoil one of them."""

    def __init__(self, order, fill, ahead, buffers, columns, batch):
        self.order, self.fill, self.ahead, self.buffers = order, fill, ahead, buffers
        self.columns, self.batch, self.epoch, self.n, self.running = columns, batch, 0, None, None
        if self.rows() % batch:
            self.complain()

    def complain(self):
        raise ValueError("the rows of a buffer must be a multiple of the batch")

    def rows(self):
        return len(self.buffers[0])

    def __len__(self):
        if self.n is None:
            self.n = len(self.order(self.epoch))
        return -(-self.n // self.batch)

    def set_epoch(self, epoch):
        self.epoch = epoch

    def __iter__(self):
        self.close()
        self.running = self.batches(self.next_epoch())
        return self.running

    def next_epoch(self):
        self.epoch += 1
        return self.epoch - 1

    def batches(self, epoch):
        with contextlib.closing(self.filled(self.work(epoch))) as filled:
            for rows in filled:
                for part in rows.split(self.batch):
                    yield from self.pair(part)

    def work(self, epoch):
        return self.order(epoch).split(self.rows())

    def filled(self, work):
        if len(self.buffers) > 1:
            return self.ahead(self.fill, work, self.buffers)
        return (self.fill(index, self.buffers[0]) for index in work)

    def pair(self, part):
        yield part[:, : self.columns], part[:, self.columns]

    def close(self):
        if self.running is not None:
            self.running.close()

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self.close()


@mistake(
    "Loader",
    "x and y are copies: new memory for every batch, and a second pass over all bytes. Yield views of the buffer.",
)
class YieldsCopies(_Loader):
    def pair(self, part):
        yield part[:, : self.columns].clone(), part[:, self.columns].clone()


@mistake(
    "Loader",
    "y is taken from the end of the row, which is padding. It is the column after the last one of x.",
)
class LastColumn(_Loader):
    def pair(self, part):
        yield part[:, : self.columns], part[:, -1]


@mistake(
    "Loader",
    "A fill brings one batch, also into a buffer with room for several. Cut the order by the rows of a buffer.",
)
class OneBatchAFill(_Loader):
    def work(self, epoch):
        return self.order(epoch).split(self.batch)


@mistake(
    "Loader",
    "The order is put into lists of numbers, row by row, and tensors are made of them anew. Let order.split cut it.",
)
class LoaderRowByRow(_Loader):
    def work(self, epoch):
        order = self.order(epoch)
        rows = [int(i) for i in order]
        return [order.new_tensor(rows[i : i + self.rows()]) for i in range(0, len(rows), self.rows())]


@mistake(
    "Loader",
    "The last batch is left out because it is short, and its rows with it. It is yielded like the others.",
)
class DropsTheLast(_Loader):
    def pair(self, part):
        if len(part) == self.batch:
            yield part[:, : self.columns], part[:, self.columns]


@mistake(
    "Loader",
    "len() leaves out the last, short batch. Round up.",
)
class RoundsDown(_Loader):
    def __len__(self):
        return super().__len__() and self.n // self.batch


@mistake(
    "Loader",
    "len() goes through a whole epoch to count: all rows are read, and the next epoch is another. The length of the "
    "order tells it.",
)
class CountsByIterating(_Loader):
    def __len__(self):
        return sum(1 for _ in self)


@mistake(
    "Loader",
    "len() asks for a new order each time, a permutation of all rows. Keep the number.",
)
class OrderForEveryLen(_Loader):
    def __len__(self):
        return -(-len(self.order(self.epoch)) // self.batch)


@mistake(
    "Loader",
    "What ahead yields is collected in a list, so the buffers are filled again before their rows are used. Take one "
    "at a time.",
)
class CollectsFirst(_Loader):
    def filled(self, work):
        return (rows for rows in list(super().filled(work)))


@mistake(
    "Loader",
    "With one buffer, ahead is called too, but it needs a second one to fill. Call fill yourself when rows are needed.",
)
class AheadWithOneBuffer(_Loader):
    def filled(self, work):
        return self.ahead(self.fill, work, self.buffers)


@mistake(
    "Loader",
    "Every epoch has the order of the first. Count the epochs in __iter__.",
)
class AlwaysEpochZero(_Loader):
    def next_epoch(self):
        return self.epoch


@mistake(
    "Loader",
    "The epoch is counted before it is used, so set_epoch(e) is followed by epoch e + 1. Use it, then count.",
)
class CountsTooEarly(_Loader):
    def __init__(self, *inputs):
        super().__init__(*inputs)
        self.epoch = -1

    def next_epoch(self):
        self.epoch += 1
        return self.epoch


@mistake(
    "Loader",
    "__iter__ has a `yield`, so nothing in it happens before the first batch is asked for: the old iterator goes on. "
    "Close it and count the epoch in a method without `yield`.",
)
class IterIsAGenerator(_Loader):
    def __iter__(self):
        self.close()
        self.running = self.batches(self.next_epoch())
        yield from self.running


@mistake(
    "Loader",
    "An iterator that was left by `break` still runs when the next one begins, and both use the same buffers. Close "
    "the old one in __iter__.",
)
class OldOneGoesOn(_Loader):
    def __iter__(self):
        self.running = self.batches(self.next_epoch())
        return self.running


@mistake(
    "Loader",
    "What ahead returned is not closed when the loader is left early, so its thread is still there. Close it in a "
    "`finally`, or use contextlib.closing.",
)
class AheadStaysOpen(_Loader):
    def __init__(self, *inputs):
        super().__init__(*inputs)
        self.kept = []

    def batches(self, epoch):
        self.kept.append(self.filled(self.work(epoch)))
        for rows in self.kept[-1]:
            for part in rows.split(self.batch):
                yield from self.pair(part)


@mistake(
    "Loader",
    "The end of `with` hides an exception: what __exit__ returns is true. Return nothing.",
)
class HidesErrors(_Loader):
    def __exit__(self, *error):
        self.close()
        return True


@mistake(
    "Loader",
    "Buffers whose rows are no multiple of the batch give short batches in the middle of an epoch. Raise ValueError.",
)
class ShortInBetween(_Loader):
    def complain(self):
        pass


@alternative("Loader")
class IteratorObjects:
    def __init__(self, order, fill, ahead, buffers, columns, batch):
        self.parts, rest = divmod(buffers[0].size(0), batch)
        if rest != 0:
            raise ValueError(rest)
        self.settings = fill, ahead, list(buffers), columns, batch
        self.order, self.count, self.upcoming = order, len(order(0)), itertools.count()
        self.latest = None

    def __len__(self):
        return len(range(0, self.count, self.settings[-1]))

    def set_epoch(self, epoch):
        self.upcoming = itertools.count(epoch)

    def __iter__(self):
        self.close()
        self.latest = _Pass(self.order, next(self.upcoming), *self.settings)
        return self.latest

    def close(self):
        if self.latest:
            self.latest.close()

    def __enter__(self):
        return self

    def __exit__(self, kind, error, trace):
        self.close()
        return False


class _Pass:
    def __init__(self, order, epoch, fill, ahead, buffers, columns, batch):
        self.fill, self.buffers, self.columns, self.batch = fill, buffers, columns, batch
        self.work = iter(torch.split(order(epoch), buffers[0].size(0)))
        self.source = ahead(fill, self.work, buffers) if len(buffers) >= 2 else self.one_by_one()
        self.parts = collections.deque()

    def one_by_one(self):
        for index in self.work:
            yield self.fill(index, self.buffers[0])

    def __iter__(self):
        return self

    def __next__(self):
        try:
            if not self.parts:
                self.parts.extend(next(self.source).split(self.batch))
        except BaseException:
            self.close()
            raise
        part = self.parts.popleft()
        return part.narrow(1, 0, self.columns), part.select(1, self.columns)

    def close(self):
        self.parts.clear()
        self.source.close()


@alternative("Loader")
class OneGenerator:
    def __init__(self, order, fill, ahead, buffers, columns, batch):
        rows = buffers[0].shape[0]
        if rows // batch * batch != rows:
            raise ValueError(f"{rows} is not a multiple of {batch}")

        def batches(epoch):
            whole = order(epoch)
            self.n = len(whole)
            pieces = [whole[i : i + rows] for i in range(0, self.n, rows)]
            source = ahead(fill, pieces, buffers) if buffers[1:] else map(fill, pieces, itertools.repeat(buffers[0]))
            try:
                for filled in source:
                    for first in range(0, len(filled), batch):
                        x_and_y = filled[first : first + batch, : columns + 1]
                        yield x_and_y[:, :-1], x_and_y[:, -1]
            finally:
                if buffers[1:]:
                    source.close()

        self.make, self.order, self.batch, self.n = batches, order, batch, None
        self.epoch, self.open = 0, []

    def __len__(self):
        self.n = self.n or len(self.order(0))
        return (self.n + self.batch - 1) // self.batch

    def set_epoch(self, epoch):
        self.epoch = epoch

    def __iter__(self):
        self.close()
        self.open.append(self.make(self.epoch))
        self.set_epoch(self.epoch + 1)
        return self.open[-1]

    def close(self):
        while self.open:
            self.open.pop().close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()
