"""Probe of exercise largest_batch."""

import math
import weakref
from collections.abc import Callable

import torch

from course.engine.exercise import Answer, Facts, exercise
from course.engine.probing.errors import error_name, error_text
from course.engine.probing.laws import tried
from course.engine.probing.values import number_kind


def _out_of_memory(n: int) -> Exception:
    return torch.OutOfMemoryError(f"CUDA out of memory. Tried {n} samples")


class _Memory:
    """A trial that fits up to `most` samples, raises `error(n)` for more, and notes each n."""

    def __init__(self, most: int, error: Callable[[int], Exception] = _out_of_memory) -> None:
        self.most = most
        self.error = error
        self.asked = []

    def __call__(self, n: int) -> None:
        self.asked.append(n)
        if n > self.most:
            raise self.error(n)


def _held(answer: Answer, most: int) -> int:
    """How many trials begin while tensors of an earlier one are still there."""
    last = None
    held = 0

    def trial(n: int) -> None:
        nonlocal last, held
        held += last is not None and last() is not None
        activations = torch.zeros(3)
        last = weakref.ref(activations)
        if n > most:
            raise _out_of_memory(n)

    answer(trial)
    return held


@exercise()
def largest_batch(answer: Answer, device: torch.device, seed: int) -> Facts:
    """The largest batch of memories of several sizes, and which trials it takes."""
    most = 301 + 34 * (seed % 23)
    memory = _Memory(most)
    found = answer(memory)
    yield "returns a number", number_kind(found)
    yield "finds the largest batch that fits", found
    yield "begins with 1, 2, 4, 8", memory.asked[:4]
    yield (
        "tries nothing more than twice as large as what fits",
        tried(max(memory.asked) <= 2 * most, most),
    )
    are_few = len(memory.asked) <= 2 * math.log2(most) + 3
    yield "bisects: few trials in all", tried(are_few, most)
    repeated = len(memory.asked) - len(set(memory.asked))
    yield "tries nothing twice", tried(repeated, most)
    fact = "trials that begin while tensors of a failed one are still there"
    yield fact, tried(_held(answer, most), most)
    for size in (1, 2, 3, 4, 7, 8, 9, 64, 65):
        yield f"memory for {size}", answer(_Memory(size))
    yield from _limits(answer, most)
    yield from _errors(answer, most)


def _limits(answer: Answer, most: int) -> Facts:
    """Limits below and above what fits."""
    plenty = _Memory(10**9)
    plenty_too = _Memory(10**9)
    found = [answer(plenty, limit=100), answer(plenty_too, limit=64)]
    yield "everything fits: returns the limit, 100 and 64", found
    plenty_again = _Memory(10**9)
    answer(plenty_again, limit=most)
    tops = [max(memory.asked) for memory in (plenty, plenty_too, plenty_again)]
    yield "nothing above the limit is tried", tops
    found = [answer(_Memory(most), limit=100) for most in (90, 100, 101)]
    yield "just below, at and above a limit of 100", found
    yield "a limit of 1", answer(_Memory(5), limit=1)
    yield "the limit is 65,536 by default", answer(_Memory(10**9))


def _errors(answer: Answer, most: int) -> Facts:
    """Which exceptions of a trial count as a lack of memory."""
    plain = _Memory(most, lambda n: RuntimeError(f"CUDA error: out of memory (batch {n})"))
    yield "a RuntimeError that says 'out of memory' counts too", answer(plain)
    other = _Memory(most, lambda n: RuntimeError(f"shape mismatch at {n}, not {most}"))
    yield "another RuntimeError gets through", error_text(answer, other)
    value = _Memory(most, lambda n: ValueError(f"batch {n}, not {most}"))
    yield "a ValueError gets through", error_text(answer, value)
    key = _Memory(most, lambda n: KeyError("out of memory"))
    yield "a KeyError that says 'out of memory' too", tried(error_name(answer, key), most)
    yield "not even one fits: raises", tried(error_name(answer, _Memory(0)), most)
