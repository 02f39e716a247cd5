"""Say where a rank is, or where it failed, in the lines that its author wrote.

Real and virtual ranks share this: distributed.py has stacks from faulthandler's text, network.py
from threads.
"""

import linecache
import os
import threading
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import cloudpickle
import torch
from torch.distributed import distributed_c10d as c10d

from course.errors import RankError

_OPERATIONS_FILE = c10d.__file__
_HERE = os.path.dirname(__file__)
_COURSE = os.path.dirname(_HERE)
_LIBRARIES = tuple(os.path.dirname(module.__file__) for module in (torch, threading, cloudpickle))
_NOT_THEIRS = (*_LIBRARIES, _HERE + os.sep)


class Frame(NamedTuple):
    """A line of a stack."""

    file: str
    line: int
    function: str


def position(rank: int, frames: Sequence[tuple[str, int, str]]) -> str:
    """One line on where a rank is: its own line, and the operation that it waits in, if it waits.

    Args:
        frames: (file, line number, function) of its stack, innermost first.
    """
    frames = [Frame(*frame) for frame in frames]
    own = _own_line(frames)
    inner = frames[:own]  # own is None: all of them
    operations = [frame.function for frame in inner if frame.file == _OPERATIONS_FILE]
    if own is None and operations:
        return f"rank {rank} waits in {operations[-1]}, outside your code."
    if own is None:
        return f"rank {rank} does not say where it is: it may not have started yet."
    file, line, _ = frames[own]
    waits = f"waits in {operations[-1]}, line" if operations else "is in line"
    is_cell = "ipykernel_" in file or file.startswith("<")
    name = "the cell" if is_cell else Path(file).name
    return f"rank {rank} {waits} {line} of {name}: {linecache.getline(file, line).strip()}"


def _own_line(frames: Sequence[Frame]) -> int | None:
    """The index of the innermost frame that the author of the rank's code wrote, or None.

    A probe calls the answer, so frames of the course count only if there are no others.
    """
    of_course = None
    for i, frame in enumerate(frames):
        if frame.file.startswith(_NOT_THEIRS) or not _has_source(frame):
            continue
        if not frame.file.startswith(_COURSE):
            return i
        if of_course is None:
            of_course = i
    return of_course


def _has_source(frame: Frame) -> bool:
    """True if the source of the line can be shown.

    "<string>", from which Python starts a process, has none.
    """
    return not frame.file.startswith("<") or bool(linecache.getline(frame.file, frame.line).strip())


def of_rank(error: BaseException, rank: int) -> BaseException:
    """`error` with `rank` and `frames`, a list of (file, line number), outermost first.

    In place of an exception that would end the caller too, a RankError.
    """
    stack = traceback.extract_tb(error.__traceback__)
    frames = [(frame.filename, frame.lineno) for frame in stack]
    if isinstance(error, (SystemExit, KeyboardInterrupt)):
        error = RankError(f"rank {rank} ended itself by {type(error).__name__}: {error}")
    error.rank = rank
    error.frames = frames
    return error
