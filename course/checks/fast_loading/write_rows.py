"""Probe of exercise write_rows."""

import gc
import os
import tempfile
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch

from course.engine.exercise import Answer, Facts, exercise
from course.engine.probing.errors import error_text
from course.engine.probing.laws import tried
from course.engine.probing.tensors import kind

OLDER = b"the older file"
PRIVATE = "rw-p"  # may be written, and what is written does not reach the file: proc_pid_maps(5)


class _Parts:
    """Parts of a file, made when they are asked for, with notes of what was there then.

    Args:
        lengths: rows of each part.
        fails_at: number of the part that cannot be made.
    """

    def __init__(
        self, path: Path, lengths: list[int], columns: int, seed: int, fails_at: int | None = None
    ) -> None:
        self.path = path
        self.fails_at = fails_at
        rows = np.random.default_rng(seed).standard_normal((sum(lengths), columns), np.float32)
        self.rows = rows
        self.borders = np.cumsum([0, *lengths]).tolist()
        self.seen = []  # what was at `path` when a part was asked for
        self.most = 0  # parts of before that were still in memory then
        self.neighbours = []  # the other files of the folder then, the last time
        self._made = []

    def __iter__(self) -> Iterator[np.ndarray]:
        for number in range(len(self.borders) - 1):
            self._note()
            if number == self.fails_at:
                raise OSError(f"part {number} cannot be made")
            yield self._part(number)
        self._note()

    def _part(self, number: int) -> np.ndarray:
        part = self.rows[self.borders[number] : self.borders[number + 1]].copy()
        self._made.append(weakref.ref(part))
        return part

    def _note(self) -> None:
        if self._alive() > self.most:
            gc.collect()  # of parts in cycles; it takes a second in a process with many objects
            self.most = max(self.most, self._alive())
        self.seen.append(_content(self.path))
        self.neighbours = [name for name in os.listdir(self.path.parent) if name != self.path.name]

    def _alive(self) -> int:
        """How many parts are in memory."""
        return sum(part() is not None for part in self._made)


def _content(path: Path) -> str:
    """What is at `path`: "nothing", "the older file" or "another file"."""
    if not path.exists():
        return "nothing"
    return "the older file" if path.read_bytes() == OLDER else "another file"


def _mapping_of(tensor: torch.Tensor, path: Path) -> str:
    """How the memory of `tensor` is mapped from the file: PRIVATE, or other flags, or "not".

    A system that does not say so gets the benefit of the doubt.
    """
    try:
        lines = Path("/proc/self/maps").read_text().splitlines()
    except OSError:
        return PRIVATE
    address = tensor.data_ptr()
    for line in lines:
        span, flags, *rest = line.split(maxsplit=5)
        begin, end = (int(number, 16) for number in span.split("-"))
        if begin <= address < end:
            return flags if rest[-1].endswith(path.name) else "not"
    return "not"


@exercise(changes_inputs=True, returns_no_number=True)
def write_rows(answer: Answer, device: torch.device, seed: int) -> Facts:
    """Files of one part and of several, over an older file, and with a part that fails."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "rows.f32"
        yield from _several_parts(answer, path, seed)
        yield from _one_part(answer, path, seed)
        yield from _a_part_fails(answer, path, seed)


def _several_parts(answer: Answer, path: Path, seed: int) -> Facts:
    path.write_bytes(OLDER)
    columns = 1200 + seed % 50
    parts = _Parts(path, [3 + seed % 3, 5, 4, 1], columns, seed)
    result = answer(path, parts)
    shape = parts.rows.shape
    yield "returns a float32 tensor of all rows", kind(result)
    yield "its rows are those of the parts", result
    yield "the bytes of the file", path.stat().st_size
    yield "the file holds the rows and nothing else", path.read_bytes() == parts.rows.tobytes()
    yield "how the tensor is mapped from the file", tried(_mapping_of(result, path), shape)
    yield "while parts are made, `path` is what it was", tried(sorted(set(parts.seen)), shape)
    yield "earlier parts are not kept", tried(parts.most <= 1, shape)
    is_beside = len(parts.neighbours) == 1
    yield "the unfinished file lies in the folder of `path`", tried(is_beside, shape)
    yield "what is in the folder in the end", tried(os.listdir(path.parent), shape)


def _one_part(answer: Answer, path: Path, seed: int) -> Facts:
    rows = np.random.default_rng(seed + 1).random((1, 2 + seed % 3), np.float32)
    result = answer(str(path), [rows])
    yield "a path given as str, one part of one row", result
    yield "the bytes of a shorter file than before", path.stat().st_size


def _a_part_fails(answer: Answer, path: Path, seed: int) -> Facts:
    path.write_bytes(OLDER)
    columns = 8 + seed % 5
    broken = _Parts(path, [2, 2, 2], columns, seed, fails_at=2)
    found = error_text(answer, path, broken)
    yield "a part cannot be made: its error comes out", tried(found, columns)
    yield "`path` is still the older file", tried(_content(path), columns)
    whole: Any = _Parts(path, [2, 2], columns, seed + 2)
    yield "the next try gives the whole file", answer(path, whole)
