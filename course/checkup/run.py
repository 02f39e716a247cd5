"""The check-up from end to end: watch -> *facts -> trials -> advice* -> report."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any

from course.checkup.advice import advise
from course.checkup.facts import Facts, Trials
from course.checkup.failures import Failures
from course.checkup.phases import Step
from course.checkup.predict import predictions
from course.checkup.report import Report
from course.checkup.schedule import Enough
from course.checkup.summary import summarise, timeline
from course.checkup.trials import try_all
from course.checkup.verdict import not_seen, regime, would_not_help
from course.checkup.watch import Watch
from course.errors import CourseError

STUCK = "a trial did not end, so the check-up ended the process"
NO_STEP = (
    "step(batch) was called for all batches and no optimizer of torch.optim stepped; "
    "step must train: forward, backward, optimizer.step()."
)


def analyse(
    watch: Watch,
    name: str,
    ending: str,
    tries: bool = False,
    compile: bool = False,
    last_resort: Callable[[Report], None] | None = None,
) -> Report:
    """The Report of what a Watch has seen.

    A collective where several ranks train: every rank calls it.

    Args:
        name: of the script.
        ending: how the script ended, as a sentence without a full stop.
        tries: whether to try what may help, which takes as long as watching.
        compile: whether to try torch.compile as well.
        last_resort: called with what is known if a trial cannot be ended; see `limits.Watchdog`.
    """
    facts = summarise(watch)
    steps = timeline(watch.steps)

    def stuck(trials: Trials) -> None:
        last_resort(report_on(replace(facts, trials=trials), name, STUCK, steps))

    if tries:
        resort = stuck if last_resort else None
        trials = try_all(watch, facts, compile, watch.minutes, resort)
        facts = replace(facts, trials=trials)
    return report_on(facts, name, ending, steps)


def report_on(facts: Facts, name: str, ending: str, steps: Sequence[Step] = ()) -> Report:
    """The Report of what is known: what to change, what it would give, what was not seen.

    Args:
        steps: timed ones, for the timeline of its file.
    """
    failures = Failures(facts.failures)  # a formula or a rule that fails has a line there, too
    advice = advise(facts, failures)
    predicted = predictions(facts, failures)
    seen = replace(facts, failures=failures)
    return Report(
        name=name,
        ending=ending,
        facts=seen,
        predictions=predicted,
        advice=advice,
        regime=regime(facts),
        would_not_help=would_not_help(facts, advice),
        not_seen=not_seen(seen),
        timeline=list(steps),
    )


def watch_steps(loader: Iterable[Any], step: Callable[[Any], Any], watch: Watch) -> None:
    """Call `step(batch)` for batches of `loader`, again and again, until `watch` has seen enough.

    Raises: CourseError if no optimizer steps.
    """
    with watch:
        try:
            while True:
                before = len(watch.steps)
                for batch in loader:
                    step(batch)
                    if watch.is_over:  # and `step` has swallowed Enough
                        return
                if len(watch.steps) == before:
                    raise CourseError(NO_STEP)
        except Enough:
            pass
