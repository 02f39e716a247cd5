"""Probe of exercise shuffle_buffer."""

from collections.abc import Iterable, Iterator

import numpy as np
import torch

from course.engine.exercise import Answer, Facts, exercise
from course.engine.probing.randomness import random_state

RUNS = 1200  # a frequency of 1/4 is off by 0.0125, so 0.07 is more than five times that
OFF_MAX = 0.07


class _Stream:
    """The numbers 0 to n - 1, and how many of them were taken."""

    def __init__(self, n: int) -> None:
        self.n = n
        self.taken = 0

    def __iter__(self) -> Iterator[int]:
        for number in range(self.n):
            self.taken += 1
            yield number


@exercise()
def shuffle_buffer(answer: Answer, device: torch.device, seed: int) -> Facts:
    """A stream that is counted, then shares of many short streams."""
    size = 3 + seed % 3
    before = random_state()

    def shuffled(items: Iterable, size: int = size, seed: int = seed) -> list:
        return list(answer(items, size, np.random.default_rng(seed)))

    many = 30 + seed % 7
    first = shuffled(range(many))
    yield "every item comes out once", sorted(first)
    yield "an equal generator gives the same order", first == shuffled(range(many))
    yield "another generator gives another order", first != shuffled(range(many), seed=seed + 1)
    yield from _counted(answer, size, seed)
    yield "a buffer of one item keeps the order", shuffled(range(9), 1)
    yield "a stream shorter than the buffer comes out whole", sorted(shuffled(range(4), 9))
    yield "an empty stream gives nothing", shuffled([])
    items = [None, 0, "", False, None, 0.5, []]
    falsy = [repr(item) for item in shuffled(items, 2)]
    yield "items may be anything, None too", sorted(falsy)
    yield from _shares(answer, size, seed)
    yield "the global random numbers stay as they were", before == random_state()


def _counted(answer: Answer, size: int, seed: int) -> Facts:
    """What is held while the stream lasts."""
    stream = _Stream(50)
    held = []  # when an item leaves, it included
    for number, _ in enumerate(answer(stream, size, np.random.default_rng(seed))):
        if stream.taken < stream.n:
            held.append(stream.taken - number)
    yield "the first item leaves before the stream is at its end", bool(held)
    yield "the first item leaves when the buffer is full", bool(held) and held[0] >= size
    yield "the buffer stays full while the stream lasts", bool(held) and min(held) >= size
    too_many = any(count > size + 1 for count in held)
    yield "no more than `size` items are held, and the one just taken", bool(held) and not too_many


def _shares(answer: Answer, size: int, seed: int) -> Facts:
    """How often which item leaves when, over many streams."""
    rng = np.random.default_rng((seed, 1))
    orders = [list(answer(range(4 * size), size, rng)) for _ in range(RUNS)]
    left_first = sorted({order[0] for order in orders})
    yield f"the items that left first in {RUNS:,} short streams", left_first
    leave_first = [_share(order[0] == item for order in orders) for item in range(size + 1)]
    wanted = [1 / size] * size + [0.0]
    yield (
        "each of the first `size` items leaves first equally often",
        _near(leave_first, wanted),
    )
    stayed = _share(order.index(0) >= size for order in orders)
    expected = (1 - 1 / size) ** size
    yield "an item leaves with the same probability at each step", _near([stayed], [expected])
    orders = [list(answer(range(size), size, rng)) for _ in range(RUNS)]
    at_place = [_share(order[place] == 0 for order in orders) for place in range(size)]
    yield "what is left at the end leaves in random order", _near(at_place, [1 / size] * size)


def _share(found: Iterable[bool]) -> float:
    hits = list(found)
    return sum(hits) / len(hits)


def _near(found: list[float], wanted: list[float]) -> bool:
    pairs = zip(found, wanted, strict=True)
    return all(abs(share - due) < OFF_MAX for share, due in pairs)
