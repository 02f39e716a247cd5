"""Probe of exercise write_records."""

import contextlib
import errno
import itertools
import json
import os
import tempfile
from pathlib import Path
from unittest import mock

import numpy as np
import torch

from course.checks.fast_loading.record_files import PAGE
from course.engine.exercise import Answer, Facts, exercise
from course.engine.probing.errors import raised, type_name
from course.engine.probing.files import sizes_in
from course.parallel import distributed

OLDER = b"the older file"


class _Source:
    """Made-up data that logs each slice, and what lies in the folder of the record file at that
    moment.

    x counts up from the seed, so no two of its values are equal. A read of row `fails_at` or of a
    later one raises.
    """

    def __init__(self, rows, columns, seed, path, log, y_type=np.float32, fails_at=None):
        self.rows, self.columns, self.seed, self.path, self.log = rows, columns, seed, path, log
        self.y_type, self.fails_at = y_type, fails_at

    x = property(lambda self: _Column(self, "x", (self.rows, self.columns), np.dtype(np.float32)))
    y = property(lambda self: _Column(self, "y", (self.rows,), np.dtype(self.y_type)))

    def values(self, name, numbers):
        """The values x or y of the rows with these numbers."""
        if name == "y":
            return ((numbers + self.seed + 1) / 3).astype(self.y_type)
        first = numbers * self.columns + self.seed
        return np.add.outer(first, np.arange(self.columns)).astype(np.float32)

    def note(self, **what):
        """Append a line to the log, which all processes share."""
        line = json.dumps(what | {"process": os.getpid()}) + "\n"
        with open(self.log, "ab", buffering=0) as log:
            log.write(line.encode())

    def notes(self):
        """What is in the log, a list of dicts."""
        return (
            [json.loads(line) for line in self.log.read_text().splitlines()]
            if self.log.exists()
            else []
        )

    def reads(self):
        """The log entries of slices of x with at least one row."""
        return [note for note in self.notes() if note.get("rows")]

    def readers(self):
        """The processes that read rows of x."""
        return {note["process"] for note in self.reads()}


class _Column:
    """x or y of a _Source, an array computed slice by slice."""

    def __init__(self, source, name, shape, dtype):
        self.source, self.name, self.shape, self.dtype, self.ndim = (
            source,
            name,
            shape,
            dtype,
            len(shape),
        )

    def __len__(self):
        return self.shape[0]

    def __getitem__(self, index):
        index, *more = index if isinstance(index, tuple) else (index,)
        numbers = np.arange(len(self))[index]
        values = self.source.values(self.name, numbers)
        if self.name == "x":
            rows, beside = numbers.reshape(-1).tolist(), sizes_in(self.source.path.parent)
            beside.pop(self.source.path.name, None)
            self.source.note(
                rows=rows, bytes=values.nbytes, there=_content(self.source.path), beside=beside
            )
            if self.source.fails_at is not None and max(rows, default=-1) >= self.source.fails_at:
                raise OSError(errno.ENOSPC, "No space left on this made-up disk")
        return values[(*[slice(None)] * numbers.ndim, *more)]

    def __reduce__(self):
        self.source.note(sent=self.name)
        return _Column, (self.source, self.name, self.shape, self.dtype)


def _content(path):
    """What is at `path`: "nothing", "the older file" or "another file"."""
    if not path.exists():
        return "nothing"
    return "the older file" if path.stat().st_size == len(OLDER) else "another file"


class _Watched(contextlib.ExitStack):
    """Inside a `with`: what run_ranks is asked for, and what os.fsync is given, which takes no time
    here.

    `asked` is a list of (number of ranks, timeout), one per rank; `synced` of (inode, number of
    reads until then, what was at the path then).  `fails` is raised by os.fsync, `interrupt` by the
    start of a rank.
    """

    def __init__(self, source, fails=None, interrupt=None):
        super().__init__()
        self.source, self.fails, self.interrupt, self.asked, self.synced = (
            source,
            fails,
            interrupt,
            [],
            [],
        )
        self.rank = distributed._Rank

    def __enter__(self):
        self.enter_context(mock.patch.object(distributed, "_Rank", self.start))
        self.enter_context(mock.patch.object(os, "fsync", self.sync))
        return self

    def start(self, *args):
        *_, world_size, _, timeout = args
        self.asked.append((world_size, timeout))
        if self.interrupt:
            raise self.interrupt
        return self.rank(*args)

    def sync(self, file):
        number = file if isinstance(file, int) else file.fileno()
        self.synced.append(
            (os.fstat(number).st_ino, len(self.source.reads()), _content(self.source.path))
        )
        if self.fails:
            raise self.fails


def _table(path, rows, stride):
    """The rows of a record file, float32 (rows, stride // 4); what the file lacks is NaN."""
    values, size = np.fromfile(path, "<f4", offset=PAGE), rows * stride // 4
    whole = np.full(size, np.nan, np.float32)
    whole[: len(values[:size])] = values[:size]
    return whole.reshape(rows, -1)


