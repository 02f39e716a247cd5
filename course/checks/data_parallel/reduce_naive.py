"""Probe of exercise reduce_naive."""

from course.checks.data_parallel.shared import COLLECTIVES, _at_dst, _elsewhere, _manners, _rooted, _sent
from course.checks.engine import exercise


@exercise(changes_inputs=True, forbids=COLLECTIVES)
def reduce_naive(answer, device, seed):
    """The sum in one rank, by one message of every other."""
    for n, roots, did in _rooted(answer, seed, "dst"):
        yield f"{n} ranks: afterwards dst holds the sum", _at_dst(roots, did)
        yield f"{n} ranks: every other rank keeps its own values", _elsewhere(roots, did)
        yield from _manners(n, did)
        yield (
            f"{n} ranks: every rank but dst sends its tensor, once",
            {f"{case}, rank {rank}": _sent(call) for case, calls in did.items() for rank, call in enumerate(calls)},
        )
        yield f"{n} ranks: each message goes straight to dst", all(_straight(roots, did))


def _straight(roots, did):
    """For every message that is sent, whether it goes to the root."""
    for root, calls in zip(roots, did.values(), strict=True):
        yield from (to == root for call in calls for kind, to, _ in call.log if kind == "send")
