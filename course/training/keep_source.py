"""Write answers into a module that does not need the course: answers -> *a file* to keep."""

import ast
import inspect
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FunctionType

from course.errors import CourseError
from course.system.files import write_text
from course.system.folders import data_folder

BATCHES = '''"""Batches of ragged sequences, from unit 05 of the course: keep it, change it.

    sampler = BucketBatchSampler(lengths, batch_size={batch_size}, window={window})
    loader = DataLoader(dataset, batch_sampler=sampler, collate_fn=collate)

Call `sampler.set_epoch(epoch)` before each epoch. Under DistributedDataParallel, give each rank its
share of the sampler's batches, as many as the others get.
"""

import numpy as np
import torch
from torch.utils.data import Sampler


def collate(sequences):
    """(x, mask) of a batch: a list of int64 tensors, one per sequence."""
    lengths = torch.tensor([len(sequence) for sequence in sequences])
    return pad_batch(torch.cat(sequences), lengths)
'''

LOADING = '''"""Measure and seed a loader, from unit 01 of the course: keep it, change it.

    seconds_per_pass(loader, n_batches=40)                 # times a loader
    seconds_per_pass(Ceiling(loader, 40), n_batches=40)    # ... with data for free
    DataLoader(dataset, num_workers=2, worker_init_fn=seed_worker)
"""

import itertools
import time

import numpy as np
import torch
from torch.utils.data import get_worker_info
'''


def source_of(thing: type | FunctionType) -> str:
    """The text of a class or function, also of one that a notebook defines.

    Raises: CourseError if Python does not know it.
    """
    try:
        lines, _ = inspect.findsource(next(_functions(thing)).__code__)
        text = "".join(lines)
        for node in ast.parse(text).body:
            if getattr(node, "name", None) == thing.__name__:
                return ast.get_source_segment(text, node)
    except (OSError, TypeError, StopIteration, SyntaxError):
        pass
    raise CourseError(f"the text of {thing.__name__} was not found; copy its cell instead.")


def _functions(thing: type | FunctionType) -> Iterator[FunctionType]:
    """Functions written where `thing` is."""
    members = vars(thing).values() if isinstance(thing, type) else [thing]
    for member in members:
        if isinstance(member, FunctionType):
            yield member


def save_batches(file: Path, answers: list[type | Callable], batch_size: int, window: int) -> Path:
    """Write BucketBatchSampler and pad_batch, the `answers`, as a module; see `save_module`."""
    return save_module(file, BATCHES.format(batch_size=batch_size, window=window), answers)


def saved(name: str, header: str, answers: list[type | Callable]) -> str:
    """Write the file `name` in the data folder as save_module does; say so, or why it failed."""
    try:
        file = save_module(data_folder() / name, header, answers)
    except CourseError as why:
        return str(why)
    return f"saved: {file.name}, in your data folder"


def save_module(file: Path, header: str, answers: list[type | Callable]) -> Path:
    """Write `header`, with the imports, and the texts of `answers` as a module; return `file`.

    Checks of the course are left out.

    Raises: CourseError if a text is not known, or the file cannot be written.
    """
    parts = [header]
    for answer in answers:
        lines = source_of(answer).splitlines()
        kept = [line for line in lines if "grouping.check_" not in line and "###" not in line]
        parts.append("\n".join(kept).rstrip() + "\n")
    file.parent.mkdir(parents=True, exist_ok=True)
    write_text(file, "\n\n".join(parts))
    return file
