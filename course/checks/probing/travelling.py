"""Functions of a probe that a grader calls beside the answer, where the two run in different processes."""

from collections.abc import Callable


def travels(function: Callable) -> Callable:
    """Mark `function` and return it: a copy of it, with what it encloses, runs in the answer's process.

    For what an answer looks at while it calls it: memory, a graph, modes of torch.  Other functions stay with the probe
    and are called there.  The answer can read whatever it encloses.
    """
    function.travels = True
    return function
