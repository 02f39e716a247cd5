"""Known mistakes of exercise PageReader, and right answers in other styles."""

import mmap
import os
import queue
import threading

import numpy as np

from course.engine.known_answers import alternative

WHERE = "4096 + (page * self.page_rows + start) * self.stride"
READ = f"found = os.preadv(self.file, buffers, {WHERE})"
COPY = f"""content = {{}}[{WHERE} :]
                found = min(len(content), len(buffers) * self.stride)
                for k in range(found // self.stride):
                    buffers[k][:] = content[k * self.stride : (k + 1) * self.stride]"""  # from an array of bytes
MISTAKES = {
    "FromTheHeader": (
        "The rows are read from the beginning of the file, where its header is. They begin at byte 4096.",
        ("4096 + (page", "(page"),
    ),
    "OrderOfTheFile": (
        "The rows come to `out` in the order of the file, not in that of the index. The k-th row of the file belongs "
        "to place index.argsort()[k].",
        ("slots = wanted.argsort()", "wanted, slots = np.sort(wanted), np.arange(n)"),
    ),
    "TurnedRound": (
        "The permutation is inverted: argsort of argsort gives each row of `out` its place in the file. "
        "You need the row of `out` for each place in the file: argsort alone.",
        ("        views =", "        slots = slots.argsort()\n        views ="),
    ),
    "Mapped": (
        "The file is mapped: every new memory page is a page fault that waits for the disk. Use read calls, os.preadv.",
        (READ, COPY.format('np.memmap(self.path, np.uint8, "r")')),
    ),
    "SecondBuffer": (
        "All pages are read into a second buffer as large as `out`. Read into the rows of `out`, or one page at a "
        "time.",
        (
            "views = self._rows_of(out)",
            "inside = course.loading.loaders.aligned_buffers(1, len(out), self.stride // 4)[0]\n"
            "        views = self._rows_of(inside)",
        ),
        ("        return out[:n]", "        self.views.clear()\n        return out[:n].copy_(inside[:n])"),
    ),
}


class _Reader:
    """What both alternatives share, beside the reading."""

    workers = files = ()

    def __init__(self, path, rows, stride, page_rows, direct):
        if direct and (stride % 4096 or not hasattr(os, "O_DIRECT")):
            raise ValueError("stride") if stride % 4096 else OSError("O_DIRECT")
        self.path, self.rows, self.stride, self.page_rows, self.direct = path, rows, stride, page_rows, direct

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self.close()

    def __del__(self):
        self.close()

    def opened(self, path, flags):
        return os.open(path, flags | os.O_DIRECT if self.direct else flags)

    def plan(self, index, out):
        """Pairs of a page and the places of its rows in `out`."""
        off_border = self.direct and out.data_ptr() % 4096 > 0
        if not self.workers or out.size(0) < index.size(0) or out.size(1) != self.stride // 4 or off_border:
            raise ValueError("closed, or out does not fit")
        slot_of = dict(zip(index.tolist(), range(len(index)), strict=True))
        pages = sorted({row // self.page_rows for row in slot_of})
        rows = [range(p * self.page_rows, min(self.rows, (p + 1) * self.page_rows)) for p in pages]
        if len(slot_of) < len(index) or set().union(*rows) != slot_of.keys() or (pages and pages[0] < 0):
            raise ValueError("index")
        return [(page, [slot_of[row] for row in part]) for page, part in zip(pages, rows, strict=True)]


@alternative
class StagedByWorkers(_Reader):
    """A page is read into memory of the thread's own, then its rows are copied to their places."""

    def __init__(self, path, rows, stride, page_rows, threads=2, direct=False):
        super().__init__(path, rows, stride, page_rows, direct)
        self.files = [open(path, "rb", buffering=0, opener=self.opened)]
        self.jobs, self.done = queue.SimpleQueue(), queue.SimpleQueue()
        given = self.files[0], page_rows * stride, stride, self.jobs, self.done  # not `self`: it can be dropped
        self.workers = [threading.Thread(target=self.work, args=given, daemon=True) for _ in range(threads)]
        for worker in self.workers:
            worker.start()

    def close(self):
        for _ in self.workers:
            self.jobs.put(None)
        while self.workers:
            self.workers.pop().join()
        for file in self.files:
            file.close()

    @staticmethod
    def work(file, page_bytes, stride, jobs, done):
        stage = mmap.mmap(-1, max(4096, page_bytes))  # anonymous memory: begins at a memory page
        while (job := jobs.get()) is not None:
            page, rows = job
            error = None
            try:
                got = os.preadv(file.fileno(), [memoryview(stage)[: len(rows) * stride]], 4096 + page * page_bytes)
                if got < len(rows) * stride:
                    raise OSError(f"page {page} of {file.name} ends too early")
                for k, row in enumerate(rows):
                    row[:] = stage[k * stride : (k + 1) * stride]
            except OSError as caught:
                error = caught
            job = rows = row = None  # nothing is kept while the thread waits
            done.put(error)

    def fill(self, index, out):
        todo, memory = self.plan(index, out), memoryview(out.numpy()).cast("B")
        for page, places in todo:
            self.jobs.put((page, [memory[k * self.stride : (k + 1) * self.stride] for k in places]))
        for error in [self.done.get() for _ in todo]:
            if error:
                raise error
        return out[: len(index)]


@alternative
class MainThreadReadsToo(_Reader):
    """Files of Python, unbuffered, one for each thread; the caller's own thread is one of them if there are several."""

    def __init__(self, path, rows, stride, page_rows, threads=2, direct=False):
        super().__init__(path, rows, stride, page_rows, direct)
        self.files = [open(path, "rb", buffering=0, opener=self.opened) for _ in range(threads)]
        self.calls = [queue.Queue() for _ in self.files[1:] or self.files]
        self.workers = [threading.Thread(target=self.serve, args=(calls,), daemon=True) for calls in self.calls]
        [worker.start() for worker in self.workers]

    @staticmethod
    def serve(calls):
        while call := calls.get():
            call()
            call = None
            calls.task_done()

    def close(self):
        while self.workers:
            self.calls.pop().put(None)
            self.workers.pop().join()
        for file in self.files:
            file.close()

    def fill(self, index, out):
        errors, todo, n = [], self.plan(index, out), len(self.files)
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
