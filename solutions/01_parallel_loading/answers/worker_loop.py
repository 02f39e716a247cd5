"""Known mistakes of exercise worker_loop, and right answers in other styles."""

import random
import sys
import traceback

import numpy as np
import torch

from course.checks.engine import alternative, mistake


def _seed(seed):
    torch.set_num_threads(1)
    torch.manual_seed(seed)
    random.seed(seed)
    np.random.seed(seed % 2**32)


def _write(batch, dataset, indices):
    for row, index in enumerate(indices):
        batch[row] = dataset[index]


def _loop(dataset, pipe, buffers, write=_write, text=traceback.format_exc):
    """The right loop after the seeds; `write` and `text` may be spoiled."""
    for number, indices in iter(pipe.recv, None):
        error = None
        try:
            write(buffers[number % len(buffers)], dataset, indices)
        except Exception:
            error = text()
        pipe.send((number, error))


@mistake(
    "worker_loop",
    "A worker uses as many threads as there are cores, and every other worker too. Call torch.set_num_threads(1).",
)
def all_threads(dataset, seed, pipe, buffers):
    torch.manual_seed(seed)
    random.seed(seed)
    np.random.seed(seed % 2**32)
    _loop(dataset, pipe, buffers)


@mistake("worker_loop", "Nothing is seeded: forked workers then all draw the same numbers. Use `seed`, three times.")
def no_seed(dataset, seed, pipe, buffers):
    torch.set_num_threads(1)
    _loop(dataset, pipe, buffers)


@mistake(
    "worker_loop",
    "Only torch is seeded. Transforms may draw from Python's `random` and from `np.random`: seed all three.",
)
def seeds_torch_alone(dataset, seed, pipe, buffers):
    torch.set_num_threads(1)
    torch.manual_seed(seed)
    _loop(dataset, pipe, buffers)


@mistake("worker_loop", "np.random.seed takes 32 bits and raises ValueError for a larger seed. Give it seed % 2**32.")
def seeds_numpy_with_all_bits(dataset, seed, pipe, buffers):
    torch.set_num_threads(1)
    torch.manual_seed(seed)
    random.seed(seed)
    np.random.seed(seed)
    _loop(dataset, pipe, buffers)


@mistake(
    "worker_loop",
    "The seeds are set for each task, so that every batch repeats the random numbers of the first. Seed once, before "
    "the loop.",
)
def seeds_for_each_batch(dataset, seed, pipe, buffers):
    def write(batch, dataset, indices):
        _seed(seed)
        _write(batch, dataset, indices)

    _seed(seed)
    _loop(dataset, pipe, buffers, write)


@mistake(
    "worker_loop",
    "The number of the batch is taken for the number of its slot. There are fewer slots than batches: number % "
    "len(buffers).",
)
def slot_is_the_number(dataset, seed, pipe, buffers):
    _seed(seed)
    for number, indices in iter(pipe.recv, None):
        error = None
        try:
            _write(buffers[number], dataset, indices)
        except Exception:
            error = traceback.format_exc()
        pipe.send((number, error))


@mistake("worker_loop", "Every batch is written into slot 0, over the one before. Use slot number % len(buffers).")
def always_the_first_slot(dataset, seed, pipe, buffers):
    _seed(seed)
    _loop(dataset, pipe, buffers, lambda batch, *rest: _write(buffers[0], *rest))


@mistake(
    "worker_loop",
    "Rows are numbered by the index of the item. Number them by the place in the list: enumerate(indices).",
)
def row_is_the_index(dataset, seed, pipe, buffers):
    def write(batch, dataset, indices):
        for index in indices:
            batch[index % len(batch)] = dataset[index]

    _seed(seed)
    _loop(dataset, pipe, buffers, write)


