"""Known mistakes of exercise read_ahead, and right answers in other styles."""

import collections
import itertools
import queue
import threading
from concurrent.futures import ThreadPoolExecutor

from course.checks.known_answers import alternative, mistake

ONCE_MORE = (
    "After close() the thread fills one more buffer. Set the stop flag before free.release(), and test it after "
    "free.acquire()."
)
WAIT = "                free.acquire()  # before the next item is asked for\n"
LOOK = "                if left.is_set():\n                    break\n"
MISTAKES = {
    "started_at_once": (
        "The thread starts when the function is called. If nobody asks for the first item, nobody ends it. Start it "
        "inside the generator's body, which runs at the first next().",
        (
            "    thread.start()\n",
            "    thread.start()\n    return consumed(free, filled, values, errors, left, thread)\n\n\n"
            "def consumed(free, filled, values, errors, left, thread):\n",
        ),
    ),
    "one_too_far": (
        "As many fills run ahead as there are buffers, so the one that the consumer holds is overwritten. Its buffer "
        "becomes free when the next is asked for, after the `yield`.",
        ("len(buffers) - 1", "len(buffers)"),
    ),
    "one_too_few": (
        "One buffer is never used: the thread waits for a free one before the first item too, while only the others "
        "are counted as free. Let the count begin with all, or the first item not wait.",
        ("            for k, item", "            free.acquire()\n            for k, item"),
    ),
    "asks_too_early": (
        "Work is asked for its next item before there is a buffer for it. Wait for the buffer first.",
        (WAIT + LOOK, ""),
        (
            "                values.append",
            "                if k:\n                    free.acquire()\n" + LOOK + "                values.append",
        ),
    ),
    "work_as_a_list": (
        "All of work is put into a list first, which never ends if work does not. Take an item when a buffer is free "
        "for it.",
        ("enumerate(work)", "enumerate(list(work))"),
    ),
    "looks_again_and_again": (
        "A waiting side polls: it wakes again and again and takes time from the one that computes. Block without a "
        "timeout, and let the other side wake it, also when it leaves.",
        (WAIT, "                while not free.acquire(timeout=0.02):\n                    pass\n"),
    ),
    "error_is_lost": (
        "An exception stays in the thread, and the consumer takes a part of the work for the whole. Hand it over, and "
        "raise it at its place.",
        ("errors.append(error)", "pass"),
    ),
    "another_error": (
        "The consumer raises a new exception, whose traceback does not lead to the place. Raise the object that was "
        "caught.",
        ("errors.append(error)", "errors.append(type(error)(*error.args))"),
    ),
    "none_is_the_end": (
        "A value that is None is taken for the end. Mark the end by something that no value can be.",
        ("and values:", "and values and values[0] is not None:"),
    ),
    "not_a_daemon": (
        "A thread that is not a daemon holds up the end of the interpreter when a generator was left half-way. Use "
        "daemon=True.",
        (", daemon=True", ""),
    ),
    "woken_too_early": (
        ONCE_MORE,
        (
            "        left.set()\n",
            "        free.release()\n        thread.join(0.03)  # what may happen by chance happens here\n"
            "        left.set()\n",
        ),
    ),
    "looks_before_it_waits": (ONCE_MORE, (WAIT + LOOK, LOOK + WAIT)),
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
