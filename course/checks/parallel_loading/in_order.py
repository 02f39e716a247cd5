"""Probe of exercise in_order."""

import itertools

import torch

from course.engine.exercise import Answer, Facts, exercise
from course.engine.probing.errors import error_name


def _permutation(n, reach, rng):
    """0 to n - 1, each moved by at most about `reach` places."""
    keys = torch.arange(n) + (reach + 0.5) * torch.rand(n, generator=rng)
    return keys.argsort().tolist()


def _handed_out(things):
    """What comes of `things`; the word RuntimeError at the end if the answer raises one, whatever
    its message.
    """
    try:
        yield from things
    except RuntimeError as error:
        if "StopIteration" in str(error):  # Python's, of a generator that calls next() on nothing
            raise
        yield "RuntimeError"


def _drawn_before_each(answer, numbers):
    """[things in the order in which they are yielded, pairs that were taken before each of
    them].
    """
    taken, things, counts = 0, [], []

    def arrivals():
        nonlocal taken
        for number in numbers:
            taken += 1
            yield number, f"thing {number}"

    for thing in itertools.islice(_handed_out(answer(arrivals())), 2 * len(numbers)):
        things.append(thing)
        counts.append(taken)
    return things, counts


@exercise()
def in_order(answer: Answer, device: torch.device, seed: int) -> Facts:
    """Arrivals in several orders; what is asked of them, and when."""
    rng = torch.Generator().manual_seed(seed)
    n = 6 + seed % 3

    def tensors(numbers):
        return answer((k, torch.full((2,), float(k), device=device)) for k in numbers)

    yield "arrivals in order stay in order", list(_handed_out(tensors(range(n))))
    yield "two that changed places", list(_handed_out(tensors([1, 0, *range(2, n)])))
    yield "arrivals in reverse", list(_handed_out(tensors(reversed(range(n)))))
    for reach in (2, 4):
        yield (
            f"arrivals up to {reach} places early",
            list(_handed_out(tensors(_permutation(5 * n, reach, rng)))),
        )
    yield "no arrivals", list(answer(iter([])))
    nothings = answer(iter([(2, None), (0, 0), (1, None)]))
    yield "things that are None or 0 are handed on", list(_handed_out(nothings))
    things, counts = _drawn_before_each(answer, [0, 2, 1, 4, 5, 3, 6])
    yield "all are there, in order", things
    yield "each comes as soon as it can: pairs taken before it", counts
    missing = [
        error_name(lambda numbers=numbers: list(tensors(numbers)))
        for numbers in ([0, 1, 3, 4], [1])
    ]
    yield "a number that never arrives raises RuntimeError", missing
    first = next(iter(tensors([0, 2])))
    yield "what came before the gap is yielded", first
