"""Probe of exercise write_records."""

import contextlib
import errno
import itertools
import json
import os
import tempfile
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

import numpy as np
import torch

from course.checks.fast_loading.record_files import PAGE_BYTES
from course.engine.exercise import Answer, Facts, exercise
from course.engine.probing.errors import raised, type_name
from course.engine.probing.files import sizes_in
from course.parallel import distributed

OLDER = b"the older file"
SLICE_BYTES_MAX = 2**24


class _Source:
    """Made-up data that logs each slice, and what lies in the record file's folder at that moment.

    x counts up from the seed, so no two of its values are equal. A read of row `fails_at` or of a
    later one raises.
    """

    def __init__(
        self,
        rows: int,
        columns: int,
        seed: int,
        path: Path,
        log: Path,
        y_type: type = np.float32,
        fails_at: int | None = None,
    ) -> None:
        self.rows = rows
        self.columns = columns
        self.seed = seed
        self.path = path
        self.log = log
        self.y_type = y_type
        self.fails_at = fails_at

    @property
    def x(self) -> "_Column":
        return _Column(self, "x", (self.rows, self.columns), np.dtype(np.float32))

    @property
    def y(self) -> "_Column":
        return _Column(self, "y", (self.rows,), np.dtype(self.y_type))

    def values(self, name: str, numbers: np.ndarray) -> np.ndarray:
        """The values x or y of the rows with these numbers."""
        if name == "y":
            return ((numbers + self.seed + 1) / 3).astype(self.y_type)
        first = numbers * self.columns + self.seed
        return np.add.outer(first, np.arange(self.columns)).astype(np.float32)

    def note(self, **what: Any) -> None:
        """Append a line to the log, which all processes share."""
        line = json.dumps(what | {"process": os.getpid()}) + "\n"
        with open(self.log, "ab", buffering=0) as log:
            log.write(line.encode())

    def notes(self) -> list[dict[str, Any]]:
        """What is in the log."""
        if not self.log.exists():
            return []
        return [json.loads(line) for line in self.log.read_text().splitlines()]

    def reads(self) -> list[dict[str, Any]]:
        """The log entries of slices of x with at least one row.

        In each: the numbers of the `rows`, their `bytes`, the `process`, what was `there` at the
        path, and {name: size} of the files `beside` it.
        """
        return [note for note in self.notes() if note.get("rows")]

    def readers(self) -> set[int]:
        """The processes that read rows of x."""
        return {note["process"] for note in self.reads()}

    def names_beside(self) -> set[str]:
        """The names of other files in the record file's folder while rows of x were read."""
        return set().union(*(read["beside"] for read in self.reads()))


class _Column:
    """x or y of a _Source, an array computed slice by slice."""

    def __init__(self, source: _Source, name: str, shape: tuple[int, ...], dtype: np.dtype) -> None:
        self.source = source
        self.name = name
        self.shape = shape
        self.dtype = dtype
        self.ndim = len(shape)

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, index: Any) -> Any:
        index, *more = index if isinstance(index, tuple) else (index,)
        numbers = np.arange(len(self))[index]
        values = self.source.values(self.name, numbers)
        if self.name == "x":
            self._note_read(numbers.reshape(-1).tolist(), values.nbytes)
        return values[(*[slice(None)] * numbers.ndim, *more)]

    def _note_read(self, rows: list[int], n_bytes: int) -> None:
        path = self.source.path
        beside = sizes_in(path.parent)
        beside.pop(path.name, None)
        self.source.note(rows=rows, bytes=n_bytes, there=_content(path), beside=beside)
        fails_at = self.source.fails_at
        if fails_at is not None and max(rows, default=-1) >= fails_at:
            raise OSError(errno.ENOSPC, "No space left on this made-up disk")

    def __reduce__(self) -> tuple:
        self.source.note(sent=self.name)
        return _Column, (self.source, self.name, self.shape, self.dtype)


def _content(path: Path) -> str:
    """What is at `path`: "nothing", "the older file" or "another file"."""
    if not path.exists():
        return "nothing"
    return "the older file" if path.stat().st_size == len(OLDER) else "another file"


class _Sync(NamedTuple):
    """A call of os.fsync."""

    inode: int
    reads: int  # number of reads until then
    there: str  # what was at the path


