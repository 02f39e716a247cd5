"""A whole class: INBOX/<learner>/<unit>/<part>.ipynb -> nbgrader's gradebook, a table, an item
analysis.

    run(Options(inbox=...), zygote)           # of the command `course grade`

Each submission is graded by submission.py, in a jail of its own; workers write shards, one process
enters them into the gradebook. Started again after whatever ended it, it goes on where it was;
nothing in the inbox is ever written to.
"""

import contextlib
import ctypes
import fcntl
import multiprocessing
import os
import secrets
import shutil
import signal
import sys
import tempfile
from collections import ChainMap
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from multiprocessing.connection import wait
from pathlib import Path

from tqdm import tqdm

from course.engine.limits import Limits
from course.engine.wire import pack, unpack
from course.errors import CourseError
from course.notebook.registry import find_parts, parts, solutions_folder, units
from course.system.files import atomic_write, write_text
from course.system.folders import ROOT
from instructor.authoring.masters import solved_notebook, text_of
from instructor.grading import BAR, analysis, feedback, gradebook, seeds
from instructor.grading.cluster import grade_on_cluster
from instructor.grading.exchange import hand_on_secrets
from instructor.grading.inbox import read_inbox
from instructor.grading.plan import PartPlan, Plan
from instructor.grading.results import Graded, Submission
from instructor.grading.shards import load
from instructor.grading.shards import place as shard_of
from instructor.grading.submission import work
from instructor.jail.bubblewrap import refuse_without_bubblewrap
from instructor.jail.transport import ConnectionLost, Frames
from instructor.jail.zygote import Room, Zygote

DIE_WITH_PARENT = 1  # prctl
UNSAFE = """
  !! --unsafe: learners' code runs with your rights, on your files and your network, without any wall.
  !! Do this only with submissions that you would run by hand.
"""


@dataclass(frozen=True)
class Options:
    """What the command was asked: where submissions lie, which count, how much each may take, who
    grades.
    """

    inbox: Path
    course: Path = ROOT  # where gradebook.db, autograded/ and feedback/ lie
    units: tuple[str, ...] = ()  # "03_large_batch", "03", ...; () for all
    asked: dict | None = (
        # {unit: {part: names of what counts}}, as instructor.release.asked gives it; None for all
        None
    )
    workers: int = 1
    room: Room = field(default_factory=Room)
    again: bool = False
    feedback: bool = False
    cuda: bool = False
    unsafe: bool = False
    cluster: str | None = None
    tasks: int = 8  # on the cluster
    slurm: dict = field(default_factory=dict)
    secret: str | None = None  # what the seeds of this batch are drawn from; `run` draws it

    @property
    def device(self) -> str:
        return "cuda" if self.cuda else "cpu"


class _Worker:
    """A process that grades what it is sent, and goes when the one that started it does."""

    def __init__(self, context, zygote, **options):
        self.job, (self.pipe, theirs) = None, context.Pipe()
        options["branch"] = branch = zygote.branch()
        self.process = context.Process(
            target=self._serve, args=(theirs, os.getpid()), kwargs=options
        )
        self.process.start()
        for end in filter(None, (theirs, branch)):
            end.close()

    def _serve(self, pipe, parent, **options):
        ctypes.CDLL(None).prctl(DIE_WITH_PARENT, signal.SIGKILL)
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # the one that started it ends it
        if os.getppid() == parent:
            try:
                for _ in work(iter(pipe.recv, None), **options):
                    pipe.send(None)
            except CourseError as error:
                pipe.send(error)

    def give(self, submission):
        self.job = submission
        with contextlib.suppress(OSError):  # it has just died, which `wait` will tell
            self.pipe.send(submission)


