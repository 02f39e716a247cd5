"""Probe of exercise read_ahead."""

import contextvars
import gc
import sys
import threading
import time
import traceback
from concurrent.futures import thread as pools
from unittest import mock

import torch

from course.checks.engine import exercise
from course.checks.probing.errors import Stuck, raised_at_all, type_name
from course.checks.probing.threads import END, wait_until

WAIT = 2.0  # seconds that a call of the answer gets
SOON = 1.0  # seconds that a thread gets to end
WINDOW = 0.12  # seconds in which a thread that polls runs at least one line
PAUSE = 0.04  # seconds after a release in which the other thread goes on
_before = contextvars.ContextVar("the threads that were there before the probe", default=frozenset())


class _Consumer(threading.Thread):
    """A thread that makes one call, which may never return, and keeps its result or exception."""

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
        self.join(0.01)  # most take less
        if not wait_until(lambda: not self.is_alive(), _acting, WAIT):
            raise Stuck(f"{what} does not come back: who waits here, and for whom?")
        if self.error is not None:
            raise self.error
        return self.result


def _acting():
    """The threads that have been started since the probe began."""
    return set(threading.enumerate()) - _before.get()


def _next(stream):
    return _Consumer(lambda: next(stream, END)).outcome("next()")


def _close(stream):
    return _Consumer(stream.close).outcome("close()")


def _rest(stream):
    """The contents of all buffers that `stream` yields, each read before the next is asked for."""
    return _Consumer(lambda: [value[0] for value in stream]).outcome("a loop over the generator")


class _Threads:
    """Threads started after this object, except those of the probe."""

    def __init__(self):
        _before.set(frozenset(threading.enumerate()))

    def new(self):
        return [thread for thread in _acting() if not isinstance(thread, _Consumer)]

    def gone(self, after):
        """True when no new thread runs any more; Stuck if that takes too long."""
        if not wait_until(lambda: not self.new(), self.new, SOON):
            raise Stuck(f"a thread still runs after {after}; what should have ended it?")
        return True


def _slow_release(semaphore, n=1, release=threading.Semaphore.release):
    """Release, then give the thread that waited time to run: what comes after a release comes too late."""
    release(semaphore, n)
    time.sleep(PAUSE)


def _holds_up_exit(threads, patience=0.3):
    """What the end of the interpreter would wait for, in words: a pool's thread is woken then if it has no task."""
    until = time.monotonic() + patience
    while waited := [t for t in threads if t.is_alive() and not t.daemon and not _idle(t)]:
        if time.monotonic() > until:
            of_pool = waited[0] in pools._threads_queues
            return "a task of an executor that waits for a buffer" if of_pool else "a thread that is no daemon"
        time.sleep(0.002)
    return "nothing"


def _idle(thread):
    """True for the thread of an executor that waits for a task."""
    frame = sys._current_frames().get(thread.ident)
    return thread in pools._threads_queues and frame is not None and frame.f_code is pools._worker.__code__


class _Watch:
    """Inside `with`, counts the lines of Python that new threads run: a thread that blocks runs none."""

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
        """True as soon as no line has run for WINDOW seconds; False after four tries."""
        for _ in range(4):  # a thread about to block needs a moment
            before = self.lines
            time.sleep(WINDOW)
            if self.lines == before:
                return True
        return False


class _Fills:
    """A `fill` that records its calls, waits at item `gated` until `gate` is set, and raises at item `refused`."""

    def __init__(self, gated=END, refused=END, error=LookupError):
        self.gated, self.refused, self.error, self.gate = gated, refused, error, threading.Event()
        self.begun, self.ended, self.threads = [], [], set()

    def __call__(self, item, buffer):
        self.threads.add(threading.current_thread())
        self.begun.append((item, buffer))
        if item == self.gated:
            self.gate.wait(2 * WAIT)
        if item == self.refused:
            self.refuse(item)
        buffer[0] = item
        self.ended.append(item)
        return [item]

    def refuse(self, item):
        raise self.error(f"cannot fill {item}")

    def reached(self, n, calls):
        """True when there are `n` calls; False if there will not be."""
        return wait_until(lambda: len(calls) >= n, _acting, WAIT)


