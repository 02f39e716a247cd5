"""Grade one submission: released notebooks + the learner's sources -> jails -> facts -> verdicts,
points, reports.

The learner's code never runs in this process; what its jail says is plain data, which the check
engine compares here with what the reference gives here. Each part runs in a jail of its own, so
that parts cannot disturb each other.
"""

import contextlib
import re
import time
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path

import torch

from course.engine.outcome import Outcome
from course.engine.report import ReportOptions
from course.engine.stops import Raised, Stop
from course.notebook.cells import grade_id
from course.system.busy import PATIENCE, is_busy
from instructor.grading import shards
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
from instructor.jail.zygote import EndedByItself, JailError, Room, Zygote

# times the seconds of one cell are what all cells of a part may take together, and all stopped
# checks
CELLS = 5
STOPPED = {Stop.LIMIT, Stop.BUSY}  # what ends the probe of an answer that does not end
# what may say nothing of the answer: Linux ends processes, too
ONCE_MORE = {Stop.BUSY, Stop.PROCESS_ENDED}
BUSY = "the grader's machine was too busy for this check, which says nothing of your code."
RESTORED = "What the cells above had changed was put back before this check:"
MISSING = "not handed in: there is no file of this part in the submission."
# outputs of a cell, bytes of one, and of all cells of a part
OUTPUTS, OUTPUT, KEPT = (
    50,
    3_000_000,
    10_000_000,
)


def work(
    jobs: Iterable[Submission],
    plans: dict[str, Plan],
    folder: Path,
    unsafe,
    cuda,
    room,
    branch=None,
) -> Iterator:
    """Yield the Graded of each of `jobs`, once it is saved in `folder`; one zygote for all of
    them.
    """
    torch.set_num_threads(1)
    with Zygote(unsafe, cuda, branch) as zygote:
        for submission in jobs:
            graded = grade(plans[submission.unit], submission, zygote, room)
            shards.save(folder, graded)
            yield graded


def grade(plan: Plan, submission: Submission, zygote: Zygote, room: Room | None = None) -> Graded:
    """Return the Graded of one submission, whatever it is: a part that cannot be read has no points
    and a reason.
    """
    start = time.monotonic()
    fingerprint = plan.fingerprint(submission.files)
    room, results = room or Room(), []
    budget = Budget(room.submission_seconds)
    for name, part in plan.parts.items():
        results.append(_grade_part(part, submission.files[name], zygote, room, budget))
    seconds = time.monotonic() - start
    return Graded(
        submission.learner, submission.unit, results, submission.received, fingerprint, seconds
    )


def _grade_part(part, path, zygote, room, budget):
    """The PartResult of the notebook at `path`; a part whose process ended is run once more: Linux
    ends some, too.
    """
    try:
        notebook = rebuild(part.release, learners_cells(read_submission(path)))
    except Missing:
        marks, notebook, note = {}, part.release, MISSING if part.asks else ""
    except Unreadable as error:
        marks, notebook, note = {}, part.release, f"This part could not be read: {error}"
    else:
        for _ in range(2):
            running = PartRun(part, zygote, room, budget)
            marks, note = running.run(notebook)
            if not running.ended_by_itself:
                break
    missing = note or "not graded: this part was stopped before this check."
    of_part = [
        marks.get(c.cell) or Mark(c.cell, 0, c.points, missing) for c in part.checks.values()
    ]
    return PartResult(part.part, of_part, note, notebook)


