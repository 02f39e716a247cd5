"""Probes of unit 04_fast_loading: what must hold for an answer to each exercise."""

import collections
import contextlib
import errno
import faulthandler
import fcntl
import functools
import gc
import inspect
import io
import itertools
import json
import mmap
import os
import random
import re
import statistics
import sys
import tempfile
import threading
import time
import traceback
import tracemalloc
import warnings
import weakref
from concurrent.futures import thread as pools
from pathlib import Path
from types import SimpleNamespace
from unittest import mock

import numpy as np
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from course import distributed
from course.checks.compare import differs, same_values
from course.checks.engine import exercise
from course.errors import CourseError
from course.loaders import aligned_buffers

UNIT = "04_fast_loading"


PAGE = 4096  # bytes of a record file's header, and of a memory page


def _raised(call):
    """The exception that `call()` raises, or None."""
    try:
        call()
    except Exception as error:
        return error


@exercise(UNIT, apart=True)
def row_stride(answer, device, seed):
    """Short rows, long rows, and those at the borders."""

    def strides(*columns):
        return {f"{n:,} columns, {4 * (n + 1):,} bytes a row": answer(n) for n in columns}

    yield "returns an int", type(answer(10 + seed % 50)).__name__
    yield "short rows: the next power of two", strides(5, 20 + seed % 10, 300 + seed % 100)
    yield "the value y has room", strides(2, 4, 8, 64, 512)
    yield "a row that fills its power of two", strides(1, 3, 7, 255, 511)
    yield "a row of one memory page", strides(1023)
    yield "longer rows: the next multiple of 4096", strides(1024, 2500 + seed % 100, 4000, 10_000)
    yield "a row that fills its memory pages", strides(2047, 3071, 5119)
    yield "large numbers stay exact", strides(2**60 + seed, 2**60 + 1023, 2**60 + 1024)
    yield "no column, or fewer: ValueError", {n: type(_raised(lambda n=n: answer(n))).__name__ for n in (0, -1, -20)}


