"""Probe of exercise worker_loop: the loop runs in this process, with a pipe that is a list."""

import copy
import random

import numpy
import torch

from course.engine.exercise import Answer, Facts, exercise
from course.engine.probing.errors import Stuck, error_text
from course.engine.probing.tensors import NewTensors

FILL = -7.0  # what the slots hold before anything is written


class _Pipe:
    """Gives `tasks`, then None; keeps each message with the values of the slots at that moment."""

    def __init__(self, tasks, buffers):
        self.tasks, self.buffers = [*tasks, None], buffers
        self.messages, self.slots = [], []

    def recv(self):
        if not self.tasks:
            raise Stuck(
                "the loop asks for another task after it has received None, which ends it: return there."
            )
        return copy.deepcopy(self.tasks.pop(0))

    def send(self, message):
        self.messages.append(message)
        self.slots.append(self.buffers.tolist())


class _Items:
    """Item i is i everywhere; `happens` maps an index to what is called instead."""

    def __init__(self, n, shape, happens=None):
        self.items = [torch.full(shape, float(i)) for i in range(n)]
        self.happens, self.asked = happens or {}, []

    def __len__(self):
        return len(self.items)

    def __getitem__(self, i):
        self.asked.append(i)
        return self.happens[i]() if i in self.happens else self.items[i]


def _broken():
    raise ValueError("this item is broken")


def _run(answer, dataset, tasks, buffers, seed=0):
    pipe = _Pipe(tasks, buffers)
    answer(dataset, seed, pipe, buffers)
    return pipe


def _in_short(message):
    """A message as plain data; of a traceback the last line, which says what was raised."""
    if not isinstance(message, tuple) or len(message) != 2:
        return message
    return [
        message[0],
        message[1].strip().splitlines()[-1] if isinstance(message[1], str) else message[1],
    ]


@exercise(changes_inputs=True)
def worker_loop(answer: Answer, device: torch.device, seed: int) -> Facts:
    """Tasks, an item that fails, then what is drawn and what is made on the way."""
    rng = torch.Generator().manual_seed(seed)
    shape, slots, size = (2, 3 + seed % 2), 3, 4
    order = torch.randperm(20, generator=rng).tolist()
    # worker 0 of 2: batches 0, 2, 4, the last one shorter
    tasks = [(0, order[:4]), (2, order[4:8]), (4, order[8:11])]
    buffers, dataset = torch.full((slots, size, *shape), FILL), _Items(20, shape)
    pipe = _run(answer, dataset, tasks, buffers)
    yield "one message per task", len(pipe.messages)
    yield "each message is (number, None)", [_in_short(message) for message in pipe.messages]
    yield "asks for the items of its tasks, in order", dataset.asked
    yield "batch n lies in slot n % slots", buffers[:, 0, 0, 0]
    yield "each item lies in its row", buffers[:, :, 0, 0]
    yield "a row holds the whole item", buffers
    yield "the batch is written before its message is sent", pipe.slots
    yield from _failing(answer, order, shape)
    yield from _drawn(answer, seed)

    buffers, dataset = torch.zeros(2, 4, 50, 40), _Items(4, (50, 40))
    with NewTensors() as new:
        _run(answer, dataset, [(k, [0, 1, 2, 3]) for k in range(3)], buffers)
    yield "no batch is built outside its slot", new.total < buffers[0].nbytes


def _failing(answer, order, shape):
    """What is sent of two tasks, the first with a broken item."""
    buffers, dataset = torch.full((2, 4, *shape), FILL), _Items(20, shape, {order[1]: _broken})
    pipe = _Pipe([(1, order[:4]), (3, order[4:8])], buffers)
    yield "an error of an item is not raised", error_text(answer, dataset, 0, pipe, buffers)
    yield "nor does it end the loop: a message for each of two tasks", len(pipe.messages)
    if len(pipe.messages) != 2:
        return
    first, second = pipe.messages
    yield "its message has the number of the batch", first[0]
    yield (
        "its message holds the traceback as text",
        {
            "a str": isinstance(first[1], str),
            "the words of the error": "ValueError: this item is broken" in str(first[1]),
            "the lines that led there": "Traceback" in str(first[1])
            and "in _broken" in str(first[1]),
        },
    )
    yield "the next batch is built as if nothing had been", [list(second), buffers[1]]


def _draws(answer, worker_seed):
    """(what two items draw in a worker of this seed, a list for each source, the threads that they
    may use).
    """
    drawn, threads, before = [], [], torch.get_num_threads()

    def draw():
        threads.append(torch.get_num_threads())
        drawn.append([torch.rand(1).item(), random.random(), numpy.random.random()])
        return torch.zeros(1)

    torch.rand(3), numpy.random.rand(3), random.random()  # what was drawn before does not matter
    torch.set_num_threads(2)
    try:
        _run(
            answer,
            _Items(1, (1,), {0: draw}),
            [(0, [0]), (1, [0])],
            torch.zeros(2, 1, 1),
            worker_seed,
        )
    finally:
        torch.set_num_threads(before)
    return [list(numbers) for numbers in zip(*drawn, strict=True)], threads


def _drawn(answer, seed):
    """What an item draws, in a worker of this seed, and how many threads it may use."""
    seen = [_draws(answer, 1000 + seed + more) for more in (0, 0, 1)]
    first, again, other = (drawn for drawn, _ in seen)
    yield "items are made by one thread", sorted({n for _, threads in seen for n in threads})
    for k, name in enumerate(("torch", "random", "np.random")):
        yield f"{name}: the same seed, the same numbers", again[k] == first[k]
        yield f"{name}: another seed, other numbers", not set(other[k]) & set(first[k])
    yield "torch is seeded with the seed itself, once", first[0]
    yield "random and np.random too", first[1:]
    yield "a seed of 63 bits", _draws(answer, 2**63 - 1 - seed)[0]
