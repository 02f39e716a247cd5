"""Known mistakes of exercise read_ahead, and right answers in other styles."""

import collections
import itertools
import queue
import threading
from concurrent.futures import ThreadPoolExecutor

from course.checks.engine import alternative, mistake

ONCE_MORE = (
    "The thread fills once more after close() was called: the flag is set too late, or looked at too early. Set it "
    "before the release that wakes the thread, and look at it after the acquire."
)


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


def _spoiled(*inputs, **methods):
    """The generator of a right reader but for these methods."""
    return _begun(type("Reader", (_AheadReader,), methods), *inputs)


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
    return _spoiled(fill, work, buffers, ahead=lambda reader: len(reader.buffers))


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
    "A waiting side polls: it wakes again and again and takes time from the one that computes. Block without a "
    "timeout, and let the other side wake it, also when it leaves.",
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
    return _spoiled(fill, work, buffers, failed=lambda reader, error: None)


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
    return _spoiled(fill, work, buffers, failed=lambda reader, error: reader.errors.append(type(error)(*error.args)))


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
    return _spoiled(fill, work, buffers, daemon=False)


@mistake(
    "read_ahead",
    "The executor's thread waits inside a task for a free buffer. If the generator is left open, the end of the "
    "interpreter joins that thread and hangs. Take threading.Thread with daemon=True.",
)
def one_endless_task(fill, work, buffers):
    class Reader(_AheadReader):
        def __init__(self, *inputs):
            super().__init__(*inputs)
            self.pool, run = ThreadPoolExecutor(1), self.run
            self.thread.start = lambda: self.pool.submit(run)

        def leave(self):
            self.left = True
            self.free.release()
            self.pool.shutdown()

    return _begun(Reader, fill, work, buffers)


@mistake("read_ahead", ONCE_MORE)
def woken_too_early(fill, work, buffers):
    def leave(reader):
        reader.free.release()
        reader.thread.join(0.03)  # what may happen by chance happens here
        reader.left = True
        reader.free.release()
        reader.thread.join()

    return _spoiled(fill, work, buffers, leave=leave)


@mistake("read_ahead", ONCE_MORE)
def looks_before_it_waits(fill, work, buffers):
    class Reader(_AheadReader):
        def fill_all(self):
            for k, item in enumerate(self.work):
                self.fill_one(k, item)
                if self.left:
                    break
                self.acquire(self.free)

        def leave(self):
            self.left = True
            self.free.release()
            self.free.release()
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
    return _spoiled(fill, work, buffers, leave=lambda reader: None)


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
