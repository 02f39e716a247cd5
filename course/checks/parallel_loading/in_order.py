"""Probe of exercise in_order."""

import itertools
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import torch

from course.engine.exercise import Answer, Facts, exercise
from course.engine.probing.errors import error_name


@exercise()
def in_order(answer: Answer, device: torch.device, seed: int) -> Facts:
    """Arrivals in several orders; what is asked of them, and when."""
    rng = torch.Generator().manual_seed(seed)
    n = 6 + seed % 3

    def tensors(numbers: Iterable[int]) -> Iterator[torch.Tensor]:
        """What the answer makes of arrivals with these numbers."""
        return answer((k, torch.full((2,), float(k), device=device)) for k in numbers)

    def handed_out(numbers: Iterable[int]) -> list[Any]:
        return list(_handed_out(tensors(numbers)))

    yield "arrivals in order stay in order", handed_out(range(n))
    yield "two that changed places", handed_out([1, 0, *range(2, n)])
    yield "arrivals in reverse", handed_out(reversed(range(n)))
    for reach in (2, 4):
        early = handed_out(_permutation(5 * n, reach, rng))
        yield f"arrivals up to {reach} places early", early
    yield "no arrivals", list(answer(iter([])))
    nothings = answer(iter([(2, None), (0, 0), (1, None)]))
    yield "things that are None or 0 are handed on", list(_handed_out(nothings))
    things, counts = _drawn_before_each(answer, [0, 2, 1, 4, 5, 3, 6])
    yield "all are there, in order", things
    yield "each comes as soon as it can: pairs taken before it", counts
    errors = []
    for numbers in ([0, 1, 3, 4], [1]):
        errors.append(error_name(lambda numbers=numbers: list(tensors(numbers))))
    yield "a number that never arrives raises RuntimeError", errors
    first = next(iter(tensors([0, 2])))
    yield "what came before the gap is yielded", first


def _permutation(n: int, reach: int, rng: torch.Generator) -> list[int]:
    """0 to n - 1, each moved by at most about `reach` places."""
    keys = torch.arange(n) + (reach + 0.5) * torch.rand(n, generator=rng)
    return keys.argsort().tolist()


def _handed_out(things: Iterable[Any]) -> Iterator[Any]:
    """What comes of `things`; at the end the word RuntimeError if the answer raises one.

    Its message does not matter.
    """
    try:
        yield from things
    except RuntimeError as error:
        if "StopIteration" in str(error):  # Python's, of a generator that calls next() on nothing
            raise
        yield "RuntimeError"


def _drawn_before_each(answer: Answer, numbers: Sequence[int]) -> tuple[list[Any], list[int]]:
    """(things in the order in which they are yielded, pairs taken before each of them)."""
    taken = 0
    things = []
    counts = []

    def arrivals() -> Iterator[tuple[int, str]]:
        nonlocal taken
        for number in numbers:
            taken += 1
            yield number, f"thing {number}"

    for thing in itertools.islice(_handed_out(answer(arrivals())), 2 * len(numbers)):
        things.append(thing)
        counts.append(taken)
    return things, counts