class _Pool:
    """Workers that grade `jobs`; one that dies is replaced, and its job is tried once more."""

    def __init__(self, jobs, workers, options):
        # with the plans and the right facts, computed by now
        self.context = multiprocessing.get_context("fork")
        self.waiting, self.tried, self.workers = list(reversed(jobs)), set(), {}
        self.options, self.size = options, min(workers, len(jobs))

    def run(self):
        """Yield (Submission, reason or None) of each job."""
        for number in range(self.size):
            self._start(number)
        while busy := [worker for worker in self.workers.values() if worker.job]:
            ready = {
                *wait([end for worker in busy for end in (worker.pipe, worker.process.sentinel)])
            }
            for place, worker in list(self.workers.items()):
                if worker.job and {worker.pipe, worker.process.sentinel} & ready:
                    yield from self._finish(place, worker)

    def _start(self, place):
        self.workers[place] = _Worker(self.context, **self.options)
        if self.waiting:
            self.workers[place].give(self.waiting.pop())

    def _finish(self, place, worker):
        """What became of the job of a worker that has said something or died, if it is not tried
        again.
        """
        job, worker.job = worker.job, None
        try:
            error = worker.pipe.recv()
        except (EOFError, OSError):  # the worker itself died
            worker.process.join()
            if job in self.tried:
                yield job, "the process that graded it died twice."
            else:
                self.tried.add(job)
                self.waiting.append(job)
            self._start(place)
            return
        if error:
            raise error
        yield job, None
        if self.waiting:
            worker.give(self.waiting.pop())

    def end(self):
        for worker in self.workers.values():
            worker.process.kill()
            worker.process.join()


def grade_all(
    jobs: list[Submission], workers: int, **options
) -> Iterator[tuple[Submission, str | None]]:
    """Yield (Submission, None) of each of `jobs` once its result is saved, (Submission, reason) if
    it could not be.

    Raises: CourseError if no worker could go on: a full disk, a process that does not start.
    """
    pool = _Pool(jobs, workers, options)
    try:
        yield from pool.run()
    finally:
        pool.end()