class _Work:
    """An iterable of `items` that counts requests and, with `breaks`, raises instead of giving the last item."""

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


class _Case:
    """The answer, `items` to fill, the number `k` of buffers, and the threads that were started since."""

    def __init__(self, answer, seed):
        rng = torch.Generator().manual_seed(seed)
        self.answer, self.k, n = answer, 3 + seed % 2, 8 + seed % 3
        self.items = (torch.randperm(90, generator=rng)[:n] + 10).tolist()
        self.threads = _Threads()

    def buffers(self, k=None):
        return [[None] for _ in range(self.k if k is None else k)]

    def stream(self, fills, work=None, k=None):
        """A new generator of the answer, over `items` if no other work is given."""
        return self.answer(fills, self.items if work is None else work, self.buffers(k))


@exercise()
def read_ahead(answer, device, seed):
    """Fills that wait at a gate, so that the probe knows what may have happened before it opens.

    Ends early where every later fact would wait for something that never comes.
    """
    case = _Case(answer, seed)
    # an exception left in a thread must not be reported by pytest or IPython
    with mock.patch.object(threading, "excepthook", lambda _: None), _Watch() as watch:
        if (yield from _begin(case)) and (yield from _how_far_ahead(case, watch)):
            yield from _close_while_it_fills(case)
            yield from _close_while_a_fill_fails(case)
            yield from _consumer_waits(case, watch)
            yield from _failure(case)
            yield from _odd_work(case)


def _begin(case):
    """Facts on the start, the order and the thread; returns whether there is one that fills."""
    fills, ring = _Fills(), case.buffers()
    stream = case.answer(fills, case.items, ring)
    early = bool(case.threads.new())
    yield "no thread runs before the first next()", not early
    if early:
        return False
    yield "nothing is filled before the first next()", not fills.begun
    if fills.begun:
        return False
    yield "yields what fill returned, in the order of work", _rest(stream)
    yield "the buffers are used in turn", [[b is buffer for b in ring].index(True) for _, buffer in fills.begun]
    apart = not any(isinstance(t, _Consumer) for t in fills.threads)
    yield "fill is not called by the consumer", apart
    if not apart:
        return False
    yield "all fills happen in one thread", len(fills.threads)
    yield "no thread is left at the end", case.threads.gone("the end")
    yield from _exit_and_few_buffers(case)
    return True


def _exit_and_few_buffers(case):
    fills = _Fills()
    stream = case.stream(fills)
    next(stream)  # called here, because a daemon like _Consumer starts daemons
    fills.reached(case.k, fills.ended)
    yield "a generator is left open: the end of the interpreter waits for", _holds_up_exit(fills.threads)
    _rest(stream)
    yield "two buffers are enough", _rest(case.stream(_Fills(), k=2))
    yield "one buffer raises", type_name(raised_at_all(lambda: _next(case.stream(_Fills(), k=1))))


def _how_far_ahead(case, watch):
    """Facts on what is filled while the consumer holds item 0, then 1; returns whether it fills ahead and blocks."""
    k, fills, work, ring = case.k, _Fills(), _Work(range(64)), case.buffers()
    stream = case.answer(fills, work, ring)
    _next(stream)
    filled = fills.reached(k, fills.ended)
    yield f"while item 0 of {k} buffers is held, the others are filled", filled
    if not filled:
        return False
    still = watch.still()
    yield "and none more: fills begun by then", len(fills.begun)
    yield "items that work was asked for by then", work.asked
    yield "the buffer that is held keeps its content", ring[0][0]
    yield "the thread waits without looking again and again", still
    if not still:
        return False
    second = _next(stream)[0]
    yield "the next next() gives item 1", second
    yield "and lets one more be filled", fills.reached(k + 1, fills.ended)
    wait_until(lambda: False, _acting, WINDOW, still=10)
    yield "and none more: fills begun by then, with item 1 held", len(fills.begun)
    asked, begun = work.asked, len(fills.begun)
    with mock.patch.object(threading.Semaphore, "release", _slow_release):
        _close(stream)
    yield "close() while the thread waits for a buffer: it ends", case.threads.gone("close()")
    yield "nothing is filled once close() was called", len(fills.begun) - begun
    yield "work is asked for nothing once close() was called", work.asked - asked
    yield "next() after close() finds the end", _next(stream) is END
    return True


