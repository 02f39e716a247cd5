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
from course.checks.probing.errors import error_kind, raised, type_name
from course.checks.probing.files import open_descriptors
from course.checks.probing.tensors import NewTensors, is_view, kind, same_tensor
from course.checks.probing.threads import Meeting, acting, has_ended, wait_until
from course.loading.loaders import aligned_buffers


def _record_file(path, rows, stride, rng):
    """Write a record file of random rows; returns the rows, a float32 tensor (rows, stride // 4)."""
    table = torch.randn(rows, stride // 4, generator=rng)
    make_records(path, header(rows, stride // 4 - 1, 0, stride=stride), table.numpy().astype("<f4"))
    return table


def _buffer(rows, columns, border=False):
    """A float32 tensor (rows, columns) of sevens; with `border` it begins on the border of a memory page."""
    memory = aligned_buffers(1, rows + 1, max(columns, 16))[0].view(-1)
    return memory[0 if border else 16 :][: rows * columns].view(rows, columns).fill_(7)


class _Case:
    """A record file of 20 pages, the last one short, and one reader of it; all readers made by `opened` are closed.

    `rows` of `stride` bytes hold `table`; `file` is what the constructor is given; `out` and `window` are buffers.
    """

    def __init__(self, answer, readers, folder, seed):
        self.answer, self.readers, self.folder, self.before = answer, readers, folder, set(threading.enumerate())
        self.rng = torch.Generator().manual_seed(seed)
        self.page_rows, self.stride = 8 + seed % 3, 4096
        self.rows = 20 * self.page_rows - 3
        self.table = _record_file(folder / "rows.rec", self.rows, self.stride, self.rng)
        self.file = folder / "rows.rec", self.rows, self.stride, self.page_rows
        self.window, self.reader = self.buffer(self.rows), self.opened(*self.file)

    def opened(self, *args, **kwargs):
        """A reader, which is closed at the end of the probe."""
        reader = self.answer(*args, **kwargs)
        self.readers.callback(error_kind, lambda: reader.close())
        return reader

    def buffer(self, rows, columns=None):
        return _buffer(rows, columns or self.stride // 4)

    def rows_of(self, *pages, page_rows=None, rows=None):
        """The rows of `pages`, shuffled."""
        page_rows, rows = page_rows or self.page_rows, rows or self.rows
        index = torch.cat([torch.arange(p * page_rows, min((p + 1) * page_rows, rows)) for p in pages])
        return index[torch.randperm(len(index), generator=self.rng)]

    def filled(self, reader, index, extra=0):
        return reader.fill(index, self.buffer(len(index) + extra))

    def descriptors(self):
        return open_descriptors(self.file[0])


@contextlib.contextmanager
def _at_reads(meeting):
    """Inside, the reading functions of `os` wait at `meeting` until it is known whether threads meet."""

    def after_meeting(read):
        def reading(*args):
            if meeting.met is None:
                meeting.wait()
            return read(*args)

        return reading

    with contextlib.ExitStack() as stack:
        for name in ("preadv", "pread", "readv", "read"):
            if hasattr(os, name):
                stack.enter_context(mock.patch.object(os, name, after_meeting(getattr(os, name))))
        yield


class _LatePage:
    """An `os.preadv` whose first read of `page` takes long, so that the read of page `cut` fails meanwhile.

    It takes until the failure has come out, which sets `over`, or all threads but those in `before` wait for it.
    `running` counts the calls that have not returned.
    """

    def __init__(self, page_bytes, page, cut, before):
        self.page_bytes, self.cut, self.before, self.read = page_bytes, cut, before, os.preadv
        self.begun, self.over, self.running, self.lock = threading.Event(), threading.Event(), 0, threading.Lock()
        self.happens = {page: self.wait_for_error, cut: lambda: self.begun.wait(0.2)}

    def preadv(self, file, buffers, offset, *flags):
        self.count(1)
        try:
            self.happens.pop((offset - PAGE) // self.page_bytes, lambda: None)()
            return self.read(file, buffers, offset, *flags)
        finally:
            self.count(-1)

    def wait_for_error(self):
        self.begun.set()
        wait_until(self.over.is_set, lambda: acting(self.before), 0.2, still=10)

    def count(self, change):
        with self.lock:
            self.running += change


def _direct_reads(path):
    """A context in which O_DIRECT can be used for `path`; where the file system refuses, the flag is 0."""
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


@exercise()
def PageReader(answer, device, seed):
    """Small record files in pages of several sizes; the system counts what is read."""
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as readers:
        case = _Case(answer, readers, Path(folder), seed)
        for scenario in (
            _one_window,
            _parts_of_the_file,
            _several_buffers,
            _sizes_of_pages,
            _what_is_read,
            _threads,
            _wrong_indices,
            _wrong_buffers,
            _cut_files,
            _a_folder,
            _threads_at_an_error,
            _closing,
            _nobody_holds_it,
            _direct,
        ):
            yield from scenario(case)


def _one_window(case):
    index = case.rows_of(7, 2, 11, 3)
    n = len(index)
    case.out = out = case.buffer(n + 5)
    result = case.reader.fill(index, out)
    yield "fill returns a float32 tensor with a row for each index", kind(result)
    right = same_tensor(_sorted(result), _sorted(case.table[index]))
    yield "the rows of the index are there, in any order", right
    yield "row index[i] of the file comes to row i", result
    yield "what is returned is a view of out", is_view(result, out)
    yield "rows of out beyond the batch stay as they are", bool((out[n:] == 7).all())


def _parts_of_the_file(case):
    yield "the first page and the last one, which is short", case.filled(case.reader, case.rows_of(0, 19))
    yield "no row", tuple(case.filled(case.reader, torch.arange(0), 2).shape)


def _several_buffers(case):
    reader, table = case.reader, case.table
    index, other = case.rows_of(1, 4, 16, 9), case.rows_of(8, 6, 17, 0)
    outs = [case.buffer(len(index) + 2) for _ in range(8)]
    last = None
    for k, out in enumerate(outs):
        view = _view(out, len(index), last)
        reader.fill((index, other)[k % 2], view)
        last = id(view)
        del view
    right = [same_tensor(out[: len(index)], table[(index, other)[k % 2]]) for k, out in enumerate(outs)]
    yield "eight buffers in turn, each passed as a view of its first rows", right
    reader.fill(case.rows_of(6), outs[0][: case.page_rows])
    yield "a shorter view of one of them, and then all of it", reader.fill(other, outs[0])


def _view(out, n, wanted, tries=100):
    """The first `n` rows of `out`, if possible as an object with the id of one that is gone."""
    views = []
    while id(view := out[:n]) != wanted and len(views) < tries:
        views.append(view)
    return view


def _sizes_of_pages(case):
    long = _record_file(case.folder / "long.rec", 2500, 16, case.rng)
    index = case.rows_of(2, 0, page_rows=1030, rows=2500)
    result = case.opened(case.folder / "long.rec", 2500, 16, 1030, threads=3).fill(index, case.buffer(len(index), 4))
    yield "a page of 1,030 rows: more than the 1,024 buffers that one call takes", same_tensor(result, long[index])


def _what_is_read(case):
    index = case.rows_of(*range(0, 16, 2))
    with mock.patch.object(os, "posix_fadvise", create=True) as advised:
        made = bytes_and_calls_read(lambda: case.opened(*case.file))
    used = bytes_and_calls_read(lambda: case.reader.fill(index, case.window))
    if used:
        yield "the constructor reads no row, nor asks the system to", made[0] < case.stride and not advised.called
        multiple = used[0] / (len(index) * case.stride)
        yield "the bytes that fill reads, as a multiple of those of its pages", multiple
        yield "at most two read calls a page", used[1] <= 2 * 8 + 2
    index, single = torch.arange(case.rows), case.opened(*case.file, threads=1)
    single.fill(index, case.window)  # what is made once for `window` may be kept
    with peak_bytes() as peak:
        single.fill(index, case.window)
    with NewTensors() as new:
        single.fill(index, case.window)
    most = 3 * case.page_rows * case.stride
    yield "beside out, memory for at most two pages a thread", max(new.largest, peak[0]) < most


def _threads(case):
    meeting = Meeting(2, case.before)
    with _at_reads(meeting):
        case.reader.fill(case.rows_of(2, 3, 14, 15), case.out)
    yield "with threads=2, two pages are read at the same time", meeting.met is not False
    parameters = inspect.signature(case.answer).parameters
    yield "the default of threads", parameters["threads"].default if "threads" in parameters else 2
    three = case.opened(*case.file, threads=3)
    with mock.patch.object(threading.Thread, "start", autospec=True, side_effect=threading.Thread.start) as started:
        for pages in ((1, 2, 3, 4), (5, 8), range(20), (1, 3), (7, 6, 5), (11, 12)):
            three.fill(case.rows_of(*pages), case.window)
    yield "with threads=3, six fills start at most three threads together", started.call_count <= 3


def _wrong_indices(case):
    page_rows, rows_of = case.page_rows, case.rows_of
    twice = _with(rows_of(7), {8 * page_rows - 1: 7 * page_rows})
    for text, wrong in (
        ("with a row of a third page in place of one", _with(rows_of(7, 2), {7 * page_rows: 3 * page_rows})),
        ("with one row of a page twice and another not at all", twice),
        ("with the short last page filled up", rows_of(19, rows=10**6)),
    ):
        yield f"an index {text} raises", error_kind(case.reader.fill, wrong, case.window)


def _wrong_buffers(case):
    index = case.rows_of(3, 4)
    yield "an out with too few rows raises", error_kind(case.reader.fill, index, case.buffer(len(index) - 1))


def _cut_files(case):
    page_rows, whole = case.page_rows, case.file[0].read_bytes()
    case.cut = case.folder / "cut6.rec"
    case.cut.write_bytes(whole[: 4096 + (6 * page_rows + page_rows // 2) * case.stride - 4])
    for threads in (1, 2):
        short = case.opened(case.cut, *case.file[1:], threads=threads)
        error, message = _message(case.filled, short, case.rows_of(2, 6, 4))
        numbers = re.findall(r"\d+", message.replace(str(case.cut), ""))
        yield f"a file cut off, half of page 6 missing, threads={threads}: raises OSError or EOFError", error
        yield f"and the message holds path and page, threads={threads}", [str(case.cut) in message, "6" in numbers]


def _a_folder(case):
    index = case.rows_of(3, 5)  # drawn in any case
    reading = error_kind(lambda: case.filled(case.opened(case.folder, *case.file[1:]), index))
    yield "a path that can be opened but not read, a folder, raises", reading


def _threads_at_an_error(case):
    for pages in ((0, 1, 6), (0, 6)):
        late = _LatePage(case.page_rows * case.stride, page=pages[-2], cut=6, before=case.before)
        short, index = case.opened(case.cut, *case.file[1:]), case.rows_of(*pages)
        with mock.patch.object(os, "preadv", late.preadv):
            error, _ = _message(case.filled, short, index)
            running = late.running
            late.over.set()
        yield f"page 6 of {len(pages)} is cut off, another takes long: reads under way when fill raises", running


def _closing(case):
    index = case.index = case.rows_of(3, 5)
    closing = case.opened(*case.file)
    held = case.descriptors()
    before = set(threading.enumerate())
    closing.fill(index, case.window)
    new = set(threading.enumerate()) - before
    memory = np.empty((len(index), case.stride // 4), np.float32)
    reference = weakref.ref(memory)
    closing.fill(index, torch.from_numpy(memory))
    del memory
    closing.close()
    yield "close() closes the file", len(case.descriptors()) < len(held) or not held
    yield "close() ends the threads and keeps no buffer", [all(map(has_ended, new)), _is_gone(reference)]
    yield "a fill after close() raises", error_kind(closing.fill, index, case.window)
    yield "a second close() does nothing", error_kind(closing.close)


def _nobody_holds_it(case):
    held, before = len(case.descriptors()), set(threading.enumerate())
    for _ in range(3):
        fill = case.answer(*case.file).fill
        fill(case.rows_of(3, 5), case.window)
    del fill
    gc.collect(1)  # where something refers to itself; of young objects only: all of them would take 0.2 s
    ended = all(map(has_ended, set(threading.enumerate()) - before))
    left = len(case.descriptors()) - held
    yield "3 readers that nobody holds any more: threads have ended, files left open", [ended, left]
    with case.opened(*case.file) as inside:
        inside.fill(case.index, case.window)
    yield "a `with` closes it", error_kind(inside.fill, case.index, case.window)


def _direct(case):
    others = set(case.descriptors())
    with _no_direct():
        name = error_kind(case.opened, *case.file, direct=True)
        yield "direct=True where `os` has no O_DIRECT raises ValueError or OSError", name in ("ValueError", "OSError")
    if hasattr(os, "O_DIRECT"):
        with _direct_reads(case.file[0]):
            yield from _direct_or_not(case, case.rows_of(2, 19, 4), others)


def _direct_or_not(case, index, others):
    path, rows, stride, page_rows = case.file
    reader = case.opened(*case.file, direct=True)
    flags = [fcntl.fcntl(number, fcntl.F_GETFL) for number in set(case.descriptors()) - others]
    yield "direct=True: the file is open with O_DIRECT", all(f & os.O_DIRECT for f in flags) or not os.O_DIRECT
    yield "direct=True: the rows", reader.fill(index, _buffer(rows, stride // 4, border=True))
    wrong = error_kind(reader.fill, index, case.buffer(rows))
    yield "direct=True: an out that does not begin at a multiple of 4096 raises", wrong
    error = error_kind(case.opened, path, rows, 6144, page_rows, direct=True)
    yield "direct=True: a stride of 6144 bytes raises", error


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


def _message(call, *args):
    """(the type's name, the message) of what the call raises; OSError and EOFError count as one."""
    error = raised(call, *args)
    name = "OSError or EOFError" if isinstance(error, (OSError, EOFError)) else type_name(error)
    return name, "" if error is None else str(error)
