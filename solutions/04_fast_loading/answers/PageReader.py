"""Known mistakes of exercise PageReader, and right answers in other styles."""

import mmap
import os
import queue
import threading
import weakref
from concurrent.futures import ThreadPoolExecutor, wait

import numpy as np

from course.checks.engine import alternative, mistake
from course.loaders import aligned_buffers


def wrong(advice):
    """A decorator: a mistake of this exercise."""
    return mistake("PageReader", advice)


class _Closing:
    """What can be closed is closed at the end of a `with`."""

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self.close()


def _spread(content, buffers):
    """Copy `content` to the buffers, one after the other; returns how many bytes there were."""
    found = 0
    for buffer in buffers:
        there = content[found:][: len(buffer)]
        buffer[: len(there)] = there
        found += len(there)
    return found


class _Pages(_Closing):
    """A right reader in pieces, so that each mistake can spoil one of them."""

    def __init__(self, path, rows, stride, page_rows, threads=2, direct=False):
        self.path, self.rows, self.stride, self.page_rows, self.threads = path, rows, stride, page_rows, threads
        self.direct, self.views = direct, {}
        if direct:
            self.refuse_stride()
        self.file = os.open(path, os.O_RDONLY | self.flag())
        self.release = weakref.finalize(self, os.close, self.file)
        self.pool = ThreadPoolExecutor(threads)

    def close(self):
        if self.file is not None:
            self.pool.shutdown()
            self.release()
            self.file, self.views = None, {}

    def flag(self):
        if self.direct and not hasattr(os, "O_DIRECT"):
            raise ValueError("no O_DIRECT")
        return os.O_DIRECT if self.direct else 0

    def refuse_stride(self):
        if self.stride % 4096:
            raise ValueError("stride")

    def fill(self, index, out):
        if self.file is None or len(out) < len(index) or out.shape[1] != self.stride // 4:
            raise ValueError("closed, or out does not fit")
        self.refuse_place(out)
        index = index.numpy()
        slots, pages = self.order(index), np.unique(index // self.page_rows)
        self.refuse_rest(np.sort(index), pages)
        size, views = self.page_rows, self.rows_of(out)
        self.share([(p, slots[k * size :][:size].tolist()) for k, p in enumerate(pages.tolist())], views)
        return out[: len(index)]

    def order(self, index):
        return index.argsort()

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

    def tasks(self, work, views):
        return [self.pool.submit(self.read, work[t :: self.threads], views) for t in range(self.threads)]

    def share(self, work, views):
        for task in wait(self.tasks(work, views)).done:
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


@wrong("The rows are read from the beginning of the file, where its header is. They begin at byte 4096.")
class FromTheHeader(_Pages):
    def read_at(self, buffers, row):
        return os.preadv(self.file, buffers, row * self.stride)

    def complete(self, page, found, asked):
        pass


@wrong(
    "The rows come to `out` in the order of the file, not in that of the index. The k-th row of the file belongs to "
    "place index.argsort()[k]."
)
class OrderOfTheFile(_Pages):
    def order(self, index):
        return np.arange(len(index))


@wrong(
    "The permutation is turned round: argsort of argsort says which place in the file each row of `out` has. Needed is "
    "which row of `out` each place in the file has: argsort alone."
)
class TurnedRound(_Pages):
    def order(self, index):
        return index.argsort().argsort()


@wrong("The file is mapped: every new memory page is a page fault that waits for the disk. Use read calls, os.preadv.")
class Mapped(_Pages):
    def read_at(self, buffers, row):
        return _spread(np.memmap(self.path, np.uint8, "r")[4096 + row * self.stride :], buffers)


@wrong("All rows are read when the reader is made; this reader is for files that do not fit into memory. Read in fill.")
class AllAtOnce(_Pages):
    def __init__(self, path, *args, **kwargs):
        super().__init__(path, *args, **kwargs)
        with open(path, "rb", buffering=0) as file:
            self.content = file.read()

    def read_at(self, buffers, row):
        return _spread(self.content[4096 + row * self.stride :][: self.stride * len(buffers)], buffers)


@wrong("The system is asked to read the whole file ahead (WILLNEED), which is larger than memory. Read pages in fill.")
class WillNeedAll(_Pages):
    def __init__(self, path, *args, **kwargs):
        super().__init__(path, *args, **kwargs)
        os.posix_fadvise(self.file, 0, 0, os.POSIX_FADV_WILLNEED)


@wrong("Each row is a read call of its own, and a call costs more than the bytes of a row. Read a page with one call.")
class RowByRow(_Pages):
    def read_at(self, buffers, row):
        return sum(os.preadv(self.file, [b], 4096 + (row + i) * self.stride) for i, b in enumerate(buffers))


@wrong("For each row its whole page is read, again and again. Read a page once, and spread its rows over their places.")
class PageForEachRow(_Pages):
    def read_at(self, buffers, row):
        found = 0
        for i, buffer in enumerate(buffers):
            page = os.pread(self.file, len(buffers) * self.stride, 4096 + row * self.stride)
            found += _spread(page[i * self.stride :], [buffer])
        return found


@wrong("All pages are read into a second buffer as large as `out`. Read into the rows of `out`, or one page at a time.")
class SecondBuffer(_Pages):
    def fill(self, index, out):
        if len(out) < len(index) or out.shape[1] != self.stride // 4:
            raise ValueError("out")
        self.refuse_place(out)
        (inside,) = aligned_buffers(1, max(1, len(index)), self.stride // 4)
        out[: len(index)] = super().fill(index, inside)
        self.views = {}
        return out[: len(index)]


@wrong(
    "The rows of an `out` are kept under id(out). A view that is gone gives its id to another one, whose rows they are "
    "not. Use the address of the memory and the number of rows."
)
class KeptUnderId(_Pages):
    def rows_of(self, out):
        if id(out) not in self.views:
            self.views[id(out)] = self.cut(out)
        return self.views[id(out)]


@wrong("One call is given more than 1,024 buffers, which the system refuses. Read a long page with several calls.")
class TooManyBuffers(_Pages):
    def read_page(self, page, slots, views):
        buffers = [views[s] for s in slots]
        self.complete(page, self.read_at(buffers, page * self.page_rows), self.stride * len(buffers))


@wrong(
    "Nobody looks at what os.preadv returns: from a file that was cut off come old rows. Compare the number of bytes."
)
class ShortReadUnseen(_Pages):
    def complete(self, page, found, asked):
        pass


@wrong("The error of a page that is cut off does not name the file and the page. Put both into its message.")
class NamelessReadError(_Pages):
    def complete(self, page, found, asked):
        if found < asked:
            raise OSError(f"{found} of {asked} bytes")


@wrong("What a thread raises stays in its future, and fill returns as if all was well. Call result() of every task.")
class ErrorLeftInThread(_Pages):
    def share(self, work, views):
        tasks = self.tasks(work, views)
        while not all(task.done() for task in tasks):
            threading.Event().wait(0.0001)


@wrong(
    "When one thread fails, fill raises at once, and another one still writes into `out`. Wait for all tasks, then "
    "call result() of each."
)
class NotWaitedForAll(_Pages):
    def share(self, work, views):
        for task in self.tasks(work, views):
            task.result()


@wrong("Each fill starts threads and ends them. Make the pool in the constructor and use it until close().")
class PoolForEachCall(_Pages):
    def share(self, work, views):
        with ThreadPoolExecutor(self.threads) as pool:
            list(pool.map(lambda t: self.read(work[t :: self.threads], views), range(self.threads)))


@wrong("All pages are one task, so one thread reads while the others sleep. Deal the pages to the threads.")
class OneTask(_Pages):
    def share(self, work, views):
        self.pool.submit(self.read, work, views).result()


@wrong(
    "A page of which only some rows are asked for is accepted: its rest would have to be read again. Raise ValueError."
)
class RestAccepted(_Pages):
    def refuse_rest(self, rows, pages):
        if len(rows) and not 0 <= rows[0] <= rows[-1] < self.rows:
            raise ValueError("no such row")


@wrong("Only the number of rows is looked at: a row that comes twice stands for one that is missing. Compare the rows.")
class OnlyCounted(_Pages):
    def refuse_rest(self, rows, pages):
        due = sum(min(self.rows - p * self.page_rows, self.page_rows) for p in pages.tolist())
        if len(rows) != due or (len(rows) and not 0 <= rows[0] <= rows[-1] < self.rows):
            raise ValueError("rest")


@wrong("The last page is taken for a whole one, and its index is refused. It ends with the file's last row.")
class LastPageWhole(_Pages):
    def refuse_rest(self, rows, pages):
        if len(rows) % self.page_rows:
            raise ValueError("rest")
        super().refuse_rest(rows, pages)


@wrong("close() leaves the file open: after a thousand readers the system opens no more. os.close it.")
class FileLeftOpen(_Pages):
    def close(self):
        self.pool.shutdown()
        self.file, self.views = None, {}


@wrong("close() leaves the threads alive, asleep for ever. Shut the pool down.")
class ThreadsLeft(_Pages):
    def close(self):
        self.release()
        self.file, self.views = None, {}


@wrong("A second close() fails: the file has been closed before. Remember it, for instance by None.")
class ClosedTwice(_Pages):
    def close(self):
        if self.file is None:
            raise OSError("Bad file descriptor")
        super().close()


@wrong("With direct=True an `out` at any place in memory is accepted; the disk writes to multiples of 4096 only.")
class AnyPlace(_Pages):
    def refuse_place(self, out):
        pass


@wrong("With direct=True a stride that is no multiple of 4096 is accepted. Refuse it at once.")
class AnyStride(_Pages):
    def refuse_stride(self):
        pass


@wrong("direct=True is ignored: the file is opened without O_DIRECT. Add os.O_DIRECT to the flags.")
class NotDirect(_Pages):
    def flag(self):
        super().flag()
        return 0


@alternative("PageReader")
class StagedByWorkers(_Pages):
    """A page is read into memory of the thread's own, then its rows are copied to their places."""

    workers = ()

    def __init__(self, path, rows, stride, page_rows, threads=2, direct=False):
        super().__init__(path, rows, stride, page_rows, threads, direct)
        self.jobs, self.done = queue.SimpleQueue(), queue.SimpleQueue()
        given = path, self.file, page_rows * stride, stride, self.jobs, self.done  # not `self`: it can be dropped
        self.workers = [threading.Thread(target=self.work, args=given, daemon=True) for _ in range(threads)]
        for worker in self.workers:
            worker.start()

    def __del__(self):
        if self.workers:
            self.close()

    def close(self):
        for _ in self.workers:
            self.jobs.put(None)
        while self.workers:
            self.workers.pop().join()
        super().close()

    @staticmethod
    def work(path, file, page_bytes, stride, jobs, done):
        stage = mmap.mmap(-1, max(4096, page_bytes))  # anonymous memory: begins at a memory page
        while (job := jobs.get()) is not None:
            page, rows = job
            error = None
            try:
                got = os.preadv(file, [memoryview(stage)[: len(rows) * stride]], 4096 + page * page_bytes)
                if _spread(memoryview(stage)[:got], rows) < len(rows) * stride:
                    raise OSError(f"page {page} of {path} ends too early")
            except OSError as caught:
                error = caught
            job = rows = None  # nothing is kept while the thread waits
            done.put(error)

    def share(self, work, views):
        for page, slots in work:
            self.jobs.put((page, [views[slot] for slot in slots]))
        for error in [self.done.get() for _ in work]:
            if error:
                raise error


@alternative("PageReader")
class MainThreadReadsToo(_Closing):
    """Files of Python, unbuffered, one for each thread; the caller's own thread is one of them if there are several."""

    calls = threads = files = ()

    def __init__(self, path, rows, stride, page_rows, threads=2, direct=False):
        if direct and (stride % 4096 != 0 or not hasattr(os, "O_DIRECT")):
            raise ValueError("stride") if stride % 4096 else OSError("O_DIRECT")
        self.direct, self.path, self.rows, self.stride, self.page_rows = direct, path, rows, stride, page_rows
        self.files = [open(path, "rb", buffering=0, opener=self.opened) for _ in range(threads)]
        self.calls = [queue.Queue() for _ in self.files[1:] or self.files]
        self.threads = [threading.Thread(target=self.serve, args=(calls,), daemon=True) for calls in self.calls]
        [thread.start() for thread in self.threads]

    def opened(self, path, flags):
        return os.open(path, flags | os.O_DIRECT if self.direct else flags)

    @staticmethod
    def serve(calls):
        while call := calls.get():
            call()
            call = None
            calls.task_done()

    def __del__(self):
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
        off_border = self.direct and out.data_ptr() % 4096 > 0
        if out.size(0) < index.size(0) or out.size(1) != self.stride // 4 or off_border:
            raise ValueError("out")
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