@mistake(
    "worker_loop",
    "An error of one item ends the whole worker. Catch Exception around the batch, send its traceback, and go on.",
)
def ends_at_an_error(dataset, seed, pipe, buffers):
    _seed(seed)
    for number, indices in iter(pipe.recv, None):
        _write(buffers[number % len(buffers)], dataset, indices)
        pipe.send((number, None))


@mistake("worker_loop", "After an error the loop ends, and the tasks behind it are never built. Send it, then go on.")
def ends_after_an_error(dataset, seed, pipe, buffers):
    _seed(seed)
    for number, indices in iter(pipe.recv, None):
        try:
            _write(buffers[number % len(buffers)], dataset, indices)
        except Exception:
            pipe.send((number, traceback.format_exc()))
            return
        pipe.send((number, None))


@mistake(
    "worker_loop",
    "The message has the words of the error without the lines that led there. Send traceback.format_exc().",
)
def words_alone(dataset, seed, pipe, buffers):
    _seed(seed)
    _loop(
        dataset, pipe, buffers, text=lambda: repr(sys.exception() if hasattr(sys, "exception") else sys.exc_info()[1])
    )


@mistake(
    "worker_loop",
    "After one error every later batch is reported as broken, too: the text is kept. Set it to None for each task.",
)
def keeps_the_error(dataset, seed, pipe, buffers):
    _seed(seed)
    error = None
    for number, indices in iter(pipe.recv, None):
        try:
            _write(buffers[number % len(buffers)], dataset, indices)
        except Exception:
            error = traceback.format_exc()
        pipe.send((number, error))


@mistake(
    "worker_loop",
    "The batch is stacked in memory of its own and then copied. Write each item into its row, or give torch.stack the "
    "slot as `out`.",
)
def stacks_first(dataset, seed, pipe, buffers):
    def write(batch, dataset, indices):
        batch[: len(indices)] = torch.stack([dataset[index] for index in indices])

    _seed(seed)
    _loop(dataset, pipe, buffers, write)


@mistake("worker_loop", "The batch itself is sent, all its bytes. It lies in shared memory: send (number, None).")
def sends_the_batch(dataset, seed, pipe, buffers):
    _seed(seed)
    for number, indices in iter(pipe.recv, None):
        batch, message = buffers[number % len(buffers)], None
        try:
            _write(batch, dataset, indices)
            message = batch[: len(indices)].clone()
        except Exception:
            message = traceback.format_exc()
        pipe.send((number, message))


@mistake("worker_loop", "The error is sent without the number of its batch. Send (number, text), as after a success.")
def error_without_a_number(dataset, seed, pipe, buffers):
    _seed(seed)
    for number, indices in iter(pipe.recv, None):
        try:
            _write(buffers[number % len(buffers)], dataset, indices)
            pipe.send((number, None))
        except Exception:
            pipe.send((None, traceback.format_exc()))


@alternative("worker_loop")
def stacked_in_place(dataset, seed, pipe, buffers):
    torch.set_num_threads(1)
    for seeded in (torch.manual_seed, random.seed, lambda s: np.random.seed(s % 2**32)):
        seeded(seed)
    while (task := pipe.recv()) is not None:
        slot = buffers[task[0] % buffers.shape[0]]
        try:
            torch.stack([dataset[i] for i in task[1]], out=slot[: len(task[1])])
        except Exception as error:
            pipe.send((task[0], "".join(traceback.format_exception(error))))
        else:
            pipe.send((task[0], None))


@alternative("worker_loop")
def with_break(dataset, seed, pipe, buffers):
    np.random.seed(seed & 0xFFFFFFFF)
    random.seed(seed)
    torch.random.manual_seed(seed)
    torch.set_num_threads(1)
    while True:
        task = pipe.recv()
        if task is None:
            break
        number, indices = task
        problem = None
        for k in range(len(indices)):
            try:
                buffers[number % len(buffers), k].copy_(dataset[indices[k]])
            except Exception:
                problem = traceback.format_exc()
                break
        pipe.send((number, problem))
