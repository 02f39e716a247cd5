"""A whole class: INBOX/<learner>/<unit>/<part>.ipynb -> nbgrader's gradebook, a table, an item
analysis.

    run(Options(inbox=...), zygote)           # of the command `course grade`

submission.py grades each submission in a separate jail. Workers (pool.py) write pending results,
and one process enters them into the gradebook. A batch that ended early, for whatever reason,
resumes where it was when it is started again. Nothing is ever written into the inbox.
"""

import contextlib
import secrets
import shutil
import sys
from collections import ChainMap
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tqdm import tqdm

from course.errors import CourseError
from course.notebook.registry import find_parts, parts, units
from course.system.folders import ROOT
from instructor.grading import BAR, feedback, gradebook, seeds
from instructor.grading.cluster import Cluster, grade_on_cluster
from instructor.grading.exchange import hand_on_secrets, write_times
from instructor.grading.folders import course_folders
from instructor.grading.inbox import Inbox, read_inbox
from instructor.grading.limits import CourseGrading, configured
from instructor.grading.lms import unpacked
from instructor.grading.lock import only_one
from instructor.grading.plan import PartPlan, Plan
from instructor.grading.pool import grade_all
from instructor.grading.results import Attempts, Graded, Submission
from instructor.grading.right_answers import find_right_answers, refuse_unless_right_answers_pass
from instructor.grading.submission import Execution
from instructor.grading.summary import write_summary
from instructor.jail.bubblewrap import refuse_without_bubblewrap
from instructor.jail.zygote import Zygote
from instructor.release.asked import Choice

UNSAFE = (
    "\n  !! --unsafe: learners' code runs with your rights, on your files and your network, "
    "without any wall.\n  !! Do this only with submissions that you would run by hand.\n"
)


@dataclass(frozen=True)
class Options:
    """What the command was asked: where submissions lie, which count, how and where to grade."""

    inbox: Path
    course: Path = ROOT  # where gradebook.db, autograded/ and feedback/ lie
    units: tuple[str, ...] = ()  # "03_large_batch", "03", ...; () for all
    asked: Choice | None = None  # as instructor.release.asked gives it; None for all
    asked_by: str = gradebook.ALL  # how the command said so
    numbers: dict[str, Any] = field(default_factory=dict)  # of limits.CourseGrading
    again: bool = False
    feedback: bool = False
    cuda: bool = False
    unsafe: bool = False
    cluster: str | None = None  # "slurm" or "local"
    slurm: dict[str, Any] = field(default_factory=dict)


def run(options: Options, zygote: Zygote | None) -> None:
    """Grade everything in the inbox into the gradebook, and report.

    `zygote` may still import; a cluster's tasks have their own.

    Raises: CourseError that names the submissions whose score could not be found, once all others
    are in.
    """
    root = Path(options.course).resolve()
    if options.unsafe:
        print(UNSAFE, file=sys.stderr)
    elif options.cluster != "slurm":  # where the tasks look for it themselves
        refuse_without_bubblewrap()
    limits = configured(course_folders(root).config, options.numbers)
    inbox = _inbox(options, root / "build" / "grading", limits)
    with only_one(root / "build" / "grading"):
        batch = Batch(inbox.submissions, root, options, limits)
        batch.enter_earlier_results()
        jobs = batch.still_to_do()
        graded_before = len(inbox.submissions) - len(jobs)
        print(f"{len(inbox.submissions)} submissions, {graded_before} of them graded before")
        failures = batch.grade(jobs, zygote) if jobs else {}
        batch.enter_results()
        if not failures:
            seeds.finished(batch.folder)
        if options.feedback:
            batch.write_feedback()
        print(f"\n{batch.summary()}")
        print(f"These, as CSV and a plot: {batch.folder}")
    for sentence in inbox.left_out:
        print(f"left out: {sentence}")
    if failures:
        raise CourseError(_failed(failures))
    batch.remove_pending()


def _inbox(options: Options, folder: Path, limits: CourseGrading) -> Inbox:
    """What was handed in, in a folder or in a platform's archive, which `folder` gets unpacked."""
    place = Path(options.inbox)
    left_out: list[str] = []
    if place.is_file():
        place, left_out = unpacked(place, folder, limits.notebook_bytes)
    inbox = read_inbox(place, _wanted(options))
    return inbox._replace(left_out=left_out + inbox.left_out)


def _wanted(options: Options) -> dict[str, list[str]]:
    """{unit: its parts that count}.

    Raises: CourseError for a unit that is unknown, or of which nothing is asked.
    """
    asked: Mapping[str, Iterable[str]] = options.asked or {unit: parts(unit) for unit in units()}
    names: set[str] = set()
    for name in options.units:
        names |= {unit for unit, _ in find_parts(name)}
    names = names or set(asked)
    if not_asked := sorted(names - set(asked)):
        raise CourseError(
            f"nothing of {', '.join(not_asked)} is asked; what is asked is "
            f"{', '.join(sorted(asked))}."
        )
    return {unit: sorted(asked[unit]) for unit in sorted(names)}


def _is_from_another_time(job: Submission, done: Graded) -> bool:
    """Whether what was graded came at another time than a person or an older folder says."""
    return job.received != done.received if job.is_told else job.received < done.received


def _failed(failures: dict[str, str]) -> str:
    each = "".join(f"\n  {who}: {reason}" for who, reason in failures.items())
    return f"{len(failures)} submissions were not graded; the same command tries them again:{each}"


