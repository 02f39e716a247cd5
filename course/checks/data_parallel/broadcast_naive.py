"""Probe of exercise broadcast_naive."""

from course.checks.data_parallel.shared import COLLECTIVES, _held, _manners, _rooted, _sent
from course.checks.engine import exercise


@exercise(changes_inputs=True, forbids=COLLECTIVES)
def broadcast_naive(answer, device, seed):
    """The same values everywhere, by messages of the source."""
    for n, _, did in _rooted(answer, seed, "src"):
        yield f"{n} ranks: afterwards every rank holds the values of src", _held(did)
        yield from _manners(n, did)
        yield (
            f"{n} ranks: src sends to every other rank, and nobody else sends",
            {f"{case}, rank {rank}": _sent(call) for case, calls in did.items() for rank, call in enumerate(calls)},
        )
