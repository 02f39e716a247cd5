"""Wrong answers to the exercises of 04_fast_loading that learners give, each wrong in one idea, and what to say."""

import contextlib
import itertools
import json
import math
import mmap
import os
import queue
import random
import shutil
import sys
import tempfile
import threading
import time
import warnings
import weakref
from concurrent.futures import ThreadPoolExecutor, wait
from pathlib import Path

import numpy as np
import torch

from course.checks.engine import mistake
from course.distributed import run_ranks

NORESERVE = getattr(mmap, "MAP_NORESERVE", 0x4000 if sys.platform == "linux" else 0)


@mistake("row_stride", "The row has no room for y. It holds columns + 1 values of 4 bytes.")
def room_for_x_alone(columns):
    if columns < 1:
        raise ValueError("no columns")
    return min(1 << (4 * columns - 1).bit_length(), -(-4 * columns // 4096) * 4096)


@mistake("row_stride", "Rows of a few bytes get a memory page each. Up to 4096 bytes the next power of two is enough.")
def whole_memory_pages(columns):
    if columns < 1:
        raise ValueError("no columns")
    return math.ceil(4 * (columns + 1) / 4096) * 4096


@mistake(
    "row_stride",
    "Powers of two go on above 4096 bytes and waste up to half of the file. Take the next multiple of 4096 there.",
)
def powers_for_ever(columns):
    if columns < 1:
        raise ValueError("no columns")
    return 2 ** math.ceil(math.log2(4 * (columns + 1)))


@mistake(
    "row_stride",
    "A row that fills its power of two gets the next one. n.bit_length() belongs to n + 1: take (n - 1).bit_length().",
)
def the_power_after(columns):
    if columns < 1:
        raise ValueError("no columns")
    row = 4 * (columns + 1)
    return 1 << row.bit_length() if row <= 4096 else -(-row // 4096) * 4096


@mistake("row_stride", "A row without columns, or with fewer, gets a stride. Raise a ValueError.")
def any_number(columns):
    row = 4 * (max(columns, 0) + 1)
    return 1 << (row - 1).bit_length() if row <= 4096 else -(-row // 4096) * 4096


def _stride(columns):
    row = 4 * (columns + 1)
    return 1 << (row - 1).bit_length() if row <= 4096 else -(-row // 4096) * 4096


def _range(rows, rank, writers):
    return rows * rank // writers, rows * (rank + 1) // writers


def _float_rows(x, y, stride):
    rows = np.zeros((len(x), stride // 4), np.float32)
    rows[:, : x.shape[1]], rows[:, x.shape[1]] = x, y
    return rows.tobytes()


def _header(source, stride, **other):
    fields = {"format": "course-records-1", "rows": source.rows, "columns": source.columns, "stride": stride}
    return json.dumps(fields | {"dtype": "float32", "seed": source.seed} | other).encode().ljust(4095) + b"\n"


def _write_ranges(name, source, writers, chunk=1 << 24, part=_range, packed=_float_rows, timeout=3600):
    """The header and the rows, right in pieces, so that each mistake can spoil one of them."""
    stride = _stride(source.columns)

    def write(rank, world_size):
        first, last = part(source.rows, rank, world_size)
        step = max(1, chunk // stride)
        with open(name, "rb+") as file:
            for start in range(first, last, step):
                end = min(start + step, last)
                file.seek(4096 + start * stride)
                file.write(packed(source.x[start:end], source.y[start:end], stride))

    with open(name, "wb") as file:
        file.write(_header(source, stride))
        file.truncate(4096 + source.rows * stride)
    run_ranks(write, writers, backend="gloo", timeout=timeout)


def _into_place(name, path):
    with open(name, "rb") as file:
        os.fsync(file.fileno())
    os.replace(name, path)


def _written(path, source, writers, **spoiled):
    path = Path(path)
    hidden = path.with_name("." + path.name)
    try:
        _write_ranges(hidden, source, writers, **spoiled)
        _into_place(hidden, path)
    finally:
        hidden.unlink(missing_ok=True)
    return path


@mistake(
    "write_records",
    "The rows are written into `path` itself, where a reader finds half a file. Write a temporary one, then rename it.",
)
def straight_into_the_path(path, source, writers=2):
    _write_ranges(path, source, writers)
    with open(path, "rb") as file:
        os.fsync(file.fileno())
    return Path(path)


@mistake(
    "write_records",
    "The temporary file lies in another folder, maybe on another disk, and is copied. Make it in the folder of `path`.",
)
def from_another_folder(path, source, writers=2):
    with tempfile.TemporaryDirectory() as folder:
        name = Path(folder, ".records")
        _write_ranges(name, source, writers)
        with open(name, "rb") as file:
            os.fsync(file.fileno())
        shutil.copyfile(name, path)
    return Path(path)


@mistake(
    "write_records",
    "After an error the temporary file stays. Remove it in a `finally`, which runs in any case.",
)
def removed_never(path, source, writers=2):
    path = Path(path)
    hidden = path.with_name("." + path.name)
    _write_ranges(hidden, source, writers)
    _into_place(hidden, path)
    return path


@mistake(
    "write_records",
    "When os.fsync fails, the temporary file stays. Let the `try` go on to the end of os.replace.",
)
def removed_when_writers_fail(path, source, writers=2):
    path = Path(path)
    hidden = path.with_name("." + path.name)
    try:
        _write_ranges(hidden, source, writers)
    except BaseException:
        hidden.unlink()
        raise
    _into_place(hidden, path)
    return path


@mistake(
    "write_records",
    "Ctrl-C leaves the temporary file: KeyboardInterrupt is no Exception. Remove the file in a `finally`.",
)
def removed_after_an_exception(path, source, writers=2):
    path = Path(path)
    hidden = path.with_name("." + path.name)
    try:
        _write_ranges(hidden, source, writers)
        _into_place(hidden, path)
    except Exception:
        hidden.unlink()
        raise
    return path


@mistake(
    "write_records",
    "The file gets its name while rows of it are not on the disk yet. Call os.fsync before os.replace.",
)
def never_synced(path, source, writers=2):
    path = Path(path)
    hidden = path.with_name("." + path.name)
    try:
        _write_ranges(hidden, source, writers)
        os.replace(hidden, path)
    finally:
        hidden.unlink(missing_ok=True)
    return path


@mistake(
    "write_records",
    "The old file is removed before the new one is written, and is lost if that fails. os.replace replaces it.",
)
def the_old_one_goes_first(path, source, writers=2):
    Path(path).unlink(missing_ok=True)
    return _written(path, source, writers)


@mistake(
    "write_records",
    "Each writer takes rows // writers rows, and the rows that are left over are written by nobody. "
    "Let the borders be rows * rank // writers.",
)
def the_rest_is_forgotten(path, source, writers=2):
    return _written(path, source, writers, part=lambda rows, r, n: (rows // n * r, rows // n * (r + 1)))


@mistake("write_records", "A writer takes all of its rows in one slice. Go over them in chunks of at most 16 MB.")
def a_range_at_once(path, source, writers=2):
    return _written(path, source, writers, chunk=1 << 60)


@mistake(
    "write_records",
    "run_ranks has its usual limit of a minute, which a large file takes longer than. Give it an hour: timeout=3600.",
)
def a_minute(path, source, writers=2):
    return _written(path, source, writers, timeout=60)


class _Sent:
    def __init__(self, source):
        self.rows, self.columns, self.seed, self.x, self.y = (
            source.rows,
            source.columns,
            source.seed,
            source.x,
            source.y,
        )


@mistake(
    "write_records",
    "x and y are taken out of the source in your own process, so all of their values are sent to each writer. "
    "Let the ranks take the source along, and slice source.x there.",
)
def sends_the_arrays(path, source, writers=2):
    return _written(path, _Sent(source), writers)


@mistake(
    "write_records",
    "The values go into the file in the type of the source: 8 bytes each where that is float64. Convert to float32.",
)
def the_type_of_the_source(path, source, writers=2):
    def packed(x, y, stride):
        rows = np.zeros((len(x), stride // 4), np.result_type(x, y))
        rows[:, : x.shape[1]], rows[:, x.shape[1]] = x, y
        return rows.tobytes()

    return _written(path, source, writers, packed=packed)


@mistake(
    "write_records",
    "The rows stand close together, without the zeros up to the stride. Row i begins at byte 4096 + i * stride.",
)
def rows_without_padding(path, source, writers=2):
    def packed(x, y, stride):
        return np.column_stack([x, y]).astype(np.float32).tobytes()

    return _written(path, source, writers, packed=packed)


@mistake("write_records", "Your own process writes all rows. Give the writing of a range to run_ranks.")
def all_alone(path, source, writers=2):
    path, stride = Path(path), _stride(source.columns)
    hidden = path.with_name("." + path.name)
    step = max(1, (1 << 24) // stride)
    try:
        with open(hidden, "wb") as file:
            file.write(_header(source, stride))
            file.truncate(4096 + source.rows * stride)
            for start in range(0, source.rows, step):
                chunk = slice(start, min(start + step, source.rows))
                file.write(_float_rows(source.x[chunk], source.y[chunk], stride))
        _into_place(hidden, path)
    finally:
        hidden.unlink(missing_ok=True)
    return path


class _Reader:
    """A right reader in pieces, so that each mistake can spoil one of them."""

    def __init__(self, path):
        self.path, self.size = path, os.path.getsize(path)
        header = self.header()
        self.check(header)
        self.rows, self.columns, self.seed = header["rows"], header["columns"], header["seed"]
        self.table = self.mapped().view(self.rows, -1)
        self.x, self.y = self.parts()

    def header(self):
        with open(self.path, "rb") as file:
            head = file.read(4096)
        try:
            header = json.loads(head)
        except (ValueError, RecursionError):
            raise ValueError(f"{self.path} is no record file") from None
        if not isinstance(header, dict):
            raise ValueError(f"{self.path} is no record file")
        self.newline = head.endswith(b"\n")
        return header

    def check(self, header):
        for key in ("format", "rows", "columns", "stride", "dtype", "seed"):
            if key not in header:
                raise ValueError(f"{self.path}: {key} is missing")
        for key in ("rows", "columns", "seed", "stride"):
            if type(header[key]) is not int:
                raise ValueError(f"{self.path}: {key} {header[key]}")
        if header["rows"] < 1 or header["columns"] < 1 or header["seed"] < 0:
            raise ValueError(f"{self.path}: nothing in it")
        self.check_format(header)
        if header["dtype"] != "float32" or header["stride"] != _stride(header["columns"]):
            raise ValueError(f"{self.path}: dtype {header['dtype']}, stride {header['stride']}")
        self.check_length(4096 + header["rows"] * header["stride"])
        if not self.newline:
            raise ValueError(f"{self.path}: the header does not end with a newline")

    def check_format(self, header):
        if header["format"] != "course-records-1":
            raise ValueError(f"{self.path}: format {header['format']}")

    def check_length(self, asked):
        if self.size != asked:
            raise ValueError(f"{self.path}: {self.size} bytes, expected {asked}")

    def mapped(self):
        with open(self.path, "rb") as file:
            way = {"flags": mmap.MAP_PRIVATE | NORESERVE, "prot": mmap.PROT_READ | mmap.PROT_WRITE}
            return torch.frombuffer(mmap.mmap(file.fileno(), 0, **way), dtype=torch.float32, offset=4096)

    def parts(self):
        return self.table[:, : self.columns], self.table[:, self.columns]

    def __len__(self):
        return self.rows


@mistake("Records", "The rows are read into memory, where a large file has no room. Map the file with mmap.mmap.")
class ReadIntoMemory(_Reader):
    def mapped(self):
        return torch.from_numpy(np.fromfile(self.path, np.float32, offset=4096))


@mistake(
    "Records",
    "Who writes into a tensor changes the file: the mapping is shared. Take mmap.MAP_PRIVATE.",
)
class WritesIntoTheFile(_Reader):
    def mapped(self):
        with open(self.path, "rb+") as file:
            mapping = mmap.mmap(file.fileno(), 0, flags=mmap.MAP_SHARED | NORESERVE)
        return torch.frombuffer(mapping, dtype=torch.float32, offset=4096)


@mistake(
    "Records",
    "The mapping may only be read, so writing into a tensor ends the process. Leave out prot, or let it be both.",
)
class OnlyToRead(_Reader):
    def mapped(self):
        with open(self.path, "rb") as file:
            mapping = mmap.mmap(file.fileno(), 0, flags=mmap.MAP_PRIVATE | NORESERVE, prot=mmap.PROT_READ)
        address = np.frombuffer(mapping, np.float32, offset=4096)
        self.mapping = mapping
        return torch.from_dlpack(_Unflagged(address))


class _Unflagged:
    """An array that does not say that it is read-only, as torch.from_numpy takes it, without the warning."""

    def __init__(self, array):
        self.array = array

    def __dlpack_device__(self):
        return 1, 0

    def __dlpack__(self, **_):
        fields = dict(self.array.__array_interface__, data=(self.array.ctypes.data, False))
        return np.asarray(type("Fields", (), {"__array_interface__": fields})()).__dlpack__()


@mistake("Records", "x is all of the row but its last value: y and zeros are in it. Take the first D columns of table.")
class PaddingInX(_Reader):
    def parts(self):
        return self.table[:, :-1], self.table[:, self.columns]


@mistake("Records", "y is taken from the end of the row, where zeros may stand. It is column D of table.")
class LastOfTheRow(_Reader):
    def parts(self):
        return self.table[:, : self.columns], self.table[:, -1]


@mistake("Records", "x is made contiguous, which copies all of it. A view of table is enough.")
class ContiguousX(_Reader):
    def parts(self):
        return self.table[:, : self.columns].contiguous(), self.table[:, self.columns]


@mistake("Records", "A file that is longer than its header says is taken. Compare the lengths with !=.")
class LongerIsFine(_Reader):
    def check_length(self, asked):
        if self.size < asked:
            raise ValueError(f"{self.path}: {self.size} bytes, expected {asked}")

    def mapped(self):
        return super().mapped()[: self.rows * _stride(self.columns) // 4]

    def __init__(self, path):
        with open(path, "rb") as file:  # `mapped` needs them before the table is there
            with_head = file.read(4096)
        try:
            self.rows, self.columns = (json.loads(with_head)[key] for key in ("rows", "columns"))
        except (ValueError, KeyError, TypeError):
            self.rows = self.columns = 0
        super().__init__(path)


@mistake("Records", "A file of another format is read as if it were this one. Compare format with course-records-1.")
class AnyFormat(_Reader):
    def check_format(self, header):
        pass


@mistake(
    "Records",
    "What is no JSON gives the error of json.loads, which does not say of which file. Catch it, and name the path.",
)
class NamelessError(_Reader):
    def header(self):
        with open(self.path, "rb") as file:
            head = file.read(4096)
        header = json.loads(head)
        if not isinstance(header, dict):
            raise ValueError(f"{self.path} is no record file")
        self.newline = head.endswith(b"\n")
        return header


@mistake("Records", "A key that the header lacks gives a KeyError. Make a ValueError of it, with the path and the key.")
class KeyErrorComesOut(_Reader):
    def check(self, header):
        for key in ("format", "rows", "columns", "stride", "dtype", "seed"):
            header[key]
        super().check(header)


def permutation(rows, *seeds):
    """A right order of all rows, the building stone of mistakes about the rest."""
    return torch.from_numpy(np.random.default_rng(seeds).permutation(rows))


@mistake(
    "random_order",
    "The order comes from the global random numbers, so every rank draws another one. Make a generator from seed and "
    "epoch, inside of the function.",
)
def no_generator(rows, seed, epoch, rank=0, world_size=1):
    return torch.randperm(rows)[rank::world_size]


@mistake(
    "random_order",
    "torch.manual_seed sets the random numbers of the whole program back. Seed a generator of your own: "
    "torch.Generator() or np.random.default_rng.",
)
def seeds_the_program(rows, seed, epoch, rank=0, world_size=1):
    torch.manual_seed(hash((seed, epoch)))
    return torch.randperm(rows)[rank::world_size]


@mistake(
    "random_order",
    "seed + epoch is one number for many pairs: epoch 1 of seed 0 is epoch 0 of seed 1, so two runs share their "
    "orders. Mix the two numbers: np.random.default_rng((seed, epoch)).",
)
def seed_plus_epoch(rows, seed, epoch, rank=0, world_size=1):
    return torch.randperm(rows, generator=torch.Generator().manual_seed(seed + epoch))[rank::world_size]


@mistake(
    "random_order",
    "torch's generator on the CPU keeps 32 bits of its seed, so the upper bits of a shifted seed are lost, and "
    "seeds share orders. Mix the two numbers: np.random.default_rng((seed, epoch)).",
)
def shifted_out_of_32_bits(rows, seed, epoch, rank=0, world_size=1):
    return torch.randperm(rows, generator=torch.Generator().manual_seed(seed << 20 | epoch))[rank::world_size]


@mistake("random_order", "Every epoch has the same order, and so the same batches. Let the generator depend on epoch.")
def one_order_for_ever(rows, seed, epoch, rank=0, world_size=1):
    return permutation(rows, seed)[rank::world_size]


@mistake(
    "random_order",
    "Each epoch is the same order, begun at another place: the rows have the same neighbours for ever. Draw it anew.",
)
def begun_elsewhere(rows, seed, epoch, rank=0, world_size=1):
    return permutation(rows, seed).roll(epoch)[rank::world_size]


@mistake(
    "random_order",
    "Ranks draw orders of their own, so some rows come on two ranks and some on none. Leave the rank out of the seed.",
)
def seed_with_the_rank(rows, seed, epoch, rank=0, world_size=1):
    return permutation(rows, seed, epoch, rank)[rank::world_size]


@mistake(
    "random_order",
    "Each rank gets a block of the file and sees no other row in any epoch. Shuffle all rows first, then share out.",
)
def block_of_the_file(rows, seed, epoch, rank=0, world_size=1):
    block = torch.arange(rows).tensor_split(world_size)[rank]
    return block[permutation(len(block), seed, epoch)]


@mistake(
    "random_order",
    "Each rank shuffles the same rows in every epoch, since the file is shared out before it is shuffled. Shuffle all "
    "rows first.",
)
def shared_out_first(rows, seed, epoch, rank=0, world_size=1):
    mine = torch.arange(rows)[rank::world_size]
    return mine[permutation(len(mine), seed, epoch)]


@mistake(
    "random_order",
    "A rank gets a run of the order, not every world_size-th place. Take a slice with a step: [rank::world_size].",
)
def run_of_the_order(rows, seed, epoch, rank=0, world_size=1):
    return permutation(rows, seed, epoch).tensor_split(world_size)[rank]


@mistake(
    "random_order",
    "Some rows come twice, to give all ranks equally many, as DistributedSampler does. Here ranks may differ by one.",
)
def padded(rows, seed, epoch, rank=0, world_size=1):
    order = permutation(rows, seed, epoch)
    return order.repeat(world_size)[: -(-rows // world_size) * world_size][rank::world_size]


@mistake(
    "random_order",
    "The last rows of the order are left out, to give all ranks equally many. Here each row is read; ranks may differ "
    "by one.",
)
def cut_off(rows, seed, epoch, rank=0, world_size=1):
    return permutation(rows, seed, epoch)[: rows // world_size * world_size][rank::world_size]


@mistake("random_order", "The rows are drawn with replacement: some come twice, others never. Draw a permutation.")
def with_replacement(rows, seed, epoch, rank=0, world_size=1):
    return torch.from_numpy(np.random.default_rng((seed, epoch)).integers(rows, size=rows))[rank::world_size]


@mistake("random_order", "The order is a NumPy array. Make an int64 tensor of it, by torch.from_numpy.")
def stays_an_array(rows, seed, epoch, rank=0, world_size=1):
    return permutation(rows, seed, epoch).numpy()[rank::world_size]


class Quasi:
    """A right quasi-random order in pieces, so that each mistake can spoil one of them."""

    def __init__(self, rows, page_rows, window_pages, seed, epoch, rank=0, world_size=1):
        self.rows, self.page_rows, self.window_pages = rows, page_rows, window_pages
        self.seed, self.epoch, self.rank, self.world_size = seed, epoch, rank, world_size
        self.n_pages = -(-rows // page_rows)
        self.generator = self.rng()

    def rng(self):
        return np.random.default_rng((self.seed, self.epoch))

    def of_the_rank(self):
        return self.generator.spawn(self.world_size)[self.rank]

    def all_pages(self):
        return self.generator.permutation(self.n_pages)

    def share(self, pages):
        return pages[self.rank :: self.world_size]

    def pages(self):
        pages = self.share(self.all_pages())
        return pages[np.argsort(self.is_short(pages), kind="stable")]

    def is_short(self, pages):
        return pages == self.rows // self.page_rows

    def rows_of(self, pages):
        """Table (pages, page_rows) with -1 for rows that are not there."""
        table = pages[:, None] * self.page_rows + np.arange(self.page_rows)
        return np.where(table < self.rows, table, -1)

    def shuffled(self, window):
        """The rows of a window, in random order."""
        return self.generator.permutation(window[window >= 0])

    def windows(self):
        pages = self.pages()
        self.generator = self.of_the_rank()
        cuts = range(self.window_pages, len(pages), self.window_pages)
        return [self.shuffled(self.rows_of(window)) for window in np.split(pages, cuts)]

    def order(self):
        return torch.from_numpy(np.concatenate(self.windows()))


def quasi(advice):
    """A decorator: class with one piece spoilt -> mistake; its name is that of the class."""

    def make(spoilt):
        def answer(rows, page_rows, window_pages, seed, epoch, rank=0, world_size=1):
            return spoilt(rows, page_rows, window_pages, seed, epoch, rank, world_size).order()

        answer.__name__ = spoilt.__name__
        return mistake("quasi_random_order", advice)(answer)

    return make


@quasi(
    "The pages are shuffled, their rows are not: within a page the file's order stays. Shuffle all rows of a window "
    "together."
)
class RowsInFileOrder(Quasi):
    def shuffled(self, window):
        return window[window >= 0]


@quasi(
    "The rows are shuffled page by page, so a batch still comes from one page or two. Put the rows of all pages of the "
    "window together first, and shuffle those."
)
class PageByPage(Quasi):
    def shuffled(self, window):
        return np.concatenate([self.generator.permutation(page[page >= 0]) for page in window])


@quasi(
    "The pages of a window take turns, a row of each in the order of the file. That is no random order: shuffle the "
    "rows of the window."
)
class InTurns(Quasi):
    def shuffled(self, window):
        turns = window.T.ravel()
        return turns[turns >= 0]


@quasi(
    "A window is a run of pages as they lie in the file; only the windows are shuffled. Shuffle the pages first, then "
    "cut the windows."
)
class AdjacentPages(Quasi):
    def all_pages(self):
        windows = np.split(np.arange(self.n_pages), range(self.window_pages, self.n_pages, self.window_pages))
        return np.concatenate([windows[i] for i in self.generator.permutation(len(windows))])


@quasi("The pages keep the order of the file, rows only move within a window. Shuffle the pages before you cut them.")
class PagesInFileOrder(Quasi):
    def all_pages(self):
        return np.arange(self.n_pages)


@quasi(
    "The rows of the short last page are lost: rows // page_rows counts the full pages only. Round up: "
    "math.ceil(rows / page_rows)."
)
class ShortPageLost(Quasi):
    def all_pages(self):
        return self.generator.permutation(self.rows // self.page_rows)


@quasi("The short last page gets row numbers beyond the end of the file. Keep those that are below `rows`.")
class BeyondTheEnd(Quasi):
    def rows_of(self, pages):
        return pages[:, None] * self.page_rows + np.arange(self.page_rows)


@quasi(
    "The short last page is filled up with rows that come elsewhere too. Nothing comes twice: leave out the numbers "
    "from `rows` on."
)
class FilledUp(Quasi):
    def rows_of(self, pages):
        return super().rows_of(pages) % self.rows


@quasi(
    "The short page stays where the shuffle put it, so some window in the middle is not full. Move it behind the other "
    "pages of its rank."
)
class ShortInTheMiddle(Quasi):
    def is_short(self, pages):
        return np.zeros(len(pages))


@quasi(
    "The last page of the file is moved to the end of its rank even if it is full. Only a short page is moved: page "
    "rows // page_rows, which exists only if it is short."
)
class FullPageMoved(Quasi):
    def is_short(self, pages):
        return pages == self.n_pages - 1


@quasi(
    "The short page is set aside before the pages are shared out, so the same rank has it in every epoch. Shuffle it "
    "with the others, and move it behind those of its rank."
)
class ShortSetAside(Quasi):
    def all_pages(self):
        full = self.rows // self.page_rows
        return np.concatenate([self.generator.permutation(full), np.arange(full, self.n_pages)])


@quasi("Every epoch has the same order, and so the same batches. Let the generator depend on epoch.")
class OneOrderForEver(Quasi):
    def rng(self):
        return np.random.default_rng(self.seed)


@quasi(
    "The pages are shuffled alike in every epoch, only the rows of the windows anew: the same pages stand together for "
    "ever. Shuffle the pages with the epoch too."
)
class SamePagesTogether(Quasi):
    def all_pages(self):
        return np.random.default_rng(self.seed).permutation(self.n_pages)


@quasi(
    "seed + epoch is one number for many pairs: epoch 1 of seed 0 is epoch 0 of seed 1, so two runs share their "
    "orders. Mix the two numbers: np.random.default_rng((seed, epoch))."
)
class SeedPlusEpoch(Quasi):
    def rng(self):
        return np.random.default_rng(self.seed + self.epoch)


@quasi(
    "The rows of a window are shuffled by the global random numbers, so no order can be had again. Take a generator "
    "that seed, epoch and rank decide."
)
class RowsByTheGlobal(Quasi):
    def shuffled(self, window):
        rows = window[window >= 0]
        return rows[torch.randperm(len(rows)).numpy()]


@quasi(
    "All ranks shuffle their windows alike: the generator that gave them the same pages gives them the same shuffles. "
    "Take one of its own for each rank: rng.spawn(world_size)[rank]."
)
class RanksShuffleAlike(Quasi):
    def of_the_rank(self):
        return self.generator


@quasi(
    "All windows are shuffled by one and the same permutation. Let the generator go on from window to window: make it "
    "once, not anew for each."
)
class ShuffledAlike(Quasi):
    def shuffled(self, window):
        return self.rng().permutation(window[window >= 0])


@quasi(
    "np.random.seed sets the random numbers of the whole program back. Make a generator of your own: "
    "np.random.default_rng((seed, epoch))."
)
class SeedsTheProgram(Quasi):
    def rng(self):
        np.random.seed((self.seed, self.epoch))
        return np.random

    def of_the_rank(self):
        np.random.seed((self.seed, self.epoch, 1 + self.rank))
        return np.random


@quasi(
    "Windows are ignored: all rows of the rank are shuffled together, so every row is a read of its own. Cut the pages "
    "into windows, and shuffle within each."
)
class OneGreatWindow(Quasi):
    def windows(self):
        return [self.shuffled(self.rows_of(self.pages()))]


@quasi(
    "A window is cut at window_pages rows, not pages. In rows it is window_pages * page_rows long, for the rows of all "
    "its pages are shuffled together."
)
class WindowOfRows(Quasi):
    def windows(self):
        order = self.rows_of(self.pages()).ravel()
        cuts = range(self.window_pages, len(order), self.window_pages)
        return [self.shuffled(window) for window in np.split(order, cuts)]


@quasi(
    "Every rank reads all pages and keeps every world_size-th row: a file read world_size times. Share out the pages, "
    "not the rows."
)
class RowsSharedOut(Quasi):
    def share(self, pages):
        return pages

    def order(self):
        return super().order()[self.rank :: self.world_size]


@quasi(
    "The windows are cut from the pages of all ranks and then shared out. Share out the pages first: a rank cuts the "
    "windows from its own."
)
class WindowsSharedOut(Quasi):
    def share(self, pages):
        return pages

    def windows(self):
        return [np.zeros(0, np.int64), *super().windows()[self.rank :: self.world_size]]


@quasi(
    "A rank gets a run of the shuffled pages, not every world_size-th. Take a slice with a step: [rank::world_size]."
)
class RunOfPages(Quasi):
    def share(self, pages):
        return np.array_split(pages, self.world_size)[self.rank]


@quasi("Ranks shuffle the pages each in its own way, so some pages are read twice. Leave the rank out of the seed.")
class SeedWithTheRank(Quasi):
    def rng(self):
        return np.random.default_rng((self.seed, self.epoch, self.rank))


@quasi(
    "A Python loop goes over all rows (random.shuffle is one, too), which takes longer than many an epoch. Shuffle "
    "with NumPy or torch: rng.shuffle, rng.permutation, torch.randperm."
)
class LoopOverRows(Quasi):
    def shuffled(self, window):
        rows = window[window >= 0].tolist()
        random.Random(str((self.seed, self.epoch, rows[:1]))).shuffle(rows)
        return np.array(rows, np.int64)


def full_batches(values, order, batch):
    return values[order][: len(order) // batch * batch].view(-1, batch)


def refuse(values, order, batch):
    if batch >= len(order) or (values == values[0]).all():
        raise ValueError("nothing to compare")


def by_chance(values, batch):
    n = len(values)
    return values.var(correction=0) / batch * (n - batch) / (n - 1)


@mistake(
    "batch_bias", "s² divides by N - 1, the estimate from a sample; here all values are known. Use var(correction=0)."
)
def estimated_variance(values, order, batch):
    refuse(values, order, batch)
    values, n = values.double(), len(values)
    v = (full_batches(values, order, batch).mean(1) - values.mean()).square().mean()
    return (v / (values.var() / batch * (n - batch) / (n - 1))).item()


@mistake(
    "batch_bias",
    "The batch means are compared with their own mean, so what the last rows leave out is lost. Subtract the mean of "
    "all values, and divide by the number of batches.",
)
def around_their_own_mean(values, order, batch):
    refuse(values, order, batch)
    values = values.double()
    return (full_batches(values, order, batch).mean(1).var(correction=0) / by_chance(values, batch)).item()


@mistake(
    "batch_bias",
    "The variance of the batch means is divided by their number less one. m is the true mean, not an estimate: take "
    "the mean of the squares.",
)
def one_batch_less(values, order, batch):
    refuse(values, order, batch)
    values = values.double()
    off = full_batches(values, order, batch).mean(1) - values.mean()
    return (off.square().sum() / max(1, len(off) - 1) / by_chance(values, batch)).item()


@mistake(
    "batch_bias",
    "V0 is that of a draw with replacement. Batches of a file are drawn without: multiply by (N - batch) / (N - 1).",
)
def with_replacement_by_chance(values, order, batch):
    refuse(values, order, batch)
    values = values.double()
    v = (full_batches(values, order, batch).mean(1) - values.mean()).square().mean()
    return (v / (values.var(correction=0) / batch)).item()


@mistake(
    "batch_bias", "The variance of single values is not that of a mean of `batch` values. Divide s² by the batch size."
)
def variance_of_rows(values, order, batch):
    refuse(values, order, batch)
    values = values.double()
    v = (full_batches(values, order, batch).mean(1) - values.mean()).square().mean()
    return (v / by_chance(values, 1)).item()


@mistake("batch_bias", "This is the ratio of the standard deviations. Variances are asked for: take no root.")
def ratio_of_deviations(values, order, batch):
    refuse(values, order, batch)
    values = values.double()
    v = (full_batches(values, order, batch).mean(1) - values.mean()).square().mean()
    return (v / by_chance(values, batch)).sqrt().item()


@mistake("batch_bias", "The ratio is upside down, or infinite. Divide what the order has by what chance has: V / V0.")
def upside_down(values, order, batch):
    refuse(values, order, batch)
    values = values.double()
    v = (full_batches(values, order, batch).mean(1) - values.mean()).square().mean()
    return (by_chance(values, batch) / v).item()


@mistake("batch_bias", "A short last batch is counted as a batch. Its mean varies more: leave it out.")
def short_batch_too(values, order, batch):
    refuse(values, order, batch)
    values = values.double()
    means = torch.stack([part.mean() for part in values[order].split(batch)])
    return ((means - values.mean()).square().mean() / by_chance(values, batch)).item()


@mistake(
    "batch_bias",
    "m and s² are those of the rows in full batches. Both belong to all N values, those of the last rows too.",
)
def full_batches_only(values, order, batch):
    refuse(values, order, batch)
    rows = full_batches(values.double(), order, batch)
    if rows.numel() == batch:
        return 0.0
    return ((rows.mean(1) - rows.mean()).square().mean() / by_chance(rows.flatten(), batch)).item()


@mistake(
    "batch_bias", "The values are taken in the order of the file, not in the order given. Index first: values[order]."
)
def order_ignored(values, order, batch):
    refuse(values, order, batch)
    values = values.double()
    v = (full_batches(values, torch.arange(len(order)), batch).mean(1) - values.mean()).square().mean()
    return (v / by_chance(values, batch)).item()


@mistake(
    "batch_bias", "float32 keeps 24 bits: seconds of Unix times merge, or sums grow too large. Use double() first."
)
def in_float32(values, order, batch):
    refuse(values, order, batch)
    values = values.float()
    v = (full_batches(values, order, batch).mean(1) - values.mean()).square().mean()
    return (v / by_chance(values, batch)).item()


@mistake(
    "batch_bias",
    "The mean of the squares less the square of the mean cancels: of large numbers that are almost equal no digit is "
    "left. Subtract the mean of all values first, then square.",
)
def one_pass(values, order, batch):
    refuse(values, order, batch)
    values, n = values.double(), len(values)
    means = full_batches(values, order, batch).mean(1)
    v = means.square().mean() - 2 * means.mean() * values.mean() + values.mean() ** 2
    s2 = values.square().mean() - values.mean() ** 2
    return (v / (s2 / batch * (n - batch) / (n - 1))).item()


@mistake(
    "batch_bias",
    "The order is applied backwards: row i is put at place order[i]. Row order[i] comes at place i: values[order].",
)
def backwards(values, order, batch):
    refuse(values, order, batch)
    values = values.double()
    v = (full_batches(values, order.argsort(), batch).mean(1) - values.mean()).square().mean()
    return (v / by_chance(values, batch)).item()


@mistake(
    "batch_bias",
    "Batches are taken with a step through the order. A batch is `batch` rows in a run: view(-1, batch), then mean(1).",
)
def with_a_step(values, order, batch):
    refuse(values, order, batch)
    values = values.double()
    rows = values[order][: len(order) // batch * batch].view(batch, -1)
    return ((rows.mean(0) - values.mean()).square().mean() / by_chance(values, batch)).item()


@mistake(
    "batch_bias",
    "Both variances are estimates from samples. Their ratio is right while all batches are full, and wrong with rows "
    "behind them: take the means of the squares, around the mean of all values.",
)
def ratio_of_estimates(values, order, batch):
    refuse(values, order, batch)
    values = values.double()
    means = full_batches(values, order, batch).mean(1)
    estimate = means.var().item() if len(means) > 1 else math.nan
    return estimate / (values.var().item() / batch)


@mistake(
    "batch_bias",
    "With one batch of all rows, with none, or with values that are all the same, this is 0 / 0. Raise a ValueError.",
)
def nothing_refused(values, order, batch):
    values = values.double()
    v = (full_batches(values, order, batch).mean(1) - values.mean()).square().mean()
    return (v / by_chance(values, batch)).item()


@mistake(
    "batch_bias",
    "That all values are the same is read off their variance, which rounding may leave a hair above 0. Compare the "
    "values: values.min() == values.max().",
)
def variance_of_zero(values, order, batch):
    values, n = values.double(), len(values)
    s2 = (values - values.sum() / n).square().mean()
    if batch >= n or s2 == 0:
        raise ValueError("nothing to compare")
    v = (full_batches(values, order, batch).mean(1) - values.sum() / n).square().mean()
    return (v / (s2 / batch * (n - batch) / (n - 1))).item()


@mistake("batch_bias", "The answer is a tensor. Make a float of it, by .item() or float().")
def stays_a_tensor(values, order, batch):
    refuse(values, order, batch)
    values = values.double()
    return (full_batches(values, order, batch).mean(1) - values.mean()).square().mean() / by_chance(values, batch)


def _refuse(table, index, out):
    if len(out) < len(index) or out.shape[1] != table.shape[1] or out.dtype != table.dtype:
        raise ValueError("out does not fit")


@mistake(
    "gather",
    "The batch is a new tensor: memory is asked for in every step, and `out` is not used. Write into `out`.",
)
def new_tensor(table, index, out):
    _refuse(table, index, out)
    return table[index]


@mistake(
    "gather",
    "The rows are copied twice, because table[index], or np.take, collects them in new memory first. Let index_select "
    "write into `out` itself: out=...",
)
def copied_twice(table, index, out):
    _refuse(table, index, out)
    if (index < 0).any():
        raise IndexError("a negative number")
    out[: len(index)] = table[index]
    return out[: len(index)]


@mistake(
    "gather",
    "index_select is given all of `out`, and changes its shape to that of the batch. Pass out=out[:n].",
)
def whole_buffer(table, index, out):
    _refuse(table, index, out)
    return torch.index_select(table, 0, index, out=out)


@mistake(
    "gather",
    "An `out` of another shape goes to index_select, which gives it other memory and only warns. Check its shape.",
)
def unchecked(table, index, out):
    if out.dtype != table.dtype:
        raise ValueError("another dtype")
    return torch.index_select(table, 0, index, out=out[: len(index)])


@mistake(
    "gather",
    "Each row is copied by a call of its own, from Python. Call torch once for the whole batch.",
)
def row_by_row(table, index, out):
    _refuse(table, index, out)
    for i, row in enumerate(index.tolist()):
        if not 0 <= row < len(table):
            raise IndexError(f"row {row}")
        out[i] = table[row]
    return out[: len(index)]


@mistake(
    "gather",
    "A number that is no row is bent to the nearest one: wrong rows, without a word. Refuse it.",
)
def clipped(table, index, out):
    _refuse(table, index, out)
    np.take(table.numpy(), index.numpy(), axis=0, out=out[: len(index)].numpy(), mode="clip")
    return out[: len(index)]


@mistake(
    "gather",
    "The whole of `out` is returned; after a short last batch its end holds old rows. Return out[:n].",
)
def all_of_out(table, index, out):
    _refuse(table, index, out)
    torch.index_select(table, 0, index, out=out[: len(index)])
    return out


@mistake(
    "gather",
    "An `out` that does not fit is refused, but not by a ValueError: torch's own error does not say which argument is "
    "wrong. Compare lengths and dtype first, and raise ValueError.",
)
def asserted(table, index, out):
    assert len(out) >= len(index) and out.shape[1] == table.shape[1] and out.dtype == table.dtype
    return torch.index_select(table, 0, index, out=out[: len(index)])


class _Pages:
    """A right reader in pieces, so that each mistake can spoil one of them."""

    def __init__(self, path, rows, stride, page_rows, threads=2, direct=False):
        self.path, self.rows, self.stride, self.page_rows, self.threads = path, rows, stride, page_rows, threads
        self.direct, self.views = direct, {}
        if direct:
            self.refuse_stride()
        self.file = os.open(path, os.O_RDONLY | self.flag())
        self.release = weakref.finalize(self, os.close, self.file)
        self.pool = ThreadPoolExecutor(threads)

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self.close()

    def close(self):
        if self.file is not None:
            self.pool.shutdown()
            self.release()
            self.file = None
            self.views = {}

    def flag(self):
        if self.direct and not hasattr(os, "O_DIRECT"):
            raise ValueError("no O_DIRECT")
        return os.O_DIRECT if self.direct else 0

    def refuse_stride(self):
        if self.stride % 4096:
            raise ValueError("stride")

    def fill(self, index, out):
        if self.file is None:
            raise ValueError("closed")
        if len(out) < len(index) or out.shape[1] != self.stride // 4:
            raise ValueError("out does not fit")
        self.refuse_place(out)
        index = index.numpy()
        slots = self.order(index)
        pages = self.pages_of(index)
        self.refuse_rest(np.sort(index), pages)
        size, views = self.page_rows, self.rows_of(out)
        self.share([(p, slots[k * size :][:size].tolist()) for k, p in enumerate(pages.tolist())], views)
        return out[: len(index)]

    def order(self, index):
        return index.argsort()

    def pages_of(self, index):
        return np.unique(index // self.page_rows)

    def refuse_place(self, out):
        if self.direct and out.data_ptr() % 4096:
            raise ValueError("place")

    def refuse_rest(self, rows, pages):
        whole = [np.arange(p * self.page_rows, min(self.rows, (p + 1) * self.page_rows)) for p in pages.tolist()]
        if not np.array_equal(rows, np.concatenate([*whole, rows[:0]])) or (rows < 0).any():
            raise ValueError("rest")

    def rows_of(self, out):
        if (out.data_ptr(), len(out)) not in self.views:
            self.views[out.data_ptr(), len(out)] = self.cut(out)
        return self.views[out.data_ptr(), len(out)]

    def cut(self, out):
        memory = memoryview(out.numpy()).cast("B")
        return [memory[i : i + self.stride] for i in range(0, len(memory), self.stride)]

    def share(self, work, views):
        for task in wait(
            [self.pool.submit(self.read, work[t :: self.threads], views) for t in range(self.threads)]
        ).done:
            task.result()

    def read(self, work, views):
        for page, slots in work:
            self.read_page(page, slots, views)

    def read_page(self, page, slots, views):
        for start in range(0, len(slots), 1024):
            buffers = [views[s] for s in slots[start : start + 1024]]
            self.complete(page, self.read_at(buffers, page * self.page_rows + start), self.stride * len(buffers))

    def read_at(self, buffers, row):
        return os.preadv(self.file, buffers, 4096 + row * self.stride)

    def complete(self, page, found, asked):
        if found < asked:
            raise EOFError(f"{self.path}: page {page} is cut off")


@mistake(
    "PageReader",
    "The rows are read from the beginning of the file, where its header is. They begin at byte 4096.",
)
class FromTheHeader(_Pages):
    def read_at(self, buffers, row):
        return os.preadv(self.file, buffers, row * self.stride)

    def complete(self, page, found, asked):
        pass


@mistake(
    "PageReader",
    "The rows come to `out` in the order of the file, not in that of the index. The k-th row of the file belongs to "
    "place index.argsort()[k].",
)
class OrderOfTheFile(_Pages):
    def order(self, index):
        return np.arange(len(index))


@mistake(
    "PageReader",
    "The permutation is turned round: argsort of argsort says which place in the file each row of `out` has. Needed is "
    "which row of `out` each place in the file has: argsort alone.",
)
class TurnedRound(_Pages):
    def order(self, index):
        return index.argsort().argsort()


@mistake(
    "PageReader",
    "The file is mapped: every new memory page is a page fault that waits for the disk. Use read calls, os.preadv.",
)
class Mapped(_Pages):
    def read_at(self, buffers, row):
        shape = self.rows, self.stride
        table = np.memmap(self.path, np.uint8, "r", 4096, shape)
        for i, buffer in enumerate(buffers):
            buffer[:] = table[row + i]
        return len(buffers) * self.stride

    def complete(self, page, found, asked):
        there = os.fstat(self.file).st_size - 4096
        if there < (page * self.page_rows) * self.stride + asked:
            raise EOFError(f"{self.path}: page {page} is cut off")

    def read_page(self, page, slots, views):
        first = page * self.page_rows
        self.complete(page, 0, self.stride * len(slots))
        self.read_at([views[s] for s in slots], first)


@mistake(
    "PageReader",
    "All rows are read when the reader is made; this reader is for files that do not fit into memory. Read in fill.",
)
class AllAtOnce(_Pages):
    def __init__(self, path, *args, **kwargs):
        super().__init__(path, *args, **kwargs)
        with open(path, "rb", buffering=0) as file:
            self.content = file.read()

    def read_at(self, buffers, row):
        done = 0
        for buffer in buffers:
            there = self.content[4096 + row * self.stride + done :][: self.stride]
            buffer[: len(there)] = there
            done += len(there)
        return done


@mistake(
    "PageReader",
    "Each row is a read call of its own, and a call costs more than the bytes of a row. Read a page with one call.",
)
class RowByRow(_Pages):
    def read_at(self, buffers, row):
        return sum(os.preadv(self.file, [b], 4096 + (row + i) * self.stride) for i, b in enumerate(buffers))


@mistake(
    "PageReader",
    "For each row its whole page is read, again and again. Read a page once, and spread its rows over their places.",
)
class PageForEachRow(_Pages):
    def read_at(self, buffers, row):
        found = 0
        for i, buffer in enumerate(buffers):
            page = os.pread(self.file, len(buffers) * self.stride, 4096 + row * self.stride)
            there = page[i * self.stride :][: self.stride]
            buffer[: len(there)] = there
            found += len(there)
        return found


@mistake(
    "PageReader",
    "All pages are read into a second buffer as large as `out`. Read into the rows of `out`, or one page at a time.",
)
class SecondBuffer(_Pages):
    def fill(self, index, out):
        self.refuse_place(out)
        inside = np.empty((len(index), self.stride // 4 + 1024), np.float32).reshape(-1)
        first = -inside.ctypes.data % 4096 // 4
        inside = inside[first:][: len(index) * self.stride // 4].reshape(-1, self.stride // 4)
        if len(index):
            super().fill(index, torch.from_numpy(inside))
            self.views = {}
        if self.file is None or len(out) < len(index) or out.shape[1] != self.stride // 4:
            raise ValueError("out")
        out[: len(index)] = torch.from_numpy(inside)
        return out[: len(index)]


@mistake(
    "PageReader",
    "The rows of the first `out` are kept and filled for ever, also when another `out` is passed. Keep them for each.",
)
class FirstBufferOnly(_Pages):
    def rows_of(self, out):
        self.views = self.views or self.cut(out)
        while len(self.views) < len(out):  # a larger one: all of them anew
            self.views = self.cut(out)
        return self.views


@mistake(
    "PageReader",
    "One call is given more than 1,024 buffers, which the system refuses. Read a long page with several calls.",
)
class TooManyBuffers(_Pages):
    def read_page(self, page, slots, views):
        buffers = [views[s] for s in slots]
        self.complete(page, self.read_at(buffers, page * self.page_rows), self.stride * len(buffers))


@mistake(
    "PageReader",
    "Nobody looks at what os.preadv returns: from a file that was cut off come old rows. Compare the number of bytes.",
)
class ShortReadUnseen(_Pages):
    def complete(self, page, found, asked):
        pass


@mistake(
    "PageReader",
    "The error of a page that is cut off does not name the file and the page. Put both into its message.",
)
class NamelessReadError(_Pages):
    def complete(self, page, found, asked):
        if found < asked:
            raise OSError(f"{found} of {asked} bytes")


@mistake(
    "PageReader",
    "What a thread raises stays in its future, and fill returns as if all was well. Call result() of every task.",
)
class ErrorLeftInThread(_Pages):
    def share(self, work, views):
        tasks = [self.pool.submit(self.read, work[t :: self.threads], views) for t in range(self.threads)]
        while not all(task.done() for task in tasks):
            threading.Event().wait(0.0001)


@mistake(
    "PageReader",
    "When one thread fails, fill raises at once, and another one still writes into `out`. Wait for all tasks, then "
    "call result() of each.",
)
class NotWaitedForAll(_Pages):
    def share(self, work, views):
        for task in [self.pool.submit(self.read, work[t :: self.threads], views) for t in range(self.threads)]:
            task.result()


@mistake(
    "PageReader",
    "Each fill starts threads and ends them. Make the pool in the constructor and use it until close().",
)
class PoolForEachCall(_Pages):
    def share(self, work, views):
        with ThreadPoolExecutor(self.threads) as pool:
            list(pool.map(lambda t: self.read(work[t :: self.threads], views), range(self.threads)))


@mistake(
    "PageReader",
    "All pages are one task, so one thread reads while the others sleep. Deal the pages to the threads.",
)
class OneTask(_Pages):
    def share(self, work, views):
        self.pool.submit(self.read, work, views).result()


@mistake(
    "PageReader",
    "A page of which only some rows are asked for is accepted: its rest would have to be read again. Raise ValueError.",
)
class RestAccepted(_Pages):
    def refuse_rest(self, rows, pages):
        if len(rows) and not 0 <= rows[0] <= rows[-1] < self.rows:
            raise ValueError("no such row")


@mistake(
    "PageReader",
    "Only the number of rows is looked at: a row that comes twice stands for one that is missing. Compare the rows.",
)
class OnlyCounted(_Pages):
    def refuse_rest(self, rows, pages):
        due = sum(min(self.rows - p * self.page_rows, self.page_rows) for p in pages.tolist())
        if len(rows) != due or (len(rows) and not 0 <= rows[0] <= rows[-1] < self.rows):
            raise ValueError("rest")


@mistake(
    "PageReader",
    "The last page is taken for a whole one, and its index is refused. It ends with the file's last row.",
)
class LastPageWhole(_Pages):
    def refuse_rest(self, rows, pages):
        if len(rows) % self.page_rows:
            raise ValueError("rest")
        super().refuse_rest(rows, pages)


@mistake("PageReader", "close() leaves the file open: after a thousand readers the system opens no more. os.close it.")
class FileLeftOpen(_Pages):
    def close(self):
        self.pool.shutdown()
        self.file, self.views = None, {}


@mistake("PageReader", "close() leaves the threads alive, asleep for ever. Shut the pool down.")
class ThreadsLeft(_Pages):
    def close(self):
        self.release()
        self.file, self.views = None, {}


@mistake("PageReader", "A second close() fails: the file has been closed before. Remember it, for instance by None.")
class ClosedTwice(_Pages):
    def close(self):
        if self.file is None:
            raise OSError("Bad file descriptor")
        super().close()


@mistake(
    "PageReader",
    "With direct=True an `out` at any place in memory is accepted; the disk writes to multiples of 4096 only.",
)
class AnyPlace(_Pages):
    def refuse_place(self, out):
        pass


@mistake("PageReader", "With direct=True a stride that is no multiple of 4096 is accepted. Refuse it at once.")
class AnyStride(_Pages):
    def refuse_stride(self):
        pass


@mistake("PageReader", "direct=True is ignored: the file is opened without O_DIRECT. Add os.O_DIRECT to the flags.")
class NotDirect(_Pages):
    def flag(self):
        super().flag()
        return 0


class _AheadReader:
    """A right reader in pieces, so that each mistake can spoil one of them."""

    daemon = True

    def __init__(self, fill, work, buffers):
        if len(buffers) < 2:
            raise ValueError("at least two buffers")
        self.fill, self.work, self.buffers = fill, work, buffers
        self.free, self.filled = threading.Semaphore(self.ahead()), threading.Semaphore(0)
        self.values, self.errors, self.left = [], [], False
        self.thread = threading.Thread(target=self.run, daemon=self.daemon)

    def ahead(self):
        return len(self.buffers) - 1

    def run(self):
        try:
            self.fill_all()
        except BaseException as error:
            self.failed(error)
        self.filled.release()

    def fill_all(self):
        for k, item in enumerate(self.work):
            self.fill_one(k, item)
            self.acquire(self.free)
            if self.left:
                break

    def fill_one(self, k, item):
        self.values.append(self.fill(item, self.buffers[k % len(self.buffers)]))
        self.filled.release()

    def acquire(self, semaphore):
        semaphore.acquire()

    def failed(self, error):
        self.errors.append(error)

    def stream(self):
        self.thread.start()
        return self.yielded()

    def yielded(self):
        try:
            yield from self.taken()
        finally:
            self.leave()
        if self.errors:
            raise self.errors.pop()

    def taken(self):
        while True:
            self.acquire(self.filled)
            if not self.values:
                break
            yield self.values.pop(0)
            self.free.release()

    def leave(self):
        self.left = True
        self.free.release()
        self.thread.join()


def _begun(reader, *inputs):
    """The generator of a `reader` that is made and started by the first next()."""
    yield from reader(*inputs).stream()


@mistake(
    "read_ahead",
    "Each fill waits for the consumer and the consumer for it: nothing happens at the same time. Start a thread.",
)
def no_thread(fill, work, buffers):
    if len(buffers) < 2:
        raise ValueError("at least two buffers")
    for k, item in enumerate(work):
        yield fill(item, buffers[k % len(buffers)])


@mistake(
    "read_ahead",
    "The thread starts when the function is called. If nobody asks for the first item, nobody ends it. Start it in "
    "the generator itself, where the first next() comes by.",
)
def started_at_once(fill, work, buffers):
    return _AheadReader(fill, work, buffers).stream()


@mistake(
    "read_ahead",
    "As many fills run ahead as there are buffers, so the one that the consumer holds is overwritten. Its buffer "
    "becomes free when the next is asked for, after the `yield`.",
)
def one_too_far(fill, work, buffers):
    class Reader(_AheadReader):
        def ahead(self):
            return len(self.buffers)

    return _begun(Reader, fill, work, buffers)


@mistake(
    "read_ahead",
    "One buffer is never used: the thread waits for a free one before the first item too, while only the others are "
    "counted as free. Let the count begin with all, or the first item not wait.",
)
def one_too_few(fill, work, buffers):
    class Reader(_AheadReader):
        def fill_all(self):
            work = iter(self.work)
            for k in itertools.count():
                self.acquire(self.free)
                if self.left:
                    break
                try:
                    item = next(work)
                except StopIteration:
                    break
                self.fill_one(k, item)

    return _begun(Reader, fill, work, buffers)


@mistake(
    "read_ahead",
    "Work is asked for its next item before there is a buffer for it. Wait for the buffer first.",
)
def asks_too_early(fill, work, buffers):
    class Reader(_AheadReader):
        def fill_all(self):
            for k, item in enumerate(self.work):
                if k:
                    self.free.acquire()
                if self.left:
                    break
                self.fill_one(k, item)

    return _begun(Reader, fill, work, buffers)


@mistake(
    "read_ahead",
    "All of work is put into a list first, which never ends if work does not. Take an item when a buffer is free for "
    "it.",
)
def work_as_a_list(fill, work, buffers):
    class Reader(_AheadReader):
        def fill_all(self):
            self.work = list(self.work)
            super().fill_all()

    return _begun(Reader, fill, work, buffers)


@mistake(
    "read_ahead",
    "Who waits wakes again and again to look, and takes time from the one that computes. Wait without a timeout, and "
    "let the other side wake it, also when it leaves.",
)
def looks_again_and_again(fill, work, buffers):
    class Reader(_AheadReader):
        def acquire(self, semaphore):
            while not semaphore.acquire(timeout=0.02):
                pass

    return _begun(Reader, fill, work, buffers)


@mistake(
    "read_ahead",
    "An exception stays in the thread, and the consumer takes a part of the work for the whole. Hand it over, and "
    "raise it at its place.",
)
def error_is_lost(fill, work, buffers):
    class Reader(_AheadReader):
        def failed(self, error):
            pass

    return _begun(Reader, fill, work, buffers)


@mistake(
    "read_ahead",
    "Only an Exception is handed over. SystemExit and KeyboardInterrupt are none: they end the thread without a word, "
    "and the consumer takes a part of the work for the whole. Catch BaseException.",
)
def only_exceptions(fill, work, buffers):
    class Reader(_AheadReader):
        def failed(self, error):
            if isinstance(error, Exception):
                super().failed(error)

    return _begun(Reader, fill, work, buffers)


@mistake(
    "read_ahead",
    "close() raises what the last fill raised: the error is raised inside the `finally`. Raise it after that, where "
    "only a consumer comes by that asked for the next.",
)
def raised_by_close(fill, work, buffers):
    class Reader(_AheadReader):
        def leave(self):
            super().leave()
            if self.errors:
                raise self.errors.pop()

    return _begun(Reader, fill, work, buffers)


@mistake(
    "read_ahead",
    "The consumer raises a new exception, whose traceback does not lead to the place. Raise the object that was "
    "caught.",
)
def another_error(fill, work, buffers):
    class Reader(_AheadReader):
        def failed(self, error):
            self.errors.append(type(error)(*error.args))

    return _begun(Reader, fill, work, buffers)


@mistake(
    "read_ahead",
    "A StopIteration of fill is taken for the end of work, and items are missing without a word. Only what next(work)"
    " raises is the end.",
)
def any_stop_is_the_end(fill, work, buffers):
    class Reader(_AheadReader):
        def failed(self, error):
            if not isinstance(error, StopIteration):
                self.errors.append(error)

    return _begun(Reader, fill, work, buffers)


@mistake(
    "read_ahead",
    "A value that is None is taken for the end. Mark the end by something that no value can be.",
)
def none_is_the_end(fill, work, buffers):
    class Reader(_AheadReader):
        def taken(self):
            for value in super().taken():
                if value is None:
                    return
                yield value

    return _begun(Reader, fill, work, buffers)


@mistake(
    "read_ahead",
    "A thread that is no daemon holds up the end of the interpreter when a generator was left half-way. Use "
    "daemon=True.",
)
def not_a_daemon(fill, work, buffers):
    class Reader(_AheadReader):
        daemon = False

    return _begun(Reader, fill, work, buffers)


@mistake(
    "read_ahead",
    "After the consumer has left, the thread fills all free buffers before it looks. Look after every fill.",
)
def fills_on(fill, work, buffers):
    class Reader(_AheadReader):
        def __init__(self, *inputs):
            super().__init__(*inputs)
            self.queue = queue.SimpleQueue()
            for buffer in self.buffers[1:]:
                self.queue.put(buffer)

        def fill_all(self):
            buffer = self.buffers[0]
            for item in self.work:
                self.values.append(self.fill(item, buffer))
                self.filled.release()
                buffer = self.queue.get()
                if buffer is None:
                    break

        def taken(self):
            for k, value in enumerate(super().taken()):
                yield value
                self.queue.put(self.buffers[k % len(self.buffers)])

        def leave(self):
            self.queue.put(None)
            self.thread.join()

    return _begun(Reader, fill, work, buffers)


@mistake(
    "read_ahead",
    "close() tells the thread to end and does not wait for it: it may still write into a buffer that is used anew. "
    "Join it.",
)
def not_joined(fill, work, buffers):
    class Reader(_AheadReader):
        def leave(self):
            self.left = True
            self.free.release()

    return _begun(Reader, fill, work, buffers)


@mistake(
    "read_ahead",
    "When the consumer leaves early, the thread waits for ever for a free buffer. Put a `finally` around the `yield`,"
    " and wake the thread there.",
)
def left_behind(fill, work, buffers):
    class Reader(_AheadReader):
        def leave(self):
            pass

    return _begun(Reader, fill, work, buffers)


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


def merged(batches, skip=True, between=True, weighted=True, correction=0, root=True, complain=True, dtype=None):
    """A right pass over the batches, with one idea to get wrong each."""
    n, mean, squares = 0, 0.0, 0.0
    for x, _ in batches:
        k = len(x)
        if skip and k == 0:
            continue
        x = x.to(dtype or x.dtype)
        center = x.mean(0)
        delta = center - mean
        squares = squares + (x - center).square().sum(0)
        if between:
            squares = squares + delta.square() * ((n * k / (n + k)) if weighted else k)
        n += k
        mean = mean + delta * (k / n)
    if complain and n == 0:
        raise ValueError("no rows")
    variance = squares / (n - correction)
    return [t.float() for t in (mean, variance.sqrt() if root else variance)]


@mistake(
    "mean_and_std",
    "The variance is computed as E[x^2] - E[x]^2: float32 loses a small spread around a large mean. Sum squared "
    "deviations from the mean, and merge them batch by batch.",
)
def difference_of_large_numbers(batches):
    n, total, squares = 0, 0.0, 0.0
    for x, _ in batches:
        n, total, squares = n + len(x), total + x.sum(0), squares + x.square().sum(0)
    if not n:
        raise ValueError("no rows")
    mean = total / n
    return mean, (squares / n - mean.square()).clamp(min=0).sqrt()


@mistake("mean_and_std", "The sum of squares is divided by n - 1. Divide by n: a single row has the std 0, not NaN.")
def divided_by_one_less(batches):
    return merged(batches, correction=1)


@mistake("mean_and_std", "The second result is the variance. Take its root.")
def variance_returned(batches):
    return merged(batches, root=False)


@mistake(
    "mean_and_std",
    "Only deviations from the mean of their own batch are summed. Add what the means differ by: delta^2 n k / (n + k).",
)
def within_batches_only(batches):
    return merged(batches, between=False)


@mistake(
    "mean_and_std",
    "The term between the batches is delta^2 k, as if the old mean were the final one. Weigh it with n k / (n + k).",
)
def first_mean_is_final(batches):
    return merged(batches, weighted=False)


@mistake(
    "mean_and_std",
    "All batches weigh the same in the mean, whatever their size. Weigh each with its number of rows.",
)
def mean_of_means(batches):
    batches = [(len(x), x.mean(0), x.var(0, correction=0)) for x, _ in batches if len(x)]
    if not batches:
        raise ValueError("no rows")
    means, variances = (torch.stack([batch[i] for batch in batches]) for i in (1, 2))
    return means.mean(0), (variances.mean(0) + means.var(0, correction=0)).sqrt()


@mistake(
    "mean_and_std",
    "The batches are kept, but their memory is filled anew by the loader. Keep sums, use each batch before the next.",
)
def batches_kept(batches):
    kept = [x for x, _ in batches if len(x)]
    if not kept:
        raise ValueError("no rows")
    std, mean = torch.std_mean(torch.cat(kept), 0, correction=0)
    return mean, std


@mistake(
    "mean_and_std",
    "The first row is kept as a view, and its memory is filled anew by the loader. Copy it: x[0].clone().",
)
def origin_is_a_view(batches):
    n, total, squares, origin = 0, 0.0, 0.0, None
    for x, _ in batches:
        if len(x):
            origin = x[0] if origin is None else origin
            shifted = x - origin
            n, total, squares = n + len(x), total + shifted.sum(0), squares + shifted.square().sum(0)
    if not n:
        raise ValueError("no rows")
    return origin + total / n, (squares / n - (total / n).square()).sqrt()


@mistake(
    "mean_and_std",
    "Copies of all batches are put together: as much memory as the data takes. Keep the sums only.",
)
def copies_kept(batches):
    kept = [x.clone() for x, _ in batches]
    if not sum(map(len, kept)):
        raise ValueError("no rows")
    std, mean = torch.std_mean(torch.cat(kept), 0, correction=0)
    return mean, std


@mistake(
    "mean_and_std",
    "The batches are gone through twice, for the mean and then for the deviations. Do both in one pass.",
)
def two_passes(batches):
    n = total = squares = 0
    for x, _ in batches:
        n, total = n + len(x), total + x.sum(0)
    if not n:
        raise ValueError("no rows")
    for x, _ in batches:
        squares = squares + (x - total / n).square().sum(0)
    return total / n, (squares / n).sqrt()


@mistake(
    "mean_and_std",
    "The sums are float64, for which a GPU has few units. Stay with float32 and sum squared deviations from the mean.",
)
def sums_in_float64(batches):
    return merged(batches, dtype=torch.float64)


@mistake("mean_and_std", "An empty batch makes everything NaN: the mean of no rows is NaN. Skip a batch without rows.")
def empty_batch_is_nan(batches):
    n, mean, squares = 0, 0.0, 0.0
    for x, _ in batches:
        k = len(x)
        variance, center = torch.var_mean(x, 0, correction=0)
        delta = center - mean
        squares = squares + variance * k + delta.square() * (n * k / max(n + k, 1))
        n += k
        mean = mean + delta * (k / max(n, 1))
    if n == 0:
        raise ValueError("no rows")
    return mean, (squares / n).sqrt()


@mistake("mean_and_std", "Without a single row there is no mean, and nothing says so. Raise a ValueError.")
def silent_without_rows(batches):
    result = [(x, y) for x, y in [(x.clone(), y) for x, y in batches] if len(x)]
    return merged(result) if result else (torch.zeros(1), torch.zeros(1))


def step_by_parts(
    blocks, w, b, mean, std, lr, scratch,
    zero=True, shift=True, center=True, scale=True, factor=1.0, mean_of="all", each=False, loss_of="before",
):  # fmt: skip
    """A right step, with one idea to get wrong each."""
    scaled = torch.div(w, std, out=scratch["scaled"])
    offset = b - mean.dot(scaled) if shift else b.clone()
    gradient = scratch["gradient"]
    if zero:
        gradient.zero_()
    n, total, loss, count = 0, torch.zeros_like(b), torch.zeros_like(b), 0
    for x, y in blocks:
        residual = torch.mv(x, scaled, out=scratch["residual"][: len(x)]).add_(offset).sub_(y)
        share = 1 / len(x) if mean_of == "blocks" else 1
        gradient.addmv_(x.T, residual, alpha=share)
        total += residual.sum() * share
        loss += residual.dot(residual)
        n, count = (len(x) if mean_of == "last" else n + len(x)), count + 1
    if center:
        gradient.addcmul_(mean, total, value=-1)
    if scale:
        gradient.div_(std)
    rate = factor * lr / (count if mean_of == "blocks" else 1 if mean_of == "none" else n)
    w.sub_(gradient, alpha=rate)
    b.sub_(total, alpha=rate)
    return loss / n if loss_of == "mean" else loss


@mistake(
    "sgd_step_",
    "Each step makes a normalised copy of x, as large as x. Move the normalisation to the weights: "
    "z w + b = x (w / std) + (b - mean . (w / std)).",
)
def normalised_copy(blocks, w, b, mean, std, lr, scratch):
    n, gradient, total, loss = 0, torch.zeros_like(w), torch.zeros_like(b), torch.zeros_like(b)
    for x, y in blocks:
        z = (x - mean) / std
        residual = z @ w + b - y
        gradient, total, n = gradient + z.T @ residual, total + residual.sum(), n + len(x)
        loss = loss + residual.square().sum()
    w -= lr * gradient / n
    b -= lr * total / n
    return loss


@mistake(
    "sgd_step_",
    "The step makes vectors anew: w / std, the residuals, the gradient. Compute in scratch: out=, add_, addmv_.",
)
def vectors_made_anew(blocks, w, b, mean, std, lr, scratch):
    scaled, n = w / std, 0
    gradient, total, loss = torch.zeros_like(w), torch.zeros_like(b), torch.zeros_like(b)
    for x, y in blocks:
        residual = x @ scaled + (b - mean @ scaled) - y
        gradient, total, n = gradient + x.T @ residual, total + residual.sum(), n + len(x)
        loss = loss + residual.square().sum()
    w -= lr * (gradient - mean * total) / std / n
    b -= lr * total / n
    return loss


@mistake(
    "sgd_step_",
    "The step goes uphill: the residual is z w + b - y, not y - z w - b, and the step is taken off.",
)
def uphill(blocks, w, b, mean, std, lr, scratch):
    return step_by_parts(blocks, w, b, mean, std, lr, scratch, factor=-1.0)


@mistake(
    "sgd_step_",
    "The whole residual buffer is the output, and torch resizes it to the block. Give a slice: [: len(x)].",
)
def residual_resized(blocks, w, b, mean, std, lr, scratch):
    warnings.simplefilter("ignore")
    scaled, gradient = torch.div(w, std, out=scratch["scaled"]), scratch["gradient"].zero_()
    offset, n, total, loss = b - mean.dot(scaled), 0, torch.zeros_like(b), torch.zeros_like(b)
    for x, y in blocks:
        residual = torch.mv(x, scaled, out=scratch["residual"]).add_(offset).sub_(y)
        gradient.addmv_(x.T, residual)
        total, loss, n = total + residual.sum(), loss + residual.dot(residual), n + len(x)
    w.sub_(gradient.addcmul_(mean, total, value=-1).div_(std), alpha=lr / n)
    b.sub_(total, alpha=lr / n)
    return loss


@mistake(
    "sgd_step_",
    "x is normalised in place, but it belongs to the loader, as does the memory beside it. Normalise the weights.",
)
def normalises_x_in_place(blocks, w, b, mean, std, lr, scratch):
    gradient = scratch["gradient"].zero_()
    n, total, loss = 0, torch.zeros_like(b), torch.zeros_like(b)
    for x, y in blocks:
        x.sub_(mean).div_(std)
        residual = torch.mv(x, w, out=scratch["residual"][: len(x)]).add_(b).sub_(y)
        gradient.addmv_(x.T, residual)
        total, loss, n = total + residual.sum(), loss + residual.dot(residual), n + len(x)
    w.sub_(gradient, alpha=lr / n)
    b.sub_(total, alpha=lr / n)
    return loss


@mistake(
    "sgd_step_",
    "A residual is x (w / std) + b - y: the mean is not taken off. Shift b by - mean . (w / std).",
)
def mean_left_out_of_the_residual(blocks, w, b, mean, std, lr, scratch):
    return step_by_parts(blocks, w, b, mean, std, lr, scratch, shift=False)


@mistake(
    "sgd_step_",
    "The gradient of w is x^T r / std. For normalised columns take off mean times the sum of r before you divide.",
)
def mean_left_out_of_the_gradient(blocks, w, b, mean, std, lr, scratch):
    return step_by_parts(blocks, w, b, mean, std, lr, scratch, center=False)


@mistake("sgd_step_", "The gradient of w is not divided by std: z is (x - mean) / std, and so is its transpose.")
def std_left_out_of_the_gradient(blocks, w, b, mean, std, lr, scratch):
    return step_by_parts(blocks, w, b, mean, std, lr, scratch, scale=False)


@mistake(
    "sgd_step_",
    "The step is twice as long: it follows the squared residual. The gradients here are z^T r / n and the mean of r.",
)
def derivative_of_the_whole_square(blocks, w, b, mean, std, lr, scratch):
    return step_by_parts(blocks, w, b, mean, std, lr, scratch, factor=2.0)


@mistake("sgd_step_", "The gradients are sums over the rows. Divide them by the number of rows of all blocks.")
def sum_of_gradients(blocks, w, b, mean, std, lr, scratch):
    return step_by_parts(blocks, w, b, mean, std, lr, scratch, mean_of="none")


@mistake("sgd_step_", "What is returned is the mean of the squared residuals. Return their sum.")
def mean_loss(blocks, w, b, mean, std, lr, scratch):
    return step_by_parts(blocks, w, b, mean, std, lr, scratch, loss_of="mean")


@mistake(
    "sgd_step_",
    "The gradient is added to what scratch held before the step. Set scratch['gradient'] to 0 first.",
)
def stale_gradient(blocks, w, b, mean, std, lr, scratch):
    return step_by_parts(blocks, w, b, mean, std, lr, scratch, zero=False)


@mistake(
    "sgd_step_",
    "New tensors are bound to the names w and b, and the caller's stay as they are. Change them in place: w.sub_(...).",
)
def names_bound_anew(blocks, w, b, mean, std, lr, scratch):
    return step_by_parts(blocks, w.clone(), b.clone(), mean, std, lr, scratch)


@mistake("sgd_step_", "The sum is a Python number: .item() or float() waits for the device. Return the tensor.")
def loss_as_a_number(blocks, w, b, mean, std, lr, scratch):
    return step_by_parts(blocks, w, b, mean, std, lr, scratch).item()


@mistake(
    "sgd_step_",
    "A value is fetched from the device inside the step, which waits for it. Keep sums as tensors of one element.",
)
def waits_for_each_block(blocks, w, b, mean, std, lr, scratch):
    scaled = torch.div(w, std, out=scratch["scaled"])
    gradient, offset = scratch["gradient"].zero_(), float(b - mean.dot(scaled))
    n, total, loss = 0, 0.0, torch.zeros_like(b)
    for x, y in blocks:
        residual = torch.mv(x, scaled, out=scratch["residual"][: len(x)]).add_(offset).sub_(y)
        gradient.addmv_(x.T, residual)
        total, loss, n = total + residual.sum().item(), loss + residual.dot(residual), n + len(x)
    gradient.add_(mean, alpha=-total).div_(std)
    w.sub_(gradient, alpha=lr / n)
    b.sub_(lr * total / n)
    return loss


@mistake(
    "sgd_step_",
    "Each block makes a step of its own. Add up gradients and rows, and change w and b once, after the last block.",
)
def a_step_for_each_block(blocks, w, b, mean, std, lr, scratch):
    return sum(step_by_parts([block], w, b, mean, std, lr, scratch) for block in blocks)


@mistake(
    "sgd_step_",
    "All blocks are collected first, but their memory is filled anew by the loader. Use each up before the next.",
)
def blocks_collected(blocks, w, b, mean, std, lr, scratch):
    return step_by_parts(list(blocks), w, b, mean, std, lr, scratch)


@mistake("sgd_step_", "The sums are divided by the rows of the last block. Add up the rows of all blocks.")
def rows_of_the_last_block(blocks, w, b, mean, std, lr, scratch):
    return step_by_parts(blocks, w, b, mean, std, lr, scratch, mean_of="last")


@mistake(
    "sgd_step_",
    "The mean gradients of the blocks are averaged, so rows of a small block weigh more. Divide sums by all rows.",
)
def mean_of_block_means(blocks, w, b, mean, std, lr, scratch):
    return step_by_parts(blocks, w, b, mean, std, lr, scratch, mean_of="blocks")


@mistake(
    "sgd_step_",
    "The sum is kept in a buffer of scratch, and the next step overwrites it. Return a tensor of its own.",
)
def loss_in_scratch(blocks, w, b, mean, std, lr, scratch):
    loss = step_by_parts(blocks, w, b, mean, std, lr, scratch)
    return scratch["residual"][:1].copy_(loss)


def linear_data(
    rows, columns, seed, wide=False, intercept=True, y_wide=False, rng=None, noise=True, normal=False
):  # fmt: skip
    """Right data, with one idea to get wrong each."""
    rng = rng or np.random.default_rng(seed)
    x = rng.random((rows, columns)).astype(np.float32) if wide else rng.random((rows, columns), dtype=np.float32)
    if normal:
        x = rng.standard_normal((rows, columns), dtype=np.float32)
    w, b = rng.random(columns, dtype=np.float32), rng.random()
    y = x @ w
    if intercept:
        y += b
    if noise:
        y += rng.standard_normal(rows, dtype=np.float32)
    return x, y.astype(np.float64) if y_wide else y, w, b


@mistake("make_data", "The intercept b is drawn and never used: y is x w plus noise. Add b.")
def intercept_unused(rows, columns, seed):
    return linear_data(rows, columns, seed, intercept=False)


@mistake("make_data", "y is float64, because the noise is. Draw the noise as float32.")
def y_in_float64(rows, columns, seed):
    return linear_data(rows, columns, seed, y_wide=True)


@mistake(
    "make_data",
    "x is drawn as float64 and made float32 afterwards: three times its bytes at once. Draw it with dtype=np.float32.",
)
def drawn_as_float64(rows, columns, seed):
    return linear_data(rows, columns, seed, wide=True)


@mistake("make_data", "The seed is not used, so nobody gets the same data twice. Take np.random.default_rng(seed).")
def seed_unused(rows, columns, seed):
    return linear_data(rows, columns, seed, rng=np.random.default_rng())


@mistake(
    "make_data",
    "NumPy's global source is seeded, which changes what others draw. Take a generator: np.random.default_rng(seed).",
)
def global_source_seeded(rows, columns, seed):
    np.random.seed(seed)
    x, y, w, b = linear_data(rows, columns, seed)
    return x, y, w, b


@mistake(
    "make_data",
    "Each part is drawn from a new generator with the same seed, so w is the first row of x. Draw all from one.",
)
def one_generator_each(rows, columns, seed):
    x = np.random.default_rng(seed).random((rows, columns), dtype=np.float32)
    w = np.random.default_rng(seed).random(columns, dtype=np.float32)
    b = np.random.default_rng(seed).random()
    return x, x @ w + b + np.random.default_rng(seed).standard_normal(rows, dtype=np.float32), w, b


@mistake(
    "make_data",
    "The noise comes from a new generator with the same seed, so it is made of the random bits that x is made of. Draw "
    "all from one.",
)
def noise_from_a_twin(rows, columns, seed):
    x, y, w, b = linear_data(rows, columns, seed, noise=False)
    return x, y + np.random.default_rng(seed).standard_normal(rows, dtype=np.float32), w, b


@mistake("make_data", "y has no noise. Add one standard normal number to each row.")
def no_noise(rows, columns, seed):
    return linear_data(rows, columns, seed, noise=False)


@mistake("make_data", "One number of noise is drawn for all rows. Draw one for each: standard_normal(rows).")
def one_noise_for_all(rows, columns, seed):
    rng = np.random.default_rng(seed)
    x, y, w, b = linear_data(rows, columns, seed, noise=False, rng=rng)
    return x, y + rng.standard_normal(dtype=np.float32), w, b


@mistake("make_data", "x is normal. Draw it uniform in [0, 1): Generator.random.")
def normal_x(rows, columns, seed):
    return linear_data(rows, columns, seed, normal=True)


def training(
    x, y, epochs, batch_size, lr, clock=time.perf_counter, synchronize=lambda: None,
    stats=lambda x: torch.std_mean(x, 0, correction=0), drop=False, restart=False, sync="both", cumulative=False,
    loss_of="rows", back="both", late=False, factor=1,
):  # fmt: skip
    """A right training, with one idea to get wrong each."""

    def now(stop=True):
        if sync == "both" or (sync == "stop" and stop):
            synchronize()
        return clock()

    begin = now(False)
    std, mean = stats(x)
    if late:
        begin = now(False)
    w, b = torch.zeros_like(mean), mean.new_zeros(1)
    seconds, losses = [], []
    start = now(False)
    for _ in range(epochs):
        if not cumulative:
            start = now(False)
        if restart:
            begin = start
        squares = []
        for rows, targets in zip(x.split(batch_size), y.split(batch_size), strict=True):
            if drop and len(rows) < batch_size:
                break
            z = (rows - mean) / std
            residual = z @ w + b - targets
            squares.append(residual.square().mean() if loss_of == "means" else residual.square().sum())
            w -= factor * lr * (z.T @ residual) / len(z)
            b -= factor * lr * residual.mean()
        seconds.append(now() - start)
        n = len(squares) if loss_of in ("batches", "means") else len(x)
        losses.append(sum(squares) / n)
    total = now() - begin
    if back != "none":
        w = w / std
    if back == "both":
        b = b - mean.dot(w)
    losses = [float(loss) for loss in losses]
    return {"w": w, "b": b, "losses": losses, "seconds": seconds, "total_seconds": total}


def _moments(x):
    mean = x.mean(0)
    return (x.square().mean(0) - mean.square()).sqrt(), mean


@mistake(
    "fit",
    "Every batch has one row, whatever batch_size says. Hand batch_size on: a DataLoader without it takes 1.",
)
def batches_of_one(x, y, epochs, batch_size, lr, **clocks):
    return training(x, y, epochs, 1, lr, **clocks)


@mistake(
    "fit",
    "w and b belong to the normalised columns, and do not fit to x. Divide w by std, and take mean . (w / std) off b.",
)
def weights_of_normalised_columns(*args, **kwargs):
    return training(*args, back="none", **kwargs)


@mistake("fit", "b belongs to the normalised columns still. For x as it is, take off mean . (w / std).")
def intercept_of_normalised_columns(*args, **kwargs):
    return training(*args, back="w", **kwargs)


@mistake("fit", "The losses are printed. Whoever calls the function has them in what it returns: leave out the print.")
def prints_the_losses(*args, **kwargs):
    result = training(*args, **kwargs)
    for epoch, loss in enumerate(result["losses"]):
        print(f"epoch {epoch}: loss {loss:.4f}")
    return result


@mistake("fit", "The standard deviation divides by n - 1. Divide by the number of rows: correction=0.")
def divided_by_n_minus_one(*args, **kwargs):
    return training(*args, stats=lambda x: torch.std_mean(x, 0), **kwargs)


@mistake("fit", "The step is twice as long: it follows the squared residual. The gradient is z^T r / k, without a 2.")
def twice_the_step(*args, **kwargs):
    return training(*args, factor=2, **kwargs)


@mistake(
    "fit",
    "The sum of squares is divided by the number of batches, so the loss grows with the batch. Divide by all rows.",
)
def loss_by_batches(*args, **kwargs):
    return training(*args, loss_of="batches", **kwargs)


@mistake(
    "fit", "The mean losses of the batches are averaged, so the rows of a short batch weigh more. Divide sums by rows."
)
def mean_of_batch_losses(*args, **kwargs):
    return training(*args, loss_of="means", **kwargs)


@mistake("fit", "The short batch at the end is dropped: its rows teach nothing. Keep it (drop_last=False).")
def short_batch_dropped(*args, **kwargs):
    return training(*args, drop=True, **kwargs)


@mistake(
    "fit",
    "The variance is computed as E[x^2] - E[x]^2, which loses a small spread around a large mean. Average the squared "
    "deviations from the mean: torch.std_mean.",
)
def small_spread_lost(*args, **kwargs):
    return training(*args, stats=_moments, **kwargs)


@mistake("fit", "The clock is read while the device may still be computing. Call synchronize() before each reading.")
def never_synchronized(*args, **kwargs):
    return training(*args, sync="never", **kwargs)


@mistake(
    "fit",
    "synchronize() is called before the clock stops, not before it starts: work queued earlier is counted too.",
)
def synchronized_at_the_end_only(*args, **kwargs):
    return training(*args, sync="stop", **kwargs)


@mistake(
    "fit",
    "The start of the total is set anew in every epoch, so the total is that of the last one. Take two variables.",
)
def total_restarted(*args, **kwargs):
    return training(*args, restart=True, **kwargs)


@mistake("fit", "The seconds of an epoch count from the start of the first. Read the clock when each epoch begins.")
def epochs_from_the_start(*args, **kwargs):
    return training(*args, cumulative=True, **kwargs)


@mistake(
    "fit", "The total starts after the statistics, which are a pass over the data too. Read the clock before them."
)
def statistics_not_timed(*args, **kwargs):
    return training(*args, late=True, **kwargs)


def _right(read):
    """(X^T y / n, n) by one pass."""
    total, rows = 0, 0
    for x, y in read():
        total, rows = total + x.T @ y, rows + len(y)
    return total / rows, rows


def _product(read, v, rows, strength):
    return sum(x.T @ (x @ v) for x, _ in read()) / rows + strength * v


def _turned(residual, ratio, direction):
    return residual + ratio * direction


def _cg(read, columns, strength, tolerance, most, right=_right, product=_product, turned=_turned, least=None, passes=1):
    """Right conjugate gradients in pieces, so that each mistake can spoil one of them."""
    residual, rows = right(read)
    direction, w = residual, torch.zeros_like(residual)
    start = square = residual @ residual
    least = tolerance**2 * start if least is None else least
    residuals = []
    while passes < most and square > least:
        image = product(read, direction, rows, strength)
        step = square / (direction @ image)
        w, residual = w + step * direction, residual - step * image
        before, square = square, residual @ residual
        direction = turned(residual, square / before, direction)
        passes += 1
        residuals.append((square / start).sqrt().item())
    return w, passes, residuals


@mistake(
    "ridge_by_cg",
    "X^T y is divided by the number of rows, X^T X v is not. The objective divides both: divide the product, too.",
)
def product_not_divided(read, columns, strength, tolerance=1e-5, most=30):
    def product(read, v, rows, strength):
        return _product(read, v, 1, strength)

    return _cg(read, columns, strength, tolerance, most, product=product)


@mistake(
    "ridge_by_cg",
    "The product lacks `strength * direction`: this is the regression without its ridge. A is X^T X / n + strength I.",
)
def no_ridge(read, columns, strength, tolerance=1e-5, most=30):
    return _cg(read, columns, 0.0, tolerance, most)


@mistake(
    "ridge_by_cg",
    "Neither sum is divided by the number of rows, so the ridge is n times too weak beside them. Divide both sums by "
    "n.",
)
def sums_for_means(read, columns, strength, tolerance=1e-5, most=30):
    def right(read):
        mean, rows = _right(read)
        return mean * rows, 1

    return _cg(read, columns, strength, tolerance, most, right=right)


@mistake(
    "ridge_by_cg",
    "The mean is taken over the means of the batches, in which the rows of a small batch count for more. Add up sums, "
    "and divide once by the number of all rows.",
)
def mean_of_batch_means(read, columns, strength, tolerance=1e-5, most=30):
    def right(read):
        means = [x.T @ y / len(y) for x, y in read()]
        return sum(means) / len(means), len(means)

    def product(read, v, batches, strength):
        return sum(x.T @ (x @ v) / len(x) for x, _ in read()) / batches + strength * v

    return _cg(read, columns, strength, tolerance, most, right=right, product=product)


@mistake(
    "ridge_by_cg",
    "Every direction is the residual itself: this is steepest descent, which needs many more passes. Add the old "
    "direction, times the ratio of the new square to the old one.",
)
def steepest_descent(read, columns, strength, tolerance=1e-5, most=30):
    return _cg(read, columns, strength, tolerance, most, turned=lambda residual, ratio, direction: residual)


@mistake(
    "ridge_by_cg",
    "The old direction is multiplied by the ratio of the norms. It takes the ratio of their squares.",
)
def ratio_of_norms(read, columns, strength, tolerance=1e-5, most=30):
    return _cg(
        read, columns, strength, tolerance, most, turned=lambda r, ratio, direction: r + ratio.sqrt() * direction
    )


@mistake(
    "ridge_by_cg",
    "The Gram matrix X^T X is formed: 10,000 columns would make it 400 MB and the work 10,000 times as much. Multiply "
    "by the vector first, x.T @ (x @ v).",
)
def brackets_forgotten(read, columns, strength, tolerance=1e-5, most=30):
    def product(read, v, rows, strength):
        return sum(x.T @ x @ v for x, _ in read()) / rows + strength * v

    return _cg(read, columns, strength, tolerance, most, product=product)


@mistake(
    "ridge_by_cg",
    "The Gram matrix is added up and the system solved: one pass, but the matrix has columns x columns entries, and "
    "each row costs that many multiplications. Only products with vectors are asked for.",
)
def gram_solved(read, columns, strength, tolerance=1e-5, most=30):
    gram, right, rows = 0, 0, 0
    for x, y in read():
        gram, right, rows = gram + x.T @ x, right + x.T @ y, rows + len(y)
    ridge = strength * torch.eye(columns, device=right.device)
    return torch.linalg.solve(gram / rows + ridge, right / rows), 1, []


@mistake(
    "ridge_by_cg",
    "Residual and direction are two names of one tensor at the start, and the first step changes it in place. Clone "
    "one of them, or make new tensors.",
)
def direction_changed_in_place(read, columns, strength, tolerance=1e-5, most=30):
    residual, rows = _right(read)
    direction, w, residuals, passes = residual, torch.zeros_like(residual), [], 1
    norm = residual.norm()
    while passes < most and residual.norm() > tolerance * norm:
        image = _product(read, direction, rows, strength)
        square = residual @ residual
        step = square / (direction @ image)
        w += step * direction
        residual -= step * image
        direction = residual + (residual @ residual) / square * direction
        passes += 1
        residuals.append((residual.norm() / norm).item())
    return w, passes, residuals


@mistake(
    "ridge_by_cg",
    "The batches are kept in a list, but they are views of one buffer, which is refilled: in the end all of them show "
    "the same memory. Use up each batch before the next, and call read() again for the next pass.",
)
def kept_batches(read, columns, strength, tolerance=1e-5, most=30):
    batches = list(read())
    return _cg(lambda: batches, columns, strength, tolerance, most)


@mistake(
    "ridge_by_cg",
    "A pass of its own counts the rows. The pass that adds up X^T y sees all of them: count them there.",
)
def rows_in_a_pass(read, columns, strength, tolerance=1e-5, most=30):
    sum(len(y) for _, y in read())
    return _cg(read, columns, strength, tolerance, most, passes=2)


@mistake(
    "ridge_by_cg",
    "The first pass, that of X^T y, is not counted. It reads the whole file as well: begin with passes = 1.",
)
def first_pass_not_counted(read, columns, strength, tolerance=1e-5, most=30):
    return _cg(read, columns, strength, tolerance, most, passes=0)


@mistake(
    "ridge_by_cg",
    "The squared norm is compared with the tolerance itself, so it ends too early. Square the tolerance or take the "
    "root.",
)
def square_against_tolerance(read, columns, strength, tolerance=1e-5, most=30):
    return _cg(read, columns, strength, tolerance**0.5, most)


@mistake(
    "ridge_by_cg",
    "The residual is compared with the tolerance alone, so the number of passes depends on the units of y. It is to "
    "be relative to the norm of X^T y / n.",
)
def absolute_tolerance(read, columns, strength, tolerance=1e-5, most=30):
    return _cg(read, columns, strength, tolerance, most, least=tolerance**2)


@mistake(
    "ridge_by_cg",
    "The list holds squares of the norms. Take their roots.",
)
def squares_listed(read, columns, strength, tolerance=1e-5, most=30):
    w, passes, residuals = _cg(read, columns, strength, tolerance, most)
    return w, passes, [r * r for r in residuals]


@mistake(
    "ridge_by_cg",
    "If y is zero everywhere, the first residual is zero, and the step is 0 / 0. Ask before the first iteration "
    "whether there is anything to do.",
)
def divides_by_zero(read, columns, strength, tolerance=1e-5, most=30):
    w, passes, residuals = _cg(read, columns, strength, tolerance, most)
    if most > 1 and not residuals:
        return w * float("nan"), 2, [float("nan")]
    return w, passes, residuals


@mistake(
    "ridge_by_cg",
    "`most` limits the iterations, so there is a pass more than allowed: the first one counts, too.",
)
def most_iterations(read, columns, strength, tolerance=1e-5, most=30):
    return _cg(read, columns, strength, tolerance, most + 1)


def _gradient(read, w, strength):
    """(full gradient, number of rows, number of batches) at `w`, by one pass."""
    total, rows, batches = 0, 0, 0
    for x, y in read():
        total, rows, batches = total + x.T @ (x @ w - y), rows + len(y), batches + 1
    return total / rows + strength * w, rows, batches


@mistake(
    "svrg",
    "The step has the gradient of the batch and the full one, but the batch's gradient at the snapshot is not taken "
    "off, so the noise stays. Subtract it.",
)
def nothing_subtracted(read, w, lr, strength, epochs):
    for _ in range(epochs):
        full, rows, batches = _gradient(read, w, strength)
        for x, y in read():
            w = w - lr * (x.T @ (x @ w - y) * batches / rows + strength * w + full)
    return w, 2 * epochs


@mistake(
    "svrg",
    "This is plain SGD: the full gradient at the snapshot is not used. A step is g(w) - g(snapshot) + full.",
)
def plain_sgd(read, w, lr, strength, epochs):
    for _ in range(epochs):
        _, rows, batches = _gradient(read, w, strength)
        for x, y in read():
            w = w - lr * (x.T @ (x @ w - y) * batches / rows + strength * w)
    return w, 2 * epochs


@mistake(
    "svrg",
    "The snapshot moves along with w: both are names of one tensor that is changed in place, so every step of an "
    "epoch is the full gradient. Clone one of them.",
)
def moving_snapshot(read, w, lr, strength, epochs):
    for _ in range(epochs):
        full, _, _ = _gradient(read, w, strength)
        for _ in read():
            w = w - lr * full
    return w, 2 * epochs


@mistake(
    "svrg",
    "The snapshot and its full gradient are taken once, before the first epoch. Each epoch takes them anew: the "
    "nearer the snapshot is, the less noise is left.",
)
def one_snapshot(read, w, lr, strength, epochs):
    snapshot = w
    for _ in range(epochs):
        full, rows, batches = _gradient(read, snapshot, strength)
        for x, _ in read():
            shift = w - snapshot
            w = w - lr * (x.T @ (x @ shift) * batches / rows + strength * shift + full)
    return w, 2 * epochs


@mistake(
    "svrg",
    "The gradient of a batch is divided by the batch's own size, so the rows of the smaller last one count for more. "
    "Divide by the mean size, rows / batches, in every batch.",
)
def own_size(read, w, lr, strength, epochs):
    for _ in range(epochs):
        snapshot = w
        full, _, _ = _gradient(read, w, strength)
        for x, _ in read():
            shift = w - snapshot
            w = w - lr * (x.T @ (x @ shift) / len(x) + strength * shift + full)
    return w, 2 * epochs


@mistake(
    "svrg",
    "The correction leaves out the ridge: g(w) - g(snapshot) has the term strength * (w - snapshot) as well.",
)
def ridge_at_the_snapshot(read, w, lr, strength, epochs):
    for _ in range(epochs):
        snapshot = w
        full, rows, batches = _gradient(read, w, strength)
        for x, _ in read():
            w = w - lr * (x.T @ (x @ (w - snapshot)) * batches / rows + full)
    return w, 2 * epochs


@mistake(
    "svrg",
    "The full gradient lacks the ridge: add strength * snapshot to the mean over the rows.",
)
def full_without_ridge(read, w, lr, strength, epochs):
    for _ in range(epochs):
        snapshot = w
        full, rows, batches = _gradient(read, w, 0.0)
        for x, _ in read():
            shift = w - snapshot
            w = w - lr * (x.T @ (x @ shift) * batches / rows + strength * shift + full)
    return w, 2 * epochs


@mistake(
    "svrg",
    "The full gradient is the mean of the batches' means, so the rows of the smaller last batch count for more. Add "
    "up sums and divide once by the number of all rows.",
)
def full_of_means(read, w, lr, strength, epochs):
    for _ in range(epochs):
        snapshot, rows = w, 0
        means = []
        for x, y in read():
            means.append(x.T @ (x @ w - y) / len(y))
            rows += len(y)
        full = sum(means) / len(means) + strength * w
        for x, _ in read():
            shift = w - snapshot
            w = w - lr * (x.T @ (x @ shift) * len(means) / rows + strength * shift + full)
    return w, 2 * epochs


@mistake(
    "svrg",
    "The batches' gradients at the snapshot are kept from the first pass. In the second pass the rows come in another "
    "order, so batch i is another one: compute its gradient at the snapshot again, by one product with w - snapshot.",
)
def gradients_kept(read, w, lr, strength, epochs):
    for _ in range(epochs):
        kept, rows = [], 0
        for x, y in read():
            kept.append(x.T @ (x @ w - y))
            rows += len(y)
        snapshot, full = w, sum(kept) / rows + strength * w
        for (x, y), old in zip(read(), kept, strict=True):
            change = (x.T @ (x @ w - y) - old) * len(kept) / rows
            w = w - lr * (change + strength * (w - snapshot) + full)
    return w, 2 * epochs


@mistake(
    "svrg",
    "An epoch takes more than two passes. Count rows and batches in the pass that adds up the full gradient.",
)
def rows_and_batches_in_a_pass(read, w, lr, strength, epochs):
    passes = 0
    for _ in range(epochs):
        sizes = [len(y) for _, y in read()]
        snapshot = w
        full, rows, batches = _gradient(read, w, strength)
        for x, _ in read():
            shift = w - snapshot
            w = w - lr * (x.T @ (x @ shift) * len(sizes) / sum(sizes) + strength * shift + full)
        passes += 3
    return w, passes


@mistake(
    "svrg",
    "The steps go steps_uphill. A step is taken against the gradient: subtract it.",
)
def steps_uphill(read, w, lr, strength, epochs):
    for _ in range(epochs):
        snapshot = w
        full, rows, batches = _gradient(read, w, strength)
        for x, _ in read():
            shift = w - snapshot
            w = w + lr * (x.T @ (x @ shift) * batches / rows + strength * shift + full)
    return w, 2 * epochs


@mistake(
    "svrg",
    "The ridge has a factor of 2 that the data do not have. The gradient is that of half the objective: strength * w.",
)
def twice_the_ridge(read, w, lr, strength, epochs):
    for _ in range(epochs):
        snapshot = w
        full, rows, batches = _gradient(read, w, 2 * strength)
        for x, _ in read():
            shift = w - snapshot
            w = w - lr * (x.T @ (x @ shift) * batches / rows + 2 * strength * shift + full)
    return w, 2 * epochs


def _close(batches):
    if hasattr(batches, "close"):
        batches.close()


def _settle(running, batches):
    try:
        if running:
            running.wait()
    finally:
        _close(batches)


@mistake(
    "copy_ahead",
    "No copy is waited for: the loader refills the buffer while it is read, and batches hold rows of the next one. "
    "Call wait() of a copy before the loader is asked for more.",
)
def never_waits(batches, copies):
    batches, ready = iter(batches), None
    try:
        for batch in batches:
            running = copies.start(batch)
            if ready:
                yield ready.tensors()
            ready = running
        if ready:
            yield ready.tensors()
    finally:
        _close(batches)


@mistake(
    "copy_ahead",
    "The copy that is waited for is the one that was handed out, the older of the two. The newer one reads the buffer "
    "that is about to be refilled: wait for that.",
)
def waits_for_the_older(batches, copies):
    batches, ready, running = iter(batches), None, None
    try:
        for batch in batches:
            running = copies.start(batch)
            if ready:
                yield ready.tensors()
                ready.wait()
            ready = running
        if ready:
            yield ready.tensors()
    finally:
        _settle(running, batches)


@mistake(
    "copy_ahead",
    "wait() stands at the top of the loop: by then the loader has been asked for the batch of this turn, and has "
    "refilled the buffer. Wait at the end of the loop, before the `for` asks again.",
)
def waits_after_asking(batches, copies):
    batches, ready = iter(batches), None
    try:
        for batch in batches:
            if ready:
                ready.wait()
            running = copies.start(batch)
            if ready:
                yield ready.tensors()
            ready = running
        if ready:
            yield ready.tensors()
    finally:
        _settle(ready, batches)


@mistake(
    "copy_ahead",
    "wait() comes right after start(): the processor stands still during the copy, and nothing runs beside it. Hand "
    "out the batch before it first, wait when the consumer comes back.",
)
def waits_at_once(batches, copies):
    batches, ready, running = iter(batches), None, None
    try:
        for batch in batches:
            running = copies.start(batch)
            running.wait()
            if ready:
                yield ready.tensors()
            ready = running
        if ready:
            yield ready.tensors()
    finally:
        _settle(running, batches)


@mistake(
    "copy_ahead",
    "A copy is started and its own batch is handed out: while that is computed on, no copy runs. Start the copy of "
    "the next batch before you hand out this one.",
)
def one_at_a_time(batches, copies):
    batches, running = iter(batches), None
    try:
        for batch in batches:
            running = copies.start(batch)
            yield running.tensors()
            running.wait()
    finally:
        _settle(running, batches)


@mistake(
    "copy_ahead",
    "tensors() is called as soon as the copy is started: all that is computed from then on waits for it, the batch "
    "before it included. Call tensors() when you hand out that batch.",
)
def tensors_too_early(batches, copies):
    batches, ready, running = iter(batches), None, None
    try:
        for batch in batches:
            running = copies.start(batch)
            tensors = running.tensors()
            if ready:
                yield ready
            running.wait()
            ready = tensors
        if ready:
            yield ready
    finally:
        _settle(running, batches)


@mistake(
    "copy_ahead",
    "The last batch is missing: when the loader is at its end, one copy has not been handed out yet.",
)
def last_one_lost(batches, copies):
    batches, ready, running = iter(batches), None, None
    try:
        for batch in batches:
            running = copies.start(batch)
            if ready:
                yield ready.tensors()
            running.wait()
            ready = running
    finally:
        _settle(running, batches)


@mistake(
    "copy_ahead",
    "All copies are made before the first batch is handed out: the device would have to hold the whole data. Keep two.",
)
def all_copies_first(batches, copies):
    batches, all_of_them = iter(batches), []
    try:
        for batch in batches:
            all_of_them.append(copies.start(batch))
            all_of_them[-1].wait()
        for copy in all_of_them:
            yield copy.tensors()
    finally:
        _close(batches)


@mistake(
    "copy_ahead",
    "The copies that were handed out are kept, so the device's memory fills up. Drop each when the next is handed out.",
)
def keeps_every_copy(batches, copies):
    batches, started = iter(batches), []
    try:
        for batch in batches:
            started.append(copies.start(batch))
            if len(started) > 1:
                yield started[-2].tensors()
            started[-1].wait()
        if started:
            yield started[-1].tensors()
    finally:
        _settle(started[-1] if started else None, batches)


@mistake(
    "copy_ahead",
    "The handles of the copies are handed out. The consumer computes on tensors: hand out what tensors() returns.",
)
def handles(batches, copies):
    batches, ready, running = iter(batches), None, None
    try:
        for batch in batches:
            running = copies.start(batch)
            if ready:
                yield ready
            running.wait()
            ready = running
        if ready:
            yield ready
    finally:
        _settle(running, batches)


@mistake(
    "copy_ahead",
    "When the consumer leaves early, nothing is cleaned up: a copy is under way, and the loader keeps its thread. Do "
    "both in `finally`.",
)
def cleans_up_after_the_last_batch(batches, copies):
    batches, ready = iter(batches), None
    for batch in batches:
        running = copies.start(batch)
        if ready:
            yield ready.tensors()
        running.wait()
        ready = running
    if ready:
        yield ready.tensors()
    _close(batches)


@mistake(
    "copy_ahead",
    "When the consumer leaves early, the loader is closed while a copy still reads its buffer. Wait for that copy "
    "first.",
)
def closes_under_a_copy(batches, copies):
    batches, ready = iter(batches), None
    try:
        for batch in batches:
            running = copies.start(batch)
            if ready:
                yield ready.tensors()
            running.wait()
            ready = running
        if ready:
            yield ready.tensors()
    finally:
        _close(batches)


@mistake(
    "copy_ahead",
    "The loader is left open when the consumer leaves early: its thread and its buffers live on. Close the iterator "
    "over `batches` in `finally`.",
)
def never_closes(batches, copies):
    ready = running = None
    try:
        for batch in batches:
            running = copies.start(batch)
            if ready:
                yield ready.tensors()
            running.wait()
            ready = running
        if ready:
            yield ready.tensors()
    finally:
        if running:
            running.wait()


@mistake(
    "copy_ahead",
    "close() is asked of `batches`, but what runs is its iterator. Take that once, by iter(batches), and close it.",
)
def closes_the_iterable(batches, copies):
    ready = running = None
    try:
        for batch in batches:
            running = copies.start(batch)
            if ready:
                yield ready.tensors()
            running.wait()
            ready = running
        if ready:
            yield ready.tensors()
    finally:
        _settle(running, batches)


@mistake(
    "copy_ahead",
    "When wait() fails in `finally`, close() is skipped and the loader stays open. Put that wait in a `try`, and "
    "close in the `finally` of it.",
)
def closes_if_the_wait_is_well(batches, copies):
    batches, ready, running = iter(batches), None, None
    try:
        for batch in batches:
            running = copies.start(batch)
            if ready:
                yield ready.tensors()
            running.wait()
            ready = running
        if ready:
            yield ready.tensors()
    finally:
        if running:
            running.wait()
        _close(batches)


@mistake(
    "copy_ahead",
    "close() is called on any iterable, and a list has none. Close the iterator if it has a close().",
)
def closes_anything(batches, copies):
    batches, ready, running = iter(batches), None, None
    try:
        for batch in batches:
            running = copies.start(batch)
            if ready:
                yield ready.tensors()
            running.wait()
            ready = running
        if ready:
            yield ready.tensors()
    finally:
        try:
            if running:
                running.wait()
        finally:
            batches.close()


FACTS = {letter: letter in "ACDGKL" for letter in "ABCDEFGHIJKL"}


@mistake(
    "loading_facts",
    "A is true. Linux promises more memory than there is and finds it when it is written to; then it is too late for "
    "an exception. Only a single piece that is larger than all memory is refused at once.",
)
def memory_error_is_sure():
    return FACTS | {"A": False}


@mistake(
    "loading_facts",
    "B is false. Memory pages of a mapped file can be dropped at any time, for the file has them: the loader goes on, "
    "slower.",
)
def mapped_file_raises():
    return FACTS | {"B": True}


@mistake(
    "loading_facts",
    "C is true. The cache holds as much as there is room for, and the rest is read again: nothing fails.",
)
def os_cache_fails():
    return FACTS | {"C": False}


@mistake(
    "loading_facts",
    "D is true. The system holds the memory pages, not the process: a second run finds them, and all workers share "
    "them. That is also why a first measurement after another is not a cold one.",
)
def pages_are_the_process_s():
    return FACTS | {"D": False}


@mistake(
    "loading_facts",
    "E is false. The cache cannot hold all memory pages: those that came late have thrown out others, which are read "
    "again, and throw out the next. At least the part that does not fit comes from the disk in every epoch.",
)
def second_epoch_is_free():
    return FACTS | {"E": True}


@mistake(
    "loading_facts",
    "F is false. With the file in the cache the second epoch needs no disk at all; with O_DIRECT it reads all of it "
    "again. Bypassing pays when the file does not fit.",
)
def direct_is_always_faster():
    return FACTS | {"F": True}


@mistake(
    "loading_facts",
    "G is true. A window takes whole pages, and each page is in one window of an epoch, so memory depends on the "
    "window.",
)
def quasi_random_holds_the_file():
    return FACTS | {"G": False}


@mistake(
    "loading_facts",
    "H is false. The rows of a page come in the same window, never at both ends of an epoch. It is nearly random, in "
    "exchange for whole pages that are read once.",
)
def quasi_random_is_random():
    return FACTS | {"H": True}


@mistake(
    "loading_facts",
    "I is false. Pinned memory stays at its place, so that the GPU's copy engine can read it by itself while the "
    "processor goes on. The disk gains nothing.",
)
def pinned_for_the_disk():
    return FACTS | {"I": True}


@mistake(
    "loading_facts",
    "J is false. From pinned memory the copy is only queued when the call returns; what is written to the source "
    "before the copy's end may arrive. That is what wait() is for.",
)
def refilled_at_once():
    return FACTS | {"J": True}


@mistake(
    "loading_facts",
    "K is true. The disk's controller writes straight into your buffer, without the cache; it can do so in whole "
    "blocks only, and from it come the rules on alignment.",
)
def direct_has_no_rules():
    return FACTS | {"K": False}


@mistake(
    "loading_facts",
    "L is true. An iteration needs one product X^T (X v), which is one pass; the length of the step follows from it.",
)
def cg_reads_twice():
    return FACTS | {"L": False}
