"""Probe of exercise worker_loop: the loop runs in this process, with a pipe that is a list."""

import copy
import random
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import numpy
import torch

from course.engine.exercise import Answer, Facts, exercise
from course.engine.probing.errors import Stuck, error_text
from course.engine.probing.tensors import NewTensors

FILL = -7.0  # what the slots hold before anything is written
SOURCES = ("torch", "random", "np.random")  # of random numbers

Task = tuple[int, list[int]]  # (number of the batch, its indices)


class _Pipe:
    """Gives `tasks`, then None; keeps each message with the values of the slots at that moment."""

    def __init__(self, tasks: Iterable[Task], buffers: torch.Tensor) -> None:
        self.tasks = [*tasks, None]
        self.buffers = buffers
        self.messages = []
        self.slots = []

    def recv(self) -> Task | None:
        if not self.tasks:
            raise Stuck(
                "the loop asks for another task after it has received None, which ends it: "
                "return there."
            )
        return copy.deepcopy(self.tasks.pop(0))

    def send(self, message: Any) -> None:
        self.messages.append(message)
        self.slots.append(self.buffers.tolist())


class _Items:
    """Item i is i everywhere; `happens` maps an index to what is called instead."""

    def __init__(
        self,
        n: int,
        shape: tuple[int, ...],
        happens: dict[int, Callable[[], torch.Tensor]] | None = None,
    ) -> None:
        self.items = [torch.full(shape, float(i)) for i in range(n)]
        self.happens = happens or {}
        self.asked = []

    def __len__(self) -> int:
        return len(self.items)

    def __getitem__(self, i: int) -> torch.Tensor:
        self.asked.append(i)
        return self.happens[i]() if i in self.happens else self.items[i]


def _broken() -> None:
    raise ValueError("this item is broken")


def _run(
    answer: Answer, dataset: _Items, tasks: Iterable[Task], buffers: torch.Tensor, seed: int = 0
) -> _Pipe:
    pipe = _Pipe(tasks, buffers)
    answer(dataset, seed, pipe, buffers)
    return pipe


def _in_short(message: Any) -> Any:
    """A message as plain data; of a traceback the last line, which says what was raised."""
    if not isinstance(message, tuple) or len(message) != 2:
        return message
    number, error = message
    if isinstance(error, str):
        error = error.strip().splitlines()[-1]
    return [number, error]


@exercise(changes_inputs=True)
def worker_loop(answer: Answer, device: torch.device, seed: int) -> Facts:
    """Tasks, an item that fails, then what is drawn and what is made on the way."""
    rng = torch.Generator().manual_seed(seed)
    shape = (2, 3 + seed % 2)
    order = torch.randperm(20, generator=rng).tolist()
    yield from _batches_in_slots(answer, order, shape)
    yield from _failing(answer, order, shape)
    yield from _drawn(answer, seed)

    buffers = torch.zeros(2, 4, 50, 40)
    dataset = _Items(4, (50, 40))
    tasks = [(number, [0, 1, 2, 3]) for number in range(3)]
    with NewTensors() as new:
        _run(answer, dataset, tasks, buffers)
    yield "no batch is built outside its slot", new.total < buffers[0].nbytes


def _batches_in_slots(answer: Answer, order: list[int], shape: tuple[int, ...]) -> Facts:
    # worker 0 of 2: batches 0, 2, 4, the last one shorter
    tasks = [(0, order[:4]), (2, order[4:8]), (4, order[8:11])]
    buffers = torch.full((3, 4, *shape), FILL)
    dataset = _Items(20, shape)
    pipe = _run(answer, dataset, tasks, buffers)
    yield "one message per task", len(pipe.messages)
    yield "each message is (number, None)", list(map(_in_short, pipe.messages))
    yield "asks for the items of its tasks, in order", dataset.asked
    yield "batch n lies in slot n % slots", buffers[:, 0, 0, 0]
    yield "each item lies in its row", buffers[:, :, 0, 0]
    yield "a row holds the whole item", buffers
    yield "the batch is written before its message is sent", pipe.slots


def _failing(answer: Answer, order: list[int], shape: tuple[int, ...]) -> Facts:
    """What is sent of two tasks, the first with a broken item."""
    buffers = torch.full((2, 4, *shape), FILL)
    dataset = _Items(20, shape, {order[1]: _broken})
    pipe = _Pipe([(1, order[:4]), (3, order[4:8])], buffers)
    yield "an error of an item is not raised", error_text(answer, dataset, 0, pipe, buffers)
    yield "nor does it end the loop: a message for each of two tasks", len(pipe.messages)
    if len(pipe.messages) != 2:
        return
    first, second = pipe.messages
    yield "its message has the number of the batch", first[0]
    text = str(first[1])
    holds = {
        "a str": isinstance(first[1], str),
        "the words of the error": "ValueError: this item is broken" in text,
        "the lines that led there": "Traceback" in text and "in _broken" in text,
    }
    yield "its message holds the traceback as text", holds
    yield "the next batch is built as if nothing had been", [list(second), buffers[1]]


class _Draws(NamedTuple):
    """What two items draw in a worker, and how many threads each may use."""

    numbers: list[list[float]]  # of each of SOURCES
    threads: list[int]


def _draws(answer: Answer, worker_seed: int) -> _Draws:
    drawn = []
    threads = []
    before = torch.get_num_threads()

    def draw() -> torch.Tensor:
        threads.append(torch.get_num_threads())
        drawn.append([torch.rand(1).item(), random.random(), numpy.random.random()])
        return torch.zeros(1)

    # what was drawn before does not matter
    torch.rand(3)
    numpy.random.rand(3)
    random.random()
    torch.set_num_threads(2)
    dataset = _Items(1, (1,), {0: draw})
    try:
        _run(answer, dataset, [(0, [0]), (1, [0])], torch.zeros(2, 1, 1), worker_seed)
    finally:
        torch.set_num_threads(before)
    return _Draws(list(map(list, zip(*drawn, strict=True))), threads)


def _drawn(answer: Answer, seed: int) -> Facts:
    """What an item draws, in a worker of this seed, and how many threads it may use."""
    first = _draws(answer, 1000 + seed)
    again = _draws(answer, 1000 + seed)
    other = _draws(answer, 1001 + seed)
    threads = set(first.threads + again.threads + other.threads)
    yield "items are made by one thread", sorted(threads)
    for k, name in enumerate(SOURCES):
        yield f"{name}: the same seed, the same numbers", again.numbers[k] == first.numbers[k]
        is_other = set(other.numbers[k]).isdisjoint(first.numbers[k])
        yield f"{name}: another seed, other numbers", is_other
    yield "torch is seeded with the seed itself, once", first.numbers[0]
    yield "random and np.random too", first.numbers[1:]
    yield "a seed of 63 bits", _draws(answer, 2**63 - 1 - seed).numbers
