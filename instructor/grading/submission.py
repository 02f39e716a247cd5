"""Grade one submission: released notebooks + the learner's sources -> jails -> facts -> verdicts,
points, reports.

The learner's code never runs in this process; what its jail says is plain data, which the check
engine compares here with what the reference gives here. Each part runs in a separate jail, so that
parts cannot disturb each other.
"""

import contextlib
import re
import socket
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from nbformat import NotebookNode

from course.engine.exercise import Exercise
from course.engine.outcome import Outcome
from course.engine.report import ReportOptions
from course.engine.stops import Raised, Stop
from course.notebook.cells import grade_id
from course.system.busy import PATIENCE, is_busy
from instructor.grading import pending_results
from instructor.grading.inbox import unknown_among
from instructor.grading.limits import (
    PRINTED_CHARACTERS,
    REFUSED_CHARACTERS,
    CourseGrading,
)
from instructor.grading.own_modules import cells_of_modules
from instructor.grading.plan import Check, PartPlan, Plan
from instructor.grading.rebuild import (
    EXTRA,
    Missing,
    Unreadable,
    learners_cells,
    read_submission,
    rebuild,
)
from instructor.grading.results import Graded, Mark, PartResult, Submission
from instructor.jail.client import Jail
from instructor.jail.errors import EndedByItself, JailError
from instructor.jail.zygote import Zygote

STOPPED = {Stop.LIMIT, Stop.BUSY}  # what ends the probe of an answer that does not end
# what may say nothing of the answer: Linux ends processes, too
ONCE_MORE = {Stop.BUSY, Stop.PROCESS_ENDED}
BUSY = "the grader's machine was too busy for this check, which says nothing of your code."
NO_PROCESS = "its code left so many processes that none could be started for a check."
RESTORED = "What the cells above had changed was put back before this check:"
MISSING = "not handed in: there is no file of this part in the submission."

Message = dict[str, Any]  # of a jail


@dataclass(frozen=True)
class Execution:
    """How learners' code is run."""

    limits: CourseGrading = field(default_factory=CourseGrading)
    unsafe: bool = False  # without walls
    cuda: bool = False

    @property
    def device(self) -> str:
        """The device that checks run on."""
        return "cuda" if self.cuda else "cpu"


def work(
    jobs: Iterable[Submission],
    plans: Mapping[str, Plan],
    folder: Path,
    execution: Execution,
    branch: socket.socket | None = None,
) -> Iterator[Graded]:
    """Yield the Graded of each of `jobs`, once it is saved in `folder`; one zygote for all.

    Args:
        branch: what Zygote takes.
    """
    torch.set_num_threads(1)
    with Zygote(execution.unsafe, execution.cuda, branch) as zygote:
        for submission in jobs:
            graded = grade(plans[submission.unit], submission, zygote, execution.limits)
            pending_results.save(folder, graded)
            yield graded


def grade(plan: Plan, submission: Submission, zygote: Zygote, limits: CourseGrading) -> Graded:
    """The Graded of one submission, whatever it is.

    A part that cannot be read has no points and a reason.
    """
    start = time.monotonic()
    fingerprint = plan.fingerprint(submission.files, limits)
    budget = Budget(limits.submission_seconds)
    results = []
    for part in plan.parts.values():
        results.append(_grade_part(part, submission, zygote, limits, budget))
    return Graded(
        submission.learner,
        submission.unit,
        results,
        submission.received,
        fingerprint,
        seconds=time.monotonic() - start,
    )


def _grade_part(
    part: PartPlan,
    submission: Submission,
    zygote: Zygote,
    limits: CourseGrading,
    budget: "Budget",
) -> PartResult:
    """The PartResult of a submission's notebook of `part`.

    A part whose process ended is run once more: Linux ends some, too.
    """
    marks: dict[str, Mark] = {}
    notebook = part.release
    path = submission.files[part.part]
    try:
        data = read_submission(path, limits.notebook_bytes)
        notebook = rebuild(part.release, learners_cells(data, limits.cell_characters), limits)
        notebook.cells[:0] = cells_of_modules(path, limits)
    except Missing:
        note = MISSING + _others_there(path, submission) if part.asks else ""
    except Unreadable as error:
        note = f"This part could not be read: {error}"
    else:
        for _ in range(limits.part_tries):
            running = PartRun(part, zygote, limits, budget)
            marks, note = running.run(notebook)
            if not running.ended_by_itself:
                break
    missing = note or "not graded: this part was stopped before this check."
    of_part = []
    for check in part.checks.values():
        of_part.append(marks.get(check.cell) or Mark(check.cell, 0, check.points, missing))
    return PartResult(part.part, of_part, note, notebook)