class _Watched(contextlib.ExitStack):
    """Inside a `with`: what run_ranks is asked for, and what os.fsync is given.

    `asked` is a list of (number of ranks, timeout), one per rank; `synced` of the calls of
    os.fsync, which takes no time here.  `fails` is raised by os.fsync, `interrupt` by the start of
    a rank.
    """

    def __init__(
        self,
        source: _Source,
        fails: BaseException | None = None,
        interrupt: BaseException | None = None,
    ) -> None:
        super().__init__()
        self.source = source
        self.fails = fails
        self.interrupt = interrupt
        self.asked = []
        self.synced = []
        self.rank = distributed._Rank

    def __enter__(self) -> "_Watched":
        self.enter_context(mock.patch.object(distributed, "_Rank", self.start))
        self.enter_context(mock.patch.object(os, "fsync", self.sync))
        return self

    def start(self, *args: Any) -> Any:
        """Stands for the start of a rank."""
        *_, world_size, _, timeout = args
        self.asked.append((world_size, timeout))
        if self.interrupt:
            raise self.interrupt
        return self.rank(*args)

    def sync(self, file: Any) -> None:
        """Stands for os.fsync."""
        descriptor = file if isinstance(file, int) else file.fileno()
        inode = os.fstat(descriptor).st_ino
        reads = len(self.source.reads())
        self.synced.append(_Sync(inode, reads, _content(self.source.path)))
        if self.fails:
            raise self.fails


def _table(path: Path, rows: int, stride: int) -> np.ndarray:
    """The rows of a record file, float32 (rows, stride // 4); what the file lacks is NaN."""
    size = rows * stride // 4
    values = np.fromfile(path, "<f4", offset=PAGE_BYTES)[:size]
    whole = np.full(size, np.nan, np.float32)
    whole[: len(values)] = values
    return whole.reshape(rows, -1)


def _right_rows(source: _Source, stride: int) -> list[bool]:
    """For each row of `stride` bytes of the file: whether x, y and zeros are those of `source`."""
    table = _table(source.path, source.rows, stride)
    numbers = np.arange(source.rows)
    right = np.zeros_like(table)
    right[:, : source.columns] = source.values("x", numbers)
    right[:, source.columns] = source.values("y", numbers)
    return (table == right).all(1).tolist()


class _Case:
    """The path of the record file, in a separate folder, with a new log for each source."""

    def __init__(self, answer: Answer, folder: Path, seed: int) -> None:
        self.answer = answer
        self.seed = seed
        self.rows = 7 + seed % 3
        self.folder = folder / "records"
        self.folder.mkdir()
        self.path = self.folder / "linear.rec"
        self.log_numbers = itertools.count()
        self.names = set()  # of temporary files that this process had

    def source(self, rows: int, columns: int, **options: Any) -> _Source:
        """Return made-up data with a new log."""
        log = self.folder.parent / f"log{next(self.log_numbers)}"
        return _Source(rows, columns, self.seed, self.path, log, **options)

    def left(self) -> int:
        """How many files are in the folder."""
        return len(os.listdir(self.folder))

    def error(
        self, source: _Source, writers: int = 1, **watched: BaseException
    ) -> list[str | int | None]:
        """[name, errno] of the exception that the answer raises."""
        with _Watched(source, **watched):
            error = raised(self.answer, self.path, source, writers=writers)
        return [type_name(error, "NoneType"), getattr(error, "errno", None)]


@exercise(seconds=60, starts_processes=True, returns_no_number=True)
def write_records(answer: Answer, device: torch.device, seed: int) -> Facts:
    """Files of a few rows, of several chunks, of very long rows, by several writers; failures."""
    with tempfile.TemporaryDirectory() as temporary:
        case = _Case(answer, Path(temporary), seed)
        yield from _a_file_in_place_of_an_older(case)
        yield from _three_writers(case)
        yield from _several_chunks(case)
        yield from _failures(case)


def _a_file_in_place_of_an_older(case: _Case) -> Facts:
    path = case.path
    columns = 8 + case.seed % 6
    path.write_bytes(OLDER)
    source = case.source(case.rows, columns)
    with _Watched(source) as watched:
        result = case.answer(path, source)
    yield "returns the path, as a Path", result == path and isinstance(result, Path)
    yield "the bytes of the file", path.stat().st_size
    yield from _header(path)
    table = _table(path, source.rows, 64)
    yield "x, row by row", table[:, :columns]
    yield "y, row by row", table[:, columns]
    yield "zeros up to the next row", table[:, columns + 1 :]
    yield from _who_wrote(source, watched)
    yield from _what_lay_there(case, source, watched)


