"""What an answer shares with its process, kept for the caller: random numbers, settings, streams.

    with kept_state(), captured(file.fileno()):
        answer()

File descriptors 1 and 2 go to a file while the answer runs, which also catches child processes and
C libraries: nbgrader gives 0 points for any byte on stderr.
"""

import builtins
import contextlib
import io
import os
import random
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any, NamedTuple, NoReturn
from unittest import mock

import numpy
import torch

from course.engine.library_settings import kept_settings
from course.engine.stops import AskedForInput


class _Setting(NamedTuple):
    """A global setting of torch, and its value while an answer or the reference runs."""

    read: Callable[[], Any]
    write: Callable[[Any], object]
    inside: Any


def _autocast(kind: str) -> _Setting:
    read = partial(torch.is_autocast_enabled, kind)
    return _Setting(read, partial(torch.set_autocast_enabled, kind), False)


# whatever a notebook has set
_SETTINGS = (
    _Setting(torch.is_grad_enabled, torch.set_grad_enabled, True),
    _Setting(torch.get_default_dtype, torch.set_default_dtype, torch.float32),
    _Setting(torch.get_num_threads, torch.set_num_threads, torch.get_num_threads()),
    _Setting(torch.are_deterministic_algorithms_enabled, torch.use_deterministic_algorithms, False),
    _Setting(torch.get_float32_matmul_precision, torch.set_float32_matmul_precision, "highest"),
    _Setting(torch.is_anomaly_enabled, torch.autograd.set_detect_anomaly, False),
    _autocast("cpu"),
    _autocast("cuda"),
)


@contextlib.contextmanager
def kept_state() -> Iterator[None]:
    """Seed random numbers and neutralise settings inside the block; restore the caller's then."""
    python_random = random.getstate()
    numpy_random = numpy.random.get_state()
    numpy_errors = numpy.geterr()
    folder = os.getcwd()
    default_device = torch.empty(0).device
    settings = [setting.read() for setting in _SETTINGS]
    gpus = list(range(torch.cuda.device_count())) if torch.cuda.is_available() else []
    with torch.random.fork_rng(devices=gpus), warnings.catch_warnings(), kept_settings():
        warnings.simplefilter("default")
        torch.set_default_device(None)
        _set(setting.inside for setting in _SETTINGS)
        _seed(has_gpus=bool(gpus))
        try:
            yield
        finally:
            _set(settings)
            torch.set_default_device(None if default_device.type == "cpu" else default_device)
            os.chdir(folder)
            numpy.seterr(**numpy_errors)
            numpy.random.set_state(numpy_random)
            random.setstate(python_random)


def _seed(has_gpus: bool) -> None:
    if has_gpus:
        torch.manual_seed(0)
    else:  # faster
        torch.default_generator.manual_seed(0)
    random.seed(0)
    numpy.random.seed(0)


def _set(values: Iterable[Any]) -> None:
    for setting, value in zip(_SETTINGS, values, strict=True):
        # else torch imports its compiler, which takes a second, to switch determinism off
        if setting.read() != value:
            setting.write(value)


@contextlib.contextmanager
def captured(descriptor: int) -> Iterator[None]:
    """Send all that is printed in the block, by any means, to `descriptor`; refuse input."""
    sys.stdout.flush()
    sys.stderr.flush()
    with contextlib.ExitStack() as stack:
        for number in (1, 2):
            stack.callback(_restore, os.dup(number), number)
            os.dup2(descriptor, number)
        raw = os.fdopen(os.dup(descriptor), "wb", 0)
        stream = _Stream(raw, errors="replace", write_through=True)
        stack.callback(stream.close)
        for old in {id(each): each for each in (sys.stdout, sys.stderr)}.values():
            # a notebook's stream, kept by a logging handler, does not have its own descriptor
            if hasattr(old, "__dict__"):
                stack.enter_context(mock.patch.object(old, "write", stream.write))
        stack.enter_context(mock.patch.object(sys, "stdout", stream))
        stack.enter_context(mock.patch.object(sys, "stderr", stream))
        stack.enter_context(mock.patch.object(sys, "stdin", _NoInput()))
        stack.enter_context(mock.patch.object(builtins, "input", _refuse_input))
        yield


def _restore(saved: int, number: int) -> None:
    os.dup2(saved, number)
    os.close(saved)


def _refuse_input(prompt: object = "") -> NoReturn:
    raise AskedForInput("your code asks for input, but nobody is at the keyboard; remove input().")


class _Stream(io.TextIOWrapper):
    """The stream that an answer prints to.

    Once closed it forwards to stdout, because logging handlers may keep it.
    """

    def write(self, text: str) -> int:
        return sys.stdout.write(text) if self.closed else super().write(text)

    def flush(self) -> None:
        if not self.closed:
            super().flush()


class _NoInput(io.TextIOBase):
    def read(self, size: int | None = -1) -> str:
        _refuse_input()

    def readline(self, size: int = -1) -> str:  # type: ignore[override]
        _refuse_input()