class Batch:
    """The submissions of one command, and what their course folder `root` holds of them."""

    def __init__(
        self, submissions: list[Submission], root: Path, options: Options, limits: CourseGrading
    ) -> None:
        self.submissions = submissions
        self.root = root
        self.options = options
        self.limits = limits
        self.folder = root / "build" / "grading"
        self.pending = (
            self.folder / f"run-{secrets.token_hex(4)}"
        )  # results, until they are entered
        self.execution = Execution(limits, options.unsafe, options.cuda)
        self.secret = seeds.secret_of(self.folder, options.again)
        self.plans = self._plans()

    def _plans(self) -> dict[str, Plan]:
        """The plan of each unit, of which the gradebook knows all cells from now on."""
        draws = seeds.draws_of(self.folder)
        plans = {}
        for unit in sorted({submission.unit for submission in self.submissions}):
            asked = self.options.asked[unit] if self.options.asked else None
            plans[unit] = Plan(unit, self.execution.device, asked, self.secret, draws)
            gradebook.prepare(unit, self.root, plans[unit].sources, self.options.asked_by)
        return plans

    def enter_earlier_results(self) -> None:
        """Enter what runs have done that something ended."""
        ended = sorted(self.folder.glob("run-*"))
        for run in ended:
            gradebook.merge(sorted(run.glob("*.json")), self.root)
        for run in ended:
            shutil.rmtree(run, ignore_errors=True)

    def still_to_do(self) -> list[Submission]:
        """The submissions whose score is not in the gradebook yet.

        Or was given to other files or by other checks. All of them where `again` is asked. A
        folder that only became newer, because somebody opened it, holds the same submission.
        """
        if self.options.again:
            return self.submissions
        records = gradebook.records(self.root)
        known = {(graded.learner, graded.unit): graded for graded in records}
        jobs = []
        for job in self.submissions:
            done = known.get((job.learner, job.unit))
            if done is None or _is_from_another_time(job, done):
                jobs.append(job)
            elif done.fingerprint != self._fingerprint(job):
                jobs.append(job)
        return jobs

    def _fingerprint(self, job: Submission) -> str:
        return self.plans[job.unit].fingerprint(job.files, self.limits)

    def grade(self, jobs: list[Submission], zygote: Zygote | None) -> dict[str, str]:
        """Grade `jobs`; return {"learner, unit": reason} of those without a result."""
        self.pending.mkdir(parents=True)
        if self.options.cluster:
            attempts = self._on_cluster(jobs, self.options.cluster)
        else:
            assert zygote is not None, "only a cluster's tasks have their own"
            attempts = self._here(jobs, zygote)
        failures = {}
        with (
            contextlib.closing(attempts),
            tqdm(total=len(jobs), file=sys.stdout, bar_format=BAR) as bar,
        ):
            for job, failure in attempts:
                bar.set_description_str(f"{job.learner} {job.unit}"[:40], refresh=False)
                bar.update()
                if failure:
                    failures[f"{job.learner}, {job.unit}"] = failure
        return failures

    def _on_cluster(self, jobs: list[Submission], scheduler: str) -> Attempts:
        cluster = Cluster(scheduler, self.options.slurm)
        options = self.options
        return grade_on_cluster(
            jobs, self.pending, cluster, self.execution, options.asked, self.secret
        )

    def _here(self, jobs: list[Submission], zygote: Zygote) -> Attempts:
        """Find out what the checks of `jobs` expect; grade by processes of this machine."""
        graded_parts = self._parts_of(jobs)
        find_right_answers(graded_parts, self.limits.workers, zygote)
        draws = ChainMap(*[part.draws for part in graded_parts])
        seeds.keep_draws(self.folder, dict(draws))
        with_checks = [part for part in graded_parts if part.checks]
        if self.options.cuda and with_checks:
            refuse_unless_right_answers_pass(with_checks[0], self.plans, self.execution, zygote)
        return grade_all(
            jobs, self.plans, self.pending, self.execution, zygote, self.limits.workers
        )

    def _parts_of(self, jobs: list[Submission]) -> list[PartPlan]:
        """The parts that somebody handed in."""
        handed_in = set()
        for job in jobs:
            handed_in |= {(job.unit, part) for part, path in job.files.items() if path.exists()}
        return [self.plans[unit].parts[part] for unit, part in sorted(handed_in)]

    def enter_results(self) -> None:
        """Enter what was graded into the gradebook, and give nbgrader its secrets and times."""
        gradebook.merge(sorted(self.pending.glob("*.json")), self.root)
        hand_on_secrets(self.submissions, self.root)
        write_times(self.submissions, self.root)

    def write_feedback(self) -> None:
        """Write the pages that learners get."""
        for unit in self.plans:
            feedback.write_pages(unit, self.root, self.limits.workers)

    def summary(self) -> str:
        """Write the table and the item analysis of all submissions; return them as text."""
        wanted = {(submission.learner, submission.unit) for submission in self.submissions}
        results = []
        for graded in gradebook.records(self.root):
            if (graded.learner, graded.unit) in wanted:
                results.append(graded)
        return write_summary(results, self.folder)

    def remove_pending(self) -> None:
        """Remove the folder of results, which are all entered."""
        shutil.rmtree(self.pending, ignore_errors=True)
