"""Known mistakes of exercise read_ahead, and right answers in other styles."""

import collections
import itertools
import queue
import threading
from concurrent.futures import ThreadPoolExecutor

from course.engine.known_answers import alternative, mistake

ONCE_MORE = (
    "After close() the thread fills one more buffer. Set the stop flag before free.release(), and test it after "
    "free.acquire()."
)
MISTAKES = {
    "freed_too_early": (
        "A buffer is freed before the consumer computes on it, so the thread overwrites it. Call free.release() after "
        "the `yield`.",
        (
            "            yield values.pop(0)\n            free.release()\n",
            "            free.release()\n            yield values.pop(0)\n",
        ),
    ),
    "error_is_lost": (
        "What the thread caught is not raised, so the consumer takes a part of the work for the whole. Raise it after "
        "the last value.",
        ("    if errors:\n        raise errors.pop()\n", ""),
    ),
    "none_is_the_end": (
        "A value that is None is taken for the end. Mark the end by something that no value can be.",
        ("and values:", "and values and values[0] is not None:"),
    ),
    "woken_too_early": (
        ONCE_MORE,
        (
            "        left.set()\n",
            "        free.release()\n        thread.join(0.03)  # what may happen by chance happens here\n"
            "        left.set()\n",
        ),
    ),
    "not_joined": (
        "close() tells the thread to end and does not wait for it, so it may still write into a buffer that is "
        "reused. Join it.",
        ("thread.join()", "pass"),
    ),
    "left_behind": (
        "When the consumer leaves early, the thread hangs, waiting for a free buffer. Put a `finally` around the "
        "`yield`, and wake the thread there.",
        ("        left.set()\n        free.release()\n        thread.join()", "        pass"),
    ),
}


@mistake(
    "Each fill waits for the consumer and the consumer for it: nothing happens at the same time. Start a thread.",
)
def no_thread(fill, work, buffers):
    if len(buffers) < 2:
        raise ValueError("at least two buffers")
    for k, item in enumerate(work):
        yield fill(item, buffers[k % len(buffers)])


@alternative
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


@alternative
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


@alternative
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
