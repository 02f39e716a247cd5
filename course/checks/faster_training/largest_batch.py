"""Probe of exercise largest_batch."""

import math
import weakref

import torch

from course.engine.exercise import Answer, Facts, exercise
from course.engine.probing.errors import error_name, error_text
from course.engine.probing.values import number_kind


class _Memory:
    """A trial that fits up to `most` samples and notes what it was asked for."""

    def __init__(self, most, error=None):
        self.most, self.asked = most, []
        self.error = error or (
            lambda n: torch.OutOfMemoryError(f"CUDA out of memory. Tried {n} samples")
        )

    def __call__(self, n):
        self.asked.append(n)
        if n > self.most:
            raise self.error(n)


def _held(answer, most):
    """How many trials begin while tensors of an earlier one are still there."""
    last, held = None, 0

    def trial(n):
        nonlocal last, held
        held += last is not None and last() is not None
        activations = torch.zeros(3)
        last = weakref.ref(activations)
        if n > most:
            raise torch.OutOfMemoryError(f"CUDA out of memory. Tried {n} samples")

    answer(trial)
    return held


@exercise()
def largest_batch(answer: Answer, device: torch.device, seed: int) -> Facts:
    """The largest batch of memories of several sizes, and which trials it takes."""
    most = 300 + 17 * (seed % 23)
    memory = _Memory(most)
    found = answer(memory)
    yield "returns a number", number_kind(found)
    yield "finds the largest batch that fits", found
    yield "begins with 1, 2, 4, 8", memory.asked[:4]
    yield "tries nothing more than twice as large as what fits", max(memory.asked) <= 2 * most
    yield "bisects: few trials in all", len(memory.asked) <= 2 * math.log2(most) + 3
    yield "tries nothing twice", len(memory.asked) - len(set(memory.asked))
    yield "trials that begin while tensors of a failed one are still there", _held(answer, most)
    for size in (1, 2, 3, 4, 7, 8, 9, 64, 65):
        yield f"memory for {size}", answer(_Memory(size))
    whole = [_Memory(10**9), _Memory(10**9), _Memory(90), _Memory(100), _Memory(101)]
    yield (
        "everything fits: returns the limit, 100 and 64",
        [answer(whole[0], limit=100), answer(whole[1], limit=64)],
    )
    yield "nothing above the limit is tried", [max(m.asked) for m in whole[:2]]
    yield "just below, at and above a limit of 100", [answer(m, limit=100) for m in whole[2:]]
    yield "a limit of 1", answer(_Memory(5), limit=1)
    yield "the limit is 65,536 by default", answer(_Memory(10**9))
    yield from _errors(answer)


def _errors(answer):
    plain = _Memory(11, lambda n: RuntimeError(f"CUDA error: out of memory (batch {n})"))
    yield "a RuntimeError that says 'out of memory' counts too", answer(plain)
    other = _Memory(11, lambda n: RuntimeError(f"shape mismatch at {n}"))
    yield "another RuntimeError gets through", error_text(answer, other)
    yield (
        "a ValueError gets through",
        error_text(answer, _Memory(11, lambda n: ValueError(f"batch {n}"))),
    )
    key = _Memory(5, lambda n: KeyError("out of memory"))
    yield "a KeyError that says 'out of memory' too", error_name(answer, key)
    yield "not even one fits: raises", error_name(answer, _Memory(0))
