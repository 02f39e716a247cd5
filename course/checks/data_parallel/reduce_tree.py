"""Probe of exercise reduce_tree."""

from course.checks.data_parallel.shared import COLLECTIVES, _at_dst, _elsewhere, _rooted, _tree
from course.checks.engine import exercise


@exercise(changes_inputs=True, forbids=COLLECTIVES)
def reduce_tree(answer, device, seed):
    """The sum in one rank, in few rounds."""
    for n, roots, did in _rooted(answer, seed, "dst", (2, 3, 4, 7)):
        yield f"{n} ranks: afterwards dst holds the sum", _at_dst(roots, did)
        yield f"{n} ranks: every other rank keeps its own values", _elsewhere(roots, did)
        yield from _tree(n, did)