class _Source:
    """Made-up data whose slices are noted in a file, with what lay in the folder of the record file at that moment.

    x counts up from the seed, so no two of its values are equal.  A read of row `fails_at` or of a later one raises.
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
        """None; one more line in the log, which all processes share."""
        line = json.dumps(what | {"process": os.getpid()}) + "\n"
        with open(self.log, "ab", buffering=0) as log:
            log.write(line.encode())

    def notes(self):
        """What is in the log, a list of dicts."""
        return [json.loads(line) for line in self.log.read_text().splitlines()] if self.log.exists() else []

    def reads(self):
        """What the log says of slices of x that hold a row."""
        return [note for note in self.notes() if note.get("rows")]

    def shares(self):
        """{process: the rows of x that it read, sorted}."""
        shares = {note["process"]: set() for note in self.reads()}
        for note in self.reads():
            shares[note["process"]].update(note["rows"])
        return {process: sorted(rows) for process, rows in shares.items()}


class _Column:
    """x or y of a _Source, an array that is never there as a whole."""

    def __init__(self, source, name, shape, dtype):
        self.source, self.name, self.shape, self.dtype, self.ndim = source, name, shape, dtype, len(shape)

    def __len__(self):
        return self.shape[0]

    def __getitem__(self, index):
        index, *more = index if isinstance(index, tuple) else (index,)
        numbers = np.arange(len(self))[index]
        values = self.source.values(self.name, numbers)
        if self.name == "x":
            rows, beside = numbers.reshape(-1).tolist(), _sizes(self.source.path.parent)
            self.source.note(rows=rows, bytes=values.nbytes, there=_content(self.source.path), beside=beside)
            if self.source.fails_at is not None and max(rows, default=-1) >= self.source.fails_at:
                raise OSError(errno.ENOSPC, "No space left on this made-up disk")
        return values[(*[slice(None)] * numbers.ndim, *more)]

    def __array__(self, dtype=None, copy=None):
        return self[:].astype(dtype or self.dtype)

    def __reduce__(self):
        self.source.note(sent=self.name)
        return _Column, (self.source, self.name, self.shape, self.dtype)


def _sizes(folder):
    """{name: bytes} of the files in a folder."""
    found = {}
    for name in os.listdir(folder):
        with contextlib.suppress(FileNotFoundError):  # gone meanwhile
            found[name] = os.path.getsize(Path(folder, name))
    return found


def _content(path):
    """A word on what is at `path`."""
    try:
        with open(path, "rb") as file:
            begin = file.read(20)
    except FileNotFoundError:
        return "nothing"
    return begin.decode() if begin == b"the older file" else "another file"


class _Watched:
    """Inside a `with`: what run_ranks is asked for, and what os.fsync is given, which takes no time here.

    `asked` is a list of (number of ranks, backend, timeout), one a rank; `synced` of (inode, number of reads until
    then, what was at the path then), `headers` of what was the header then; `removed` are the paths that were removed.
    `fails` is raised by os.fsync, `interrupt` by the start of a rank, `stuck` by the renaming of a file.
    """

    def __init__(self, source, fails=None, interrupt=None, stuck=None):
        self.source, self.fails, self.interrupt, self.stuck = source, fails, interrupt, stuck
        self.asked, self.synced, self.headers, self.removed, self.default = [], [], [], [], False

    def __enter__(self):
        rank = distributed._Rank

        def started(context, number, folder, world_size, backend, timeout):
            self.asked.append((world_size, "not said" if self.default else backend, timeout))
            if self.interrupt:
                raise self.interrupt
            return rank(context, number, folder, world_size, backend, timeout)

        def device():  # run_ranks looks for GPUs when it is told no backend
            self.default = True
            return torch.device("cpu")

        def sync(given):
            number = given if isinstance(given, int) else given.fileno()
            self.synced.append((os.fstat(number).st_ino, len(self.source.reads()), _content(self.source.path)))
            folder = self.source.path.parent
            names = [name for name in folder.iterdir() if os.stat(name).st_ino == self.synced[-1][0]]
            for name in names:
                with open(name, "rb") as file:
                    self.headers.append(file.read(PAGE))
            if self.fails:
                raise self.fails

        def unlink(name, *args, remove=os.unlink, **kwargs):
            self.removed.append(Path(os.fsdecode(name)).name)
            return remove(name, *args, **kwargs)

        def rename(*_, **__):
            raise self.stuck

        self.patches = contextlib.ExitStack()
        self.patches.enter_context(mock.patch.object(distributed, "_Rank", started))
        self.patches.enter_context(mock.patch.object(distributed, "device", device))
        self.patches.enter_context(mock.patch.object(os, "fsync", sync))
        for name in ("unlink", "remove"):
            self.patches.enter_context(mock.patch.object(os, name, unlink))
        for name in ("rename", "replace") if self.stuck else ():
            self.patches.enter_context(mock.patch.object(os, name, rename))
        return self

    def __exit__(self, *_):
        self.patches.close()


def _stride(columns):
    row = 4 * (columns + 1)
    return next(2**k for k in range(13) if 2**k >= row) if row <= PAGE else (row + PAGE - 1) // PAGE * PAGE


def _header(rows, columns, seed, **other):
    """The fields of a header."""
    fields = {"format": "course-records-1", "rows": rows, "columns": columns, "stride": _stride(columns)}
    return fields | {"dtype": "float32", "seed": seed} | other


def _table(path, rows, columns):
    """The rows of a record file, float32 (rows, stride // 4); what the file lacks is NaN."""
    values, size = np.fromfile(path, "<f4", offset=PAGE), rows * _stride(columns) // 4
    whole = np.full(size, np.nan, np.float32)
    whole[: len(values[:size])] = values[:size]
    return whole.reshape(rows, -1)


def _right_rows(source):
    """For each row of the file that was written of a _Source: what is right in it."""
    table, (rows, columns) = _table(source.path, source.rows, source.columns), source.x.shape
    numbers = np.arange(rows)
    right = {
        "x": (table[:, :columns] == source.values("x", numbers)).all(1),
        "y": table[:, columns] == source.values("y", numbers).astype(np.float32),
        "zeros": (table[:, columns + 1 :] == 0).all(1),
    }
    return [" ".join(name for name in right if right[name][row]) for row in range(rows)]


@exercise(UNIT)
def write_records(answer, device, seed):
    """Files of a few rows, of several chunks and of very long rows, by one to three writers; and what fails."""
    with tempfile.TemporaryDirectory() as temporary:
        logs = (Path(temporary) / f"log{number}" for number in itertools.count())
        folder = Path(temporary) / "records"
        folder.mkdir()
        path = folder / "linear.rec"
        rows, columns = 7 + seed % 3, 8 + seed % 6
        older = b"the older file"

        path.write_bytes(older)
        source = _Source(rows, columns, seed, path, next(logs))
        with _Watched(source) as watched:
            result = answer(path, source)
        yield "returns the path, as a Path", result == path and isinstance(result, Path)
        yield "the bytes of the file", path.stat().st_size
        head = path.read_bytes()[:PAGE]
        try:
            header = json.loads(head)
        except ValueError:
            header = {"format": "this is no JSON"}
        yield "the header, as JSON", dict(sorted(header.items()))
        text = head.rstrip(b" \n")
        yield "it ends at byte 4095 with a newline, before it are spaces", head == text.ljust(PAGE - 1) + b"\n"
        table = _table(path, rows, columns)
        yield "x, row by row", table[:, :columns]
        yield "y, row by row", table[:, columns]
        yield "zeros up to the next row", table[:, columns + 1 :]
        yield "number of writers, if none is given", sorted({n for n, _, _ in watched.asked})
        yield "the backend of run_ranks", sorted({backend for _, backend, _ in watched.asked})
        yield "its time limit is an hour or more", all(timeout >= 3600 for _, _, timeout in watched.asked)
        yield "x and y are sliced in the ranks, not sent to them", [n["sent"] for n in source.notes() if "sent" in n]
        shares = source.shares()
        yield "each row is read by one writer", sorted(itertools.chain(*shares.values())) == list(range(rows))
        yield "both writers read, and not your own process", [len(shares), os.getpid() in shares]
        reads = source.reads()
        yield "while rows are read, `path` is what it was", sorted({read["there"] for read in reads})
        beside = [{name: size for name, size in read["beside"].items() if name != path.name} for read in reads]
        yield "beside it is one temporary file", sorted({len(files) for files in beside})
        yield "its name begins with a dot", all(name.startswith(".") for files in beside for name in files)
        yield "it has its full length from the start", sorted({size for files in beside for size in files.values()})
        last = path.stat().st_ino, len(reads), older.decode()
        yield "os.fsync is given the file once all is written, before it is `path`", last in watched.synced
        yield "the header is in it by then", head in watched.headers
        yield "`path` is not removed first: there is always a file", path.name in watched.removed
        yield "nothing else is left in the folder", sorted(os.listdir(folder))

        path.unlink()
        source = _Source(2, 3, seed, path, next(logs))
        with _Watched(source) as watched:
            result = answer(str(path), source, writers=3)
        yield "a path given as str", type(result).__name__ if result != path else "Path"
        yield "3 writers: ranks", sorted({n for n, _, _ in watched.asked})
        yield "3 writers, 2 rows: what is right in each row", _right_rows(source)
        yield "3 writers, 2 rows: each is read by one writer", sorted(itertools.chain(*source.shares().values()))
        there = sorted({read["there"] for read in source.reads()})
        yield "a path where nothing was: nothing is there meanwhile", there

        source = _Source(4, 3, seed, path, next(logs))
        with _Watched(source):
            answer(path, source, writers=3)
        yield "3 writers, 4 rows: how many of them read", len(source.shares())

        columns = 1024 * (684 + seed % 3) - 1  # rows that fill their memory pages, five to 16 MB
        source = _Source(7, columns, seed, path, next(logs), y_type=np.float64)
        with _Watched(source):
            answer(path, source, writers=1)
        largest = max((read["bytes"] for read in source.reads()), default=0)
        yield "20 MB of x: no slice has more than 16 MB", largest <= 2**24
        yield "20 MB of x, y in float64: the bytes of the file", path.stat().st_size
        yield "20 MB of x, y in float64: what is right in each row", _right_rows(source)

        path.write_bytes(older)
        source = _Source(rows, 3, seed, path, next(logs), fails_at=rows - 2)
        with _Watched(source):
            error = _raised(lambda: answer(path, source, writers=2))
        yield "a writer fails: its error comes out", [type(error).__name__, getattr(error, "errno", None)]
        yield "a writer fails: `path` is what it was", path.read_bytes() == older if path.exists() else "it is gone"
        yield "a writer fails: nothing else is left in the folder", len(os.listdir(folder))

        path.unlink(missing_ok=True)
        source = _Source(2, 2**22, seed, path, next(logs))
        with _Watched(source, fails=OSError(errno.EIO, "This made-up disk is broken")):
            error = _raised(lambda: answer(path, source, writers=1))
        yield "rows of 17 MB are read one by one", sorted(len(read["rows"]) for read in source.reads())
        yield "os.fsync fails: its error comes out", [type(error).__name__, getattr(error, "errno", None)]
        yield "os.fsync fails: nothing is left in the folder", len(os.listdir(folder))

        source = _Source(1, 3, seed, path, next(logs))
        with _Watched(source, stuck=OSError(errno.EPERM, "This made-up folder lets nothing be renamed")):
            error = _raised(lambda: answer(path, source, writers=1))
        yield "the renaming fails: its error comes out", [type(error).__name__, getattr(error, "errno", None)]
        yield "the renaming fails: nothing is left in the folder", len(os.listdir(folder))
        with _Watched(source, interrupt=KeyboardInterrupt()), contextlib.suppress(KeyboardInterrupt):
            answer(path, source, writers=1)
        yield "Ctrl-C, when a writer starts: nothing is left in the folder", len(os.listdir(folder))
        source.seed = np.int64(seed)  # which json.dumps does not take
        with _Watched(source, interrupt=OSError(errno.EAGAIN, "no more processes")):
            _raised(lambda: answer(path, source, writers=1))
        yield "a seed that is no int of Python: nothing is left in the folder", len(os.listdir(folder))


def _make_records(path, fields, rows=None, length=None, head=None):
    """None; a file at `path` with the header `fields`, or the bytes `head`, the rows and then as many bytes as said."""
    head = json.dumps(fields).encode().ljust(PAGE - 1) + b"\n" if head is None else head
    with open(path, "wb") as file:
        file.write(head + (b"" if rows is None else rows.tobytes()))
        file.truncate(file.tell() if length is None else length)


def _sharing(tensor):
    """What Linux notes of the mapping that a tensor lies in, a set of two-letter flags; None where it does not tell."""
    with contextlib.suppress(OSError), open("/proc/self/smaps") as lines:
        inside = False
        for line in lines:
            if region := re.match(r"([0-9a-f]+)-([0-9a-f]+) ", line):
                inside = int(region[1], 16) <= tensor.data_ptr() < int(region[2], 16)
            elif inside and line.startswith("VmFlags:"):
                return set(line.split()[1:])


def _bytes_read():
    """How many bytes read calls of this process have brought so far; 0 where the system does not tell."""
    with contextlib.suppress(OSError):
        return int(re.search(r"rchar: (\d+)", Path("/proc/self/io").read_text())[1])
    return 0


def _can_be_written(tensor):
    """True if the tensor keeps what is written into it; tried in a child, which a mapping to read only would end."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Python warns of a fork beside threads
        child = os.fork()
    if child == 0:
        try:
            faulthandler.disable()
            tensor.view(-1)[:1].fill_(-7.0)
            os._exit(0 if tensor.view(-1)[:1].item() == -7.0 else 1)
        finally:
            os._exit(1)
    return os.waitpid(child, 0)[1] == 0


def _says(error, path, *words):
    """What exception it is, and which of the words and the path its message lacks."""
    message = re.sub(r"(?<=\d)[,_](?=\d{3})", "", str(error))
    lacks = [
        *[repr(word) for word in map(str, words) if word not in message],
        *["the path"] * (str(path) not in str(error)),
    ]
    if not isinstance(error, ValueError):
        return type(error).__name__ if error else "no exception"
    return f"a ValueError without {', '.join(lacks)}" if lacks else "a ValueError that says it"


@exercise(UNIT, measured=True)
def Records(answer, device, seed):
    """Files of a few rows, one that no memory holds, and every kind of file that is no whole record file."""
    with tempfile.TemporaryDirectory() as temporary:
        yield from _facts_of_records(answer, Path(temporary).resolve() / "linear.rec", seed)


def _facts_of_records(answer, path, seed):
    rng = torch.Generator().manual_seed(seed)

    def made(rows, columns, **other):
        """A file of random rows; what it holds."""
        table = torch.zeros(rows, _stride(columns) // 4)
        table[:, : columns + 1] = torch.rand(rows, columns + 1, generator=rng)
        _make_records(path, _header(rows, columns, seed, **other), table.numpy())
        return table

    rows, columns = 5 + seed % 4, 4 + seed % 3
    made(rows, columns)
    content = path.read_bytes()
    records = answer(path)
    sizes = {"rows": records.rows, "columns": records.columns, "seed": records.seed, "len()": len(records)}
    yield "rows, columns, seed and len()", sizes
    tensors = {"table": records.table, "x": records.x, "y": records.y}
    yield "table, x and y are tensors", {name: type(tensor).__name__ for name, tensor in tensors.items()}
    yield "their dtype", {name: str(tensor.dtype) for name, tensor in tensors.items()}
    yield "their shape", {name: tuple(tensor.shape) for name, tensor in tensors.items()}
    yield "table, as it is in the file", records.table
    yield "x", records.x
    yield "y", records.y
    starts = {name: tensor.data_ptr() - records.table.data_ptr() for name, tensor in tensors.items()}
    inside = {name: 0 <= start < records.table.nbytes for name, start in starts.items()}
    yield "x and y are views of table", inside
    yield "where they begin, in bytes", {name: start if inside[name] else "elsewhere" for name, start in starts.items()}
    yield "from row to row, in values", {name: tensor.stride(0) for name, tensor in tensors.items()}

    with open(path, "rb+") as file:
        file.seek(PAGE)
        file.write(np.float32(-3).tobytes())
    mapped = records.table[0, 0].item() == -3
    yield "nothing is copied: what is in the file now is in x", mapped
    if not mapped or not all(inside.values()):  # it would copy from 64 GB, below
        return
    path.write_bytes(content)
    yield "can be written into", {name: _can_be_written(tensor[:1].flatten()) for name, tensor in tensors.items()}
    yield "the file does not change by it", path.read_bytes() == content
    flags = _sharing(records.table)
    yield "on Linux: mapped with MAP_NORESERVE", flags is None or "nr" in flags

    shapes, values = {}, {}
    for columns in (1, 3, 1023, 1024, 3071):
        table, records = made(1, columns), answer(str(path))
        shapes[f"{columns} columns"] = tuple(records.table.shape)
        right = torch.equal(records.x, table[:, :columns]) and torch.equal(records.y, table[:, columns])
        values[f"{columns} columns"] = right
    yield "one row, path as str: the shape of table", shapes
    yield "one row: x and y", values

    rows = 2**24
    _make_records(path, _header(rows, 1000, seed), length=PAGE + rows * 4096)  # 64 GB of nothing
    with open(path, "rb+") as file:
        file.seek(PAGE + (rows - 1) * 4096)
        file.write(np.arange(1001, dtype="<f4").tobytes())
    before = _bytes_read()
    records = answer(path)
    yield "a file of 64 GB: opening it reads less than a megabyte", _bytes_read() - before < 2**20
    yield "a file of 64 GB: len()", len(records)
    yield "a file of 64 GB: its last row", [records.x[-1, -1].item(), records.y[-1].item(), records.y[-2].item()]
    del records, tensors

    path.unlink()
    yield "no file: FileNotFoundError", type(_raised(lambda: answer(path))).__name__

    columns = 4 + seed % 3
    rows, stride = 6, _stride(columns)
    whole = PAGE + rows * stride

    messages = {}

    def refusal(head, length=None):
        _make_records(path, None, head=head, length=length)
        return _says(_raised(lambda: answer(path)), path)

    def refused(length=whole, says=(), lacks=None, **other):
        fields = _header(rows, columns, seed) | other
        _make_records(path, {key: value for key, value in fields.items() if key != lacks}, length=length)
        error = _raised(lambda: answer(path))
        messages[lacks] = str(error)
        return _says(error, path, *says)

    foreign = {
        "nothing": b"",
        "a JPEG file": b"\xff\xd8\xff\xe0\x00\x10JFIF" + bytes(range(256)) * 40,
        "a web page": b"<html>Not found</html>".ljust(9000),
        "a list in JSON": b'["course-records-1", 6, 5]'.ljust(PAGE),
        "a number in JSON": b"6".ljust(PAGE),
        "4096 brackets": b"[" * PAGE,
    }
    yield "a foreign file: ValueError with the path", {text: refusal(head) for text, head in foreign.items()}
    keys = _header(rows, columns, seed)
    yield "a header that lacks a key: the message says which", {key: refused(lacks=key, says=[key]) for key in keys}
    yield "each of these messages is another one", len({messages[key] for key in keys})
    head = json.dumps(keys).encode().ljust(PAGE)
    yield "a header without the newline at its end: ValueError with the path", refusal(head, whole)
    others = {"format": "course-records-2", "dtype": "float64"}
    found = {key: refused(says=[key, value], **{key: value}) for key, value in others.items()}
    yield "another format or dtype: key and value in the message", found
    long = refused(PAGE + rows * 2 * stride, ["stride", 2 * stride], stride=2 * stride)
    yield "another stride than that of its columns: likewise", long
    lengths = {
        "the last row is missing": whole - stride,
        "the last byte is missing": whole - 1,
        "all rows are missing": PAGE,
        "half of the header is missing": PAGE // 2,
        "one byte too many": whole + 1,
        "one row too many": whole + stride,
    }
    found = {text: refused(length, [length, whole]) for text, length in lengths.items()}
    yield "another length than the header says: both in the message", found
    found = {
        "0 rows": refused(PAGE, rows=0),
        "-1 rows": refused(PAGE - stride, rows=-1),
        "0 columns": refused(PAGE + rows * 4, columns=0, stride=4),
        f"{rows}.0 rows": refused(rows=float(rows)),
        f"'{rows}' rows": refused(rows=str(rows)),
        "null columns": refused(columns=None),
        "the seed 'none'": refused(seed="none"),
        "the seed -5": refused(seed=-5),
        f"the stride {stride}.0": refused(stride=float(stride)),
        "true rows": refused(PAGE + stride, rows=True),
        "the seed true": refused(seed=True),
    }
    yield "sizes that make no sense: ValueError with the path", found
    made(rows, columns)
    yield "a whole file is taken", len(answer(path))


# seeds and epochs that careless sums and products of them mix up
NUMBERS = (0, 1, 2, 3, 10, 31, 100, 999, 1000, 2**12, 10_000, 2**16, 100_000, 2**17, 2**18, 2**19, 999_999, 10**6)
LINKED = 0.45  # a correlation that chance does not reach: six deviations for 180 values


def _form(order):
    """What an order is, without its numbers."""
    if not isinstance(order, torch.Tensor):
        return type(order).__name__
    return {"dtype": order.dtype, "axes": order.dim(), "device": order.device.type}


def _account(rows, *orders):
    """How the orders together fail to hold each row number once: three counts, all 0 for right ones."""
    counts = collections.Counter(itertools.chain(*(order.tolist() for order in orders)))
    return {
        "numbers that are no rows": sum(not 0 <= row < rows for row in counts),
        "rows that are missing": sum(row not in counts for row in range(rows)),
        "rows that come several times": sum(n > 1 for n in counts.values()),
    }


def _alike(order):
    """Two pairs (seed, epoch) for which `order(seed, epoch)` is the same, in words, or "none"."""
    seen = {}
    for pair in itertools.product(NUMBERS, NUMBERS):
        other = seen.setdefault(tuple(order(*pair).tolist()), pair)
        if other != pair:
            return f"(seed, epoch) = {other} and {pair}"
    return "none"


def _follows_the_file(numbers):
    """True if a list of row or page numbers runs along the file or against it, or keeps neighbours of it together."""
    place = torch.tensor([range(len(numbers)), numbers], dtype=torch.float64)
    near = sum(abs(a - b) == 1 for a, b in itertools.pairwise(numbers))
    return abs(torch.corrcoef(place)[0, 1].item()) > LINKED or near > len(numbers) / 10


def _related(one, other):
    """True if many neighbours in the one list are neighbours in the other, either way round, or stand in its places."""
    pairs = [{frozenset(pair) for pair in itertools.pairwise(numbers)} for numbers in (one, other)]
    same = sum(a == b for a, b in zip(one, other, strict=False))
    return max(len(pairs[0] & pairs[1]), same) > len(one) / 10


def _random_state():
    """The state of the three global sources of random numbers, as something that can be compared."""
    return torch.get_rng_state().tolist(), random.getstate(), repr(np.random.get_state())


def _python_lines(call, most):
    """True if `call()` executes at most `most` lines of Python, in whatever file they stand."""
    count = 0

    def trace(frame, event, arg):
        nonlocal count
        count += 1
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        call()
    finally:
        sys.settrace(before)
    return count <= most


@exercise(UNIT, apart=True)
def random_order(answer, device, seed):
    """The orders of all ranks, several seeds and epochs."""
    ranks = 3 + seed % 2
    rows = 300 * ranks + 1 + seed % 2

    def shares(rows, world_size, epoch=3):
        return [answer(rows, seed, epoch, rank=rank, world_size=world_size) for rank in range(world_size)]

    before = _random_state()
    order = answer(rows, seed, 3)
    untouched = before == _random_state()
    yield "returns an int64 tensor with one axis, on the CPU", _form(order)
    yield "every row comes once", _account(rows, order)
    yield "the same call again gives the same order", torch.equal(order, answer(rows, seed, 3))
    yield "the order is not that of the file, or near it", not _follows_the_file(order.tolist())
    later, other = answer(rows, seed, 4), answer(rows, seed + 1, 3)
    yield "another epoch has another order", not torch.equal(order, later)
    yield "another seed has another order", not torch.equal(order, other)
    yield "no epoch's order is made from that of another", not _related(order.tolist(), later.tolist())
    yield "no seed's order is made from that of another", not _related(order.tolist(), other.tolist())
    yield "two pairs (seed, epoch) with the same order", _alike(lambda *pair: answer(40, *pair))

    parts = shares(rows, ranks)
    yield f"{rows} rows on {ranks} ranks: every row is on one rank", _account(rows, *parts)
    yield f"{rows} rows on {ranks} ranks: the number of each rank", [len(part) for part in parts]
    spread = all(part.min() < rows / 5 and part.max() > 4 * rows / 5 for part in parts)
    yield "the rows of a rank come from the whole file", spread
    moved = all(set(a.tolist()) != set(b.tolist()) for a, b in zip(parts, shares(rows, ranks, epoch=4), strict=True))
    yield "in another epoch a rank has other rows", moved
    places = [order[rank::ranks] for rank in range(ranks)]
    strided = all(map(torch.equal, parts, places))
    yield "rank r has the places r, r + world_size, ... of the order of all", strided
    yield f"2 rows on {ranks + 2} ranks: every row once", _account(2, *shares(2, ranks + 2))
    few = {f"rank {rank}": f"{len(x)}, {x.dtype}" for rank, x in enumerate(shares(2, ranks + 2))}
    yield f"2 rows on {ranks + 2} ranks: the number of each rank, and the dtype", few
    yield "a file of one row", answer(1, seed, 0)
    yield "the global random numbers stay as they were", untouched


def _pages(order, page_rows):
    """The page numbers of an order of windows of one page each, in their order."""
    return [page for page, _ in itertools.groupby(order.tolist(), lambda row: row // page_rows)]


def _windows(order, page_rows, window_pages):
    """[sorted numbers of the pages found in each window], if the windows but the last are full."""
    return [sorted({row // page_rows for row in part.tolist()}) for part in order.split(page_rows * window_pages)]


def _patterns(order, page_rows, window_pages):
    """How the full windows are shuffled: the places within the page that their rows come from, a set of tuples."""
    rows = page_rows * window_pages
    return {tuple(row % page_rows for row in part.tolist()) for part in order.split(rows) if len(part) == rows}


def _cut(pages, window_pages):
    """A list of pages as _windows finds it."""
    return [sorted(pages[i : i + window_pages]) for i in range(0, len(pages), window_pages)]


def _shared_out(pages, short, ranks):
    """The lists of pages of all ranks that belong to an order of all pages."""
    return [sorted(pages[rank::ranks], key=lambda page: page == short) for rank in range(ranks)]  # sorted is stable


@exercise(UNIT)
def quasi_random_order(answer, device, seed):
    """Windows of pages, looked at from the row numbers."""
    page_rows, window_pages, ranks = 6 + seed % 3, 4, 3
    full = 180 + 2 * (seed % 7) + 1  # pages; no multiple of four
    rows = full * page_rows

    def order(epoch=2, seed=seed, rows=rows, window_pages=window_pages, **rank):
        return answer(rows, page_rows, window_pages, seed, epoch, **rank)

    def pages(epoch=2, **options):
        return _pages(order(epoch, window_pages=1, **options), page_rows)

    before = _random_state()
    mixed = order()
    untouched = before == _random_state()
    yield "returns an int64 tensor with one axis, on the CPU", _form(mixed)
    yield "only full pages: every row comes once", _account(rows, mixed)
    yield "the same call again gives the same order", torch.equal(mixed, order())
    windows = _windows(mixed, page_rows, window_pages)
    counts = sorted({len(window) for window in windows[:-1]})
    yield "the number of pages in a window", {"all but the last": counts, "the last": len(windows[-1])}
    reach = statistics.mean(window[-1] - window[0] for window in windows[:-1])
    yield "the pages of a window come from all over the file", reach > 0.3 * full  # 0.6 on average
    alone = pages()
    yield "windows of one page: every page stands together", sorted(alone) == list(range(full))
    yield "the pages do not follow the order of the file", not _follows_the_file(alone)
    yield "the last page of the file is full, and not moved to the end", any(pages(e)[-1] != full - 1 for e in range(5))

    # of two neighbours in a random window about 1 in 4 are of one page, and half of these ascend; if the rows of each
    # page stay together, 5 in 6 are, and if the pages take turns, none
    parts = [part.tolist() for part in mixed.split(page_rows * window_pages)]
    pairs = [pair for part in parts for pair in itertools.pairwise(part)]
    siblings = [(a, b) for a, b in pairs if a // page_rows == b // page_rows]
    share, ascending = len(siblings) / len(pairs), sum(a < b for a, b in siblings) / max(1, len(siblings))
    yield "the rows of a window are not page by page in file order", not (share > 0.5 and ascending > 0.7)
    yield "the pages of a window do not take turns", share > 0.02
    patterns = {tuple(row % page_rows for row in part) for part in parts}
    yield "each window is shuffled in a way of its own", len(patterns) == len(windows)
    yield "rows are shuffled across the pages of a window", 0.1 < share < 0.4
    yield "and so are the rows of a page among themselves", 0.35 < ascending < 0.65

    later, other = order(3), order(seed=seed + 1)
    yield "another epoch has another order", not torch.equal(mixed, later)
    yield "another seed has another order", not torch.equal(mixed, other)
    together = [set(map(tuple, _windows(x, page_rows, window_pages))) for x in (mixed, later, other)]
    yield "in another epoch other pages stand together", len(together[0] & together[1]) < 5
    yield "with another seed other pages stand together", len(together[0] & together[2]) < 5
    ways = [_patterns(x, page_rows, window_pages) for x in (mixed, later, other)]
    yield "no window is shuffled as one of another epoch", not ways[0] & ways[1]
    yield "no window is shuffled as one of another seed", not ways[0] & ways[2]
    unrelated = not (_related(alone, pages(3)) or _related(alone, pages(seed=seed + 1)))
    yield "no order of pages is made from that of another epoch or seed", unrelated
    yield "two pairs (seed, epoch) with the same order", _alike(lambda *pair: answer(48, 6, 2, *pair))
    yield "the same in a file of one page", _alike(lambda *pair: answer(40, 40, 1, *pair))
    yield "window_pages has no part in the order of the pages", windows == _cut(alone, window_pages)

    parts = [order(rank=rank, world_size=ranks) for rank in range(ranks)]
    yield f"{ranks} ranks: every row is on one rank", _account(rows, *parts)
    owners = sum(len({row // page_rows for row in part.tolist()}) for part in parts)
    yield f"{ranks} ranks: every page is on one rank", owners == full
    yield f"{ranks} ranks: pages of each", [len(part) / page_rows for part in parts]
    dealt = _shared_out(alone, None, ranks)
    found = [pages(rank=rank, world_size=ranks) for rank in range(ranks)]
    yield "rank r has the pages at the places r, r + world_size, ... of the order of all", found == dealt
    cut = [_windows(part, page_rows, window_pages) for part in parts]
    yield "the windows of a rank are cut from its own pages", cut == [_cut(own, window_pages) for own in dealt]
    ways = [_patterns(part, page_rows, window_pages) for part in parts]
    apart = not any(one & other for one, other in itertools.combinations(ways, 2))
    yield "no window is shuffled as one of another rank", apart

    rest = 1 + seed % (page_rows - 1)
    rows += rest  # from here on the last page is short
    short = list(range(full * page_rows, rows))
    yield f"a last page of {rest} of {page_rows} rows: every row once", _account(rows, order(rows=rows))
    parts = [order(rows=rows, rank=rank, world_size=ranks) for rank in range(ranks)]
    yield "the same on all ranks together", _account(rows, *parts)
    ends = [sorted(order(epoch, rows=rows, window_pages=1).tolist()[-rest:]) == short for epoch in range(5)]
    yield "the short page is the last", all(ends)
    owner = []
    for epoch in range(20):
        tails = [
            order(epoch, rows=rows, window_pages=1, rank=r, world_size=ranks).tolist()[-rest:] for r in range(ranks)
        ]
        owner += [rank for rank, tail in enumerate(tails) if sorted(tail) == short]
    yield "on the rank that has it, it is the last, in each of 20 epochs", len(owner) == 20
    yield "it is not on the same rank in every epoch", len(set(owner)) > 1
    alone = [page for page in pages(rows=rows) if page != full]
    found = [pages(rows=rows, rank=rank, world_size=ranks) for rank in range(ranks)]
    orders = (alone[:i] + [full] + alone[i:] for i in range(full + 1))  # where the short page may have stood
    one = any(found == _shared_out(all_pages, full, ranks) for all_pages in orders)
    yield "all ranks take their pages from one order, the short page in it", one
    yield (
        "the others keep their places, in windows too",
        _windows(order(rows=rows), page_rows, window_pages) == _cut([*alone, full], window_pages),
    )
    # the last window has one full page or three besides the short one: 1 time in 7 or less the short one ends it
    ends = [order(epoch, rows=rows).tolist()[-rest:] for epoch in range(20)]
    yield "its rows are mixed with the others of the last window", sum(sorted(end) != short for end in ends) > 5

    yield "sizes for which not every row comes once", _first_bad_size(answer, seed)
    whole = answer(rows, page_rows, 10 * full, seed, 0).tolist()
    kept = sum(a // page_rows == b // page_rows for a, b in itertools.pairwise(whole))
    yield "a window larger than the file is a random order of all rows", kept < 0.05 * rows
    yield "the global random numbers stay as they were", untouched
    many = 100_000
    few = _python_lines(lambda: answer(many, many // 100, 10, seed, 0), most=many // 10)
    yield "no Python loop goes over the rows", few


def _first_bad_size(answer, seed):
    """A line on the first case in which the ranks do not share all rows, or "none"."""
    for rows, page_rows, window_pages, world_size in itertools.product((1, 7, 12), (1, 4, 20), (1, 2, 9), (1, 2, 5)):
        sizes = f"{rows=}, {page_rows=}, {window_pages=}, {world_size=}"
        parts = [answer(rows, page_rows, window_pages, seed, 1, rank, world_size) for rank in range(world_size)]
        if any(_account(rows, *parts).values()):
            return sizes
        if any(_form(part) != _form(torch.arange(1)) for part in parts):
            return f"{sizes}: not all are int64 tensors with one axis"
    return "none"


def _error_name(call):
    """The name of the type of the exception that `call()` raises, or "nothing"."""
    try:
        call()
    except Exception as error:
        return type(error).__name__
    return "nothing"


@exercise(UNIT, apart=True)
def batch_bias(answer, device, seed):
    """Values and orders small enough to count, then those that lose digits."""
    rng = torch.Generator().manual_seed(seed)

    def bias(values, order, batch):
        return answer(torch.as_tensor(values).to(device), torch.as_tensor(order).to(device), batch)

    small = [0.0, 0.0, 1.0, 1.0]
    found = bias(small, [0, 1, 2, 3], 2)
    yield "returns a float", "float" if isinstance(found, float) else type(found).__name__
    yield "values 0 0 1 1 in batches of two, V = 1/4, V0 = 1/4 / 2 * 2/3", bias(small, [0, 1, 2, 3], 2)
    yield "the order 0 2 1 3 makes batches that are alike", bias(small, [0, 2, 1, 3], 2)
    values = torch.rand(5, generator=rng)
    orders = list(itertools.permutations(range(5)))
    yield "batches of one row are as good as random, always", bias(values, orders[seed % 120], 1)
    yield "the mean over all 120 orders of 5 rows", statistics.mean(bias(values, order, 2) for order in orders)

    batch, n_batches = 4 + seed % 3, 6
    n = batch * n_batches
    values = torch.randn(n, generator=rng)
    order = torch.randperm(n, generator=rng)
    yield "random values in random order", bias(values, order, batch)
    yield "sorted values in the order of the file", bias(values.sort().values, torch.arange(n), batch)
    values = torch.cat([values, 3 + torch.rand(batch - 1, generator=rng)])
    order = torch.randperm(len(values), generator=rng)
    yield "the rows behind the last full batch: in m and s² only", bias(values, order, batch)
    yield "one full batch, and some rows more", bias(values[: batch + 2], order[order < batch + 2], batch)
    yield "values scaled by 1000 give the same", bias(1000 * values, order, batch)

    times = 1_600_000_000 + torch.randint(1000, (n,), generator=rng)
    order = torch.randperm(n, generator=rng)
    yield "Unix times, whole numbers, counted in float64", bias(times, order, batch)
    yield "Unix times that are float64 already", bias(times.double(), order, batch)
    yield "float16 values, whose sum is beyond float16", bias(times.sub(1_600_000_000).mul(50).half(), order, batch)
    yield "values True and False", bias(times % 3 == 0, order, batch)
    yield "a batch larger than the file raises ValueError", _error_name(lambda: bias(times, order, n + 1))
    yield "one batch of all rows raises ValueError", _error_name(lambda: bias(times, order, n))
    yield "values that are all 2 raise ValueError", _error_name(lambda: bias([2.0] * n, order, batch))
    sevenths = [torch.full((n,), x / 7, dtype=torch.float64) for x in range(30)]
    same = {_error_name(lambda values=values: bias(values, order, batch)) for values in sevenths}
    yield "and so do values that are all 1/7, or 2/7, or 3/7 and so on", sorted(same)


def _error_kind(call):
    """The name of the type of the exception that `call()` raises; those below OSError count as one."""
    try:
        call()
    except Exception as error:
        return "OSError" if isinstance(error, OSError) else type(error).__name__
    return "nothing"


def _kind(value):
    """What a tensor is, without its values; of anything else the name of its type."""
    return [f"Tensor {value.dtype}", value.shape] if isinstance(value, torch.Tensor) else type(value).__name__


def _is_view(value, out):
    """True if `value` is the beginning of `out`, not a copy of it."""
    return isinstance(value, torch.Tensor) and value.data_ptr() == out.data_ptr() and value.stride() == out.stride()


class _NewTensors(TorchDispatchMode):
    """Counts torch's operations in this thread, and the bytes of the new memory that their results have."""

    calls = total = largest = 0

    def __torch_dispatch__(self, operation, types, args=(), kwargs=None):
        known = {_memory(t) for t in tree_leaves((args, kwargs)) if isinstance(t, torch.Tensor)}
        result = operation(*args, **(kwargs or {}))
        self.calls += 1
        for tensor in tree_leaves(result):
            if isinstance(tensor, torch.Tensor) and _memory(tensor) not in known:
                self.total += tensor.untyped_storage().nbytes()
                self.largest = max(self.largest, tensor.untyped_storage().nbytes())
        return result


def _memory(tensor):
    return tensor.untyped_storage().data_ptr()


@contextlib.contextmanager
def _traced():
    """A list that holds, after the block, the most bytes of Python and NumPy that were alive at once in it."""
    started = not tracemalloc.is_tracing()
    if started:
        tracemalloc.start()
    try:
        tracemalloc.reset_peak()
        before, peak = tracemalloc.get_traced_memory()[0], []
        yield peak
        peak.append(tracemalloc.get_traced_memory()[1] - before)
    finally:
        if started:
            tracemalloc.stop()


@exercise(UNIT, changes_inputs=True, measured=True)
def gather(answer, device, seed):
    """Rows of a table on the CPU, in a buffer that is larger, as large, too small."""
    warnings.filterwarnings("ignore", "An output with one or more elements was resized")  # that is a fact of its own
    rng = torch.Generator().manual_seed(seed)
    rows, width, n = 200 + seed % 7, 128, 60 + seed % 5
    table = torch.randn(rows, width, generator=rng)

    def some(n):
        return torch.randint(rows, (n,), generator=rng)

    def buffer(rows=2 * n, width=width, dtype=torch.float32):
        return torch.full((rows, width), 7.0, dtype=dtype)

    index, out = some(n), buffer()
    index[-1] = index[0]
    right, given, place = table[index], (table.clone(), index.clone()), out.data_ptr()
    result = answer(table, index, out)
    yield "returns a float32 tensor with a row for each index", _kind(result)
    yield "its rows are table[index]", result
    yield "these rows are in out", _same(out[:n], right)
    yield "what is returned is a view of out", _is_view(result, out)
    yield "out keeps its shape and its memory", [out.shape, out.data_ptr() == place]
    yield "rows of out beyond the batch stay as they are", _same(out[n:], buffer(n))
    yield "table and index stay as they are", _same(table, given[0]) and _same(index, given[1])
    for text, index in (
        ("a batch that fills out", some(2 * n)),
        ("one row", some(1)),
        ("first and last row of the table", torch.tensor([rows - 1, 0])),
        ("no row", some(0)),
    ):
        out = buffer()
        yield f"{text}: the rows", answer(table, index, out)
        yield f"{text}: what out holds", out

    calls = []
    for m in (n, 2 * n):
        index, out = some(m), buffer()
        answer(table, index, out)  # what is made once and kept is no copy
        with _traced() as peak:
            answer(table, index, out)
        with _NewTensors() as new:
            answer(table, index, out)
        calls.append(new.calls)
        yield f"no row is copied on the way, {m} rows: less than 64 bytes an index", new.total + peak[0] < 64 * m + 4096
    yield "no more calls of torch for the double number of rows", calls[1] <= calls[0]

    for text, other in (
        ("too few rows", buffer(n - 1)),
        ("rows that are too short", buffer(width=width - 1)),
        ("rows that are too long", buffer(width=width + 1)),
        ("another dtype", buffer(dtype=torch.float64)),
    ):
        before, place = other.clone(), other.data_ptr()
        yield f"an out with {text} raises", _error_kind(lambda other=other: answer(table, some(n), other))
        yield f"an out with {text} stays what it was", _same(other, before) and other.data_ptr() == place
    for number in (rows, -1, -rows):
        wrong = some(n)
        wrong[n // 2] = number
        done = _error_kind(lambda wrong=wrong: answer(table, wrong, buffer()))
        yield f"row {number} of a table of {rows} rows is refused", done != "nothing"


def _same(a, b):
    return a.shape == b.shape and a.dtype == b.dtype and torch.equal(a, b)


def _record_file(path, rows, stride, rng):
    """A record file of random rows at `path`; returns its rows, a float32 tensor (rows, stride // 4)."""
    table = torch.randn(rows, stride // 4, generator=rng)
    header = {"format": "course-records-1", "rows": rows, "columns": stride // 4 - 1, "stride": stride}
    text = json.dumps(header | {"dtype": "float32", "seed": 0})
    path.write_bytes(text.ljust(4095).encode() + b"\n" + table.numpy().astype("<f4").tobytes())
    return table


def _buffer(rows, columns, border=False):
    """A float32 tensor (rows, columns) full of sevens that begins at the border of a memory page, or not there."""
    memory = aligned_buffers(1, rows + 1, max(columns, 16))[0].view(-1)
    return memory[0 if border else 16 :][: rows * columns].view(rows, columns).fill_(7)


def _reads(run):
    """[bytes, calls] that `run()` reads by read calls, as Linux counts them; None where the system does not tell.

    The whole process is counted, and a notebook's own threads read a few bytes now and then: the least of three runs.
    """
    found = []
    for _ in range(3):
        before = _counted()
        if before is None:
            return None
        run()
        after = _counted()
        found.append([after[0] - before[0] - before[2], after[1] - before[1] - 1])  # less the count before itself
    return [min(column) for column in zip(*found, strict=True)]


def _counted():
    """(bytes read by this process, its read calls, bytes of this very read), or None."""
    try:
        file = os.open("/proc/self/io", os.O_RDONLY)
    except OSError:
        return None
    try:
        text = os.read(file, 4096)
    finally:
        os.close(file)
    counts = dict(line.split(b": ") for line in text.splitlines())
    return int(counts[b"rchar"]), int(counts[b"syscr"]), len(text)


def _descriptors(path):
    """The numbers by which this process holds the file at `path` open; none where the system does not tell."""
    stat, found = os.stat(path), []
    for number in os.listdir("/dev/fd") if os.path.isdir("/dev/fd") else []:
        with contextlib.suppress(OSError):  # the handle that listed the folder
            if os.path.samestat(os.fstat(int(number)), stat):
                found.append(int(number))
    return found


class _Meeting:
    """Reading functions of `os` that wait until two threads are in one of them; after that, or 2 seconds, they go on.

    `alone` is True if a thread waited in vain.
    """

    def __init__(self):
        self.barrier, self.met, self.alone = threading.Barrier(2), False, False

    @contextlib.contextmanager
    def at_reads(self):
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


@exercise(UNIT, measured=True)
def PageReader(answer, device, seed):
    """Small record files, read in pages of every size; what is read is counted by the system."""
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as readers:

        def opened(*args, **kwargs):
            reader = answer(*args, **kwargs)
            readers.callback(_error_kind, lambda: reader.close())
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
    yield "fill returns a float32 tensor with a row for each index", _kind(result)
    yield "the rows of the index are there, in any order", _same(_sorted(result), _sorted(table[index]))
    yield "row index[i] of the file comes to row i", result
    yield "what is returned is a view of out", _is_view(result, out)
    yield "rows of out beyond the batch stay as they are", bool((out[n:] == 7).all())
    yield "index stays as it is", _same(index, kept)
    yield "one page", filled(reader, rows_of(5), 3)
    yield "the first page and the last one, which is short", filled(reader, rows_of(0, 19))
    yield "the short page alone", filled(reader, rows_of(19))
    yield "the whole file", _same(filled(reader, torch.arange(rows)), table)
    yield "no row", tuple(filled(reader, index[:0], 2).shape)
    other, index, second = _buffer(n, stride // 4), rows_of(1, 4, 16, 9), rows_of(8, 6, 17, 0)
    reader.fill(index, out), reader.fill(second, other)
    yield "two buffers: the first", _same(out[:n], table[index])
    yield "two buffers: the second", _same(other, table[second])
    reader.fill(second, out)
    yield "two buffers: the first once more", _same(out[:n], table[second])
    index = rows_of(3, 1)
    reader.fill(index, out[:n])
    yield "a shorter view of a buffer", _same(out[: len(index)], table[index])
    fresh, index, second = _buffer(n, stride // 4), rows_of(6), rows_of(10, 2, 5)
    reader.fill(index, fresh[: len(index)])
    yield "a new buffer, of which only the first rows are passed", _same(fresh[: len(index)], table[index])
    yield "and then all of it", reader.fill(second, fresh)
    yield "pages of one row", filled(opened(folder / "rows.rec", rows, stride, 1), torch.tensor([9, 3, rows - 1]))
    yield "fewer pages than threads", filled(opened(*file, threads=3), rows_of(4, 19))
    yield "more pages than threads, one thread", filled(opened(*file, threads=1), rows_of(4, 0, 19, 12, 13))

    long = _record_file(folder / "long.rec", 2500, 16, rng)
    index = rows_of(2, 0, page_rows=1030, rows=2500)
    result = opened(folder / "long.rec", 2500, 16, 1030).fill(index, _buffer(len(index), 4))
    yield "a page of 1,030 rows: more than the 1,024 buffers that one call takes", _same(result, long[index])

    index = rows_of(*range(0, 16, 2))
    made = _reads(lambda: opened(*file))
    window = _buffer(rows, stride // 4)
    used = _reads(lambda: reader.fill(index, window))
    if used:
        yield "the constructor reads no row", made[0] < stride
        yield "the bytes that fill reads, as a multiple of those of its pages", used[0] / (len(index) * stride)
        yield "at most two read calls a page", used[1] <= 2 * 8 + 2
    index = torch.arange(rows)
    single = opened(*file, threads=1)
    single.fill(index, window)  # what is made once for `window` may be kept
    with _traced() as peak:
        single.fill(index, window)
    with _NewTensors() as new:
        single.fill(index, window)
    most = 3 * page_rows * stride
    yield "beside out, memory for at most two pages a thread", max(new.largest, peak[0]) < most

    with _Meeting().at_reads() as meeting:
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
        yield f"an index {text} raises", _error_kind(lambda wrong=wrong: reader.fill(wrong, window))
    ones = opened(folder / "rows.rec", rows, stride, 1)
    yield "an index with a page of one row twice raises", _error_kind(lambda: ones.fill(torch.tensor([4, 4]), window))
    index = rows_of(3, 4)
    for text, wrong in (
        ("too few rows", _buffer(len(index) - 1, stride // 4)),
        ("rows that are too short", _buffer(rows, stride // 4 - 1)),
        ("rows that are too long", _buffer(rows, stride // 4 + 1)),
    ):
        yield f"an out with {text} raises", _error_kind(lambda wrong=wrong: reader.fill(index, wrong))
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
    yield "a file that is not there raises", _error_kind(lambda: opened(folder / "none.rec", rows, stride, page_rows))
    index = rows_of(3, 5)
    read_folder = _error_kind(lambda: filled(opened(folder, rows, stride, page_rows), index))
    yield "a path that can be opened but not read, a folder, raises", read_folder

    closing = opened(*file)
    held = _descriptors(file[0])
    before = set(threading.enumerate())
    closing.fill(index, window)
    new = set(threading.enumerate()) - before
    memory = np.empty((len(index), stride // 4), np.float32)
    reference = weakref.ref(memory)
    closing.fill(index, torch.from_numpy(memory))
    del memory
    closing.close()
    yield "close() closes the file", len(_descriptors(file[0])) < len(held) or not held
    yield "close() ends the threads", not any(_alive(thread) for thread in new)
    yield "after close() it keeps no buffer", _is_gone(reference)
    yield "a fill after close() raises", _error_kind(lambda: closing.fill(index, window))
    yield "a second close() does nothing", _error_kind(closing.close)
    held, before = len(_descriptors(file[0])), set(threading.enumerate())
    for _ in range(3):
        fill = answer(*file).fill
        fill(rows_of(3, 5), window)
    del fill
    gc.collect(1)  # where something refers to itself; of young objects only: all of them would take 0.2 s
    ended = not any(_alive(thread) for thread in set(threading.enumerate()) - before)
    yield "3 readers that nobody holds any more: their threads have ended", ended
    yield "3 readers that nobody holds any more: files left open", len(_descriptors(file[0])) - held
    held = len(_descriptors(file[0]))
    with opened(*file) as inside:
        yield "inside of a `with`", inside.fill(index, window)
    yield "a `with` closes it", [len(_descriptors(file[0])) - held, _error_kind(lambda: inside.fill(index, window))]
    yield from _facts_of_direct(opened, file, rows_of(2, 19, 4), set(_descriptors(file[0])))


def _facts_of_direct(opened, file, index, others):
    path, rows, stride, page_rows = file
    with _no_direct():
        kind = _error_kind(lambda: opened(*file, direct=True))
        yield "direct=True where `os` has no O_DIRECT raises ValueError or OSError", kind in ("ValueError", "OSError")
        yield "direct=False where `os` has no O_DIRECT", opened(*file).fill(index, _buffer(rows, stride // 4))
    if not hasattr(os, "O_DIRECT"):
        return
    with _direct_reads(path):
        for direct in (False, True):
            reader = opened(*file, direct=direct)
            flags = [fcntl.fcntl(number, fcntl.F_GETFL) for number in set(_descriptors(path)) - others]
            others |= set(_descriptors(path))
            with_it = all(bool(f & os.O_DIRECT) == direct for f in flags) or not os.O_DIRECT
            yield f"direct={direct}: the file is open {'with' if direct else 'without'} O_DIRECT", with_it
            out = _buffer(rows, stride // 4, border=True)
            yield f"direct={direct}: the rows", reader.fill(index, out)
        wrong = _buffer(rows, stride // 4)
        yield (
            "direct=True: an out that does not begin at a multiple of 4096",
            _error_kind(lambda: reader.fill(index, wrong)),
        )
        for bad in (1024, 6144):
            kind = _error_kind(lambda bad=bad: opened(path, rows, bad, page_rows, direct=True))
            yield f"direct=True: a stride of {bad} bytes raises", kind
        gc.collect(1)
        yield "and leaves no file open", len(set(_descriptors(path)) - others)


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


def _alive(thread):
    thread.join(1)
    return thread.is_alive()


def _message(call):
    """(the type's name, the message) of what `call()` raises; OSError and EOFError count as one."""
    try:
        call()
    except (OSError, EOFError) as error:
        return "OSError or EOFError", str(error)
    except Exception as error:
        return type(error).__name__, str(error)
    return "nothing", ""


WAIT = 2.0  # seconds after which nothing is expected of an answer any more
SOON = 1.0  # seconds after which a thread that should have ended has been left behind
WINDOW = 0.12  # seconds in which who looks again and again is seen to do so
END = object()


class Stuck(CourseError):
    """An answer waits for what never comes, or leaves something running."""


class _Consumer(threading.Thread):
    """A thread that makes one call, which may never come back, and keeps what came of it."""

    def __init__(self, call):
        super().__init__(daemon=True)
        self.call, self.result, self.error = call, None, None
        self.start()

    def run(self):
        try:
            self.result = self.call()
        except BaseException as error:
            self.error = error

    def outcome(self, what):
        """What the call returns or raises; Stuck if it does neither."""
        self.join(WAIT)
        if self.is_alive():
            raise Stuck(f"{what} did not come back within {WAIT:g} seconds: who waits here, and for whom?")
        if self.error is not None:
            raise self.error
        return self.result


def _next(stream):
    return _Consumer(lambda: next(stream, END)).outcome("next()")


def _close(stream):
    return _Consumer(stream.close).outcome("close()")


def _rest(stream):
    """The contents of all that `stream` yields, each read when it comes."""
    return _Consumer(lambda: [value[0] for value in stream]).outcome("a loop over the generator")


def _caught(call):
    """The exception that `call()` raises, or None."""
    try:
        call()
    except Stuck:
        raise
    except BaseException as error:
        return error
    return None


def _error_type(error):
    return "nothing" if error is None else type(error).__name__


class _Threads:
    """The threads that were started since, but for those of the probe."""

    def __init__(self):
        self.before = set(threading.enumerate())

    def new(self):
        return [t for t in threading.enumerate() if t not in self.before and not isinstance(t, _Consumer)]

    def gone(self, after):
        """True when no new thread runs any more; Stuck if that takes too long."""
        until = time.monotonic() + SOON
        while self.new():
            if time.monotonic() > until:
                raise Stuck(f"a thread still runs {SOON:g} s after {after}; what should have ended it?")
            time.sleep(0.001)
        return True


class _Watch:
    """Inside `with`, new threads are traced: one that waits runs no line of Python."""

    def __enter__(self):
        self.lines, self.before = 0, threading.gettrace()
        threading.settrace(self.note)
        return self

    def __exit__(self, *_):
        threading.settrace(self.before)

    def note(self, frame, event, arg):
        self.lines += 1
        return self.note

    def still(self):
        """True as soon as no line was run for a while."""
        for _ in range(4):  # who is on the way to its wait needs a moment
            before = self.lines
            time.sleep(WINDOW)
            if self.lines == before:
                return True
        return False


class _Fills:
    """A `fill` that notes its calls, waits at the item `gated` until `gate` is set, and refuses the item `refused`."""

    def __init__(self, gated=END, refused=END, error=LookupError):
        self.gated, self.refused, self.error, self.gate = gated, refused, error, threading.Event()
        self.begun, self.ended, self.threads, self.changed = [], [], set(), threading.Condition()

    def __call__(self, item, buffer):
        self.threads.add(threading.current_thread())
        self.note(self.begun, (item, buffer))
        if item == self.gated:
            self.gate.wait(2 * WAIT)
        if item == self.refused:
            self.refuse(item)
        buffer[0] = item
        self.note(self.ended, item)
        return [item]

    def refuse(self, item):
        raise self.error(f"cannot fill {item}")

    def note(self, calls, call):
        with self.changed:
            calls.append(call)
            self.changed.notify_all()

    def reached(self, n, calls):
        """True when there are `n` calls; False if that takes too long."""
        with self.changed:
            return self.changed.wait_for(lambda: len(calls) >= n, WAIT)


class _Work:
    """An iterable of `items` that counts how many were asked for and, with `breaks`, raises in place of the last."""

    def __init__(self, items, breaks=False):
        self.items, self.breaks, self.asked = items, breaks, 0

    def __iter__(self):
        for item in self.items:
            self.asked += 1
            if self.breaks and self.asked == len(self.items):
                self.refuse()
            yield item

    def refuse(self):
        raise LookupError("no more work")


def _closed_while_it_fills(answer, threads, items, k):
    """(fills begun, threads left at the return) when close() is called while the thread fills item 1."""
    for patience in (0.05, 0.5):  # close() needs a moment until it has told the thread
        fills = _Fills(gated=items[1])
        stream = answer(fills, items, [[None] for _ in range(k)])
        _next(stream)
        fills.reached(2, fills.begun)
        closing = _Consumer(stream.close)
        closing.join(patience)
        left = 0 if closing.is_alive() else len(threads.new())
        fills.gate.set()
        closing.outcome("close(), called while the thread fills,")
        left = left or len(threads.new())
        threads.gone("close()")
        if len(fills.begun) == 2:
            break
    return len(fills.begun), left


def _dropped(answer, fills, items, k):
    """None; a generator was begun, and nobody holds it any more."""
    stream = answer(fills, items, [[None] for _ in range(k)])
    _next(stream)
    fills.reached(k, fills.ended)


@exercise(UNIT)
def read_ahead(answer, device, seed):
    """Fills that wait at a gate: so it is known what may have happened by then, and what may not.

    It ends early where all that follows would only wait for what never comes.
    """
    rng = torch.Generator().manual_seed(seed)
    k, n = 3 + seed % 2, 8 + seed % 3
    items = (torch.randperm(90, generator=rng)[:n] + 10).tolist()
    threads = _Threads()

    def buffers(k=k):
        return [[None] for _ in range(k)]

    # an error that an answer leaves in its thread must not be reported by others
    with mock.patch.object(threading, "excepthook", lambda _: None), _Watch() as watch:
        fills, ring = _Fills(), buffers()
        stream = answer(fills, items, ring)
        early = bool(threads.new())
        yield "no thread runs before the first next()", not early
        if early:
            return
        yield "nothing is filled before the first next()", not fills.begun
        if fills.begun:
            return
        yield "yields what fill returned, in the order of work", _rest(stream)
        yield "the buffers are used in turn", [[b is buffer for b in ring].index(True) for _, buffer in fills.begun]
        apart = not any(isinstance(t, _Consumer) for t in fills.threads)
        yield "fill is not called by the consumer", apart
        if not apart:
            return
        yield "all fills happen in one thread", len(fills.threads)
        yield "no thread is left at the end", threads.gone("the end")
        fills = _Fills()
        stream = answer(fills, items, buffers())
        next(stream)  # called here, because a daemon like _Consumer starts daemons
        ends = [t.daemon or t in getattr(pools, "_threads_queues", ()) for t in fills.threads]
        yield "the thread is a daemon (or of concurrent.futures)", all(ends)
        _rest(stream)
        yield "two buffers are enough", _rest(answer(_Fills(), items, buffers(2)))
        for few in (1, 0):
            error = _caught(lambda few=few: _next(answer(_Fills(), items, buffers(few))))
            yield f"{few} buffer{'s' * (few != 1)}: raises", _error_type(error)

        fills, work, ring = _Fills(), _Work(range(64)), buffers()
        stream = answer(fills, work, ring)
        _next(stream)
        filled = fills.reached(k, fills.ended)
        yield f"while item 0 of {k} buffers is held, the others are filled", filled
        if not filled:
            return
        still = watch.still()
        yield "and none more: fills begun by then", len(fills.begun)
        yield "items that work was asked for by then", work.asked
        yield "the buffer that is held keeps its content", ring[0][0]
        yield "the thread waits without looking again and again", still
        second = _next(stream)[0]
        yield "the next next() gives item 1", second
        yield "and lets one more be filled", fills.reached(k + 1, fills.ended)
        watch.still()
        yield "and none more: fills begun by then, with item 1 held", len(fills.begun)
        yield "the buffer of item 1 keeps its content while it is held", ring[1][0]
        _close(stream)
        begun = len(fills.begun)
        yield "close() while the thread waits for a buffer: it ends", threads.gone("close()")
        yield "nothing is filled after close()", len(fills.begun) == begun
        yield "next() after close() finds the end", _next(stream) is END

        begun, left = _closed_while_it_fills(answer, threads, items, k)
        yield "close() while the thread fills: it has ended when close() returns", left == 0
        yield "close() while the thread fills item 1: fills begun", begun
        fills = _Fills(gated=items[1], refused=items[1])
        stream = answer(fills, items, buffers())
        _next(stream)
        fills.reached(2, fills.begun)
        closing = _Consumer(stream.close)
        fills.gate.set()
        error = _caught(lambda: closing.outcome("close(), called while the thread fills,"))
        yield "close() while the thread fills, and that fill fails: close() raises", _error_type(error)
        yield "close() while a fill fails: the thread has ended", threads.gone("close()")
        fills = _Fills()
        stream = answer(fills, items, buffers())
        _close(stream)
        yield "close() before the first next(): nothing is filled", threads.gone("close()") and not fills.begun

        fills = _Fills(gated=items[1])
        stream = answer(fills, items, buffers())
        _next(stream)
        waiting = _Consumer(lambda: next(stream, END))
        still = watch.still()
        fills.gate.set()
        yield "next() waits for the fill of its item", waiting.outcome("next()")[0]
        yield "and waits without looking again and again", still
        error = _caught(lambda: _Consumer(lambda: stream.throw(KeyboardInterrupt())).outcome("throw()"))
        yield "KeyboardInterrupt in the consumer comes out", _error_type(error)
        yield "and ends the thread", threads.gone("a KeyboardInterrupt")

        for text, fills, work in (
            ("fill", _Fills(refused=items[2]), items),
            ("work", _Fills(), _Work(items[:3], breaks=True)),
        ):
            stream, got = answer(fills, work, buffers()), []
            error = _caught(lambda s=stream, g=got: g.extend([_next(s)[0], _next(s)[0]]))
            yield f"{text} fails at item 2: items 0 and 1 come first", [_error_type(error), *got]
            error = _caught(lambda s=stream: _next(s))
            yield f"{text} fails at item 2: then its exception comes out", _error_type(error)
            names = [frame.name for frame in traceback.extract_tb(error.__traceback__)]
            yield f"{text} fails at item 2: the traceback leads to the place", "refuse" in names
            yield f"{text} fails at item 2: the thread has ended", threads.gone(f"an exception of {text}")
            yield f"{text} fails at item 2: fills begun", len(fills.begun)
            yield f"{text} fails at item 2: after the exception comes the end", _next(stream) is END
        del error
        stream = answer(_Fills(refused=items[1], error=StopIteration), items, buffers())
        yield "a StopIteration of fill is an error, not the end", _error_type(_caught(lambda: _rest(stream)))
        for kind in (SystemExit, KeyboardInterrupt):  # neither is an Exception
            stream = answer(_Fills(refused=items[2], error=kind), items, buffers())
            yield f"{kind.__name__} in fill comes out, too", _error_type(_caught(lambda s=stream: _rest(s)))

        results = [None, 0, items[0], None, ""]
        stream = answer(lambda item, buffer: item, results, buffers())
        yield "None, 0 and '' are values, too", _Consumer(lambda: list(stream)).outcome("a loop over the generator")
        yield "work of one item", _rest(answer(_Fills(), items[:1], buffers()))
        yield "work without items", _rest(answer(_Fills(), iter([]), buffers()))
        yield "no thread is left after these", threads.gone("the end")
        _dropped(answer, _Fills(), items, k)
        if threads.new():
            gc.collect(1)  # Python may have to be reminded of what refers to itself
        yield "a generator that nobody holds any more ends its thread", threads.gone("its generator was dropped")


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


def _storage(tensor):
    return tensor.untyped_storage().data_ptr()


@exercise(UNIT)
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
    homes = {_storage(buffer) for buffer in buffers}
    yield "x and y are views of a buffer, not copies", all(_storage(part) in homes for part in one)
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
    yield "fill is given pieces of the order, not copies", all(_storage(i) == _storage(order) for i, _ in data.fills)
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

        yield f"{text}: an exception in `with` comes out", _error_type(_caught(fail_inside))
        if count > 1:
            yield f"{text}: and what ahead returned is closed", ahead.log
        data.refuses = ("fill",)
        yield f"{text}: an exception of fill comes out", _error_type(_caught(lambda m=mine: list(m)))
        data.refuses = (2,)
        mine.set_epoch(2)
        yield f"{text}: an exception of order comes out", _error_type(_caught(lambda m=mine: list(m)))
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
        yield f"buffers of {wrong} rows, batch {batch}: raises", _error_type(_caught(lambda r=wrong: loader(rows=r)))
    yield "a buffer of rows for 3 batches is right", _error_type(_caught(loader))


def _kind_on_device(value):
    """What a tensor or an array is, without its values; of anything else the name of its type."""
    if isinstance(value, torch.Tensor):
        return [f"Tensor {value.dtype}", tuple(value.shape), value.device.type]
    if isinstance(value, np.ndarray):
        return [f"array {value.dtype}", value.shape]
    return type(value).__name__


def _tensors(value):
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from _tensors(item)
    elif isinstance(value, dict):
        yield from _tensors(list(value.values()))


class _Operations(TorchDispatchMode):
    """What torch is asked to do inside the block, but not while `paused`: the probe's own work.

    `dtypes` of new tensors; `largest`, the elements of the largest of them; `waits` for a value of the device; `work`,
    elements gone through, where a view is free; `read`, those of the tensors in `watched`.
    """

    def __init__(self, watched=()):
        super().__init__()
        self.watched = {_memory(tensor) for tensor in watched}
        self.dtypes, self.largest, self.waits, self.work, self.read, self.paused = set(), 0, 0, 0, 0, False

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        if self.paused:
            return result
        given, got = list(_tensors([args, kwargs or {}])), list(_tensors(result))
        if func is torch.ops.aten._local_scalar_dense.default:
            self.waits += 1
        elif not any(r.alias_info and not r.alias_info.is_write for r in func._schema.returns):
            held = set(map(_memory, given))
            new = [tensor for tensor in got if _memory(tensor) not in held]
            self.dtypes |= {str(tensor.dtype).removeprefix("torch.") for tensor in new}
            self.largest = max([self.largest, *(tensor.numel() for tensor in new)])
            self.work += max((tensor.numel() for tensor in given + got), default=0)
            self.read += sum(tensor.numel() for tensor in given if _memory(tensor) in self.watched)
        return result


class _Batches:
    """Batches (x, y) of `sizes` rows of `table` in turn, as a loader gives them: views of one buffer, filled anew.

    `columns` of the table are x, the next one is y.  Counts its `passes`; `unchanged` is False if somebody wrote into
    a batch.  `asked` is called before each batch and after the last.
    """

    def __init__(self, table, columns, sizes, operations=None, asked=lambda: None):
        self.table, self.columns, self.sizes = table, columns, sizes
        self.operations, self.asked = operations or _Operations(), asked
        self.buffer = table.new_empty(max(sizes, default=0), table.shape[1])
        self.passes, self.unchanged = 0, True

    def __iter__(self):
        self.passes += 1
        start = 0
        for size in self.sizes:
            self.operations.paused = True
            self.asked()
            rows = self.table[start : start + size]
            buffer = self.buffer[:size]
            buffer.copy_(rows)
            x, y = buffer[:, : self.columns], buffer[:, self.columns]
            self.operations.paused = False
            yield x, y
            self.operations.paused = True
            self.unchanged &= same_values(buffer, rows)
            self.buffer.fill_(float("nan"))
            start += size
        self.asked()
        self.operations.paused = False


class NotTorch(CourseError):
    """A tensor of the answer's was handed to NumPy, where no check sees what becomes of it."""


def _torch_alone(answer):
    """`answer`, except that NumPy gets no tensor while it runs, as none that lies on a GPU."""

    def refuse(*_, **__):
        raise NotTorch("a tensor is handed to NumPy: on a GPU that would fail. Compute with torch alone.")

    @functools.wraps(answer)
    def watched(*args, **kwargs):
        with mock.patch.multiple(torch.Tensor, numpy=refuse, __array__=refuse, __dlpack__=refuse):
            return answer(*args, **kwargs)

    return watched


def _scaled_table(rng, rows, columns, device):
    """float32 (rows, columns + 3): x of different scales, y, and two more columns that no row needs."""
    table = torch.rand(rows, columns + 3, generator=rng)
    table[:, :columns] *= 1 + torch.arange(columns)
    table[:, :columns] += torch.rand(columns, generator=rng)
    return table.to(device)


@exercise(UNIT)
def mean_and_std(answer, device, seed):
    """Batches of all sizes, out of one buffer; then columns that are hard for float32."""
    answer = _torch_alone(answer)
    rng = torch.Generator().manual_seed(seed)
    columns = 3 + seed % 4
    sizes = [4 + seed % 3, 9, 5, 7]
    rows = sum(sizes)
    table = _scaled_table(rng, rows, columns, device)

    def found(sizes, table=table):
        return answer(_Batches(table, columns, sizes))

    one = _Batches(table, columns, [rows])
    result = answer(one)
    yield "returns a tuple or list of two", isinstance(result, (tuple, list)) and len(result) == 2
    yield "mean and std are float32 tensors (D,) on the device of x", [_kind_on_device(part) for part in result]
    yield "goes through the batches once", one.passes
    yield "the mean of a single batch", result[0]
    yield "the std of a single batch", result[1]
    yield "does not write into a batch", one.unchanged
    result = found([rows // 2] * 2, table[: rows // 2 * 2])
    yield "two batches of one size, the second in the memory of the first: mean", result[0]
    yield "two batches of one size: std", result[1]
    result = found(sizes)
    yield "batches of different sizes: mean", result[0]
    yield "batches of different sizes: std", result[1]
    yield "the batches of a generator", list(answer(batch for batch in _Batches(table, columns, sizes)))
    yield "batches of one row", list(found([1, *sizes[1:], 1]))
    yield "a single row: its std is 0", list(found([1]))
    yield (
        "an empty batch at the end, in the middle, at the start",
        [list(found(some)) for some in ([*sizes, 0], [sizes[0], 0, *sizes[1:]], [0, 0, *sizes])],
    )
    yield "no batch at all raises ValueError", _error_name(lambda: found([]))
    yield "batches without a row raise ValueError", _error_name(lambda: found([0, 0]))

    operations = _Operations()
    batches = _Batches(table, columns, sizes, operations)
    with operations:
        answer(batches)
    wide = sorted(operations.dtypes - {"float32", "bool", "uint8", "int8", "int16", "int32", "int64"})
    yield "tensors of other types than float32 that are made", wide
    yield "no tensor is made that is larger than the largest batch", operations.largest <= max(sizes) * columns

    sizes = [32, 1, 40, 40, 17, 32, 40, 5, 40, 40]
    hard = torch.rand(sum(sizes), columns + 3, generator=rng)
    hard[:, 0] = 10_000 + 0.1 * torch.randn(len(hard), generator=rng)
    hard[:, 1] = 10_000
    mean, std = found(sizes, hard.to(device))
    true = hard[:, 0].double()
    yield "mean 10,000 and std 0.1: the std is right to 2 %", _near(std[0], true.std(correction=0), relative=0.02)
    yield "mean 10,000 and std 0.1: the mean is right to 0.01", _near(mean[0], true.mean(), absolute=0.01)
    yield "a column of nothing but 10,000: the std is at most 0.01", _near(std[1], 0, absolute=0.01)
    yield "a column of nothing but 10,000: the mean is right to 0.01", _near(mean[1], 10_000, absolute=0.01)


def _near(value, truth, relative=0.0, absolute=0.0):
    return abs(float(value) - float(truth)) <= absolute + relative * abs(float(truth))


@exercise(UNIT, changes_inputs=True)
def sgd_step_(answer, device, seed):
    """Steps on blocks out of one buffer, with scratch that holds NaN before the first."""
    answer = _torch_alone(answer)
    rng = torch.Generator().manual_seed(seed)
    columns = 4 + seed % 3
    sizes = [8, 8 + seed % 2, 3]
    rows, lr = sum(sizes), 0.05 + 0.01 * (seed % 3)
    table = _scaled_table(rng, rows, columns, device)

    def uniform(low, high, n=columns):
        return (low + (high - low) * torch.rand(n, generator=rng)).to(device)

    mean, std = uniform(0.5, 2.5), uniform(0.5, 2.5)
    first_w, first_b = uniform(1, 2), uniform(1, 2, 1)
    buffers = {"residual": rows + 2, "scaled": columns, "gradient": columns}
    scratch = {name: torch.full((n,), float("nan"), device=device) for name, n in buffers.items()}

    def step(sizes, w, b, operations=None, asked=lambda: None, table=table):
        batches = _Batches(table, columns, sizes, operations, asked)
        return answer(iter(batches), w, b, mean, std, lr, scratch), batches

    def copies():
        return first_w.clone(), first_b.clone()

    w, b = copies()
    given = mean.clone(), std.clone()
    loss, batches = step([rows], w, b)
    number = isinstance(loss, torch.Tensor) and loss.numel() == 1
    yield "returns a tensor with one element", "a tensor with one element" if number else _kind_on_device(loss)
    yield "the sum of squared residuals before the step", loss.reshape(())
    yield "w is changed, in place", not same_values(w, first_w)
    yield "w after the step", w
    yield "b after the step, in place", b
    yield "does not write into x or y", batches.unchanged
    yield "does not write into mean or std", all(map(same_values, (mean, std), given))
    yield "the tensors of scratch keep their shapes", {name: tuple(tensor.shape) for name, tensor in scratch.items()}

    first, before = loss, loss.clone()
    loss, _ = step([5], w, b)
    yield "a second step, of 5 rows, with scratch as the first left it", {"loss": loss.reshape(()), "w": w, "b": b}
    loss, _ = step([1], w, b)
    yield "a third step, of a single row", {"loss": loss.reshape(()), "w": w, "b": b}
    yield "the sum that the first step returned has not changed", same_values(first, before)

    w, b = copies()
    waited = []
    loss, batches = step(sizes, w, b, asked=lambda: waited.append(same_values(w, first_w) and same_values(b, first_b)))
    yield "w and b wait for the last block", all(waited)
    yield "several blocks: the sum of squared residuals of all rows", loss.reshape(())
    yield "several blocks: w after the step, as if they were one", w
    yield "several blocks: b after the step", b
    yield "several blocks: does not write into x or y", batches.unchanged

    w, b = copies()
    spread = torch.stack([table[:, columns]] * 2, 1)  # y with a stride of 2, in another memory than x
    scratch = {name: torch.full((n,), float("nan"), device=device) for name, n in buffers.items()}
    scratch["residual"] = scratch["residual"][: max(sizes)]
    with _Operations([table]) as operations:
        parts = zip(table.split(sizes), spread.split(sizes), strict=True)
        answer([(part[:, :columns], y[:, 0]) for part, y in parts], w, b, mean, std, lr, scratch)
    yield "blocks in a list, y with a stride of its own: w after the step", w
    yield "elements of the largest new tensor, or 1", max(1, operations.largest)
    yield "reads each block of x at most twice", operations.read <= 2 * rows * columns
    yield "times that it waits for the device (.item(), float(t), if t)", operations.waits


@exercise(UNIT, measured=True)
def make_data(answer, device, seed):
    """The laws of the data, on several seeds; memory as tracemalloc counts it."""
    rows, columns = 3000, 5 + seed % 4
    x, *rest = result = answer(rows, columns, seed)
    yield "returns (x, y, w, b)", isinstance(result, (tuple, list)) and len(result) == 4
    y, w, b = rest
    yield "x is an array of float32 (rows, columns)", _kind_on_device(x)
    yield "w is an array of float32 (columns,)", _kind_on_device(w)
    yield "y is an array of float32 (rows,)", _kind_on_device(y)
    yield "b is a number", np.ndim(b) == 0 and 0 <= float(b) < 1

    problems = [answer(rows, columns, some) for some in range(seed, seed + 4)]
    x, _, w, b = (np.array([problem[i] for problem in problems]).astype(float) for i in range(4))
    noise = np.array([_noise(*problem) for problem in problems])
    yield "x is uniform in [0, 1)", _uniform(x)
    yield "w is uniform in [0, 1)", _uniform(w)
    yield "b is drawn from [0, 1), for each seed anew", bool((0 <= b).all() and (b < 1).all() and len({*b}) == 4)
    yield "y - x w - b has the mean 0", bool((abs(noise.mean(1)) < 0.1).all())
    yield "y - x w - b has the standard deviation 1", bool((abs(noise.std(1) - 1) < 0.1).all())
    yield "w is drawn for each seed anew", len({p[2].tobytes() for p in problems}) == 4
    yield "b is drawn by itself: it is none of the values of w", not (w == b[:, None]).any()
    kurtosis = (noise**4).mean() / (noise**2).mean() ** 2
    yield "y - x w - b is normal", abs(kurtosis - 3) < 0.5
    yield "x and w are drawn independently", not any(np.isin(p[2], p[0]).all() for p in problems)
    correlation = np.corrcoef(np.concatenate([x[0].T, noise[:1]]))
    yield (
        "columns of x and the noise are drawn independently",
        bool((abs(correlation - np.eye(columns + 1)) < 0.1).all()),
    )

    alike = np.corrcoef(noise) - np.eye(4)
    yield "the noise is drawn for each seed anew", bool((abs(alike) < 0.1).all())
    small = [answer(40, columns, some) for some in range(seed, seed + 20)]
    sizes = [abs(_noise(*p)) for p in small]
    single = [p[0].flat[:40] for p in small]  # float32 noise would take the bits of these numbers,
    double = [8.0 * p[0].flat[1:80:2] % 1 for p in small]  # float64 noise those of two at a time, but the top three
    alike = [_mean_correlation(part, sizes) for part in (single, double)]
    yield "x and the noise are not made of the same random bits", max(alike) < 0.3

    np.random.seed(seed + 1)
    before = repr(np.random.get_state())
    again = answer(rows, columns, seed)
    yield "the same seed gives the same data, whatever was drawn before", all(map(np.array_equal, again, result))
    yield "another seed gives other data", len({p[0].tobytes() for p in problems}) == 4
    yield "leaves NumPy's global source of random numbers alone", repr(np.random.get_state()) == before
    x, y, w, b = answer(1, 1, seed)
    yield "a single row and column", [_kind_on_device(x), _kind_on_device(y), _kind_on_device(w)]

    rows, columns = 4000, 64
    peak = _peak_bytes(lambda: answer(rows, columns, seed))
    yield "takes at most 1.5 times the bytes of x", peak <= 1.5 * 4 * rows * columns


def _peak_bytes(call):
    """The most bytes that Python and NumPy held during `call()`, beyond those before it."""
    tracing = tracemalloc.is_tracing()  # a notebook may do so itself
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        tracemalloc.reset_peak()
        call()
        return tracemalloc.get_traced_memory()[1] - before
    finally:
        if not tracing:
            tracemalloc.stop()


def _mean_correlation(some, others):
    return float(np.mean([np.corrcoef(*pair)[0, 1] for pair in zip(some, others, strict=True)]))


def _noise(x, y, w, b):
    return y.astype(float) - x.astype(float) @ w.astype(float) - float(b)


def _uniform(values):
    """True if values lie in [0, 1) with the mean and mean square of uniform ones, to five standard errors."""
    off = 5 * np.sqrt([1 / 12, 4 / 45]) / values.size**0.5
    found = np.array([values.mean(), (values**2).mean()]) - [1 / 2, 1 / 3]
    return bool(values.min() >= 0 and values.max() < 1 and (abs(found) < off).all())


class _Clock:
    """A clock that goes on by the size of what torch computes, and says if it was read without a `synchronize`."""

    def __init__(self):
        self.operations, self.synchronized_at, self.readings, self.unsynchronized = _Operations(), None, 0, 0

    def synchronize(self):
        self.synchronized_at = self.operations.work

    def __call__(self):
        self.readings += 1
        self.unsynchronized += self.synchronized_at != self.operations.work
        self.synchronized_at = None
        return 1000.0 + self.operations.work


@exercise(UNIT)
def fit(answer, device, seed):
    """The training against the reference; its seconds on a clock that counts the work."""
    rng = torch.Generator().manual_seed(seed)
    rows, columns, epochs, batch_size, lr = 37 + seed % 3, 6 + seed % 2, 3, 8, 0.1
    x = 1 + 2 * torch.rand(rows, columns, generator=rng)
    y = 5 + x @ (1 + torch.rand(columns, generator=rng)) + 0.3 * torch.randn(rows, generator=rng)
    x, y = x.to(device), y.to(device)

    result = answer(x, y, epochs, batch_size, lr)
    keys = "w", "b", "losses", "seconds", "total_seconds"
    yield "returns a dict", type(result).__name__
    yield "with these keys", sorted(map(str, result)) == sorted(keys)
    yield "w is float32 (D,), b is float32 (1,), on the device of x", [_kind_on_device(result[key]) for key in "wb"]
    for key in ("losses", "seconds"):
        values = result[key]
        kinds = {type(value).__name__ for value in values} if isinstance(values, (list, tuple)) else {}
        yield f"{key} is a list of floats, one an epoch", [type(values).__name__, sorted(kinds), len(values)]
    yield "total_seconds is a float", type(result["total_seconds"]).__name__
    single = answer(x[:batch_size], y[:batch_size], 1, batch_size, lr)
    yield "one step on all rows: its loss", single["losses"]
    yield "one step on all rows: x @ w + b", x @ single["w"] + single["b"]
    yield "one step on all rows: w, for x as it is", single["w"]
    even = answer(x[: 4 * batch_size], y[: 4 * batch_size], 1, batch_size, lr)
    yield "four batches: w after an epoch", even["w"]
    yield "four batches: the loss, a mean over all rows", even["losses"]
    yield "a short batch at the end: w after three epochs", result["w"]
    yield "a short batch at the end: b", result["b"]
    yield "a short batch at the end: the losses", result["losses"]
    large = answer(x, y, 2, 5 * rows, lr)
    yield "a batch size above the number of rows", [large["w"], large["losses"]]

    hard = x.clone()
    hard[:, 1] = 300 + 0.03 * (x[:, 1] - 2) / x[:, 1].std()
    losses = answer(hard, y, epochs, batch_size, lr)["losses"]
    truth = _losses(hard.cpu().double(), y.cpu().double(), epochs, batch_size, lr)
    near = len(losses) == epochs and all(_near(a, b, relative=0.01) for a, b in zip(losses, truth, strict=True))
    yield "a column with mean 300 and std 0.03: the losses are right to 1 %", near

    with contextlib.redirect_stdout(io.StringIO()) as printed:
        answer(x, y, epochs, batch_size, lr)
    yield "prints nothing", printed.getvalue() == ""

    clock = _Clock()
    with clock.operations, mock.patch.object(time, "perf_counter", wraps=time.perf_counter) as other:
        result = answer(x, y, epochs, 4, lr, clock=clock, synchronize=clock.synchronize)
    seconds, total = result["seconds"], result["total_seconds"]
    yield "reads the time with clock()", clock.readings > 0
    yield "and with no other clock", not other.called
    without = {0: "none", clock.readings: "all"}.get(clock.unsynchronized, "some")
    yield "readings of the clock without a synchronize() right before", without
    size = x.numel()
    yield "the seconds of each epoch cover its batches", all(s >= 1.5 * size for s in seconds)
    yield "the seconds of an epoch hold no other epoch", max(seconds) <= 1.2 * min(seconds)
    yield "a batch computes with its own rows, not with all of x", max(seconds) <= 16 * size
    yield "the total is not less than all epochs", total >= sum(seconds)
    yield "the total covers the statistics too", total >= sum(seconds) + size
    yield "the total is not more than the whole call takes", total <= clock.operations.work


def _losses(x, y, epochs, batch_size, lr):
    """What a training in float64 has for losses, a list of floats."""
    z = (x - x.mean(0)) / x.std(0, correction=0)
    z = torch.cat([z, torch.ones(len(z), 1, dtype=z.dtype)], 1)
    w, losses = z.new_zeros(z.shape[1]), []
    for _ in range(epochs):
        losses.append(0.0)
        for rows, targets in zip(z.split(batch_size), y.split(batch_size), strict=True):
            residual = rows @ w - targets
            w = w - lr * rows.T @ residual / len(rows)
            losses[-1] += residual.square().sum().item() / len(z)
    return losses


def _kind_and_place(value):
    """What a tensor is, without its values; of anything else the name of its type."""
    if isinstance(value, torch.Tensor):
        return [str(value.dtype)[6:], value.shape, value.device.type]
    return type(value).__name__


def _snapped(seen, truth, tolerance):
    """`truth` as float32 if `seen` is as near to it as `tolerance` says, relative to its norm; else `seen`."""
    near = (seen.double() - truth).norm() <= tolerance * truth.norm()
    return truth.float() if near else seen


class _Data:
    """A regression problem, read as a file would be: batches in one buffer that is refilled, in passes that count.

    Calling it starts a pass, which brings the rows in an order of its own; the last batch is smaller.
    """

    def __init__(self, rng, device, rows, columns, batch, noise=1.0):
        # centred: one large eigenvalue would make the iterations of float32 and float64 drift apart
        x = (torch.rand(rows, columns, generator=rng) - 0.5) * torch.linspace(1, 3, columns)
        y = 8 * (x @ torch.rand(columns, generator=rng) + 0.5 + noise * torch.randn(rows, generator=rng))
        self.table = torch.cat([x, y[:, None], torch.zeros(rows, 2)], 1).to(device)  # rows are padded, as in the file
        self.orders = [torch.randperm(rows, generator=rng).to(device) for _ in range(4)]
        self.columns, self.batch, self.passes, self.written_to = columns, batch, 0, False
        self.buffer = torch.empty(batch, columns + 3, device=device)

    def __call__(self):
        self.passes += 1
        return self._batches(self.orders[self.passes % 4])

    def _batches(self, order):
        for rows in order.split(self.batch):
            filled = torch.index_select(self.table, 0, rows, out=self.buffer[: len(rows)])
            yield filled[:, : self.columns], filled[:, self.columns]
            self.written_to |= not torch.equal(filled, self.table[rows])
        self.buffer.fill_(float("nan"))

    def exact(self, rows=slice(None)):
        """x and y of `rows` in float64."""
        table = self.table[rows].double()
        return table[:, : self.columns], table[:, self.columns]

    def solution(self, strength):
        """The minimiser of |X w - y|^2 / n + strength |w|^2, float64."""
        x, y = self.exact()
        gram = x.T @ x / len(x) + strength * torch.eye(self.columns, dtype=x.dtype, device=x.device)
        return torch.linalg.solve(gram, x.T @ y / len(x))


class _Largest(TorchDispatchMode):
    """Notes the shape of the first new tensor whose memory holds more than `most` values."""

    def __init__(self, most):
        super().__init__()
        self.most, self.found = most, "at most a batch"

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        given = {t.untyped_storage().data_ptr() for t in tree_leaves((args, kwargs)) if isinstance(t, torch.Tensor)}
        for tensor in [t for t in tree_leaves(result) if isinstance(t, torch.Tensor)]:
            values = tensor.untyped_storage().nbytes() // tensor.element_size()
            is_new = tensor.untyped_storage().data_ptr() not in given
            if is_new and values > self.most and self.found == "at most a batch":
                self.found = f"one of shape {tuple(tensor.shape)}"
        return result


def _conjugate_gradients(data, strength, count):
    """(w, relative residual norms) of `count` iterations in float64."""
    x, y = data.exact()
    right = x.T @ y / len(x)
    w, residual, direction, norms = torch.zeros_like(right), right, right, []
    for _ in range(count):
        product = x.T @ (x @ direction) / len(x) + strength * direction
        step = residual.square().sum() / (direction @ product)
        w, rest = w + step * direction, residual - step * product
        direction = rest + rest.square().sum() / residual.square().sum() * direction
        residual = rest
        norms.append((residual.norm() / right.norm()).item())
    return w, norms


def _between(norms, least):
    """(tolerance, k): the first norm below the tolerance is number k >= `least`, by a margin that rounding respects."""
    for k in range(least, len(norms)):
        before = min(norms[:k])
        if norms[k] < 0.7 * before:
            return (norms[k] * before) ** 0.5, k
    raise RuntimeError("no iteration brings the residual clearly below all before it")


@exercise(UNIT)
def ridge_by_cg(answer, device, seed):
    """Compared with the solution and with the iterations in float64; after a wrong one nothing more is asked."""
    answer = _torch_alone(answer)
    rng = torch.Generator().manual_seed(seed)
    columns, batch, strength = 20 + seed % 5, 6 + seed % 3, 0.05
    data = _Data(rng, device, 9 * batch + 4, columns, batch)
    w, passes, residuals = answer(data, columns, strength, tolerance=1e-6, most=60)
    yield "returns w, the number of passes, and a list", [_kind_and_place(value) for value in (w, passes, residuals)]
    solution = data.solution(strength)
    if _kind_and_place(w) != _kind_and_place(solution.float()):
        return
    seen = _snapped(w, solution, 1e-4)
    yield "w is the solution", seen
    yield "read() is called once for each pass that is counted", data.passes == passes
    if seen is w:
        return
    _, norms = _conjugate_gradients(data, strength, 9)
    first = torch.tensor([float(r) for r in residuals[:4]])
    exact = torch.tensor(norms[:4], dtype=torch.float64)
    yield "what the list of residuals holds", sorted({type(r).__name__ for r in residuals})
    yield "the residuals of the first four iterations", _snapped(first, exact, 1e-3) if len(first) == 4 else first
    yield "a residual for each iteration, and a pass more", len(residuals) - passes

    tolerance, k = _between(norms, 3 + seed % 2)
    data.passes = 0
    w, passes, residuals = answer(data, columns, strength, tolerance=tolerance, most=60)
    yield f"passes at a tolerance of {tolerance:.2g}", passes
    yield "and calls of read()", data.passes
    exact, _ = _conjugate_gradients(data, strength, k + 1)
    yield f"w after {k + 1} iterations", _snapped(w, exact, 1e-3)

    data.passes = 0
    with _Largest(data.buffer.numel()) as largest:
        w, passes, residuals = answer(data, columns, strength, tolerance=1e-6, most=4)
    yield "most=4: passes", passes
    yield "most=4: calls of read()", data.passes
    yield "most=4: iterations", len(residuals)
    yield "most=4: w", _snapped(w, _conjugate_gradients(data, strength, 3)[0], 1e-3)
    yield "the largest tensor that is made", largest.found
    yield "the batches are not written to", not data.written_to

    w, passes, residuals = answer(data, columns, strength, most=1)
    yield "most=1: w, passes, residuals", [w, passes, residuals]
    data = _Data(rng, device, 3 * columns, columns, 4 * columns, noise=0.1)  # one batch that is larger than the data
    yield "strength 0, all rows in one batch", _snapped(answer(data, columns, 0.0, 1e-6, 90)[0], data.solution(0), 1e-3)
    data = _Data(rng, device, 2 * batch + 1, columns, batch)
    data.table[:, columns] = 0
    w, passes, residuals = answer(data, columns, strength)
    yield "y is 0 everywhere: w", w
    yield "y is 0 everywhere: passes, residuals", [passes, residuals]
    named = inspect.signature(answer).parameters
    yield "tolerance and most, if not given", [named[n].default if n in named else None for n in ("tolerance", "most")]


def _svrg(data, w, lr, strength, epochs):
    """w after `epochs` in float64, from the first pass of `data` on."""
    n, w = len(data.table), w.double()
    for epoch in range(epochs):
        x, y = data.exact()
        anchor = w
        full = x.T @ (x @ anchor - y) / n + strength * anchor
        batches = data.orders[(2 * epoch + 2) % 4].split(data.batch)
        for rows in batches:
            x, _ = data.exact(rows)
            w = w - lr * (x.T @ (x @ (w - anchor)) / (n / len(batches)) + strength * (w - anchor) + full)
    return w


@exercise(UNIT)
def svrg(answer, device, seed):
    """Compared with the same steps in float64; after a wrong result nothing more is asked."""
    answer = _torch_alone(answer)
    rng = torch.Generator().manual_seed(seed)
    columns, batch, lr, strength = 12 + seed % 5, 5 + seed % 3, 0.2, 0.3
    start = torch.randn(columns, generator=rng).to(device)

    def data(rows):
        return _Data(rng, device, rows, columns, batch)

    for text, problem, epochs in (
        ("1 epoch, batches of one size", data(6 * batch), 1),
        ("1 epoch, the last batch is smaller", data(5 * batch + 2), 1),
        ("2 epochs", data(5 * batch + 2), 2),
        ("5 epochs", data(4 * batch + 1), 5),
    ):
        w, passes = answer(problem, start, lr, strength, epochs)
        if epochs == 1:
            yield f"{text}: returns w and the number of passes", [_kind_and_place(w), _kind_and_place(passes)]
        exact = _svrg(problem, start, lr, strength, epochs)
        if _kind_and_place(w) != _kind_and_place(start):
            return
        seen = _snapped(w, exact, 1e-4)
        yield f"{text}: w", seen
        yield f"{text}: passes, and calls of read()", [passes, problem.passes]
        if seen is w or [passes, problem.passes] != [2 * epochs] * 2:
            return

    problem = data(5 * batch + 2)
    minimum = problem.solution(strength)
    start = minimum.float()
    with _Largest(problem.buffer.numel()) as largest:
        w, _ = answer(problem, start, lr, strength, 3)
    yield "started at the minimum, w stays there", _snapped(w, minimum, 1e-4)
    yield "the largest tensor that is made", largest.found
    yield "the batches are not written to", not problem.written_to


class _Loader:
    """Batches (x, y) in `buffers` buffers that are used in turn: asking for a batch refills the one it comes in.

    `log` gets what its iterator is asked for; `fails_at` is the batch at which that raises an error.
    """

    def __init__(self, tables, buffers, log, fails_at=None):
        self.tables, self.log, self.fails_at = tables, log, fails_at
        self.buffers = [torch.empty_like(tables[0]) for _ in range(buffers)] if tables else []

    def __iter__(self):
        return _AskedBatches(self)

    def close(self):
        self.log.append(("close of the iterable, not of its iterator", None))


class _AskedBatches:
    """An iterator over a _Loader that can be closed, as a generator can."""

    def __init__(self, loader):
        self.loader, self.asked = loader, 0

    def __iter__(self):
        return self

    def __next__(self):
        loader, i = self.loader, self.asked
        self.asked += 1
        loader.log.append(("ask", i))
        if i == loader.fails_at:
            raise OSError("the disk is gone")
        if not loader.buffers:
            raise StopIteration
        buffer = loader.buffers[i % len(loader.buffers)].fill_(-1)  # here the batch that was in it is gone
        if i >= len(loader.tables):
            raise StopIteration
        filled = buffer[: len(loader.tables[i])].copy_(loader.tables[i])
        return filled[:, :-2], filled[:, -2]

    def close(self):
        self.loader.log.append(("close", None))


class _LateCopies:
    """Stands in for DeviceCopies where there is no second device: each copy is made as late as it can be.

    That is when it is waited for, or when the consumer computes (`compute`) and tensors() has asked it to wait.  The
    start of copy `fails_at` raises, and so does every wait for copy `wait_fails_at`.
    """

    def __init__(self, device, log, fails_at=None, wait_fails_at=None):
        self.device, self.log, self.fails_at, self.wait_fails_at = device, log, fails_at, wait_fails_at
        self.jobs, self.handles = [], []

    def start(self, tensors):
        number = len(self.jobs)
        if number == self.fails_at:
            raise RuntimeError("the device is out of memory")
        self.log.append(("start", number))
        pairs = [(here, torch.full(here.shape, float("nan"), device=self.device)) for here in tensors]
        self.jobs.append(pairs)
        handle = _LateCopy(self, number, tuple(there for _, there in pairs))
        self.handles.append(weakref.ref(handle))
        return handle

    def make(self, number):
        """Let copy `number` happen now, unless it has happened."""
        for here, there in self.jobs[number]:
            there.copy_(here)
        self.jobs[number] = []

    def compute(self):
        """Let the consumer's computing begin: it waits for every copy whose tensors() were called."""
        for what, number in self.log:
            if what == "tensors":
                self.make(number)

    def held(self):
        """How many handles are kept."""
        return sum(handle() is not None for handle in self.handles)

    def running(self):
        """The numbers of the copies that were started and never waited for."""
        return [number for what, number in self.log if what == "start" and ("wait", number) not in self.log]


class _LateCopy:
    def __init__(self, copies, number, there):
        self._copies, self._number, self._there = copies, number, there

    def tensors(self):
        self._copies.log.append(("tensors", self._number))
        return self._there

    def wait(self):
        self._copies.log.append(("wait", self._number))
        if self._number == self._copies.wait_fails_at:
            raise RuntimeError("the device was lost")
        self._copies.make(self._number)


def _tables(rng, n, rows):
    """`n` batches of `rows` rows, the last one smaller: x, y and a column of padding."""
    sizes = [rows] * (n - 1) + [rows - 2] * (n > 0)
    return [torch.rand(size, 5, generator=rng) for size in sizes]


def _state(log, number):
    """In words, what becomes of copy `number` while the batch before it is computed on."""
    for event, text in (("wait", "over: it was waited for"), ("tensors", "awaited too: its tensors() were called")):
        if (event, number) in log:
            return text
    return "under way" if ("start", number) in log else "not started"


def _consume(answer, tables, buffers, device, take=None):
    """What a consumer sees who computes on `take` batches (default all) and then leaves, a namespace."""
    log = []
    copies = _LateCopies(device, log)
    loader = _Loader(tables, buffers, log)
    generator = answer(loader, copies)
    seen = SimpleNamespace(log=log, early=list(log), given=[], batches=[], own=[], next=[], held=[])
    for i, batch in enumerate(generator):
        seen.given.append(_given(batch, loader))
        if i > len(tables) or seen.given[-1] != "tensors":
            break
        copies.compute()
        seen.batches.append([tensor.clone() for tensor in batch])
        seen.own.append("waited for" if ("wait", i) in log else "not waited for")
        seen.next.append(_state(log, i + 1))
        seen.held.append(max(2, copies.held()))
        if i + 1 == take:
            break
    seen.left_at, seen.running = len(log), copies.running()
    generator.close()
    return seen


def _given(batch, loader):
    """In words, what the consumer was handed."""
    if isinstance(batch, _LateCopy):
        return "the handle of a copy"
    if not isinstance(batch, (tuple, list)):
        return type(batch).__name__
    memory = {buffer.untyped_storage().data_ptr() for buffer in loader.buffers}
    return "the batch of the loader" if {t.untyped_storage().data_ptr() for t in batch} & memory else "tensors"


def _early(log):
    """A sentence on the first copy that had not been waited for when the loader was asked for a batch."""
    found = (
        f"batch {number} was asked for before copy {copy} was waited for"
        for at, (what, number) in enumerate(log)
        for copy in range(number if what == "ask" else 0)
        if ("start", copy) in log[:at] and ("wait", copy) not in log[:at]
    )
    return next(found, "each in time")


def _end(seen):
    """What happened in order after the consumer had left."""
    after = seen.log[seen.left_at :]
    wanted = [*(("wait", number) for number in seen.running), ("close", None)]
    if [event for event in after if event in wanted][: len(wanted)] == wanted:
        return "the copy under way is waited for, then the loader is closed"
    return ", then ".join(what if number is None else f"{what} {number}" for what, number in after) or "nothing"


@exercise(UNIT)
def copy_ahead(answer, device, seed):
    """Copies that are made as late as possible, from loaders that refill their buffers as early as possible."""
    rng = torch.Generator().manual_seed(seed)
    n, rows = 5 + seed % 3, 4 + seed % 2
    tables = _tables(rng, n, rows)
    right = [[table[:, :3].to(device), table[:, 3].to(device)] for table in tables]
    made = inspect.isgenerator(answer(iter(()), _LateCopies(device, [])))
    yield "returns a generator", made
    if not made:
        return
    seen = _consume(answer, tables, 1, device)
    yield "asks the loader for nothing before the first batch is wanted", seen.early == []
    yield "hands out tensors on the device", seen.given
    yield "number of batches", len(seen.batches)
    yield "each copy is waited for before the loader is asked for more", _early(seen.log)
    yield "the copy of a batch that is handed out", seen.own
    yield "copies that are never waited for", seen.running
    yield "the next copy, while a batch is computed on", seen.next[:-1]
    yield "the values, from a loader with one buffer", seen.batches
    if differs(seen.batches, right):
        return
    yield "copies that are kept then: at most 2", seen.held

    for buffers in (2, 3):
        seen = _consume(answer, tables, buffers, device)
        yield f"{buffers} buffers: each copy is waited for before the loader is asked for more", _early(seen.log)
        yield f"{buffers} buffers: the values", seen.batches
    for count in (0, 1, 2):
        yield f"a loader of {count} batches", _consume(answer, tables[n - count :], 1, device).batches
    for take in (1, 2, n - 1, n):
        yield f"the consumer leaves at batch {take - 1}", _end(_consume(answer, tables, 1, device, take))
    yield "the consumer takes all batches", _consume(answer, tables, 1, device).log.count(("close", None)) > 0

    for text, loader_fails, copy_fails, wait_fails in (
        ("an error of the loader", 2, None, None),
        ("an error of its first batch", 0, None, None),
        ("an error of start()", None, 2, None),
        ("an error of wait()", None, None, 1),
    ):
        log = []
        copies = _LateCopies(device, log, copy_fails, wait_fails)
        loader = _Loader(tables, 1, log, loader_fails)
        given = loader, copies
        yield f"{text} reaches the consumer", _error_text(lambda given=given: _exhaust(answer(*given), given[1]))
        yield f"{text}: copies that were never waited for", copies.running()
        yield f"{text}: the loader is closed", ("close", None) in log
    log = []
    copies = _LateCopies(device, log)
    generator = answer(_Loader(tables, 1, log), copies)
    next(generator)
    error = ValueError("the loss is NaN")
    yield "an error of the consumer is not held back", _error_text(lambda: generator.throw(error))
    yield "an error of the consumer: copies that were never waited for", copies.running()
    yield "an error of the consumer: the loader is closed", ("close", None) in log

    batches, copies, found = [(table[:, :3], table[:, 3]) for table in tables], _LateCopies(device, []), []
    for batch in answer(batches, copies):
        copies.compute()
        found.append([tensor.clone() for tensor in batch])
    yield "a list of batches, which has no close()", found


def _exhaust(generator, copies):
    for _ in generator:
        copies.compute()


def _error_text(call):
    """The type and message of the exception that `call()` raises, a string."""
    try:
        call()
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return "nothing"


LOADING_TOPICS = {
    "A": "memory that is promised",
    "B": "a mapped file larger than the memory",
    "C": "os_cache=True with too little memory",
    "D": "who holds the memory pages of a mapped file",
    "E": "the second epoch of a mapped file",
    "F": "bypassing the cache when the file fits in memory",
    "G": "what the quasi-random order reads",
    "H": "which orders the quasi-random order can bring",
    "I": "what pinned memory is for",
    "J": "when the source of a copy may be refilled",
    "K": "what O_DIRECT leaves out",
    "L": "what an iteration of conjugate gradients costs",
}
LOADING_TRUE = "ACDGKL"


@exercise(UNIT, apart=True)
def loading_facts(answer, device, seed):
    """The verdicts one by one, up to the first that is wrong: that one alone decides what is said about it."""
    verdicts = answer()
    yield "returns a dictionary", "dict" if isinstance(verdicts, dict) else type(verdicts).__name__
    yield "with the letters A to L", sorted(map(str, verdicts))
    yield "each has True or False", {letter: type(verdicts[letter]).__name__ for letter in LOADING_TOPICS}
    for letter, topic in LOADING_TOPICS.items():
        yield f"{letter}: {topic}", verdicts[letter]
        if verdicts[letter] != (letter in LOADING_TRUE):
            return
