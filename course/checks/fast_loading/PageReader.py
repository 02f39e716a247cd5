"""Probe of exercise PageReader."""

import contextlib
import inspect
import os
import re
import tempfile
import threading
from pathlib import Path
from typing import Any
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


def _record_file(path: Path, rows: int, stride: int, rng: torch.Generator) -> torch.Tensor:
    """Write a record file of random rows; return the rows, a float32 tensor (rows, stride // 4)."""
    table = torch.randn(rows, stride // 4, generator=rng)
    fields = header(rows, stride // 4 - 1, 0, stride=stride)
    make_records(path, fields, table.numpy().astype("<f4"))
    return table


class _Case:
    """A record file of 20 pages, the last one short, and one reader of it.

    `rows` of `stride` bytes hold `table`; `file` is what the constructor is given; `window` is a
    buffer for all rows. All readers made by `open` are closed.
    """

    def __init__(
        self, answer: Answer, readers: contextlib.ExitStack, folder: Path, seed: int
    ) -> None:
        self.answer = answer
        self.readers = readers
        self.folder = folder
        self.threads_before = set(threading.enumerate())
        self.rng = torch.Generator().manual_seed(seed)
        self.page_rows = 8 + seed % 3
        self.stride = 4096
        self.rows = 20 * self.page_rows - 3
        self.path = folder / "rows.rec"
        self.table = _record_file(self.path, self.rows, self.stride, self.rng)
        self.file = self.path, self.rows, self.stride, self.page_rows
        self.window = self.buffer(self.rows)
        self.reader = self.open(*self.file)

    def open(self, *args: Any, **kwargs: Any) -> Any:
        """A reader, which is closed at the end of the probe."""
        return self.readers.enter_context(self.answer(*args, **kwargs))

    def buffer(self, rows: int) -> torch.Tensor:
        """A float32 tensor of sevens for this many rows, not aligned to memory pages."""
        memory = aligned_buffers(1, rows + 1, self.stride // 4)[0].view(-1)
        return memory[16:][: rows * self.stride // 4].view(rows, -1).fill_(7)

    def rows_of(self, *pages: int, rows: int | None = None) -> torch.Tensor:
        """The rows of `pages`, shuffled, in a file of this many rows."""
        rows = rows or self.rows
        rows_of_pages = []
        for page in pages:
            start = page * self.page_rows
            rows_of_pages.append(torch.arange(start, min(start + self.page_rows, rows)))
        index = torch.cat(rows_of_pages)
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


def _rows_in_their_places(case: _Case) -> Facts:
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
    result = case.reader.fill(index, case.buffer(len(index)))
    yield "the first page and the last one, which is short", result
    yield "no row", tuple(case.reader.fill(torch.arange(0), case.buffer(2)).shape)


def _long_pages(case: _Case) -> Facts:
    path = case.folder / "long.rec"
    table = _record_file(path, 2500, 16, case.rng)
    two_pages = torch.cat([torch.arange(2060, 2500), torch.arange(1030)])
    index = two_pages[torch.randperm(1470, generator=case.rng)]
    with case.answer(path, 2500, 16, 1030, threads=3) as reader:
        result = reader.fill(index, torch.zeros(1474, 4))
    right = same_tensor(result, table[index])
    yield "a page of 1,030 rows: more than the 1,024 buffers that one call takes", right


def _what_is_read(case: _Case) -> Facts:
    index = case.rows_of(*range(0, 16, 2))
    at_open = bytes_and_calls_read(lambda: case.open(*case.file))
    at_fill = bytes_and_calls_read(lambda: case.reader.fill(index, case.window))
    if at_fill:
        bytes_at_open, _ = at_open
        bytes_read, calls = at_fill
        yield "the constructor reads no row", bytes_at_open < case.stride
        multiple = bytes_read / (len(index) * case.stride)
        yield "the bytes that fill reads, as a multiple of those of its pages", multiple
        yield "at most two read calls a page", calls <= 2 * 8 + 2
    index = torch.arange(case.rows)
    single = case.open(*case.file, threads=1)
    single.fill(index, case.window)  # what is made once for `window` may be kept
    with peak_bytes() as peak:
        single.fill(index, case.window)
    with NewTensors() as new:
        single.fill(index, case.window)
    is_little = max(new.largest, peak[0]) < 3 * case.page_rows * case.stride
    yield "apart from out, memory for at most two pages per thread", is_little


def _threads(case: _Case) -> Facts:
    meeting = Meeting(2, case.threads_before)
    preadv = os.preadv

    def read_after_meeting(*args: Any) -> int:
        if meeting.met is None:
            meeting.wait()
        return preadv(*args)

    with mock.patch.object(os, "preadv", read_after_meeting):
        case.reader.fill(case.rows_of(2, 3, 14, 15), case.window)
    yield "with threads=2, two pages are read at the same time", meeting.met is not False
    yield "the default of threads", inspect.signature(case.answer).parameters["threads"].default
    three = case.open(*case.file, threads=3)
    start = threading.Thread.start
    with mock.patch.object(
        threading.Thread, "start", autospec=True, side_effect=start
    ) as counted_start:
        for pages in ((1, 2, 3, 4), (5, 8), range(20), (1, 3), (7, 6, 5), (11, 12)):
            three.fill(case.rows_of(*pages), case.window)
    few = counted_start.call_count <= 3
    yield "with threads=3, six fills start at most three threads together", few


def _wrong_calls(case: _Case) -> Facts:
    foreign_row = case.rows_of(7, 2)
    foreign_row[0] = 3 * case.page_rows
    row_twice = case.rows_of(7)
    row_twice[0] = row_twice[1]
    long_last_page = case.rows_of(19, rows=10**6)
    wrong_indices = {
        "with a row of a third page in place of one": foreign_row,
        "with one row of a page twice and another not at all": row_twice,
        "with the short last page filled up": long_last_page,
    }
    for text, wrong in wrong_indices.items():
        yield f"an index {text} raises", error_kind(case.reader.fill, wrong, case.window)
    index = case.rows_of(3, 4)
    short = case.buffer(len(index) - 1)
    yield "an out with too few rows raises", error_kind(case.reader.fill, index, short)


def _a_cut_file(case: _Case) -> Facts:
    path = case.folder / "cut6.rec"
    rows_left = 6 * case.page_rows + case.page_rows // 2
    path.write_bytes(case.path.read_bytes()[: 4096 + rows_left * case.stride - 4])
    for threads in (1, 2):
        reader = case.open(path, *case.file[1:], threads=threads)
        error = raised(reader.fill, case.rows_of(2, 6, 4), case.window)
        right = isinstance(error, (OSError, EOFError))
        text = f"a file cut off, half of page 6 missing, threads={threads}"
        yield f"{text}: raises OSError or EOFError", right
    numbers = re.findall(r"\d+", str(error).replace(str(path), ""))
    yield "and the message holds path and page", [str(path) in str(error), "6" in numbers]


def _closing(case: _Case) -> Facts:
    index = case.rows_of(3, 5)
    before = set(threading.enumerate())
    with case.open(*case.file) as reader:
        reader.fill(index, case.window)
        held = len(open_descriptors(case.path))
        threads = set(threading.enumerate()) - before
    is_closed = len(open_descriptors(case.path)) < held or not held
    yield "a `with` closes it: the file is closed", is_closed
    yield "a `with` closes it: the threads have ended", all(map(has_ended, threads))
    yield "a fill after close() raises", error_kind(reader.fill, index, case.window)


def _direct(case: _Case) -> Facts:
    index = case.rows_of(2, 19, 4)
    flags = []
    open_file = os.open

    def note_flags(path: str | Path, flag: int, *args: Any, **kwargs: Any) -> int:
        flags.append(flag)
        return open_file(path, flag & ~os.O_DIRECT, *args, **kwargs)  # not every file system has it

    with (
        mock.patch.object(os, "O_DIRECT", 0x4000, create=True),
        mock.patch.object(os, "open", note_flags),
    ):
        reader = case.open(*case.file, direct=True)
        is_direct = all(flag & os.O_DIRECT for flag in flags)
        yield "direct=True: the file is opened with O_DIRECT", is_direct
        aligned = aligned_buffers(1, case.rows, case.stride // 4)[0]
        yield "direct=True: the rows", reader.fill(index, aligned)
        wrong = error_kind(reader.fill, index, case.window)
        yield "direct=True: an out that does not begin at a multiple of 4096 raises", wrong
        error = error_kind(case.open, *case.file[:2], 6144, case.page_rows, direct=True)
        yield "direct=True: a stride of 6144 bytes raises", error
