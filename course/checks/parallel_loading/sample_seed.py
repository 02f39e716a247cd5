"""Probe of exercise sample_seed."""

import builtins
import contextlib
import itertools
from unittest import mock

import torch

from course.checks.engine import exercise
from course.checks.parallel_loading.workers import Asked, epochs
from course.checks.probing.randomness import random_state, seed_others


@contextlib.contextmanager
def _watched_hash():
    """A list that gets every text, or tuple with a text in it, that Python's `hash` is asked for in the block."""
    texts, original = [], builtins.hash

    def watched(value):
        parts = value if isinstance(value, tuple) else (value,)
        texts.extend(part for part in parts if isinstance(part, (str, bytes)))
        return original(value)

    with mock.patch.object(builtins, "hash", watched):
        yield texts


def _of_all(answer, triples):
    return [answer(*triple) for triple in triples]


@exercise()
def sample_seed(answer, device, seed):
    """Laws of a good hash of three numbers."""
    small = list(itertools.product(range(seed, seed + 10), range(12), range(12)))
    large = list(itertools.product((0, *(10**k for k in range(10)), 2**10, 2**16, 2**20), repeat=3))
    large += itertools.product((2**31, 2**31 + 1, 2**32 - 1), repeat=3)

    value = answer(seed, 2, 3)
    yield "returns an int", type(value).__name__
    with _watched_hash() as texts:
        again = answer(seed, 2, 3)
    yield "does not use Python's hash of a text, another in each process", not texts
    yield "the same three numbers give the same seed", again == value
    before = random_state()
    answer(seed, 5, 5)
    untouched = random_state() == before
    torch.manual_seed(seed + 1)
    seed_others(seed + 1)
    yield "whatever was drawn before", answer(seed, 2, 3) == value
    yield "the global random numbers stay as they were", untouched
    some, all_large = _of_all(answer, small), _of_all(answer, large)
    yield "lies from 0 to 2**63 - 1", 0 <= min(some + all_large) and max(some + all_large) < 2**63
    yield "more than 32 bits are used", max(some + all_large) >= 2**32
    (batches,) = epochs(Asked(8, lambda i: torch.tensor(answer(seed, 1, i))), batch_size=2)
    yield "is the same in a worker", torch.cat(batches).tolist() == [answer(seed, 1, i) for i in range(8)]
    for text, place in (("index", 2), ("epoch", 1), ("seed", 0)):
        triples = [tuple(k if i == place else 1 for i in range(3)) for k in range(40)]
        yield f"another {text}, another seed", len({*_of_all(answer, triples)})
    yield "different triples of small numbers give different seeds", len(set(some))
    yield "different triples of large numbers too", len(set(all_large))
    # a bit that changes in half of 300 cases lies with nine deviations of 0.029 between 0.24 and 0.76
    for text, place in (("index", 2), ("epoch", 1), ("seed", 0)):
        after = [tuple(x + (i == place) for i, x in enumerate(t)) for t in small[:300]]
        changed = [a ^ b for a, b in zip(some, _of_all(answer, after), strict=False)]
        shares = [sum(c >> bit & 1 for c in changed) / len(changed) for bit in range(63)]
        yield f"the next {text} changes about half of the bits", abs(sum(shares) / 63 - 0.5) < 0.05
        yield f"the next {text} may change each of the 63 bits", all(0.24 < share < 0.76 for share in shares)
