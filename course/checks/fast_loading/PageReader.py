"""Probe of exercise PageReader."""

import contextlib
import inspect
import os
import re
import tempfile
import threading
from pathlib import Path
from unittest import mock

import torch

from course.checks.fast_loading.record_files import header, make_records
from course.engine.exercise import Answer, Facts, exercise
from course.engine.probing.counting import bytes_and_calls_read, peak_bytes
from course.engine.probing.errors import error_kind, raised
from course.engine.probing.files import open_descriptors
from course.engine.probing.tensors import NewTensors, is_view, kind, same_tensor
from course.engine.probing.threads import Meeting, has_ended
from course.loading.loaders import aligned_buffers


def _record_file(path, rows, stride, rng):
    """Write a record file of random rows; return the rows, a float32 tensor (rows, stride // 4)."""
    table = torch.randn(rows, stride // 4, generator=rng)
    make_records(path, header(rows, stride // 4 - 1, 0, stride=stride), table.numpy().astype("<f4"))
    return table


class _Case:
    """A record file of 20 pages, the last one short, and one reader of it; all readers made by
    `open` are closed.

    `rows` of `stride` bytes hold `table`; `file` is what the constructor is given; `window` is a
    buffer for all rows.
    """

    def __init__(self, answer, readers, folder, seed):
        self.answer, self.readers, self.folder, self.before = (
            answer,
            readers,
            folder,
            set(threading.enumerate()),
        )
        self.rng = torch.Generator().manual_seed(seed)
        self.page_rows, self.stride = 8 + seed % 3, 4096
        self.rows = 20 * self.page_rows - 3
        self.table = _record_file(folder / "rows.rec", self.rows, self.stride, self.rng)
        self.file = folder / "rows.rec", self.rows, self.stride, self.page_rows
        self.window, self.reader = self.buffer(self.rows), self.open(*self.file)

    def open(self, *args, **kwargs):
        """A reader, which is closed at the end of the probe."""
        return self.readers.enter_context(self.answer(*args, **kwargs))

    def buffer(self, rows):
        """A float32 tensor of sevens for this many rows, which does not begin at a border of memory
        pages.
        """
        memory = aligned_buffers(1, rows + 1, self.stride // 4)[0].view(-1)
        return memory[16:][: rows * self.stride // 4].view(rows, -1).fill_(7)

    def rows_of(self, *pages, rows=None):
        """The rows of `pages`, shuffled, in a file of this many rows."""
        size, rows = self.page_rows, rows or self.rows
        index = torch.cat([torch.arange(p * size, min((p + 1) * size, rows)) for p in pages])
        return index[torch.randperm(len(index), generator=self.rng)]


@exercise()
def PageReader(answer: Answer, device: torch.device, seed: int) -> Facts:
    """Small record files in pages of several sizes; the system counts what is read."""
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as readers:
        case = _Case(answer, readers, Path(folder), seed)
        yield from _rows_in_their_places(case)
        yield from _long_pages(case)
        yield from _what_is_read(case)
        yield from _threads(case)
        yield from _wrong_calls(case)
        yield from _a_cut_file(case)
        yield from _closing(case)
        yield from _direct(case)


def _rows_in_their_places(case):
    index = case.rows_of(7, 2, 11, 3)
    n = len(index)
    out = case.buffer(n + 5)
    result = case.reader.fill(index, out)
    yield "fill returns a float32 tensor with a row for each index", kind(result)
    yield "the rows of the index are there, in any order", result[result[:, 0].argsort()]
    yield "row index[i] of the file comes to row i", result
    yield "what is returned is a view of out", is_view(result, out)
    yield "rows of out beyond the batch stay as they are", bool((out[n:] == 7).all())
    index = case.rows_of(0, 19)
    yield (
        "the first page and the last one, which is short",
        case.reader.fill(index, case.buffer(len(index))),
    )
    yield "no row", tuple(case.reader.fill(torch.arange(0), case.buffer(2)).shape)


def _long_pages(case):
    table = _record_file(case.folder / "long.rec", 2500, 16, case.rng)
    index = torch.cat([torch.arange(2060, 2500), torch.arange(1030)])[
        torch.randperm(1470, generator=case.rng)
    ]
    with case.answer(case.folder / "long.rec", 2500, 16, 1030, threads=3) as reader:
        result = reader.fill(index, torch.zeros(1474, 4))
    yield (
        "a page of 1,030 rows: more than the 1,024 buffers that one call takes",
        same_tensor(result, table[index]),
    )


def _what_is_read(case):
    index = case.rows_of(*range(0, 16, 2))
    opened = bytes_and_calls_read(lambda: case.open(*case.file))
    used = bytes_and_calls_read(lambda: case.reader.fill(index, case.window))
    if used:
        yield "the constructor reads no row", opened[0] < case.stride
        multiple = used[0] / (len(index) * case.stride)
        yield "the bytes that fill reads, as a multiple of those of its pages", multiple
        yield "at most two read calls a page", used[1] <= 2 * 8 + 2
    index, single = torch.arange(case.rows), case.open(*case.file, threads=1)
    single.fill(index, case.window)  # what is made once for `window` may be kept
    with peak_bytes() as peak:
        single.fill(index, case.window)
    with NewTensors() as new:
        single.fill(index, case.window)
    most = 3 * case.page_rows * case.stride
    yield (
        "apart from out, memory for at most two pages per thread",
        max(new.largest, peak[0]) < most,
    )


def _threads(case):
    meeting, read = Meeting(2, case.before), os.preadv

    def read_after_meeting(*args):
        if meeting.met is None:
            meeting.wait()
        return read(*args)

    with mock.patch.object(os, "preadv", read_after_meeting):
        case.reader.fill(case.rows_of(2, 3, 14, 15), case.window)
    yield "with threads=2, two pages are read at the same time", meeting.met is not False
    yield "the default of threads", inspect.signature(case.answer).parameters["threads"].default
    three = case.open(*case.file, threads=3)
    with mock.patch.object(
        threading.Thread, "start", autospec=True, side_effect=threading.Thread.start
    ) as started:
        for pages in ((1, 2, 3, 4), (5, 8), range(20), (1, 3), (7, 6, 5), (11, 12)):
            three.fill(case.rows_of(*pages), case.window)
    yield "with threads=3, six fills start at most three threads together", started.call_count <= 3


def _wrong_calls(case):
    two, one = case.rows_of(7, 2), case.rows_of(7)
    two[0] = 3 * case.page_rows
    one[0] = one[1]
    for text, wrong in (
        ("with a row of a third page in place of one", two),
        ("with one row of a page twice and another not at all", one),
        ("with the short last page filled up", case.rows_of(19, rows=10**6)),
    ):
        yield f"an index {text} raises", error_kind(case.reader.fill, wrong, case.window)
    index = case.rows_of(3, 4)
    yield (
        "an out with too few rows raises",
        error_kind(case.reader.fill, index, case.buffer(len(index) - 1)),
    )


def _a_cut_file(case):
    path, bytes_left = (
        case.folder / "cut6.rec",
        (6 * case.page_rows + case.page_rows // 2) * case.stride - 4,
    )
    path.write_bytes(case.file[0].read_bytes()[: 4096 + bytes_left])
    for threads in (1, 2):
        reader = case.open(path, *case.file[1:], threads=threads)
        error = raised(reader.fill, case.rows_of(2, 6, 4), case.window)
        right = isinstance(error, (OSError, EOFError))
        yield (
            f"a file cut off, half of page 6 missing, threads={threads}: raises OSError or EOFError",
            right,
        )
    numbers = re.findall(r"\d+", str(error).replace(str(path), ""))
    yield "and the message holds path and page", [str(path) in str(error), "6" in numbers]


def _closing(case):
    index, before = case.rows_of(3, 5), set(threading.enumerate())
    with case.open(*case.file) as reader:
        reader.fill(index, case.window)
        held, threads = len(open_descriptors(case.file[0])), set(threading.enumerate()) - before
    yield (
        "a `with` closes it: the file is closed",
        len(open_descriptors(case.file[0])) < held or not held,
    )
    yield "a `with` closes it: the threads have ended", all(map(has_ended, threads))
    yield "a fill after close() raises", error_kind(reader.fill, index, case.window)


def _direct(case):
    index, flags, open_file = case.rows_of(2, 19, 4), [], os.open

    def note_flags(path, flag, *args, **kwargs):
        flags.append(flag)
        return open_file(path, flag & ~os.O_DIRECT, *args, **kwargs)  # not every file system has it

    with (
        mock.patch.object(os, "O_DIRECT", 0x4000, create=True),
        mock.patch.object(os, "open", note_flags),
    ):
        reader = case.open(*case.file, direct=True)
        yield (
            "direct=True: the file is opened with O_DIRECT",
            all(flag & os.O_DIRECT for flag in flags),
        )
        yield (
            "direct=True: the rows",
            reader.fill(index, aligned_buffers(1, case.rows, case.stride // 4)[0]),
        )
        wrong = error_kind(reader.fill, index, case.window)
        yield "direct=True: an out that does not begin at a multiple of 4096 raises", wrong
        error = error_kind(case.open, *case.file[:2], 6144, case.page_rows, direct=True)
        yield "direct=True: a stride of 6144 bytes raises", error