def _others_there(path: Path, submission: Submission) -> str:
    """A sentence about unknown notebooks that lie where `path` should; "" if there are none."""
    known = {file.name for file in submission.files.values()}
    try:
        names = {other.name for other in path.parent.iterdir() if other.suffix == ".ipynb"}
    except OSError:
        return ""
    there = unknown_among(names - known)
    return f" What is there: {there}." if there else ""


class Budget:
    """The seconds that all code of a submission may take together."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self.taken = 0.0

    @contextlib.contextmanager
    def take(self) -> Iterator[None]:
        """Count the seconds of the block.  Raises: JailError if none are left."""
        if self.taken >= self.seconds:
            raise JailError(
                f"the code of this submission took more than {self.seconds / 60:g} minutes."
            )
        start = time.monotonic()
        try:
            yield
        finally:
            self.taken += time.monotonic() - start


class PartRun:
    """One rebuilt notebook in a separate jail: its cells, and the probes on its answers."""

    def __init__(
        self, part: PartPlan, zygote: Zygote, limits: CourseGrading, budget: Budget
    ) -> None:
        self.part = part
        self.zygote = zygote
        self.limits = limits
        self.budget = budget
        self.marks: dict[str, Mark] = {}
        self.bytes_left = limits.part_output_bytes  # of outputs that are still kept
        self.cell_seconds = 0.0  # of all cells so far
        self.stopped_seconds = 0.0  # of all checks so far of answers that did not end
        self.restored: list[str] = []  # names that a report still has to tell
        self.ended_by_itself = False
        self.answering = ""  # the exercise whose answer the latest cells hold
        self.stops: dict[str, str] = {}  # exercise -> what stopped the latest cell of its answer

    def run(self, notebook: NotebookNode) -> tuple[dict[str, Mark], str]:
        """Run the cells and probes of `notebook`, whose cells get their outputs.

        Returns: ({grade cell: Mark}, a plain reason why it ended before its end, or "").
        """
        try:
            with Jail(self.zygote, self.limits.jail, self.part.covered) as self.jail:
                for cell in notebook.cells:
                    if check := self.part.checks.get(grade_id(cell) or ""):
                        self._check(check)
                    elif cell.cell_type == "code" and not _is_left_out(cell):
                        self._cell(cell)
        except JailError as error:
            self.ended_by_itself = isinstance(error, EndedByItself)
            return self.marks, f"This part was stopped: {error}"
        return self.marks, ""

    def _cell(self, cell: NotebookNode) -> None:
        start = time.monotonic()
        with self.budget.take():
            cell.outputs = self._outputs(cell)
        if cell.metadata.get("nbgrader", {}).get("solution"):
            self.answering = str(grade_id(cell))
        if _is_learners(cell):
            self.stops[self.answering] = _stop_in(cell.outputs)
        self.cell_seconds += time.monotonic() - start
        if self.cell_seconds > self.limits.part_seconds:
            raise JailError(f"its cells took {self.cell_seconds:.0f} seconds together.")

    def _outputs(self, cell: NotebookNode) -> list[dict[str, Any]]:
        """The outputs of a code cell, as many as are kept; raises JailError if the jail is gone."""
        outputs: list[dict[str, Any]] = []
        limit = self.limits.cell_seconds
        self.jail.send({"do": "cell", "source": cell.source, "seconds": limit})
        seconds = limit + self.limits.patience_seconds
        deadline = time.monotonic() + seconds
        while True:
            message = self.jail.receive(seconds, deadline)
            output = message.get("output")
            if not isinstance(output, dict):
                return outputs
            fits = self.jail.size < min(self.limits.output_bytes, self.bytes_left)
            if fits and len(outputs) < self.limits.cell_outputs:
                outputs.append(output)
                self.bytes_left -= self.jail.size

    def _check(self, check: Check) -> None:
        self.part.find_out(check.cell)
        check = self.part.checks[check.cell]  # perhaps with another seed now
        outcome = self._timed_outcome(check)
        made = mark(self.part, check, outcome, diagnose=not self._has_failed(check.exercise))
        self.marks[check.cell] = made
        if self.restored and check.is_visible:
            made.report += f"\n{RESTORED} {', '.join(self.restored)}."
            self.restored = []

    def _has_failed(self, exercise: Exercise) -> bool:
        """Whether a check of `exercise` has no points: then its mistake is named there."""
        for cell, made in self.marks.items():
            if not made.score and self.part.checks[cell].exercise is exercise:
                return True
        return False

    def _timed_outcome(self, check: Check) -> Outcome:
        """The Outcome of the probe; raises JailError if too many answers do not end."""
        start = time.monotonic()
        with self.budget.take():
            for _ in range(self.limits.check_tries):
                outcome = self._outcome(check)
                if not (outcome.raised and outcome.raised.stop in ONCE_MORE):
                    break
        if outcome.raised and outcome.raised.stop in STOPPED:
            self.stopped_seconds += time.monotonic() - start
        if self.stopped_seconds > self.limits.part_seconds:
            raise JailError(
                f"checks of answers that do not end took {self.stopped_seconds:.0f} seconds "
                "together."
            )
        return outcome

    def _outcome(self, check: Check) -> Outcome:
        """The Outcome of the probe on the learner's answer.

        Raises: JailError if the learner's jail is gone, or can start no process.
        """
        right = self.part.find_out(check.cell)
        limit = min(check.exercise.limits.seconds, self.limits.answer_seconds)
        seconds = PATIENCE * limit + self.limits.patience_seconds
        start = time.monotonic()
        self.jail.send(
            {
                "do": "check",
                "unit": self.part.unit,
                "exercise": check.exercise.name,
                "answer": check.answer,
                "is_class": right["is_class"],
                "seed": check.seed,
                "limit": limit,
                "seconds": seconds,
            }
        )
        # twice, where threads are waited for
        message = self.jail.receive(2 * seconds + self.limits.patience_seconds)
        if message.get("no process"):
            raise JailError(NO_PROCESS)
        self.restored += _restored_in(message)
        outcome = _outcome_in(message)
        stop = self.stops.get(check.exercise.name)
        if outcome.refused and stop:
            outcome.refused = f"its cell stops with {stop}"[:REFUSED_CHARACTERS]
        # whether the machine was busy is for this process to say
        if outcome.raised and outcome.raised.stop is Stop.BUSY:
            if time.monotonic() - start >= PATIENCE * limit and is_busy():
                outcome.raised = Raised(Stop.BUSY, outcome.raised.kind, BUSY)
            else:
                outcome.raised = Raised(Stop.UNNAMED, Exception.__name__)
        return outcome


def _is_learners(cell: NotebookNode) -> bool:
    """Whether the learner may have written in a cell."""
    is_solution = bool(cell.metadata.get("nbgrader", {}).get("solution"))
    return is_solution or cell.id.startswith(EXTRA)


def _stop_in(outputs: Iterable[Mapping[str, Any]]) -> str:
    """The error that ended a cell with these outputs, `NameError: ...`; "" if none did."""
    for output in outputs:
        if output.get("output_type") == "error":
            return f"{output.get('ename')}: {output.get('evalue')}"
    return ""


def _is_left_out(cell: NotebookNode) -> bool:
    """Whether it is an experiment, or a diagram that is the same for everybody.

    No graded cell needs either.
    """
    if "experiment" in cell.metadata.get("tags", []):
        return True
    is_diagram = re.fullmatch(r"plots\.\w+\(\)\s*", cell.source) is not None
    return is_diagram and not _is_learners(cell)


def _outcome_in(message: Message) -> Outcome:
    """The Outcome in a message of a jail, whatever it holds.

    Its texts are cut to what a report needs.
    """
    facts = message.get("facts")
    return Outcome(
        facts if isinstance(facts, dict) else {},
        Raised.from_plain(message.get("raised")),
        _text_in(message, "printed")[:PRINTED_CHARACTERS],
        _text_in(message, "refused")[:REFUSED_CHARACTERS] or None,
    )


def _text_in(message: Message, name: str) -> str:
    text = message.get(name)
    return text if isinstance(text, str) else ""


def _restored_in(message: Message) -> list[str]:
    """The names that a message of a jail says were put back before the check."""
    names = message.get("restored")
    if not isinstance(names, list):
        return []
    return [name for name in names if isinstance(name, str)]


def mark(part: PartPlan, check: Check, outcome: Outcome, diagnose: bool) -> Mark:
    """The Mark for an Outcome.  No report tells what was expected."""
    expected = Outcome(part.find_out(check.cell)["expected"])
    try:
        judge = check.exercise.at(part.device, check.seed)
        options = ReportOptions(show_expected=False, diagnose=diagnose)
        verdict = judge.verdict(outcome, options, expected)
    except Exception as error:
        # values that the comparison does not support: they cost the learner only this check
        report = (
            f"{check.exercise.name}: not yet. What your code gave cannot be compared "
            f"({type(error).__name__})."
        )
        return Mark(check.cell, 0, check.points, report)
    score = check.points if verdict.correct else 0
    return Mark(check.cell, score, check.points, "\n".join(verdict.report), verdict.mistake)
