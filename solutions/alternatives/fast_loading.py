"""Right answers to the exercises of 04_fast_loading, written in other styles than the reference."""

import collections
import contextlib
import ctypes
import itertools
import json
import math
import mmap
import os
import queue
import random
import statistics
import sys
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from fractions import Fraction
from pathlib import Path

import numpy
import numpy as np
import torch
from torch.utils.data import DataLoader, TensorDataset

from course import distributed
from course.checks.engine import alternative

NORESERVE = getattr(mmap, "MAP_NORESERVE", 0x4000 if sys.platform == "linux" else 0)
FIELDS = {"format": str, "rows": int, "columns": int, "stride": int, "dtype": str, "seed": int}


@alternative("row_stride")
def doubled_until_it_fits(columns):
    if columns <= 0:
        raise ValueError(columns)
    stride = 8
    while stride < 4096 and stride < 4 * columns + 4:
        stride *= 2
    return stride if stride >= 4 * columns + 4 else 4096 * ((4 * columns + 4 + 4095) // 4096)


@alternative("row_stride")
def the_first_of_all_that_divide(columns):
    if not columns >= 1:
        raise ValueError("a row needs a column")
    values = columns + 1
    powers = (2**k for k in range(1, 11))
    return 4 * next((power for power in powers if power >= values), values + -values % 1024)


def _write_share(rank, world_size, name, source, stride):
    """Rank `rank` takes every world_size-th chunk."""
    at_once = max(min((1 << 22) // stride, source.rows // world_size), 1)
    starts = range(rank * at_once, source.rows, world_size * at_once)
    row = np.dtype({"names": ["x", "y"], "formats": [("<f4", source.columns), "<f4"], "itemsize": stride,
                    "offsets": [0, 4 * source.columns]})  # fmt: skip
    descriptor = os.open(name, os.O_WRONLY)
    try:
        for start in starts:
            x = source.x[start : start + at_once]
            rows = np.zeros(len(x), row)
            rows["x"] = x
            rows["y"] = source.y[start : start + at_once]
            content = rows.tobytes()
            assert os.pwrite(descriptor, content, 4096 + start * stride) == len(content)
    finally:
        os.close(descriptor)


@alternative("write_records")
def every_other_chunk(path, source, writers=2):
    stride = the_first_of_all_that_divide(source.columns)
    head = dict(stride=stride, seed=source.seed, rows=source.rows, columns=source.columns, dtype="float32")
    descriptor, name = tempfile.mkstemp(prefix=".", dir=Path(path).parent)
    with contextlib.ExitStack() as undo:
        undo.callback(os.unlink, name)
        undo.callback(os.close, descriptor)
        os.write(
            descriptor, f"{json.dumps(head | {'format': 'course-records-1'}, separators=(',', ':')):4095}\n".encode()
        )
        os.ftruncate(descriptor, 4096 + source.rows * stride)
        distributed.run_ranks(_write_share, writers, name, source, stride, backend="gloo", timeout=86400)
        os.fsync(descriptor)
        os.rename(name, path)
        undo.pop_all()
        os.close(descriptor)
    return Path(path)


class _Job:
    def __init__(self, source, hidden):
        self.source, self.hidden = source, str(hidden)
        self.stride = doubled_until_it_fits(source.columns)

    def __call__(self, rank, world_size):
        mine = np.array_split(np.arange(self.source.rows), world_size)[rank].tolist()
        shape = self.source.rows, self.stride // 4
        file = np.memmap(self.hidden, np.float32, "r+", offset=4096, shape=shape)
        d, n = self.source.columns, max(1, 2**22 // (self.source.columns + 1))
        while mine:
            now, mine = mine[:n], mine[n:]
            x = torch.from_numpy(self.source.x[now[0] : now[-1] + 1]).float()
            y = torch.from_numpy(self.source.y[now[0] : now[-1] + 1]).float()
            file[now[0] : now[-1] + 1, : d + 1] = torch.cat([x, y[:, None]], 1).numpy()


@alternative("write_records")
def through_a_mapping(path, source, writers=2):
    path = Path(path).absolute()
    hidden = path.parent / f".half-{os.getpid()}"
    job = _Job(source, hidden)
    fields = ["course-records-1", source.rows, source.columns, job.stride, "float32", source.seed]
    try:
        hidden.write_bytes(json.dumps(dict(zip(FIELDS, fields, strict=True))).encode("ascii"))
        with hidden.open("ab", buffering=0) as file:
            file.write(b" " * (4095 - file.tell()) + b"\n")
            os.posix_fallocate(file.fileno(), 0, 4096 + source.rows * job.stride) if sys.platform == "linux" else None
            file.truncate(4096 + source.rows * job.stride)
            distributed.run_ranks(job, writers, backend="gloo", timeout=7200.0)
            os.fsync(file)
    except BaseException:
        hidden.unlink(missing_ok=True)
        raise
    try:
        hidden.replace(path)
    except OSError:
        hidden.unlink()
        raise
    return path


def _complain(path, condition, *words):
    if not condition:
        raise ValueError(" ".join(map(str, ("cannot read", path, *words))))


@alternative("Records")
class ArrayOnTheMapping:
    def __init__(self, path):
        self.file = Path(path)
        with self.file.open("rb") as file:
            content = file.read(4096)
            length = file.seek(0, os.SEEK_END)
            try:
                header = json.loads(content.decode("ascii"))
            except (UnicodeDecodeError, json.JSONDecodeError, RecursionError) as error:
                raise ValueError(f"{path}: {error}") from error
            _complain(path, isinstance(header, dict), "no object")
            for key, kind in FIELDS.items():
                _complain(path, key in header, "without", key)
                _complain(path, type(header[key]) is kind, key, header[key])
            self.__dict__.update({key: header[key] for key in ("rows", "columns", "seed")})
            _complain(path, self.rows > 0 and self.columns > 0, "rows, columns", self.rows, self.columns)
            _complain(path, self.seed >= 0, "seed", self.seed)
            stride = the_first_of_all_that_divide(self.columns)
            asked = dict(format="course-records-1", dtype="float32", stride=stride)
            for key in asked:
                _complain(path, header[key] == asked[key], key, header[key])
            _complain(path, length == 4096 + self.rows * stride, length, 4096 + self.rows * stride)
            _complain(path, content[-1:] == b"\n", "no newline after the header")
            protection = mmap.PROT_WRITE | mmap.PROT_READ
            buffer = mmap.mmap(file.fileno(), length, mmap.MAP_PRIVATE | NORESERVE, protection)
        array = np.ndarray((self.rows, stride // 4), np.float32, buffer, 4096)
        self.table, self.x, self.y = map(torch.from_numpy, (array, array[:, : self.columns], array[:, self.columns]))

    def __len__(self):
        return len(self.table)


def _described(path):
    """The header of the file, if the file is what it says."""
    with open(path, "rb") as file:
        head = file.read(4096)
    found = os.stat(path).st_size
    last = head[4095:]
    with contextlib.suppress(ValueError, RecursionError):
        head = json.loads(head)
    if not isinstance(head, dict):
        raise ValueError(f"{path}: not a record file")
    lacking = FIELDS.keys() - head.keys()
    if lacking:
        raise ValueError(f"{path}: header lacks {', '.join(sorted(lacking))}")
    strange = [key for key in FIELDS if type(head[key]) is not FIELDS[key]]
    if strange or min(head["rows"], head["columns"], head["seed"] + 1) < 1:
        raise ValueError(f"{path}: strange header {head}")
    stride = doubled_until_it_fits(head["columns"])
    if (head["format"], head["dtype"], head["stride"]) != ("course-records-1", "float32", stride):
        raise ValueError(f"{path}: cannot read format {head['format']}, dtype {head['dtype']}, stride {head['stride']}")
    if found - 4096 != stride * head["rows"]:
        raise ValueError(f"{path}: found {found:,} bytes instead of {stride * head['rows'] + 4096:,}")
    if last != b"\n":
        raise ValueError(f"{path}: the header ends with {last!r}")
    return head


@alternative("Records")
class PropertiesOfATable:
    seed = property(lambda self: self._head["seed"])
    rows = property(lambda self: self.table.shape[0])
    columns = property(lambda self: self._head["columns"])
    x = property(lambda self: self.table.narrow(1, 0, self.columns))
    y = property(lambda self: self.table.select(1, self.columns))

    def __init__(self, path):
        self._head = _described(path)
        with open(path, "r+b") as file:
            options = {"flags": NORESERVE | mmap.MAP_PRIVATE}
            self._memory = mmap.mmap(file.fileno(), 0, **options)
        values = (ctypes.c_float * (len(self._memory) // 4)).from_buffer(self._memory)
        shape = self._head["rows"], self._head["stride"] // 4
        self.table = torch.frombuffer(values, dtype=torch.float32)[1024:].unflatten(0, shape)

    def __len__(self):
        return self.rows


@alternative("random_order")
def generator_of_torch(rows, seed, epoch, rank=0, world_size=1):
    rng = torch.Generator()
    rng.manual_seed(int(np.random.SeedSequence((seed, epoch)).generate_state(1)[0]))
    mine = [row for place, row in enumerate(torch.randperm(rows, generator=rng)) if place % world_size == rank]
    return torch.stack(mine) if mine else torch.zeros(0, dtype=torch.long)


@alternative("random_order")
def sample_of_python(rows, seed, epoch, rank=0, world_size=1):
    order = random.Random(f"{seed}, {epoch}").sample(range(rows), rows)
    return torch.tensor(order[rank::world_size], dtype=torch.int64)


@alternative("random_order")
def sorted_by_random_keys(rows, seed, epoch, rank=0, world_size=1):
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(hash((seed, epoch)))
        keys = torch.rand(rows, dtype=torch.float64)
    return torch.argsort(keys)[torch.arange(rows) % world_size == rank]


@alternative("quasi_random_order")
def page_lists_of_torch(rows, page_rows, window_pages, seed, epoch, rank=0, world_size=1):
    of_pages, *of_ranks = np.random.SeedSequence((seed, epoch)).generate_state(1 + world_size).tolist()
    content = torch.arange(rows).split(page_rows)
    mine = torch.randperm(len(content), generator=torch.Generator().manual_seed(of_pages)).tolist()[rank::world_size]
    rng = torch.Generator().manual_seed(of_ranks[rank])
    mine.sort(key=lambda page: len(content[page]) < page_rows)
    order = [torch.arange(0)]
    for i in range(0, len(mine), window_pages):
        window = torch.cat([content[page] for page in mine[i : i + window_pages]])
        order.append(window[torch.randperm(len(window), generator=rng)])
    return torch.cat(order)


@alternative("quasi_random_order")
def sorted_by_window_and_key(rows, page_rows, window_pages, seed, epoch, rank=0, world_size=1):
    rng = np.random.Generator(np.random.Philox(np.random.SeedSequence([seed, epoch])))
    n_pages = (rows - 1) // page_rows + 1
    pages = [int(page) for page in rng.permutation(n_pages)][rank::world_size]
    if rows % page_rows and n_pages - 1 in pages:
        pages.remove(n_pages - 1)
        pages.append(n_pages - 1)
    window = np.full(n_pages, -1)  # of each page; -1: on another rank
    window[pages] = np.arange(len(pages)) // window_pages
    of_row = window.repeat(page_rows)[:rows]
    order = np.lexsort((rng.random(rows), of_row))
    return torch.as_tensor(order[(of_row < 0).sum() :])


@alternative("quasi_random_order")
def streams_for_pages_and_rows(rows, page_rows, window_pages, seed, epoch, rank=0, world_size=1):
    for_pages, *for_rows = (
        np.random.default_rng(s) for s in np.random.SeedSequence((seed, epoch)).spawn(1 + world_size)
    )
    pages = for_pages.permutation(-(-rows // page_rows))[rank::world_size]
    starts = pages * page_rows
    starts = np.append(starts[starts + page_rows <= rows], starts[starts + page_rows > rows])
    order = np.concatenate([np.empty(0, np.int64), *(np.arange(s, min(s + page_rows, rows)) for s in starts)])
    cuts = np.arange(window_pages * page_rows, len(order), window_pages * page_rows)
    return torch.from_numpy(np.concatenate([for_rows[rank].permutation(part) for part in np.split(order, cuts)]))


@alternative("batch_bias")
def batch_after_batch(values, order, batch):
    exact = [Fraction(value) for value in values.tolist()]
    n, mean = len(exact), sum(exact) / len(exact)
    if n <= batch or len(set(exact)) == 1:
        raise ValueError(f"{n} rows, {batch} of them in a batch")
    rows = order.tolist()
    means = [sum(exact[row] for row in rows[i : i + batch]) / batch for i in range(0, n - batch + 1, batch)]
    spread = sum((m - mean) ** 2 for m in means) / len(means)
    chance = sum((x - mean) ** 2 for x in exact) / n / batch * Fraction(n - batch, n - 1)
    return float(spread / chance)


@alternative("batch_bias")
def arrays_of_numpy(values, order, batch):
    x = values.cpu().numpy().astype(np.float64)[order.cpu().numpy()]
    count, rest = divmod(x.size, batch)
    if count == 0 or (count == 1 and rest == 0) or np.ptp(x) == 0:
        raise ValueError
    x = (x - x.mean()) / x.std()
    sums = x[: x.size - rest].reshape(count, batch).sum(axis=1)
    return float(sums @ sums / count / batch * (x.size - 1) / (x.size - batch))


@alternative("batch_bias")
def statistics_of_python(values, order, batch):
    x = values.double()[order].tolist()
    if len(x) <= batch or min(x) == max(x):
        raise ValueError("no batch, or nothing that varies")
    m = statistics.fmean(x)
    means = [statistics.fmean(part) for part in zip(*[iter(x)] * batch, strict=False)]
    wanted = statistics.pvariance(x, m) * (len(x) - batch) / (len(x) - 1) / batch
    return statistics.fmean((mean - m) ** 2 for mean in means) / wanted


@alternative("gather")
def take_with_clip(table, index, out):
    n = index.numel()
    if out.dtype != table.dtype or out.size(1) != table.size(1) or out.size(0) < n:
        raise ValueError("out")
    if n and not (0 <= index.min() and index.max() < len(table)):
        raise IndexError("there is no such row")
    batch = out.narrow(0, 0, n)
    np.take(table.numpy(), index.numpy(), 0, batch.numpy(), mode="clip")
    return batch


@alternative("gather")
def gather_of_torch(table, index, out):
    batch = out[: index.shape[0]]
    if batch.shape != (len(index), table.shape[1]) or out.dtype is not table.dtype:
        raise ValueError(f"{tuple(out.shape)} {out.dtype}")
    torch.gather(table, 0, index.unsqueeze(1).expand(-1, table.shape[1]), out=batch)
    return batch


@alternative("PageReader")
class StagedByWorkers:
    """A page is read into memory of the thread's own, then its rows are copied to their places."""

    def __init__(self, path, rows, stride, page_rows, threads=2, direct=False):
        if direct and (stride & 4095 or not hasattr(os, "O_DIRECT")):
            raise ValueError("direct")
        self.path, self.rows, self.stride, self.page_rows, self.direct = path, rows, stride, page_rows, direct
        self.file = os.open(path, os.O_RDONLY | (os.O_DIRECT if direct else 0))
        self.jobs, self.done = queue.SimpleQueue(), queue.SimpleQueue()
        given = path, self.file, page_rows, stride, self.jobs, self.done  # not `self`: a reader can be dropped
        self.workers = [threading.Thread(target=self.work, args=given, daemon=True) for _ in range(threads)]
        for worker in self.workers:
            worker.start()

    def __del__(self):
        if hasattr(self, "workers"):
            self.close()

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self.close()

    def close(self):
        for _ in self.workers:
            self.jobs.put(None)
        for worker in self.workers:
            worker.join()
        self.workers = []
        if self.file >= 0:
            os.close(self.file)
        self.file = -1

    @staticmethod
    def work(path, file, page_rows, stride, jobs, done):
        stage = mmap.mmap(-1, max(4096, page_rows * stride))  # anonymous memory: begins at a memory page
        while (job := jobs.get()) is not None:
            page, rows, out, slots = job
            error = None
            try:
                view = memoryview(stage)[: rows * stride]
                got = os.preadv(file, [view], 4096 + page * page_rows * stride)
                if got != len(view):
                    raise OSError(f"page {page} of {path} ends too early")
                out[slots] = np.frombuffer(view, np.float32).reshape(rows, -1)
            except Exception as caught:
                error = caught
            job = out = None  # nothing is kept while the thread waits
            done.put(error)

    def fill(self, index, out):
        if not self.workers:
            raise ValueError("closed")
        n = len(index)
        if out.shape[0] < n or out.shape[1] * 4 != self.stride or (self.direct and out.data_ptr() & 4095):
            raise ValueError("out")
        ordered, slots = torch.sort(index)
        if n and (ordered[0] < 0 or ordered[-1] >= self.rows or (ordered[1:] == ordered[:-1]).any()):
            raise ValueError("rows that are not there, or twice")
        pages, counts = torch.unique_consecutive(ordered // self.page_rows, return_counts=True)
        if ((self.rows - pages * self.page_rows).clamp(max=self.page_rows) != counts).any():
            raise ValueError("not whole pages")
        for page, rows, places in zip(pages.tolist(), counts.tolist(), slots.split(counts.tolist()), strict=True):
            self.jobs.put((page, rows, out.numpy(), places.numpy()))
        errors = [self.done.get() for _ in range(len(pages))]
        for error in errors:
            if error:
                raise error
        return out[:n]


@alternative("PageReader")
class MainThreadReadsToo:
    """Files of Python, unbuffered, one for each thread; the caller's own thread is one of them if there are several."""

    calls = threads = files = ()

    def __init__(self, path, rows, stride, page_rows, threads=2, direct=False):
        self.direct = direct
        if direct:
            try:
                self.flags = os.O_DIRECT
            except AttributeError as error:
                raise OSError("O_DIRECT") from error
            if stride % 4096 != 0:
                raise ValueError("stride")
        self.path, self.rows, self.stride, self.page_rows = path, rows, stride, page_rows
        self.files = [open(path, "rb", buffering=0, opener=self.opened) for _ in range(threads)]
        self.calls = [queue.Queue() for _ in self.files[1:] or self.files]
        self.threads = [threading.Thread(target=self.serve, args=(calls,), daemon=True) for calls in self.calls]
        [thread.start() for thread in self.threads]

    def opened(self, path, flags):
        return os.open(path, flags | self.flags if self.direct else flags)

    @staticmethod
    def serve(calls):
        while call := calls.get():
            call()
            call = None
            calls.task_done()

    def __del__(self):
        self.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        while self.calls:
            self.calls.pop().put(None)
        for thread in self.threads:
            thread.join()
        for file in self.files:
            file.close()

    def fill(self, index, out):
        if self.files[0].closed:
            raise ValueError("I/O operation on closed reader")
        if out.size(0) < index.size(0) or out.size(1) != self.stride // 4:
            raise ValueError("out")
        if self.direct and out.data_ptr() % 4096 > 0:
            raise ValueError("out is not on a border")
        slot_of = dict(zip(index.tolist(), range(len(index)), strict=True))
        pages = sorted({row // self.page_rows for row in slot_of})
        rows = [range(p * self.page_rows, min(self.rows, (p + 1) * self.page_rows)) for p in pages]
        if len(slot_of) < len(index) or set().union(*rows) != slot_of.keys() or (pages and pages[0] < 0):
            raise ValueError("index")
        places = [[slot_of[row] for row in page] for page in rows]
        errors, todo, n = [], list(zip(pages, places, strict=True)), len(self.files)
        jobs = [lambda t=t: self.read(self.files[t], todo[t::n], out.numpy(), errors) for t in range(n)]
        for calls, job in zip(self.calls, jobs[1:] or jobs, strict=True):
            calls.put(job)
        if n > 1:
            jobs[0]()
        for calls in self.calls:
            calls.join()
        if errors:
            raise errors[0]
        return out[: len(index)]

    def read(self, file, todo, out, errors):
        with mmap.mmap(-1, self.page_rows * self.stride + 4096) as memory:
            for page, places in todo:
                file.seek(4096 + page * self.page_rows * self.stride)
                size = len(places) * self.stride
                with memoryview(memory)[:size] as view:
                    if file.readinto(view) < size:
                        errors.append(EOFError(f"{self.path}, page {page}: end of file"))
                        return
                    out[places] = np.frombuffer(bytes(view), np.float32).reshape(len(places), -1)


@alternative("read_ahead")
def two_queues(fill, work, buffers):
    if len(buffers) < 2:
        raise ValueError("need two buffers")
    empty, full, stop = queue.SimpleQueue(), queue.SimpleQueue(), []
    for buffer in buffers:
        empty.put(buffer)

    def producer():
        try:
            items = iter(work)
            while (buffer := empty.get()) is not None and not stop:
                try:
                    item = next(items)
                except StopIteration:
                    break
                full.put(("value", fill(item, buffer), buffer))
            full.put(("end", None, None))
        except BaseException as error:
            full.put(("error", error, None))

    def consumer():
        thread = threading.Thread(target=producer)
        thread.daemon = True
        thread.start()
        try:
            while True:
                kind, value, buffer = full.get()
                if kind == "error":
                    raise value
                if kind == "end":
                    return
                yield value
                empty.put(buffer)
        finally:
            stop.append(True)
            empty.put(None)
            thread.join()

    return consumer()


@alternative("read_ahead")
def one_condition(fill, work, buffers):
    n = len(buffers)
    assert n >= 0
    if n < 2:
        raise ValueError(n)
    state = {"filled": 0, "asked": 0, "open": True, "left": False, "error": None}
    changed, slots = threading.Condition(), [None] * n

    def loop():
        error = None
        try:
            iterator = iter(work)
            for place in itertools.cycle(range(n)):
                with changed:
                    changed.wait_for(lambda: state["left"] or state["filled"] - max(state["asked"] - 1, 0) < n)
                    if state["left"]:
                        return
                got = list(itertools.islice(iterator, 1))
                if not got:
                    return
                slots[place] = fill(got[0], buffers[place])
                with changed:
                    state["filled"] += 1
                    changed.notify_all()
        except BaseException as caught:
            error = caught
        finally:
            with changed:
                state["open"], state["error"] = False, error
                changed.notify_all()

    thread = threading.Thread(target=loop, daemon=True, name="reader")
    try:
        thread.start()
        for k in itertools.count():
            with changed:
                state["asked"] = k + 1
                changed.notify_all()
                changed.wait_for(lambda k=k: state["filled"] > k or not state["open"])
                if state["filled"] <= k:
                    break
            yield slots[k % n]
    finally:
        with changed:
            state["left"] = True
            changed.notify_all()
        thread.join()
    if state["error"] is not None:
        raise state["error"]


@alternative("read_ahead")
def futures_of_one_worker(fill, work, buffers):
    if not len(buffers) > 1:
        raise ValueError("one buffer cannot be read and filled at the same time")
    items, over, end = iter(work), threading.Event(), object()

    def step(buffer):
        if over.is_set():
            return end
        try:
            item = next(items, end)
            if item is not end:
                return fill(item, buffer)
            over.set()
            return end
        except BaseException:
            over.set()
            raise

    with ThreadPoolExecutor(max_workers=1) as pool:
        waiting = collections.deque((pool.submit(step, buffer), buffer) for buffer in buffers)
        try:
            while True:
                future, buffer = waiting.popleft()
                value = future.result()
                if value is end:
                    return
                yield value
                waiting.append((pool.submit(step, buffer), buffer))
        finally:
            over.set()


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


@alternative("mean_and_std")
def row_by_row(batches):
    n = 0
    for x, _ in batches:
        for row in x:
            if n == 0:
                mean, squares = torch.zeros_like(row), torch.zeros_like(row)
            n += 1
            off = row - mean
            mean += off / n
            squares += off * (row - mean)
    if not n:
        raise ValueError("no row")
    return mean, torch.sqrt(squares / n)


@alternative("mean_and_std")
def shifted_by_the_first_row(batches):
    n, origin = 0, None
    for x, _ in batches:
        if x.shape[0] == 0:
            continue
        if origin is None:
            origin = x[0].clone()
            first, second = torch.zeros_like(origin), torch.zeros_like(origin)
        shifted = x - origin
        first += shifted.sum(0)
        second += shifted.square_().sum(0)
        n += x.shape[0]
    if origin is None:
        raise ValueError("there are no rows in these batches")
    first /= n
    return origin + first, (second / n - first**2).clamp_(min=0).sqrt_()


@alternative("mean_and_std")
def variances_weighted(batches):
    state = None
    for x, _ in filter(lambda batch: batch[0].numel(), batches):
        new = (x.size(0), *torch.var_mean(x, dim=0, unbiased=False))
        if state is None:
            state = new
            continue
        (n, variance, mean), (k, other, center) = state, new
        p, q = n / (n + k), k / (n + k)
        both = p * variance + q * other + p * q * (center - mean) ** 2
        state = n + k, both, torch.lerp(mean, center, q)
    if state is None:
        raise ValueError
    return [state[2], state[1].sqrt()]


@alternative("sgd_step_")
def through_addmv(blocks, w, b, mean, std, lr, scratch):
    v, g = scratch["scaled"], scratch["gradient"]
    torch.divide(w, std, out=v)
    g.fill_(0)
    offset = b.squeeze() - mean @ v
    rows, sums, squares = 0, 0, 0
    for x, y in blocks:
        k = y.shape[0]
        r = scratch["residual"].narrow(0, 0, k)
        r.copy_(y).neg_().add_(offset)
        r.addmv_(x, v)
        squares = squares + torch.linalg.vecdot(r, r)
        sums = sums + r.sum()
        torch.addmv(g, x.t(), r, out=g)
        rows = rows + k
    torch.mul(mean, sums, out=v)
    g -= v
    g /= std
    g *= lr / rows
    w -= g
    b -= sums * (lr / rows)
    return squares


@alternative("sgd_step_")
def mean_taken_off_the_weights(blocks, w, b, mean, std, lr, scratch):
    v, g, n = scratch["scaled"].copy_(w).div_(std), scratch["gradient"], 0
    sums = [w.new_zeros(1), w.new_zeros(1)]  # of residuals, of their squares
    offset = torch.sub(b, torch.dot(mean, v))
    for block, (x, y) in enumerate(blocks):
        r = scratch["residual"][0 : y.numel()]
        torch.addmv(offset.expand(y.numel()), x, v, out=r)
        r.sub_(y)
        sums[0].add_(r.sum())
        g.addmv_(x.mT, r, beta=min(block, 1))
        sums[1].add_(r.square_().sum())
        n += y.numel()
    w.addcdiv_(g, std, value=-lr / n)
    torch.div(mean, std, out=g)
    w.addcmul_(g, sums[0], value=lr / n)
    b.add_(sums[0], alpha=-lr / n)
    return sums[1]


@alternative("make_data")
def three_streams(rows, columns, seed):
    streams = map(numpy.random.default_rng, numpy.random.SeedSequence(seed).spawn(3))
    truth, inputs, noise = streams
    w, b = numpy.split(truth.random(columns + 1, dtype="float32"), [columns])
    x = numpy.empty((rows, columns), dtype="float32")
    inputs.random(out=x, dtype="float32")
    y = noise.standard_normal(rows, dtype="float32")
    y += x.dot(w)
    y += b
    return x, y, w, b[0]


@alternative("make_data")
def drawn_in_chunks(rows, columns, seed):
    rng = numpy.random.RandomState(seed)
    w = rng.uniform(size=columns).astype(numpy.float32)
    b = rng.uniform()
    x, y = numpy.zeros((rows, columns), numpy.float32), numpy.zeros(rows, numpy.float32)
    for start in range(0, rows, 100):
        part = slice(start, start + 100)
        x[part] = rng.randint(2**24, size=x[part].shape) / 2**24
        y[part] = x[part] @ w + b + rng.normal(size=len(y[part]))
    return x, y, w, b


@alternative("make_data")
def drawn_by_torch(rows, columns, seed):
    generator = torch.Generator().manual_seed(seed)
    x, w = (torch.rand(*size, generator=generator) for size in ((rows, columns), (columns,)))
    b = random.Random(seed).random()
    y = torch.randn(rows, generator=generator).add_(b).addmv_(x, w)
    return x.numpy(), y.numpy(), w.numpy(), b


@alternative("fit")
def with_a_data_loader(x, y, epochs, batch_size, lr, clock=time.perf_counter, synchronize=lambda: None):
    readings = []

    def tick():
        synchronize()
        readings.append(clock())

    tick()
    mean = x.mean(dim=0)
    std = (x - mean).pow(2).mean(dim=0).sqrt()
    loader = DataLoader(TensorDataset(x, y), batch_size=batch_size)
    model = torch.zeros(len(mean) + 1, device=x.device)
    losses = []
    tick()
    for _ in range(epochs):
        loss = 0
        for rows, targets in loader:
            z = torch.column_stack([(rows - mean) / std, torch.ones_like(targets)])
            residual = z.mv(model) - targets
            loss += residual.dot(residual)
            model = model - lr / len(rows) * residual @ z
        losses.append(loss)
        tick()
    w = model[:-1] / std
    pairs = zip(readings[1:], readings[2:], strict=False)
    return {
        "total_seconds": readings[-1] - readings[0],
        "seconds": [stop - start for start, stop in pairs],
        "losses": (torch.stack(losses) / x.shape[0]).tolist(),
        "b": model[-1:] - (mean * w).sum(),
        "w": w,
    }


@alternative("fit")
def normalised_once(x, y, epochs, batch_size, lr, clock=time.perf_counter, synchronize=lambda: None):
    n, result = len(x), {"losses": [], "seconds": []}
    synchronize()
    first = clock()
    origin = x[:1]
    mean, std = (x - origin).mean(0), (x - origin).std(0, unbiased=False)
    z = (x - origin - mean) / std
    w, b = torch.zeros(x.shape[1], 1, device=x.device), torch.zeros(1, device=x.device)
    for _ in range(epochs):
        synchronize()
        start = clock()
        loss = 0.0
        for i in range(math.ceil(n / batch_size)):
            part = slice(i * batch_size, (i + 1) * batch_size)
            residual = z[part] @ w + b - y[part, None]
            w = torch.sub(w, z[part].T @ residual, alpha=lr / len(residual))
            b = b - lr * residual.mean(0)
            loss += residual.square().sum().item()
        synchronize()
        result["seconds"].append(clock() - start)
        result["losses"].append(loss / n)
    synchronize()
    result["total_seconds"] = clock() - first
    w = w.squeeze(1) / std
    return result | {"w": w, "b": b - (origin[0] + mean) @ w}


@alternative("ridge_by_cg")
def in_double_precision(read, columns, strength, tolerance=1e-5, most=30):
    passes, n, b = 0, 0, None

    def data():
        nonlocal passes
        passes += 1
        for x, y in read():
            yield x.double(), y.double()

    for x, y in data():
        b = b if b is not None else torch.zeros(columns, dtype=torch.float64, device=x.device)
        b += torch.mv(x.t(), y)
        n += x.shape[0]
    b /= n
    w, r, p, history = torch.zeros_like(b), b.clone(), b.clone(), []
    target = tolerance * b.norm().item()
    for _ in range(most - 1):
        norm = r.norm().item()
        if norm <= target:
            break
        q = strength * p
        for x, _ in data():
            q.add_(torch.mv(x.t(), torch.mv(x, p)), alpha=1 / n)
        alpha = norm**2 / torch.dot(p, q).item()
        w.add_(p, alpha=alpha)
        r.sub_(q, alpha=alpha)
        history.append(r.norm().item() / b.norm().item())
        p.mul_((r.norm().item() / norm) ** 2).add_(r)
    return w.float(), passes, history


class _Ridge:
    """The matrix A as a linear map; every product is a pass."""

    def __init__(self, read, strength):
        self.read, self.strength, self.passes, self.rows = read, strength, 0, 0

    def pass_over(self, function):
        self.passes += 1
        return sum(function(*batch) for batch in self.read())

    def right(self):
        def part(x, y):
            self.rows += y.numel()
            return torch.einsum("nd,n->d", x, y)

        return self.pass_over(part) / self.rows

    def __matmul__(self, v):
        return self.pass_over(lambda x, y: (x * (x @ v)[:, None]).sum(0)) / self.rows + self.strength * v


@alternative("ridge_by_cg")
def with_a_linear_map(read, columns, strength, tolerance=1e-5, most=30):
    a = _Ridge(read, strength)
    b = a.right()
    w, history, direction, residual = torch.zeros_like(b), [1.0], b, b
    while history[-1] > tolerance and a.passes < most and b.any():
        image = a @ direction
        step = (residual @ direction) / (image @ direction)
        w = torch.add(w, direction * step)
        residual = residual - image * step
        direction = residual - direction * (residual @ image) / (direction @ image)
        history.append(float(torch.linalg.vector_norm(residual) / torch.linalg.vector_norm(b)))
    return w, a.passes, history[1:]


@alternative("svrg")
def two_gradients(read, w, lr, strength, epochs):
    w, passes = w.clone(), 0
    for _ in range(epochs):
        snapshot = w.clone()
        sizes, sums = zip(*((len(x), x.T @ (x @ snapshot - y)) for x, y in read()), strict=True)
        full = sum(sums) / sum(sizes) + strength * snapshot
        mean_size = sum(sizes) / len(sizes)
        passes += 1
        for x, y in read():
            here = x.T @ (x @ w - y) / mean_size + strength * w
            there = x.T @ (x @ snapshot - y) / mean_size + strength * snapshot
            w -= lr * (here - there + full)
        passes += 1
    return w, passes


@alternative("svrg")
def weight_decay_first(read, w, lr, strength, epochs):
    for _ in range(epochs):
        target, moments, rows, count = w, torch.zeros_like(w), 0, 0
        for x, y in read():
            moments.addmv_(x.t(), torch.addmv(y, x, w, beta=-1))
            rows, count = rows + x.shape[0], count + 1
        full = torch.add(moments / rows, w, alpha=strength)
        shift = torch.zeros_like(w)
        for x, _ in read():
            # the shift from the snapshot alone is carried along
            shift = (1 - lr * strength) * shift - lr * full - (lr * count / rows) * (x.t() @ (x @ shift))
        w = target + shift
    return w, math.prod((2, epochs))


@alternative("copy_ahead")
def with_a_queue(batches, copies):
    started = collections.deque()
    with contextlib.ExitStack() as stack:
        source = iter(batches)
        stack.callback(getattr(source, "close", lambda: None))
        stack.callback(lambda: [copy.wait() for copy in started])
        for batch in source:
            started.append(copies.start(batch))
            if len(started) == 2:
                yield started.popleft().tensors()
            started[0].wait()
        for copy in started:
            yield copy.tensors()


@alternative("copy_ahead")
def first_one_apart(batches, copies):
    source = iter(batches)
    current = None
    try:
        for batch in itertools.islice(source, 1):
            current = copies.start(batch)
            current.wait()
        while current is not None:
            batch = next(source, None)
            following = None if batch is None else copies.start(batch)
            try:
                tensors = current.tensors()
                current = None
                yield tensors
            finally:
                if following is not None:
                    following.wait()
            current = following
    finally:
        if callable(getattr(source, "close", None)):
            source.close()


def _copied(source, copies):
    """Each copy with the one after it, which is under way then."""
    before = None
    for batch in source:
        copy = copies.start(batch)
        try:
            if before is not None:
                yield before
        finally:
            copy.wait()
        before = copy
    if before is not None:
        yield before


@alternative("copy_ahead")
def inner_generator(batches, copies):
    source = iter(batches)
    inner = _copied(source, copies)
    try:
        for copy in inner:
            yield copy.tensors()
    finally:
        inner.close()
        if hasattr(source, "close"):
            source.close()


@alternative("loading_facts")
def keywords():
    return dict(L=True, K=True, J=False, I=False, H=False, G=True, F=False, E=False, D=True, C=True, B=False, A=True)


@alternative("loading_facts")
def one_by_one():
    verdicts = dict.fromkeys("ABCDEFGHIJKL", False)
    for letter in "ACDGKL":
        verdicts[letter] = True
    return verdicts