def _close_while_it_fills(case):
    for patience in (0.05, 0.5):  # seconds that close() needs until it has told the thread
        fills = _Fills(gated=case.items[1])
        stream = case.stream(fills)
        _next(stream)
        fills.reached(2, fills.begun)
        closing = _Consumer(stream.close)
        wait_until(lambda closing=closing: not closing.is_alive(), _acting, patience, still=30)
        left = 0 if closing.is_alive() else len(case.threads.new())
        fills.gate.set()
        closing.outcome("close(), called while the thread fills,")
        left = left or len(case.threads.new())
        case.threads.gone("close()")
        if len(fills.begun) == 2:
            break
    yield "close() while the thread fills: it has ended when close() returns", left == 0
    yield "close() while the thread fills item 1: fills begun", len(fills.begun)


def _close_while_a_fill_fails(case):
    fills = _Fills(gated=case.items[1], refused=case.items[1])
    stream = case.stream(fills)
    _next(stream)
    fills.reached(2, fills.begun)
    closing = _Consumer(stream.close)
    fills.gate.set()
    error = raised_at_all(closing.outcome, "close(), called while the thread fills,")
    yield "close() while the thread fills, and that fill fails: close() raises", type_name(error)
    case.threads.gone("close()")
    fills = _Fills()
    _close(case.stream(fills))
    yield "close() before the first next(): nothing is filled", case.threads.gone("close()") and not fills.begun


def _consumer_waits(case, watch):
    fills = _Fills(gated=case.items[1])
    stream = case.stream(fills)
    _next(stream)
    waiting = _Consumer(lambda: next(stream, END))
    still = watch.still()
    fills.gate.set()
    yield "next() waits for the fill of its item", waiting.outcome("next()")[0]
    yield "and waits without looking again and again", still
    raised_at_all(lambda: _Consumer(lambda: stream.throw(KeyboardInterrupt())).outcome("throw()"))
    yield "a KeyboardInterrupt in the consumer ends the thread", case.threads.gone("a KeyboardInterrupt")


def _failure(case):
    """Facts on a stream whose fill, then whose work, fails at item 2."""
    fills = _Fills(refused=case.items[2])
    stream, got = case.stream(fills), []
    error = raised_at_all(lambda: got.extend([_next(stream)[0], _next(stream)[0]]))
    yield "fill fails at item 2: items 0 and 1 come first", [type_name(error), *got]
    error = raised_at_all(_next, stream)
    yield "fill fails at item 2: then its exception comes out", type_name(error)
    names = [frame.name for frame in traceback.extract_tb(error.__traceback__)]
    yield "fill fails at item 2: the traceback leads to the place", "refuse" in names
    yield "fill fails at item 2: the thread has ended", case.threads.gone("an exception of fill")
    yield "fill fails at item 2: fills begun", len(fills.begun)
    stream = case.stream(_Fills(), _Work(case.items[:3], breaks=True))
    yield "work fails: its exception comes out", type_name(raised_at_all(_rest, stream))


def _odd_work(case):
    stream = case.stream(lambda item, buffer: item, [None, 0, case.items[0], None, ""])
    yield "None, 0 and '' are values, too", _Consumer(lambda: list(stream)).outcome("a loop over the generator")
    yield "work without items", _rest(case.stream(_Fills(), iter([])))
    _drop(case, _Fills())
    if case.threads.new():
        gc.collect(1)  # Python may have to be reminded of what refers to itself
    yield "a generator that nobody holds any more ends its thread", case.threads.gone("its generator was dropped")


def _drop(case, fills):
    """Begin a generator that nobody holds after this call."""
    stream = case.stream(fills)
    _next(stream)
    fills.reached(case.k, fills.ended)
