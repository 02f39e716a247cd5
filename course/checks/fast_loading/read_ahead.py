"""Probe of exercise read_ahead."""

import contextlib
import threading
import time
import traceback
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence, Sized
from concurrent.futures import thread as pools
from typing import Any
from unittest import mock

import torch

from course.engine.exercise import Answer, Facts, exercise
from course.engine.probing.errors import Stuck, raised_at_all, type_name
from course.engine.probing.threads import END, wait_until

CALL_SECONDS = 2.0  # that a call of the answer gets
END_SECONDS = 1.0  # that a thread gets to end
WINDOW_SECONDS = 0.12  # in which a thread that polls runs at least one line
ITEMS = 64  # of work that the answer must not read to its end

FactsAndWhether = Generator[tuple[str, object], None, bool]  # returns whether to continue


class _Consumer(threading.Thread):
    """A thread that makes one call, which may never return, and keeps its result or exception."""

    def __init__(
        self, call: Callable[[], Any], acting: Callable[[], Iterable[threading.Thread]]
    ) -> None:
        super().__init__(daemon=True)
        self.call = call
        self.acting = acting
        self.result = None
        self.error = None
        self.start()

    def run(self) -> None:
        try:
            self.result = self.call()
        except BaseException as error:
            self.error = error

    def outcome(self, what: str) -> Any:
        """What the call returns or raises; Stuck if it does neither."""
        if not wait_until(lambda: not self.is_alive(), self.acting, CALL_SECONDS):
            raise Stuck(f"{what} does not come back: who waits here, and for whom?")
        if self.error is not None:
            raise self.error
        return self.result


class _Fills:
    """A `fill` that records its calls.

    It waits at item `gated` until `gate` is set, and raises at item `refused`.
    """

    def __init__(self, gated: object = END, refused: object = END) -> None:
        self.gated = gated
        self.refused = refused
        self.gate = threading.Event()
        self.begun = []
        self.ended = []
        self.threads = set()

    def __call__(self, item: Any, buffer: list) -> list:
        self.threads.add(threading.current_thread())
        self.begun.append((item, buffer))
        if item == self.gated:
            self.gate.wait(2 * CALL_SECONDS)
        if item == self.refused:
            _refuse(item)
        buffer[0] = item
        self.ended.append(item)
        return [item]


def _refuse(item: Any) -> None:
    raise LookupError(f"cannot fill {item}")


class _Case:
    """The answer, `items` to fill, the number `k` of buffers, and the threads from before."""

    def __init__(self, answer: Answer, seed: int) -> None:
        rng = torch.Generator().manual_seed(seed)
        self.answer = answer
        self.k = 3 + seed % 2
        self.items = (torch.randperm(90, generator=rng)[: 8 + seed % 3] + 10).tolist()
        self.lines = 0
        self.threads_before = set(threading.enumerate())

    def count_line(self, *_: Any) -> Callable[..., Any]:
        """Trace of the threads that are started: count the lines of Python that they run."""
        self.lines += 1
        return self.count_line

    def blocks(self) -> bool:
        """True as soon as no line has run for WINDOW_SECONDS; False after four tries.

        A thread needs time to block.
        """
        for _ in range(4):
            before = self.lines
            time.sleep(WINDOW_SECONDS)
            if self.lines == before:
                return True
        return False

    def buffers(self, k: int | None = None) -> list[list]:
        """`k` buffers, each a list of one item."""
        return [[None] for _ in range(k or self.k)]

    def stream(
        self, fills: Callable[..., Any], work: Iterable | None = None, k: int | None = None
    ) -> Iterator:
        """A new generator of the answer, over `items` if no other work is given."""
        return self.answer(fills, self.items if work is None else work, self.buffers(k))

    def acting(self) -> set[threading.Thread]:
        """The threads that were not there before."""
        return set(threading.enumerate()) - self.threads_before

    def new_threads(self) -> list[threading.Thread]:
        """The threads that the answer has started."""
        return [thread for thread in self.acting() if not isinstance(thread, _Consumer)]

    def ended(self, after: str) -> bool:
        """True when no thread of the answer runs any more; Stuck if that takes too long."""
        if not wait_until(lambda: not self.new_threads(), self.new_threads, END_SECONDS):
            raise Stuck(f"a thread still runs after {after}; what should have ended it?")
        return True

    def reached(self, n: int, calls: Sized) -> bool:
        """True when there are `n` calls; False if there will not be."""
        return wait_until(lambda: len(calls) >= n, self.acting, CALL_SECONDS)

    def next(self, stream: Iterator) -> Any:
        """The next value of `stream`, asked for in a thread; END at its end."""
        return _Consumer(lambda: next(stream, END), self.acting).outcome("next()")

    def close(self, stream: Generator) -> None:
        """Close `stream`, in a thread."""
        _Consumer(stream.close, self.acting).outcome("close()")

    def values(
        self, stream: Iterator, value: Callable[[Any], Any] = lambda value: value[0]
    ) -> list:
        """What `value` makes of each value of `stream` before the next is asked for.

        By default the content of the buffer.
        """
        consumer = _Consumer(lambda: list(map(value, stream)), self.acting)
        return consumer.outcome("a loop over the generator")


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
        in_thread = yield from _order_and_thread(case)
        if not in_thread:
            return
        fills_ahead = yield from _how_far_ahead(case)
        if not fills_ahead:
            return
        yield from _close_while_it_fills(case)
        yield from _consumer_waits(case)
        yield from _failure(case)
        yield from _values(case)


