"""Run an answer within limits of time and output, without input, and restore random state and
settings afterwards.

File descriptors 1 and 2 go to a temporary file while the answer runs, which also catches child
processes and C
libraries: nbgrader gives 0 points for any byte on stderr. This guards against accidents, not
against malice.
"""

import builtins
import contextlib
import io
import os
import random
import signal
import sys
import tempfile
import threading
import time
import warnings
from dataclasses import dataclass
from functools import partial
from unittest import mock

import numpy
import torch

from course.engine.stops import AskedForInput, LimitReached, MachineBusy, Raised, Stop, describe
from course.system.busy import PATIENCE, is_busy

# (read, write, value while an answer or the reference runs), whatever a notebook has set
_SETTINGS = (
    (torch.is_grad_enabled, torch.set_grad_enabled, True),
    (torch.get_default_dtype, torch.set_default_dtype, torch.float32),
    (torch.get_num_threads, torch.set_num_threads, torch.get_num_threads()),
    (torch.are_deterministic_algorithms_enabled, torch.use_deterministic_algorithms, False),
    (torch.get_float32_matmul_precision, torch.set_float32_matmul_precision, "highest"),
    (torch.is_anomaly_enabled, torch.autograd.set_detect_anomaly, False),
    *(
        (partial(torch.is_autocast_enabled, k), partial(torch.set_autocast_enabled, k), False)
        for k in ("cpu", "cuda")
    ),
)
SHOWN = 4_000  # bytes of output kept for the report
TICK = 0.05  # seconds between two checks of the time and the output


@dataclass(frozen=True)
class Limits:
    """The limits of an answer: seconds, of its own on a busy machine, and bytes of output."""

    seconds: float = 20.0
    output: int = 1_000_000


def run_answer(run, answer, limits: Limits) -> tuple[Raised | None, str]:
    """Call `run()` and return (Raised or None, what was printed); random state and streams are
    restored.
    """
    raised = None
    with tempfile.TemporaryFile() as file:
        try:
            with _kept_state(), _captured(file.fileno()):
                try:
                    with limited(limits, file.fileno()):
                        run()
                except KeyboardInterrupt:
                    raise
                except BaseException as error:
                    raised = describe(error, answer)
        except RuntimeError as error:  # random states of GPUs cannot be read or restored
            if "CUDA error" not in str(error):
                raise
            raised = Raised(Stop.GPU_LOST, type(error).__name__)
        file.seek(0)
        return raised, file.read(SHOWN).decode(errors="replace")


@contextlib.contextmanager
def _kept_state():
    """Seed random numbers and neutralise settings inside the block; restore the caller's
    afterwards.
    """
    saved = (
        random.getstate(),
        numpy.random.get_state(),
        numpy.geterr(),
        os.getcwd(),
        torch.empty(0).device,
    )
    settings = [get() for get, _, _ in _SETTINGS]
    gpus = range(torch.cuda.device_count()) if torch.cuda.is_available() else []
    # the former is slower
    seed = torch.manual_seed if gpus else torch.default_generator.manual_seed
    with torch.random.fork_rng(devices=gpus), warnings.catch_warnings():
        warnings.simplefilter("default")
        torch.set_default_device(None)
        _set([inside for _, _, inside in _SETTINGS])
        seed(0)
        random.seed(0)
        numpy.random.seed(0)
        try:
            yield
        finally:
            _set(settings)
            torch.set_default_device(None if saved[4].type == "cpu" else saved[4])
            os.chdir(saved[3])
            numpy.seterr(**saved[2])
            numpy.random.set_state(saved[1])
            random.setstate(saved[0])


def _set(values):
    for (get, set_, _), value in zip(_SETTINGS, values, strict=True):
        if (
            get() != value
        ):  # or torch imports its compiler, which takes a second, to switch determinism off
            set_(value)


@contextlib.contextmanager
def _captured(descriptor):
    """Send everything printed inside the block, by any means, to `descriptor`; refuse requests for
    input.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    with contextlib.ExitStack() as stack:
        for number in (1, 2):
            stack.callback(_restore, os.dup(number), number)
            os.dup2(descriptor, number)
        stream = _Stream(
            os.fdopen(os.dup(descriptor), "wb", 0), errors="replace", write_through=True
        )
        stack.callback(stream.close)
        for old in {id(s): s for s in (sys.stdout, sys.stderr)}.values():
            if hasattr(
                old, "__dict__"
            ):  # a notebook's stream, kept by a logging handler, has no descriptor of its own
                stack.enter_context(mock.patch.object(old, "write", stream.write))
        for name, value in (("stdout", stream), ("stderr", stream), ("stdin", _NoInput())):
            stack.enter_context(mock.patch.object(sys, name, value))
        stack.enter_context(mock.patch.object(builtins, "input", _no_input))
        yield


@contextlib.contextmanager
def limited(limits, descriptor):
    """Raise LimitReached inside the block when it runs too long or `descriptor` grows too large
    (main thread only).

    On a busy machine only seconds in which this process had a processor count, up to PATIENCE times
    on the clock. A nested block has its own limits; those of the outer block apply again after it.
    """
    if threading.current_thread() is not threading.main_thread() or not hasattr(
        signal, "setitimer"
    ):
        yield
        return
    began, used, ended, here = time.monotonic(), time.process_time(), False, sys._getframe().f_code

    def look(signum, frame):
        if (
            ended
            or not frame
            or frame.f_code is here
            or frame.f_code.co_filename == contextlib.__file__
        ):
            return  # raising on the way out would leave the timer running
        if time.monotonic() > began + limits.seconds and (
            late := _too_late(limits.seconds, began, used)
        ):
            raise late
        if os.fstat(descriptor).st_size > limits.output:
            raise LimitReached(
                f"your code printed more than {limits.output:,} bytes and was stopped."
            )

    before = signal.signal(signal.SIGALRM, look)
    # repeated: an `except:` in the answer can catch one
    outer = signal.setitimer(signal.ITIMER_REAL, TICK, TICK)
    try:
        yield
        if os.fstat(descriptor).st_size > limits.output:
            raise LimitReached(f"your code printed more than {limits.output:,} bytes.")
    finally:
        ended = True
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
        signal.setitimer(signal.ITIMER_REAL, *outer)


def _too_late(seconds, began, used):
    """What stops an answer that has had its `seconds` on the clock; None if others had the
    processors meanwhile.
    """
    own = time.process_time() - used
    if own >= seconds or not is_busy():
        return LimitReached(f"your code ran longer than {seconds:g} seconds and was stopped.")
    if time.monotonic() > began + PATIENCE * seconds:
        return MachineBusy(
            f"the machine is too busy: the check was stopped after {PATIENCE * seconds:g} seconds, in which it had a "
            f"processor for {own:.1f}. This says nothing of your code; run the check again."
        )
    return None


def _restore(saved, number):
    os.dup2(saved, number)
    os.close(saved)


def _no_input(prompt=""):
    raise AskedForInput("your code asks for input, but nobody is at the keyboard; remove input().")


class _Stream(io.TextIOWrapper):
    """The stream that an answer prints to. Once closed it forwards to stdout, because logging
    handlers may keep it.
    """

    def write(self, text):
        return sys.stdout.write(text) if self.closed else super().write(text)

    def flush(self):
        if not self.closed:
            super().flush()


class _NoInput(io.TextIOBase):
    def read(self, size=-1):
        _no_input()

    readline = read
