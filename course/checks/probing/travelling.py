"""Functions of a probe that a grader runs beside the answer, where the two are in different processes."""

import inspect
from collections.abc import Callable


def travels(function: Callable) -> Callable:
    """Mark `function` and return it: a copy of it, with what it encloses, runs in the answer's process.

    For what an answer looks at while it calls it: memory, a graph, modes of torch.  Other functions stay with the probe
    and are called there.  The answer can read whatever it encloses.
    """
    function.travels = True
    return function


def beside(answer: Callable, function: Callable, *args, **kwargs):
    """What `function(*args, **kwargs)` gives where the answer runs; where a grader asks, the word of that process.

    For what can be seen there alone: whether something can be pickled, threads, memory, random numbers of Python.  What
    can be seen from here is looked at here.

    Args:
        function: of a module; may be given the answer itself, and objects that the answer made.
    """
    ask = getattr(type(inspect.unwrap(answer)), "beside", None)
    if ask is None:
        return function(*args, **kwargs)
    return ask(inspect.unwrap(answer), function, *args, **kwargs)
