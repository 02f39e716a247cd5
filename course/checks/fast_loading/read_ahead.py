"""Probe of exercise read_ahead."""

import contextlib
import threading
import time
import traceback
from concurrent.futures import thread as pools
from unittest import mock

import torch

from course.engine.exercise import Answer, Facts, exercise
from course.engine.probing.errors import Stuck, raised_at_all, type_name
from course.engine.probing.threads import END, wait_until

WAIT = 2.0  # seconds that a call of the answer gets
SOON = 1.0  # seconds that a thread gets to end
WINDOW = 0.12  # seconds in which a thread that polls runs at least one line


class _Consumer(threading.Thread):
    """A thread that makes one call, which may never return, and keeps its result or exception."""

    def __init__(self, call, acting):
        super().__init__(daemon=True)
        self.call, self.acting, self.result, self.error = call, acting, None, None
        self.start()

    def run(self):
        try:
            self.result = self.call()
        except BaseException as error:
            self.error = error

    def outcome(self, what):
        """What the call returns or raises; Stuck if it does neither."""
        if not wait_until(lambda: not self.is_alive(), self.acting, WAIT):
            raise Stuck(f"{what} does not come back: who waits here, and for whom?")
        if self.error is not None:
            raise self.error
        return self.result


class _Fills:
    """A `fill` that records its calls, waits at item `gated` until `gate` is set, and raises at
    item `refused`.
    """

    def __init__(self, gated=END, refused=END):
        self.gated, self.refused, self.gate = gated, refused, threading.Event()
        self.begun, self.ended, self.threads = [], [], set()

    def __call__(self, item, buffer):
        self.threads.add(threading.current_thread())
        self.begun.append((item, buffer))
        if item == self.gated:
            self.gate.wait(2 * WAIT)
        if item == self.refused:
            _refuse(item)
        buffer[0] = item
        self.ended.append(item)
        return [item]


def _refuse(item):
    raise LookupError(f"cannot fill {item}")


class _Case:
    """The answer, `items` to fill, the number `k` of buffers, and the threads that were there
    before.
    """

    def __init__(self, answer, seed):
        rng, self.lines = torch.Generator().manual_seed(seed), 0
        self.answer, self.k, self.before = answer, 3 + seed % 2, set(threading.enumerate())
        self.items = (torch.randperm(90, generator=rng)[: 8 + seed % 3] + 10).tolist()

    def count_line(self, *_):
        """Trace of the threads that are started: count the lines of Python that they run."""
        self.lines += 1
        return self.count_line

    def blocks(self):
        """True as soon as no line has run for WINDOW seconds; False after four tries: a thread
        needs time to block.
        """
        for _ in range(4):
            before = self.lines
            time.sleep(WINDOW)
            if self.lines == before:
                return True
        return False

    def buffers(self, k=None):
        return [[None] for _ in range(k or self.k)]

    def stream(self, fills, work=None, k=None):
        """A new generator of the answer, over `items` if no other work is given."""
        return self.answer(fills, self.items if work is None else work, self.buffers(k))

    def acting(self):
        return set(threading.enumerate()) - self.before

    def new_threads(self):
        """The threads that the answer has started."""
        return [thread for thread in self.acting() if not isinstance(thread, _Consumer)]

    def ended(self, after):
        """True when no thread of the answer runs any more; Stuck if that takes too long."""
        if not wait_until(lambda: not self.new_threads(), self.new_threads, SOON):
            raise Stuck(f"a thread still runs after {after}; what should have ended it?")
        return True

    def reached(self, n, calls):
        """True when there are `n` calls; False if there will not be."""
        return wait_until(lambda: len(calls) >= n, self.acting, WAIT)

    def next(self, stream):
        return _Consumer(lambda: next(stream, END), self.acting).outcome("next()")

    def close(self, stream):
        return _Consumer(stream.close, self.acting).outcome("close()")

    def values(self, stream, value=lambda value: value[0]):
        """What `value` makes of each value of `stream` before the next is asked for (default: the
        buffer's content).
        """
        return _Consumer(lambda: list(map(value, stream)), self.acting).outcome(
            "a loop over the generator"
        )


@exercise()
def read_ahead(answer: Answer, device: torch.device, seed: int) -> Facts:
    """Fills that wait at a gate, so that the probe knows what may have happened before it opens.

    Ends early where every later fact would wait for something that never comes.
    """
    case = _Case(answer, seed)
    # an exception left in a thread must not be reported by pytest or IPython
    with (
        mock.patch.object(threading, "excepthook", lambda _: None),
        contextlib.ExitStack() as stack,
    ):
        stack.callback(threading.settrace, threading.gettrace())
        threading.settrace(case.count_line)
        if (yield from _order_and_thread(case)) and (yield from _how_far_ahead(case)):
            yield from _close_while_it_fills(case)
            yield from _consumer_waits(case)
            yield from _failure(case)
            yield from _values(case)