class Budget:
    """The seconds that all code of a submission may take together."""

    def __init__(self, seconds: float):
        self.seconds, self.taken = seconds, 0.0

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
    """One rebuilt notebook in a jail of its own: its cells, and the probes on its answers."""

    def __init__(self, part: PartPlan, zygote: Zygote, room: Room, budget: Budget):
        self.part, self.zygote, self.room, self.budget = part, zygote, room, budget
        self.marks, self.left, self.busy, self.stopped = {}, KEPT, 0.0, 0.0
        self.restored, self.ended_by_itself = [], False

    def run(self, notebook) -> tuple[dict[str, Mark], str]:
        """Run the cells and probes of `notebook`, whose cells get their outputs.

        Returns: ({grade cell: Mark}, a plain reason why it ended before its end, or "").
        """
        try:
            with Jail(self.zygote, replace(self.room, covered=self.part.covered)) as self.jail:
                for cell in notebook.cells:
                    if check := self.part.checks.get(grade_id(cell)):
                        self._check(check)
                    elif cell.cell_type == "code" and not _is_left_out(cell):
                        self._cell(cell)
        except JailError as error:
            self.ended_by_itself = isinstance(error, EndedByItself)
            return self.marks, f"This part was stopped: {error}"
        return self.marks, ""

    def _cell(self, cell):
        start = time.monotonic()
        with self.budget.take():
            cell.outputs = self._outputs(cell)
        self.busy += time.monotonic() - start
        if self.busy > CELLS * self.jail.room.cell_seconds:
            raise JailError(f"its cells took {self.busy:.0f} seconds together.")

    def _outputs(self, cell):
        """The outputs of a code cell, as many as are kept; raises JailError if the jail is gone."""
        seconds, outputs = self.jail.room.cell_seconds, []
        self.jail.send({"do": "cell", "source": cell.source, "seconds": seconds})
        seconds += self.jail.room.patience
        deadline = time.monotonic() + seconds
        while True:
            message = self.jail.receive(seconds, deadline)
            if not isinstance(message.get("output"), dict):
                return outputs
            if len(outputs) < OUTPUTS and self.jail.size < min(OUTPUT, self.left):
                outputs.append(message["output"])
                self.left -= self.jail.size

    def _check(self, check):
        self.part.find_out(check.cell)
        check = self.part.checks[check.cell]  # perhaps with another seed now
        same = [
            mark
            for mark in self.marks.values()
            if self.part.checks[mark.cell].exercise is check.exercise
        ]
        outcome = self._timed_outcome(check)
        self.marks[check.cell] = mark(
            self.part, check, outcome, diagnose=all(mark.score for mark in same)
        )
        if self.restored and check.is_visible:
            self.marks[check.cell].report += f"\n{RESTORED} {', '.join(self.restored)}."
            self.restored = []

    def _timed_outcome(self, check):
        """The Outcome of the probe; raises JailError if too many answers do not end."""
        start = time.monotonic()
        with self.budget.take():
            outcome = self._outcome(check)
            if outcome.raised and outcome.raised.stop in ONCE_MORE:
                outcome = self._outcome(check)
        if outcome.raised and outcome.raised.stop in STOPPED:
            self.stopped += time.monotonic() - start
        if self.stopped > CELLS * self.jail.room.cell_seconds:
            raise JailError(
                f"checks of answers that do not end took {self.stopped:.0f} seconds together."
            )
        return outcome

    def _outcome(self, check):
        """The Outcome of the probe on the learner's answer; raises JailError if the learner's jail
        is gone.
        """
        room, right = self.jail.room, self.part.find_out(check.cell)
        limit = min(check.exercise.limits.seconds, room.answer_seconds)
        asked = {
            "unit": self.part.unit,
            "exercise": check.exercise.name,
            "is_class": right["is_class"],
            "limit": limit,
        }
        seconds, start = PATIENCE * limit + room.patience, time.monotonic()
        self.jail.send(
            {"do": "check", "answer": check.answer, "seed": check.seed, "seconds": seconds} | asked
        )
        # twice, where threads are waited for
        message = self.jail.receive(2 * seconds + room.patience)
        self.restored += _restored_in(message)
        outcome = _outcome_in(message)
        if outcome.raised and outcome.raised.stop is Stop.BUSY:  # which is for this process to say
            is_so = time.monotonic() - start >= PATIENCE * limit and is_busy()
            busy = Raised(Stop.BUSY, outcome.raised.kind, BUSY)
            outcome.raised = busy if is_so else Raised(Stop.UNNAMED, Exception.__name__)
        return outcome


def _is_learners(cell):
    return cell.metadata.get("nbgrader", {}).get("solution") or cell.id.startswith(EXTRA)


def _is_left_out(cell):
    """Whether it is an experiment, or a diagram that is the same for everybody: no graded cell
    needs either.
    """
    diagram = re.fullmatch(r"plots\.\w+\(\)\s*", cell.source) and not _is_learners(cell)
    return "experiment" in cell.metadata.get("tags", []) or diagram


def _outcome_in(message):
    """The Outcome in a message of a jail, whatever it holds; its texts are cut to what a report
    needs.
    """
    facts = message.get("facts")
    raised = Raised.from_plain(message.get("raised"))
    printed, refused = (
        message[k] if isinstance(message.get(k), str) else "" for k in ("printed", "refused")
    )
    return Outcome(
        facts if isinstance(facts, dict) else {}, raised, printed[:4000], refused[:500] or None
    )


def _restored_in(message):
    """The names that a message of a jail says were put back before the check."""
    names = message.get("restored")
    return [name for name in names if isinstance(name, str)] if isinstance(names, list) else []


def mark(part: PartPlan, check: Check, outcome: Outcome, diagnose: bool) -> Mark:
    """Return the Mark for an Outcome.  No report tells what was expected."""
    expected = Outcome(part.find_out(check.cell)["expected"])
    try:
        judge = check.exercise.at(part.device, check.seed)
        options = ReportOptions(show_expected=False, diagnose=diagnose)
        verdict = judge.verdict(outcome, options, expected)
    except (
        Exception
    ) as error:  # values that no comparison was made for: whoever sends them loses this check alone
        report = f"{check.exercise.name}: not yet. What your code gave cannot be compared ({type(error).__name__})."
        return Mark(check.cell, 0, check.points, report)
    score = check.points if verdict.correct else 0
    return Mark(check.cell, score, check.points, "\n".join(verdict.report), verdict.mistake)