def _right_rows(source, stride):
    """For each row of `stride` bytes of the file that was written of a _Source: whether x, y and
    zeros are right.
    """
    table, (rows, columns) = _table(source.path, source.rows, stride), source.x.shape
    right, numbers = np.zeros_like(table), np.arange(rows)
    right[:, :columns], right[:, columns] = source.values("x", numbers), source.values("y", numbers)
    return (table == right).all(1).tolist()


class _Case:
    """The path of the record file, in a folder of its own, and a new log beside it for each
    source.
    """

    def __init__(self, answer, folder, seed):
        self.answer, self.seed, self.rows = answer, seed, 7 + seed % 3
        self.folder, self.logs = (
            folder / "records",
            (folder / f"log{number}" for number in itertools.count()),
        )
        self.folder.mkdir()
        self.path = self.folder / "linear.rec"

    def source(self, rows, columns, **options):
        return _Source(rows, columns, self.seed, self.path, next(self.logs), **options)

    def left(self):
        """How many files are in the folder."""
        return len(os.listdir(self.folder))

    def error(self, source, writers=1, **watched):
        """[name, errno] of the exception that the answer raises."""
        with _Watched(source, **watched):
            error = raised(self.answer, self.path, source, writers=writers)
        return [type_name(error, "NoneType"), getattr(error, "errno", None)]


@exercise(seconds=60, starts_processes=True, returns_no_number=True)
def write_records(answer: Answer, device: torch.device, seed: int) -> Facts:
    """Files of a few rows, of several chunks and of very long rows, by one to three writers; then
    failures.
    """
    with tempfile.TemporaryDirectory() as temporary:
        case = _Case(answer, Path(temporary), seed)
        yield from _a_file_in_place_of_an_older(case)
        yield from _three_writers(case)
        yield from _several_chunks(case)
        yield from _failures(case)


def _a_file_in_place_of_an_older(case):
    path, columns = case.path, 8 + case.seed % 6
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


def _header(path):
    head = path.read_bytes()[:PAGE]
    try:
        fields = json.loads(head)
    except ValueError:
        fields = {"format": "this is not JSON"}
    yield "the header, as JSON", dict(sorted(fields.items()))
    yield (
        "it ends at byte 4095 with a newline, before it are spaces",
        head == head.strip().ljust(PAGE - 1) + b"\n",
    )


def _who_wrote(source, watched):
    yield "number of writers, if none is given", sorted({n for n, _ in watched.asked})
    yield "its time limit is an hour or more", all(timeout >= 3600 for _, timeout in watched.asked)
    yield (
        "x and y are sliced in the ranks, not sent to them",
        [n["sent"] for n in source.notes() if "sent" in n],
    )
    pairs = {(row, read["process"]) for read in source.reads() for row in read["rows"]}
    yield "each row is read by one writer", [row for row, _ in sorted(pairs)]
    yield (
        "both writers read, and not your own process",
        [len(source.readers()), os.getpid() in source.readers()],
    )


def _what_lay_there(case, source, watched):
    reads = source.reads()
    yield "while rows are read, `path` is what it was", sorted({read["there"] for read in reads})
    yield "next to it is one temporary file", sorted({len(read["beside"]) for read in reads})
    case.names = {name for read in reads for name in read["beside"]}
    yield "its name begins with a dot", all(name.startswith(".") for name in case.names)
    yield (
        "it has its full length from the start",
        sorted({size for read in reads for size in read["beside"].values()}),
    )
    last = case.path.stat().st_ino, len(reads), OLDER.decode()
    yield (
        "os.fsync is given the file once all is written, before it is `path`",
        last in watched.synced,
    )
    yield "nothing else is left in the folder", sorted(os.listdir(case.folder))


def _three_writers(case):
    source = case.source(2, 3)
    with _Watched(source):
        result = case.answer(str(case.path), source, writers=3)
    yield "a path given as str", type(result).__name__ if result != case.path else "Path"
    yield "3 writers, 2 rows: whether each row is right", _right_rows(source, 16)
    source = case.source(4, 3)
    with (
        _Watched(source),
        mock.patch.object(os, "getpid", return_value=os.getpid() + 1),
    ):  # another process
        case.answer(case.path, source, writers=3)
    beside = {name for read in source.reads() for name in read["beside"]}
    yield (
        "two processes that write one path have a temporary file each",
        beside.isdisjoint(case.names),
    )
    yield "3 writers, 4 rows: how many of them read", len(source.readers())


def _several_chunks(case):
    columns = 1024 * (684 + case.seed % 3) - 1  # rows that fill their memory pages, five to 16 MB
    source = case.source(7, columns, y_type=np.float64)
    with _Watched(source):
        case.answer(case.path, source, writers=1)
    largest = max((read["bytes"] for read in source.reads()), default=0)
    yield "20 MB of x: no slice has more than 16 MB", largest <= 2**24
    yield (
        "20 MB of x, y in float64: whether each row is right",
        _right_rows(source, 4 * (columns + 1)),
    )


def _failures(case):
    case.path.write_bytes(OLDER)
    yield (
        "a writer fails: its error comes out",
        case.error(case.source(case.rows, 3, fails_at=case.rows - 2), 2),
    )
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
