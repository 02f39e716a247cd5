"""Probe of exercise PageReader."""

import contextlib
import fcntl
import gc
import inspect
import mmap
import os
import re
import tempfile
import threading
import weakref
from pathlib import Path
from unittest import mock

import numpy as np
import torch

from course.checks.engine import exercise
from course.checks.fast_loading.record_files import PAGE, header, make_records
from course.checks.probing.counting import bytes_and_calls_read, peak_bytes
from course.checks.probing.errors import error_kind
from course.checks.probing.files import open_descriptors
from course.checks.probing.tensors import NewTensors, is_view, kind, same_tensor
from course.checks.probing.threads import has_ended
from course.loaders import aligned_buffers


def _record_file(path, rows, stride, rng):
    """A record file of random rows at `path`; returns its rows, a float32 tensor (rows, stride // 4)."""
    table = torch.randn(rows, stride // 4, generator=rng)
    make_records(path, header(rows, stride // 4 - 1, 0, stride=stride), table.numpy().astype("<f4"))
    return table


def _buffer(rows, columns, border=False):
    """A float32 tensor (rows, columns) full of sevens that begins at the border of a memory page, or not there."""
    memory = aligned_buffers(1, rows + 1, max(columns, 16))[0].view(-1)
    return memory[0 if border else 16 :][: rows * columns].view(rows, columns).fill_(7)


class _Meeting:
    """Reading functions of `os` that wait until two threads are in one of them; after that, or 2 seconds, they go on.

    `alone` is True if a thread waited in vain.
    """

    def __init__(self):
        self.barrier, self.met, self.alone = threading.Barrier(2), False, False

    @contextlib.contextmanager
    def atbytes_and_calls_read(self):
        with contextlib.ExitStack() as stack:
            for name in ("preadv", "pread", "readv", "read"):
                if hasattr(os, name):
                    stack.enter_context(mock.patch.object(os, name, self.after_meeting(getattr(os, name))))
            yield self

    def after_meeting(self, read):
        def reading(*args):
            if not (self.met or self.alone):
                try:
                    self.barrier.wait(2)
                    self.met = True
                except threading.BrokenBarrierError:
                    self.alone = not self.met
            return read(*args)

        return reading


class _LatePage:
    """An `os.preadv` that takes long for one page, and meets it under way when it comes to another, which is cut off.

    `running` is the number of calls that have not returned; both waits end after a moment.
    """

    def __init__(self, page_bytes, page, cut):
        self.page_bytes, self.page, self.cut, self.read = page_bytes, page, cut, os.preadv
        self.begun, self.over, self.running, self.lock = threading.Event(), threading.Event(), 0, threading.Lock()

    def preadv(self, file, buffers, offset, *flags):
        self.count(1)
        try:
            page = (offset - PAGE) // self.page_bytes
            if page == self.page:
                self.begun.set()
                self.over.wait(0.2)
            if page == self.cut:
                self.begun.wait(0.2)
            return self.read(file, buffers, offset, *flags)
        finally:
            self.count(-1)

    def count(self, change):
        with self.lock:
            self.running += change


def _direct_reads(path):
    """A context in which O_DIRECT can be used for `path`: as it is, or as a flag without effect."""
    try:
        file = os.open(path, os.O_RDONLY | os.O_DIRECT)
        try:
            os.preadv(file, [mmap.mmap(-1, 4096)], 4096)
        finally:
            os.close(file)
    except OSError:  # not on every file system
        return mock.patch.object(os, "O_DIRECT", 0)
    return contextlib.nullcontext()


@contextlib.contextmanager
def _no_direct():
    """Inside, `os` has no O_DIRECT, as on macOS."""
    with mock.patch.object(os, "O_DIRECT", 0, create=True):
        del os.O_DIRECT
        yield


@exercise(measured=True)
def PageReader(answer, device, seed):
    """Small record files, read in pages of every size; what is read is counted by the system."""
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as readers:

        def opened(*args, **kwargs):
            reader = answer(*args, **kwargs)
            readers.callback(error_kind, lambda: reader.close())
            return reader

        yield from _facts_of_reader(answer, opened, Path(folder), torch.Generator().manual_seed(seed), seed)
        parameters = inspect.signature(answer).parameters
        defaults = {name: parameters[name].default for name in ("threads", "direct") if name in parameters}
        yield "the defaults of the constructor", defaults


def _facts_of_reader(answer, opened, folder, rng, seed):
    page_rows, stride = 8 + seed % 3, 4096
    rows = 20 * page_rows - 3  # page 19 is short
    table = _record_file(folder / "rows.rec", rows, stride, rng)
    file = folder / "rows.rec", rows, stride, page_rows

    def rows_of(*pages, page_rows=page_rows, rows=rows):
        """The rows of `pages`, shuffled."""
        index = torch.cat([torch.arange(p * page_rows, min((p + 1) * page_rows, rows)) for p in pages])
        return index[torch.randperm(len(index), generator=rng)]

    def filled(reader, index, extra=0):
        return reader.fill(index, _buffer(len(index) + extra, stride // 4))

    reader = opened(*file)
    index = rows_of(7, 2, 11, 3)
    n, kept, out = len(index), index.clone(), _buffer(len(index) + 5, stride // 4)
    result = reader.fill(index, out)
    yield "fill returns a float32 tensor with a row for each index", kind(result)
    yield "the rows of the index are there, in any order", same_tensor(_sorted(result), _sorted(table[index]))
    yield "row index[i] of the file comes to row i", result
    yield "what is returned is a view of out", is_view(result, out)
    yield "rows of out beyond the batch stay as they are", bool((out[n:] == 7).all())
    yield "index stays as it is", same_tensor(index, kept)
    yield "one page", filled(reader, rows_of(5), 3)
    yield "the first page and the last one, which is short", filled(reader, rows_of(0, 19))
    yield "the short page alone", filled(reader, rows_of(19))
    yield "the whole file", same_tensor(filled(reader, torch.arange(rows)), table)
    yield "no row", tuple(filled(reader, index[:0], 2).shape)
    other, index, second = _buffer(n, stride // 4), rows_of(1, 4, 16, 9), rows_of(8, 6, 17, 0)
    reader.fill(index, out), reader.fill(second, other)
    yield "two buffers: the first", same_tensor(out[:n], table[index])
    yield "two buffers: the second", same_tensor(other, table[second])
    reader.fill(second, out)
    yield "two buffers: the first once more", same_tensor(out[:n], table[second])
    index = rows_of(3, 1)
    reader.fill(index, out[:n])
    yield "a shorter view of a buffer", same_tensor(out[: len(index)], table[index])
    fresh, index, second = _buffer(n, stride // 4), rows_of(6), rows_of(10, 2, 5)
    reader.fill(index, fresh[: len(index)])
    yield "a new buffer, of which only the first rows are passed", same_tensor(fresh[: len(index)], table[index])
    yield "and then all of it", reader.fill(second, fresh)
    yield "pages of one row", filled(opened(folder / "rows.rec", rows, stride, 1), torch.tensor([9, 3, rows - 1]))
    yield "fewer pages than threads", filled(opened(*file, threads=3), rows_of(4, 19))
    yield "more pages than threads, one thread", filled(opened(*file, threads=1), rows_of(4, 0, 19, 12, 13))

    long = _record_file(folder / "long.rec", 2500, 16, rng)
    index = rows_of(2, 0, page_rows=1030, rows=2500)
    result = opened(folder / "long.rec", 2500, 16, 1030).fill(index, _buffer(len(index), 4))
    yield "a page of 1,030 rows: more than the 1,024 buffers that one call takes", same_tensor(result, long[index])

    index = rows_of(*range(0, 16, 2))
    made = bytes_and_calls_read(lambda: opened(*file))
    window = _buffer(rows, stride // 4)
    used = bytes_and_calls_read(lambda: reader.fill(index, window))
    if used:
        yield "the constructor reads no row", made[0] < stride
        yield "the bytes that fill reads, as a multiple of those of its pages", used[0] / (len(index) * stride)
        yield "at most two read calls a page", used[1] <= 2 * 8 + 2
    index = torch.arange(rows)
    single = opened(*file, threads=1)
    single.fill(index, window)  # what is made once for `window` may be kept
    with peak_bytes() as peak:
        single.fill(index, window)
    with NewTensors() as new:
        single.fill(index, window)
    most = 3 * page_rows * stride
    yield "beside out, memory for at most two pages a thread", max(new.largest, peak[0]) < most

    with _Meeting().atbytes_and_calls_read() as meeting:
        reader.fill(rows_of(2, 3, 14, 15), out)
    yield "with threads=2, two pages are read at the same time", not meeting.alone
    before = set(threading.enumerate())
    three = opened(*file, threads=3)
    for pages in ((1, 2, 3, 4), (5,), range(20)):
        three.fill(rows_of(*pages), window)
    new = set(threading.enumerate()) - before
    yield "with threads=3, at most three threads are alive between two calls", len(new) <= 3
    yield "with threads=3, some are alive between two calls", len(new) > 0

    for text, wrong in (
        ("without one row of a page", rows_of(7, 2)[1:]),
        ("with one row of a page twice and another not at all", _with(rows_of(7), {8 * page_rows - 1: 7 * page_rows})),
        ("with all rows of a page twice", rows_of(7, 7)),
        ("with half of a page", torch.arange(page_rows // 2)),
        ("with the end of one page and the beginning of the next", torch.arange(page_rows) + 1),
        ("with a page that the file has not", rows_of(3, 20, rows=10**6)),
        ("with the short last page filled up", rows_of(19, rows=10**6)),
        ("with a page below 0", rows_of(2) - 3 * page_rows),
    ):
        yield f"an index {text} raises", error_kind(lambda wrong=wrong: reader.fill(wrong, window))
    ones = opened(folder / "rows.rec", rows, stride, 1)
    yield "an index with a page of one row twice raises", error_kind(lambda: ones.fill(torch.tensor([4, 4]), window))
    index = rows_of(3, 4)
    for text, wrong in (
        ("too few rows", _buffer(len(index) - 1, stride // 4)),
        ("rows that are too short", _buffer(rows, stride // 4 - 1)),
        ("rows that are too long", _buffer(rows, stride // 4 + 1)),
    ):
        yield f"an out with {text} raises", error_kind(lambda wrong=wrong: reader.fill(index, wrong))
    yield "after all these errors it still reads", filled(reader, index)

    for text, page, row in (("half a page", 6, 6 * page_rows + page_rows // 2), ("whole pages", 13, 13 * page_rows)):
        cut = folder / f"cut{page}.rec"
        cut.write_bytes((folder / "rows.rec").read_bytes()[: 4096 + row * stride - 4 * (page == 6)])
        short = opened(cut, rows, stride, page_rows)
        yield f"a file cut off, {text} missing: pages before that", filled(short, rows_of(3, 5))
        for threads in (1, 2):
            short = opened(cut, rows, stride, page_rows, threads=threads)
            index = rows_of(2, page, 4)
            raised, message = _message(lambda short=short, index=index: filled(short, index))
            fact = f"a file cut off, {text} missing, threads={threads}"
            numbers = re.findall(r"\d+", message.replace(str(cut), ""))
            yield f"{fact}: raises OSError or EOFError", raised
            yield f"{fact}: the message holds the path", str(cut) in message
            yield f"{fact}: the message holds the number of the page", str(page) in numbers
    for pages in ((0, 1, 6), (0, 6)):
        late = _LatePage(page_rows * stride, page=pages[-2], cut=6)
        short, index = opened(folder / "cut6.rec", rows, stride, page_rows), rows_of(*pages)
        with mock.patch.object(os, "preadv", late.preadv):
            raised = _message(lambda short=short, index=index: filled(short, index))[0]
            running = late.running
            late.over.set()
        fact = f"one page of {len(pages)} is cut off, another one takes long"
        yield f"{fact}: raises OSError or EOFError", raised
        yield f"{fact}: no thread reads any more when fill raises: reads under way", running
    yield "a file that is not there raises", error_kind(lambda: opened(folder / "none.rec", rows, stride, page_rows))
    index = rows_of(3, 5)
    read_folder = error_kind(lambda: filled(opened(folder, rows, stride, page_rows), index))
    yield "a path that can be opened but not read, a folder, raises", read_folder

    closing = opened(*file)
    held = open_descriptors(file[0])
    before = set(threading.enumerate())
    closing.fill(index, window)
    new = set(threading.enumerate()) - before
    memory = np.empty((len(index), stride // 4), np.float32)
    reference = weakref.ref(memory)
    closing.fill(index, torch.from_numpy(memory))
    del memory
    closing.close()
    yield "close() closes the file", len(open_descriptors(file[0])) < len(held) or not held
    yield "close() ends the threads", all(has_ended(thread) for thread in new)
    yield "after close() it keeps no buffer", _is_gone(reference)
    yield "a fill after close() raises", error_kind(lambda: closing.fill(index, window))
    yield "a second close() does nothing", error_kind(closing.close)
    held, before = len(open_descriptors(file[0])), set(threading.enumerate())
    for _ in range(3):
        fill = answer(*file).fill
        fill(rows_of(3, 5), window)
    del fill
    gc.collect(1)  # where something refers to itself; of young objects only: all of them would take 0.2 s
    ended = all(has_ended(thread) for thread in set(threading.enumerate()) - before)
    yield "3 readers that nobody holds any more: their threads have ended", ended
    yield "3 readers that nobody holds any more: files left open", len(open_descriptors(file[0])) - held
    held = len(open_descriptors(file[0]))
    with opened(*file) as inside:
        yield "inside of a `with`", inside.fill(index, window)
    yield "a `with` closes it", [len(open_descriptors(file[0])) - held, error_kind(lambda: inside.fill(index, window))]
    yield from _facts_of_direct(opened, file, rows_of(2, 19, 4), set(open_descriptors(file[0])))


def _facts_of_direct(opened, file, index, others):
    path, rows, stride, page_rows = file
    with _no_direct():
        kind = error_kind(lambda: opened(*file, direct=True))
        yield "direct=True where `os` has no O_DIRECT raises ValueError or OSError", kind in ("ValueError", "OSError")
        yield "direct=False where `os` has no O_DIRECT", opened(*file).fill(index, _buffer(rows, stride // 4))
    if not hasattr(os, "O_DIRECT"):
        return
    with _direct_reads(path):
        for direct in (False, True):
            reader = opened(*file, direct=direct)
            flags = [fcntl.fcntl(number, fcntl.F_GETFL) for number in set(open_descriptors(path)) - others]
            others |= set(open_descriptors(path))
            with_it = all(bool(f & os.O_DIRECT) == direct for f in flags) or not os.O_DIRECT
            yield f"direct={direct}: the file is open {'with' if direct else 'without'} O_DIRECT", with_it
            out = _buffer(rows, stride // 4, border=True)
            yield f"direct={direct}: the rows", reader.fill(index, out)
        wrong = _buffer(rows, stride // 4)
        yield (
            "direct=True: an out that does not begin at a multiple of 4096",
            error_kind(lambda: reader.fill(index, wrong)),
        )
        for bad in (1024, 6144):
            kind = error_kind(lambda bad=bad: opened(path, rows, bad, page_rows, direct=True))
            yield f"direct=True: a stride of {bad} bytes raises", kind
        gc.collect(1)
        yield "and leaves no file open", len(set(open_descriptors(path)) - others)


def _sorted(table):
    """The rows of `table` in the order of their first value."""
    return table[table[:, 0].argsort()]


def _with(index, changes):
    """`index` with other values for some of its values."""
    return torch.tensor([changes.get(row, row) for row in index.tolist()])


def _is_gone(reference):
    if reference() is not None:
        gc.collect(1)  # a cycle of objects is gone only then
    return reference() is None


def _message(call):
    """(the type's name, the message) of what `call()` raises; OSError and EOFError count as one."""
    try:
        call()
    except (OSError, EOFError) as error:
        return "OSError or EOFError", str(error)
    except Exception as error:
        return type(error).__name__, str(error)
    return "nothing", ""