def _order_and_thread(case: _Case) -> FactsAndWhether:
    """Facts on the start, the order and the thread; returns whether there is one that fills."""
    fills = _Fills()
    ring = case.buffers()
    stream = case.answer(fills, case.items, ring)
    early = bool(case.new_threads() or fills.begun)
    yield "nothing is filled and no thread runs before the first next()", not early
    if early:
        return False
    yield "yields what fill returned, in the order of work", case.values(stream)
    numbers = [_position(buffer, ring) for _, buffer in fills.begun]
    yield "the buffers are used one after the other", numbers
    in_thread = not any(isinstance(thread, _Consumer) for thread in fills.threads)
    yield "fill is not called by the consumer", in_thread
    if not in_thread:
        return False
    yield "all fills happen in one thread", len(fills.threads)
    yield "no thread is left at the end", case.ended("the end")
    fills = _Fills()
    stream = case.stream(fills)
    next(stream)  # called here, because a daemon like _Consumer starts daemons
    let_go = [thread.daemon or thread in pools._threads_queues for thread in fills.threads]
    yield "the end of the interpreter does not wait for its thread", all(let_go)
    case.values(stream)
    yield "two buffers are enough", case.values(case.stream(_Fills(), k=2))
    error = raised_at_all(lambda: case.next(case.stream(_Fills(), k=1)))
    yield "one buffer raises", type_name(error)
    return True


def _position(buffer: list, ring: Sequence[list]) -> int:
    """Where in the ring this very buffer is; buffers may be equal."""
    return [one is buffer for one in ring].index(True)


def _how_far_ahead(case: _Case) -> FactsAndWhether:
    """Facts on what is filled while the consumer holds item 0, then 1.

    Returns whether it fills ahead and blocks.
    """
    k = case.k
    fills = _Fills()
    ring = case.buffers()
    work = iter(range(ITEMS))
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
    wait_until(lambda: False, case.acting, WINDOW_SECONDS, still=10)
    begun = len(fills.begun)
    yield "and none more: fills begun by then, with item 1 held", begun
    case.close(stream)
    yield "close() while the thread waits for a buffer: it ends", case.ended("close()")
    yield "nothing is filled once close() was called", len(fills.begun) - begun
    yield "the next item that work would give", next(work, None)
    return True


def _close_while_it_fills(case: _Case) -> Facts:
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


def _consumer_waits(case: _Case) -> Facts:
    fills = _Fills(gated=case.items[1])
    stream = case.stream(fills)
    case.next(stream)
    waiting = _Consumer(lambda: next(stream, END), case.acting)
    still = case.blocks()
    fills.gate.set()
    yield "next() waits for the fill of its item", waiting.outcome("next()")[0]
    yield "and waits without looking again and again", still
    case.close(stream)


def _failure(case: _Case) -> Facts:
    """Facts on a stream whose fill, then whose work, fails at item 2."""
    fills = _Fills(refused=case.items[2])
    stream = case.stream(fills)
    got = []
    error = raised_at_all(lambda: got.extend([case.next(stream)[0], case.next(stream)[0]]))
    yield "fill fails at item 2: items 0 and 1 come first", [type_name(error), *got]
    error = raised_at_all(case.next, stream)
    yield "fill fails at item 2: then its exception comes out", type_name(error)
    names = [frame.name for frame in traceback.extract_tb(error.__traceback__)]
    yield "fill fails at item 2: the traceback leads to the place", "_refuse" in names
    yield "fill fails at item 2: fills begun", len(fills.begun)
    error = raised_at_all(case.values, case.stream(_Fills(), _failing_work(case.items)))
    yield "work fails: its exception comes out", type_name(error)


def _failing_work(items: Sequence[int]) -> Iterator[int]:
    """The first two items, then an error."""
    yield items[0]
    yield items[1]
    _refuse(items[2])


def _values(case: _Case) -> Facts:
    stream = case.stream(lambda item, buffer: item, [None, 0, case.items[0], None, ""])
    yield "None, 0 and '' are values, too", case.values(stream, lambda value: value)
    yield "work without items", case.values(case.stream(_Fills(), iter([])))
