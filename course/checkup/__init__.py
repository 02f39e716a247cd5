"""The check-up: what the course knows, applied to a training that is not its own.

course checkup train.py --lr 0.1           # in a terminal: any script, as it is
report = course.checkup(loader, step)      # in a notebook, with step(batch)

run.py            the pipeline: watch -> facts -> trials -> advice -> report
watch.py          sees a training, with
    clock.py          the phases of a step; phases.py their names
    schedule.py       which kind the next step is; limits.py ends what does not end
    hooks.py          what is changed in torch; forward.py its part for models, patches.py puts back
    ready.py          when gradients are ready, and waiting for other ranks begins
    passes.py         forward passes that do not train: of each step, or evaluation
    seen.py           what the hooks write down; counted.py in the last steps alone
    lines.py          the line of the script that runs
summary.py        what was seen -> facts.py, plain numbers; padding.py, ranks.py their parts
trials.py         what can be tried without touching the script: replay.py takes a step again,
                  step_ways.py in other ways; loaders.py makes other loaders, items.py times items,
                  arithmetic.py counts what a step computes
predict.py        what the formulas of the units say
advice/           rules: from facts to advice, a module each
verdict.py        what holds the training back, what would not help, what was not seen
report.py         what was found; text.py the screen, html.py the file with figures
failures.py       what could not be looked at: a line of the report each
script.py         runs a script as Python would
session.py        one check-up of a script, up to its exit code
command.py        course checkup; condition.py its --fail-if
"""

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from course.checkup.report import Report


def checkup(
    loader: Iterable[Any],
    step: Callable[[Any], Any],
    steps: int = 60,
    minutes: float = 3.0,
    only_watch: bool = False,
) -> "Report":
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
    from course.checkup import run  # imports torch, which takes seconds
    from course.checkup.watch import Watch

    watch = Watch(steps, minutes)
    run.watch_steps(loader, step, watch)
    ending = "the check-up had seen enough"
    return run.analyse(watch, "your loader and step", ending, tries=not only_watch)
