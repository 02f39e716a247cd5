"""Probe of exercise broadcast_tree."""

from course.checks.data_parallel.shared import COLLECTIVES, _held, _rooted, _tree
from course.checks.engine import exercise


@exercise(changes_inputs=True, forbids=COLLECTIVES)
def broadcast_tree(answer, device, seed):
    """The same values everywhere, in few rounds."""
    for n, _, did in _rooted(answer, seed, "src", (2, 3, 4, 7)):
        yield f"{n} ranks: afterwards every rank holds the values of src", _held(did)
        yield from _tree(n, did)