def _header(path: Path) -> Facts:
    head = path.read_bytes()[:PAGE_BYTES]
    try:
        fields = json.loads(head)
    except ValueError:
        fields = {"format": "this is not JSON"}
    yield "the header, as JSON", dict(sorted(fields.items()))
    filled_up = head.strip().ljust(PAGE_BYTES - 1) + b"\n"
    yield "it ends at byte 4095 with a newline, before it are spaces", head == filled_up


def _who_wrote(source: _Source, watched: _Watched) -> Facts:
    yield "number of writers, if none is given", sorted({n for n, _ in watched.asked})
    yield "its time limit is an hour or more", all(timeout >= 3600 for _, timeout in watched.asked)
    sent = [note["sent"] for note in source.notes() if "sent" in note]
    yield "x and y are sliced in the ranks, not sent to them", sent
    rows_and_readers = set()
    for read in source.reads():
        for row in read["rows"]:
            rows_and_readers.add((row, read["process"]))
    yield "each row is read by one writer", [row for row, _ in sorted(rows_and_readers)]
    readers = source.readers()
    count_and_own = [len(readers), os.getpid() in readers]
    yield "both writers read, and not your own process", count_and_own


def _what_lay_there(case: _Case, source: _Source, watched: _Watched) -> Facts:
    reads = source.reads()
    yield "while rows are read, `path` is what it was", sorted({read["there"] for read in reads})
    yield "next to it is one temporary file", sorted({len(read["beside"]) for read in reads})
    case.names = source.names_beside()
    yield "its name begins with a dot", all(name.startswith(".") for name in case.names)
    sizes = set().union(*(read["beside"].values() for read in reads))
    yield "it has its full length from the start", sorted(sizes)
    last = _Sync(case.path.stat().st_ino, len(reads), OLDER.decode())
    synced = last in watched.synced
    yield "os.fsync is given the file once all is written, before it is `path`", synced
    yield "nothing else is left in the folder", sorted(os.listdir(case.folder))


def _three_writers(case: _Case) -> Facts:
    source = case.source(2, 3)
    with _Watched(source):
        result = case.answer(str(case.path), source, writers=3)
    yield "a path given as str", type(result).__name__ if result != case.path else "Path"
    yield "3 writers, 2 rows: whether each row is right", _right_rows(source, 16)
    source = case.source(4, 3)
    another_process = mock.patch.object(os, "getpid", return_value=os.getpid() + 1)
    with _Watched(source), another_process:
        case.answer(case.path, source, writers=3)
    disjoint = source.names_beside().isdisjoint(case.names)
    yield "two processes that write one path have a temporary file each", disjoint
    yield "3 writers, 4 rows: how many of them read", len(source.readers())


def _several_chunks(case: _Case) -> Facts:
    columns = 1024 * (684 + case.seed % 3) - 1  # rows that fill their memory pages, five to 16 MB
    source = case.source(7, columns, y_type=np.float64)
    with _Watched(source):
        case.answer(case.path, source, writers=1)
    largest = max((read["bytes"] for read in source.reads()), default=0)
    yield "20 MB of x: no slice has more than 16 MB", largest <= SLICE_BYTES_MAX
    right = _right_rows(source, 4 * (columns + 1))
    yield "20 MB of x, y in float64: whether each row is right", right


def _failures(case: _Case) -> Facts:
    case.path.write_bytes(OLDER)
    full_disk = case.source(case.rows, 3, fails_at=case.rows - 2)
    yield "a writer fails: its error comes out", case.error(full_disk, writers=2)
    yield "a writer fails: `path` is what it was", _content(case.path)
    yield "a writer fails: nothing else is left in the folder", case.left()
    source = case.source(2, 2**22)
    error = case.error(source, fails=OSError(errno.EIO, "This made-up disk is broken"))
    yield "rows of 17 MB are read one by one", sorted(len(read["rows"]) for read in source.reads())
    yield "os.fsync fails: its error comes out", error
    yield "os.fsync fails: nothing else is left in the folder", case.left()
    with contextlib.suppress(KeyboardInterrupt):
        case.error(case.source(1, 3), interrupt=KeyboardInterrupt())
    yield "Ctrl-C, when a writer starts: nothing else is left in the folder", case.left()