def _order_and_thread(case):
    """Facts on the start, the order and the thread; returns whether there is one that fills."""
    fills, ring = _Fills(), case.buffers()
    stream = case.answer(fills, case.items, ring)
    early = bool(case.new_threads() or fills.begun)
    yield "nothing is filled and no thread runs before the first next()", not early
    if early:
        return False
    yield "yields what fill returned, in the order of work", case.values(stream)
    yield (
        "the buffers are used one after the other",
        [[b is buffer for b in ring].index(True) for _, buffer in fills.begun],
    )
    in_thread = not any(isinstance(thread, _Consumer) for thread in fills.threads)
    yield "fill is not called by the consumer", in_thread
    if not in_thread:
        return False
    yield "all fills happen in one thread", len(fills.threads)
    yield "no thread is left at the end", case.ended("the end")
    stream = case.stream(fills := _Fills())
    next(stream)  # called here, because a daemon like _Consumer starts daemons
    let_go = [thread.daemon or thread in pools._threads_queues for thread in fills.threads]
    yield "the end of the interpreter does not wait for its thread", all(let_go)
    case.values(stream)
    yield "two buffers are enough", case.values(case.stream(_Fills(), k=2))
    yield (
        "one buffer raises",
        type_name(raised_at_all(lambda: case.next(case.stream(_Fills(), k=1)))),
    )
    return True


def _how_far_ahead(case):
    """Facts on what is filled while the consumer holds item 0, then 1; returns whether it fills
    ahead and blocks.
    """
    k, fills, ring, work = case.k, _Fills(), case.buffers(), iter(range(64))
    stream = case.answer(fills, work, ring)
    case.next(stream)
    filled = case.reached(k, fills.ended)
    yield f"while item 0 of {k} buffers is held, the others are filled", filled
    if not filled:
        return False
    still = case.blocks()
    yield "and none more: fills begun by then", len(fills.begun)
    yield "the buffer that is held keeps its content", ring[0][0]
    yield "the thread waits without looking again and again", still
    if not still:
        return False
    yield "the next next() gives item 1", case.next(stream)[0]
    yield "and lets one more be filled", case.reached(k + 1, fills.ended)
    wait_until(lambda: False, case.acting, WINDOW, still=10)
    begun = len(fills.begun)
    yield "and none more: fills begun by then, with item 1 held", begun
    case.close(stream)
    yield "close() while the thread waits for a buffer: it ends", case.ended("close()")
    yield "nothing is filled once close() was called", len(fills.begun) - begun
    yield "the next item that work would give", next(work, None)
    return True


def _close_while_it_fills(case):
    fills = _Fills(gated=case.items[1])
    stream = case.stream(fills)
    case.next(stream)
    case.reached(2, fills.begun)
    closing = _Consumer(stream.close, case.acting)
    wait_until(lambda: not closing.is_alive(), case.acting, 0.5, still=30)
    waits = closing.is_alive()
    fills.gate.set()
    closing.outcome("close(), called while the thread fills,")
    yield "close() waits for the thread that fills", waits and not case.new_threads()
    case.ended("close()")
    yield "close() while the thread fills item 1: fills begun", len(fills.begun)


def _consumer_waits(case):
    fills = _Fills(gated=case.items[1])
    stream = case.stream(fills)
    case.next(stream)
    waiting = _Consumer(lambda: next(stream, END), case.acting)
    still = case.blocks()
    fills.gate.set()
    yield "next() waits for the fill of its item", waiting.outcome("next()")[0]
    yield "and waits without looking again and again", still
    case.close(stream)


def _failure(case):
    """Facts on a stream whose fill, then whose work, fails at item 2."""
    fills = _Fills(refused=case.items[2])
    stream, got = case.stream(fills), []
    error = raised_at_all(lambda: got.extend([case.next(stream)[0], case.next(stream)[0]]))
    yield "fill fails at item 2: items 0 and 1 come first", [type_name(error), *got]
    error = raised_at_all(case.next, stream)
    yield "fill fails at item 2: then its exception comes out", type_name(error)
    names = [frame.name for frame in traceback.extract_tb(error.__traceback__)]
    yield "fill fails at item 2: the traceback leads to the place", "_refuse" in names
    yield "fill fails at item 2: fills begun", len(fills.begun)
    broken = (item if item != case.items[2] else _refuse(item) for item in case.items)
    yield (
        "work fails: its exception comes out",
        type_name(raised_at_all(case.values, case.stream(_Fills(), broken))),
    )


def _values(case):
    stream = case.stream(lambda item, buffer: item, [None, 0, case.items[0], None, ""])
    yield "None, 0 and '' are values, too", case.values(stream, lambda value: value)
    yield "work without items", case.values(case.stream(_Fills(), iter([])))
