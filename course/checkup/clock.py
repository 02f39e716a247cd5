"""The step that runs now, and which phase each of its moments belongs to.

Without a GPU the times are those of the processor's clock; with one they are events in its queue,
which become seconds when the step has ended.
"""

import contextlib
import functools
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import torch

from course.checkup.phases import CODE, COMMUNICATION, CUT, FREE, TIMED, WARM, Piece, Step
from course.system.core_time import core_time


class Clock:
    """Begins and ends steps, and cuts those into phases for which it is `on`."""

    def __init__(self) -> None:
        self.cuda = torch.cuda.is_available()
        self.step = Step(WARM)
        self.on = False  # whether phases of this step are told apart
        self.is_paused = False
        self.follows_queue = False  # whether it notes how long it waits for a core
        self.first: float | None = None  # time.monotonic() of the first sign of a training
        self.doing = CODE  # the innermost function that is timed and runs now, in any step
        self.between: list[float] = []  # seconds of our own before timed and free steps
        self._thread = threading.get_ident()
        self._phases = [CODE]  # that have been entered and not left
        self._pieces: list[Piece] = []
        self._mark: Any = 0.0  # where the last piece ended
        self._queued = 0.0  # seconds in the queue for a core until then
        self._begin = time.perf_counter()
        self._end = self._begin

    @property
    def phase(self) -> str:
        """The phase that runs now."""
        return self._phases[-1]

    @property
    def n_cuts(self) -> int:
        """How often the step that runs was cut so far."""
        return len(self._pieces)

    def is_in_thread(self) -> bool:
        """Whether the caller is in the thread that is watched."""
        return threading.get_ident() == self._thread

    def note_sign(self) -> None:
        """Note that the training has begun."""
        if self.first is None:
            self.first = time.monotonic()

    def now(self) -> Any:
        """The seconds of the processor, or an event in the queue of the GPU."""
        if not self.cuda:
            return time.perf_counter()
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        return event

    def enter(self, phase: str) -> None:
        """Let `phase` begin inside the phase that runs now."""
        self._cut()
        self._phases.append(phase)

    def leave(self) -> None:
        """End the phase that runs now."""
        self._cut()
        if len(self._phases) > 1:  # else a step has ended inside the phase
            self._phases.pop()

    def queued(self) -> float:
        """Seconds that this thread has waited for a core so far; 0 if nobody asks for it."""
        spent = core_time() if self.follows_queue else None
        return 0.0 if spent is None else spent.queued

    def waited_since(self, moment: Any, queued: float) -> None:
        """Count all since a moment of `now` and `queued`, after the last cut, as COMMUNICATION."""
        self._end_piece(self.phase, moment, queued)
        self._end_piece(COMMUNICATION, self.now(), self.queued())

    def _cut(self) -> None:
        self._end_piece(self.phase, self.now(), self.queued())

    def _end_piece(self, phase: str, moment: Any, queued: float) -> None:
        self._pieces.append(Piece(phase, self._mark, moment))
        if phase != COMMUNICATION:
            self.step.queued += queued - self._queued
        self._mark = moment
        self._queued = queued

    def timed(self, phase: str, function: Callable[..., Any]) -> Callable[..., Any]:
        """`function`, whose time in steps with phases is that of `phase`."""

        @functools.wraps(function)
        def timed(*args: Any, **kwargs: Any) -> Any:
            if not self.is_in_thread():
                return function(*args, **kwargs)
            outer = self.doing
            self.doing = phase
            self.note_sign()
            entered = self.on
            if entered:
                self.enter(phase)
            try:
                return function(*args, **kwargs)
            finally:
                self.doing = outer
                if entered and self.on:
                    self.leave()

        return timed

    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
        """In the block nothing is watched, nor in the processes that are forked there."""
        was_on = self.on
        self.on = False
        self.is_paused = True
        try:
            yield
        finally:
            self.on = was_on
            self.is_paused = False

    def end_step(self) -> Step:
        """The step that ends now."""
        if self.cuda:
            torch.cuda.synchronize()
        self._end = time.perf_counter()
        self.step.seconds = self._end - self._begin
        if self.step.kind in CUT:
            self._cut()
            self.step.pieces = self._in_seconds(self._pieces)
        return self.step

    def begin_step(self, kind: str) -> None:
        """Begin the next step; it is FREE of all but the clock, or its phases are told apart."""
        self.step = Step(kind)
        self.on = kind != FREE
        self._begin = time.perf_counter()
        if kind in (TIMED, FREE):
            self.between.append(self._begin - self._end)
        if self.on:
            self._pieces = []
            self._phases[:] = [CODE]
            self._mark = self.now()
            self._queued = self.queued()

    def _in_seconds(self, pieces: list[Piece]) -> list[Piece]:
        if not self.cuda:
            return pieces
        torch.cuda.synchronize()
        zero = pieces[0].start
        in_seconds = []
        for name, start, end in pieces:
            start_seconds = zero.elapsed_time(start) / 1000
            end_seconds = zero.elapsed_time(end) / 1000
            in_seconds.append(Piece(name, start_seconds, end_seconds))
        return in_seconds
