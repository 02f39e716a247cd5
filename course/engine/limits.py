"""Run an answer within limits of time and output, and say what ended it.

process_state.py keeps what the answer prints and changes. This guards against accidents, not
against malice.
"""

import contextlib
import os
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import FrameType
from typing import Any

from course.engine.process_state import captured, kept_state
from course.engine.stops import LimitReached, MachineBusy, Raised, Stop, describe
from course.system.busy import PATIENCE, is_busy

PRINTED_BYTES_MAX = 4_000  # of the output that is kept for the report
TICK_SECONDS = 0.05  # between two checks of the time and the output


@dataclass(frozen=True)
class Limits:
    """The limits of an answer.

    Attributes:
        seconds: on the clock; on a busy machine, those in which it had a processor.
        output: bytes that it may print.
    """

    seconds: float = 20.0
    output: int = 1_000_000


def run_answer(run: Callable[[], object], answer: Any, limits: Limits) -> tuple[Raised | None, str]:
    """Call `run()` and return (what ended it or None, what was printed).

    Random numbers, settings and streams are the caller's own again afterwards.

    Args:
        answer: what is asked, so that the line of it that raised can be named.
    """
    raised = None
    with tempfile.TemporaryFile() as file:
        try:
            with kept_state(), captured(file.fileno()):
                raised = _what_ended(run, answer, limits, file.fileno())
        except RuntimeError as error:  # random states of GPUs cannot be read or restored
            if "CUDA error" not in str(error):
                raise
            raised = Raised(Stop.GPU_LOST, type(error).__name__)
        file.seek(0)
        return raised, file.read(PRINTED_BYTES_MAX).decode(errors="replace")


def _what_ended(
    run: Callable[[], object], answer: Any, limits: Limits, descriptor: int
) -> Raised | None:
    """Call `run()` within `limits`; return what ended it, None if it came to its end."""
    try:
        with limited(limits, descriptor):
            run()
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        return describe(error, answer)
    return None


@contextlib.contextmanager
def limited(limits: Limits, descriptor: int) -> Iterator[None]:
    """Raise LimitReached inside the block when it runs too long or `descriptor` grows too large.

    On a busy machine only seconds in which this process had a processor count, up to PATIENCE times
    on the clock. A nested block has its own limits; those of the outer block apply again after it.
    Only the main thread can be limited; in others the block runs without limits.
    """
    is_main = threading.current_thread() is threading.main_thread()
    if not is_main or not hasattr(signal, "setitimer"):
        yield
        return
    began = time.monotonic()
    used = time.process_time()
    has_ended = False
    here = sys._getframe().f_code

    def check(signum: int, frame: FrameType | None) -> None:
        if has_ended or not frame or _is_leaving(frame, here):
            return
        if time.monotonic() > began + limits.seconds:
            _raise_if_too_late(limits.seconds, began, used)
        if os.fstat(descriptor).st_size > limits.output:
            raise LimitReached(
                f"your code printed more than {limits.output:,} bytes and was stopped."
            )

    before = signal.signal(signal.SIGALRM, check)
    # repeated: an `except:` in the answer can catch one
    outer = signal.setitimer(signal.ITIMER_REAL, TICK_SECONDS, TICK_SECONDS)
    try:
        yield
        if os.fstat(descriptor).st_size > limits.output:
            raise LimitReached(f"your code printed more than {limits.output:,} bytes.")
    finally:
        has_ended = True
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
        signal.setitimer(signal.ITIMER_REAL, *outer)


def _is_leaving(frame: FrameType, code: object) -> bool:
    """Whether a signal came on the way out of `limited`, where raising would keep the timer on."""
    return frame.f_code is code or frame.f_code.co_filename == contextlib.__file__


def _raise_if_too_late(seconds: float, began: float, used: float) -> None:
    """Stop an answer that has had its `seconds`, unless others had the processors meanwhile.

    Args:
        began, used: time on the clock and of this process on a processor when the answer began.
    """
    own = time.process_time() - used
    if own >= seconds or not is_busy():
        raise LimitReached(f"your code ran longer than {seconds:g} seconds and was stopped.")
    if time.monotonic() > began + PATIENCE * seconds:
        raise MachineBusy(
            f"the machine is too busy: the check was stopped after {PATIENCE * seconds:g} seconds, "
            f"in which it had a processor for {own:.1f}. This says nothing of your code; run the "
            "check again."
        )
