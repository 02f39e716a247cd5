"""The check-up in a notebook: a loader and a function that trains on one batch."""

import itertools
from collections.abc import Callable, Iterable

from course.checkup import report
from course.checkup.watch import Enough, Watch
from course.errors import CourseError


def checkup(
    loader: Iterable,
    step: Callable,
    steps: int = 60,
    minutes: float = 3.0,
    only_watch: bool = False,
) -> "report.Report":
    """The Report of a training that calls `step(batch)` for batches of `loader`, again and again.

    Args:
        loader: usually a DataLoader.
        step: trains on one batch: forward, backward, and a step of an optimizer of torch.optim.
        steps: how many are watched at least, after five that warm up.
        minutes: after which watching ends; trials of the step, and of loaders, may take as long
            again.
        only_watch: try nothing.

    Your model has been trained by these steps afterwards, as by any others.
    Raises: CourseError if no optimizer steps.
    """
    with Watch(steps, minutes) as watch:
        try:
            for _ in itertools.repeat(None):
                before = len(watch.steps)
                for batch in loader:
                    step(batch)
                if len(watch.steps) == before:
                    raise CourseError(
                        "step(batch) was called for all batches and no optimizer of torch.optim stepped; "
                        "step must train: forward, backward, optimizer.step()."
                    )
        except Enough:
            pass
    return report.make(
        watch, "your loader and step", "the check-up had seen enough", not only_watch
    )