@contextlib.contextmanager
def only_one(folder: Path) -> Iterator[None]:
    """Inside the block no other grader works on this course folder. Raises: CourseError if one
    does.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with open(folder / "lock", "w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise CourseError(
                f"another grader is at work on this course (it holds {folder / 'lock'}); wait for it."
            ) from None
        yield


def still_to_do(
    submissions: list[Submission], plans: dict[str, Plan], root: Path
) -> list[Submission]:
    """Those whose score is not in the gradebook yet, or was given to other files or by other
    checks.
    """
    done = {(graded.learner, graded.unit): graded for graded in gradebook.records(root)}

    def same(job):
        known = done.get((job.learner, job.unit))
        if not known or known.received != job.received:
            return False
        return known.fingerprint == plans[job.unit].fingerprint(job.files)

    return [job for job in submissions if not same(job)]


def report(results: list[Graded], folder: Path) -> None:
    """Print the table and the item analysis, and write them to `folder` as text, CSV and a
    picture.
    """
    by_exercise = analysis.items(results)
    table, items = analysis.table(results), analysis.items_text(by_exercise)
    print(f"\n{table}\n{items}")
    for name, text in (("scores.txt", table), ("scores.csv", analysis.table_csv(results)), ("items.txt", items),
                       ("items.csv", analysis.items_csv(by_exercise))):  # fmt: skip
        write_text(folder / name, text)
    rows = [
        (i.exercise, i.solved, i.partly, [(name, count) for name, count, _ in i.mistakes])
        for i in by_exercise
    ]
    # matplotlib, which would keep everybody waiting at the start
    from instructor.grading import (
        plots as plots,
    )

    figure = plots.shares(rows, f"{len({g.learner for g in results})} learners")
    with atomic_write(folder / "items.png") as file:
        figure.savefig(file, format="png")
    print(f"These, as CSV and a plot: {folder}")


def find_right_answers(handed_in: Iterable[PartPlan], workers: int, zygote: Zygote) -> None:
    """Find out, by as many processes, what each check of these parts expects, for this process and
    its forks.

    Raises: CourseError if a check cannot be run on the reference.
    """
    try:
        _find(handed_in, workers, zygote)
    except (ConnectionLost, OSError) as error:
        raise CourseError(
            f"the processes that find out what checks expect have ended ({error}); is there enough memory? The same "
            "command tries again."
        ) from None


def _find(parts, workers, zygote):
    checks = [(part, check) for part in parts for check in reversed(part.checks.values())]
    queues = {
        is_long: [one for one in checks if _is_long(one[1]) == is_long] for is_long in (False, True)
    }
    busy = {}  # socket of a process that computes -> (the connection with it, what it computes)
    with contextlib.ExitStack() as stack:
        sockets = [
            stack.enter_context(zygote.reference(solutions_folder())) for _ in range(workers)
        ]
        idle = [Frames(stream) for stream in sockets]
        # the long ones start Pythons of half a gigabyte: one after the other, all by one process
        first = idle[0]
        bar = stack.enter_context(
            tqdm(total=len(checks), desc="right answers", file=sys.stdout, bar_format=BAR)
        )
        while any(queues.values()) or busy:
            for link in list(idle):
                if queue := queues[link is first and bool(queues[True])]:
                    idle.remove(link)
                    part, check = queue.pop()
                    busy[link.socket] = link, part, check
                    link.send(
                        pack(
                            {"unit": part.unit, "exercise": check.exercise.name, "seed": check.seed}
                        )
                    )
            for stream in wait(busy):
                link, part, check = busy.pop(stream)
                if part.accept(check.cell, unpack(link.receive())):
                    bar.update()
                else:
                    queues[_is_long(check)].append((part, part.checks[check.cell]))
                idle.append(link)


def _is_long(check):
    """Whether a check starts Pythons: such exercises ask for more seconds than others
    (`@exercise(seconds=60)`).
    """
    return check.exercise.limits.seconds > Limits.seconds


def refuse_unless_right_answers_pass(part: PartPlan, plans: dict[str, Plan], **how) -> None:
    """Grade the reference's own notebook of `part`, or a GPU that jails cannot use would cost a
    class all its points.

    Raises: CourseError with the report of the first check that it does not pass.
    """
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "solved.ipynb"
        write_text(file, text_of(solved_notebook(part.source)))
        files = dict.fromkeys(plans[part.unit].parts, file.with_name("missing")) | {part.part: file}
        job = Submission("solved", part.unit, files, datetime.now(UTC))
        list(grade_all([job], 1, folder=Path(folder), plans=plans, **how))
        marks = next(
            result.marks
            for result in load(shard_of(Path(folder), job)).parts
            if result.part == part.part
        )
    if wrong := next((mark for mark in marks if mark.score < mark.points), None):
        raise CourseError(
            f"right answers would lose points on this machine, so nothing was graded; {wrong.cell} of {part.part} "
            f"says: {' '.join(wrong.report.split())}"
        )


def grade_into(
    shards: Path, jobs: list[Submission], plans: dict[str, Plan], zygote, options: Options
) -> dict[str, str]:
    """Grade `jobs` into the folder `shards`; return {"learner, unit": reason} of those without a
    result.
    """
    how = dict(unsafe=options.unsafe, cuda=options.cuda, room=options.room)
    unfinished = {}
    shards.mkdir(parents=True)
    with contextlib.ExitStack() as stack:
        if options.cluster:
            tasks = options.cluster, options.tasks, options.slurm
            results = grade_on_cluster(
                jobs, shards, *tasks, asked=options.asked, secret=options.secret, **how
            )
        else:
            handed_in = {
                (job.unit, part)
                for job in jobs
                for part, path in job.files.items()
                if path.exists()
            }
            graded_parts = [plans[unit].parts[part] for unit, part in sorted(handed_in)]
            find_right_answers(graded_parts, options.workers, zygote)
            seeds.keep_draws(shards.parent, dict(ChainMap(*[part.draws for part in graded_parts])))
            if options.cuda and (asking := [part for part in graded_parts if part.checks]):
                refuse_unless_right_answers_pass(asking[0], zygote=zygote, plans=plans, **how)
            results = grade_all(
                jobs, options.workers, folder=shards, zygote=zygote, plans=plans, **how
            )
        stack.enter_context(contextlib.closing(results))
        bar = stack.enter_context(tqdm(total=len(jobs), file=sys.stdout, bar_format=BAR))
        for job, reason in results:
            bar.set_description_str(f"{job.learner} {job.unit}"[:40], refresh=False)
            bar.update()
            if reason:
                unfinished[f"{job.learner}, {job.unit}"] = reason
    return unfinished


def run(options: Options, zygote: Zygote | None) -> None:
    """Grade everything in the inbox into the gradebook, and report.

    `zygote` may still import; a cluster's tasks have their own.

    Raises: CourseError that names the submissions whose score could not be found, once all others
    are in.
    """
    root = Path(options.course).resolve()
    folder = root / "build" / "grading"
    if options.unsafe:
        print(UNSAFE, file=sys.stderr)
    elif options.cluster != "slurm":  # where the tasks look for it themselves
        refuse_without_bubblewrap()
    submissions, left_out = read_inbox(options.inbox, _wanted(options))
    with only_one(folder):
        unfinished, shards = _grade(submissions, folder, root, zygote, options)
    for sentence in left_out:
        print(f"left out: {sentence}")
    if unfinished:
        each = "".join(f"\n  {who}: {reason}" for who, reason in unfinished.items())
        raise CourseError(
            f"{len(unfinished)} submissions were not graded; the same command tries them again:{each}"
        )
    shutil.rmtree(shards, ignore_errors=True)


def _wanted(options):
    """{unit: its parts that count}. Raises: CourseError for a unit that is unknown, or of which
    nothing is asked.
    """
    asked = options.asked or {unit: parts(unit) for unit in units()}
    names = sorted({unit for name in options.units for unit, _ in find_parts(name)} or {*asked})
    if not_asked := [unit for unit in names if unit not in asked]:
        raise CourseError(
            f"nothing of {', '.join(not_asked)} is asked; what is asked is {', '.join(sorted(asked))}."
        )
    return {unit: sorted(asked[unit]) for unit in names}


def _grade(submissions, folder, root, zygote, options):
    """({"learner, unit": reason} of those without a result, the folder of shards); all else is in
    the gradebook.
    """
    names = sorted({submission.unit for submission in submissions})
    options = replace(options, secret=seeds.secret_of(folder, options.again))
    asked = options.asked or dict.fromkeys(names)
    draws = seeds.draws_of(folder)
    plans = {unit: Plan(unit, options.device, asked[unit], options.secret, draws) for unit in names}
    for unit, plan in plans.items():
        gradebook.prepare(unit, root, plan.sources)
    ended = sorted(folder.glob("run-*"))  # runs that something ended: what they have done counts
    gradebook.merge([shard for run in ended for shard in sorted(run.glob("*.json"))], root)
    for run in ended:
        shutil.rmtree(run, ignore_errors=True)
    jobs = submissions if options.again else still_to_do(submissions, plans, root)
    print(f"{len(submissions)} submissions, {len(submissions) - len(jobs)} of them graded before")
    shards = folder / f"run-{secrets.token_hex(4)}"
    unfinished = grade_into(shards, jobs, plans, zygote, options) if jobs else {}
    gradebook.merge(sorted(shards.glob("*.json")), root)
    hand_on_secrets(submissions, root)
    if not unfinished:
        seeds.finished(folder)
    if options.feedback:
        for unit in plans:
            feedback.write_pages(unit, root, options.workers)
    wanted = {(submission.learner, submission.unit) for submission in submissions}
    report(
        [graded for graded in gradebook.records(root) if (graded.learner, graded.unit) in wanted],
        folder,
    )
    return unfinished, shards
