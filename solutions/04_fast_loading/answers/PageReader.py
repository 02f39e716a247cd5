"""Known mistakes of exercise PageReader, and right answers in other styles."""

import mmap
import os
import queue
import threading
import weakref
from concurrent.futures import ThreadPoolExecutor, wait

import numpy as np
import torch

from course.checks.engine import alternative, mistake


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
