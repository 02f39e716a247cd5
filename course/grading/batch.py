"""A whole class: INBOX/<learner>/<unit>/<unit>.ipynb -> nbgrader's gradebook, a table, an item analysis.

    run(args, zygote)           # of the command grade.py

Each submission is graded by submission.py, in a jail of its own; workers write shards, one process enters them into the
gradebook.  Started again after whatever ended it, it goes on where it was; nothing in the inbox is ever written to.
"""

import contextlib
import csv
import ctypes
import fcntl
import multiprocessing
import os
import secrets
import shutil
import signal
import sys
from datetime import UTC, datetime
from multiprocessing.connection import wait
from pathlib import Path

from tqdm import tqdm

from course.checks.expected import solutions_folder
from course.errors import CourseError
from course.files import whole_file, write_text
from course.grading import analysis, gradebook
from course.grading.cluster import grade_on_cluster
from course.grading.rebuild import Unreadable, read_submission
from course.grading.sandbox.client import refuse_without_bubblewrap
from course.grading.sandbox.remote import Gone, Link
from course.grading.sandbox.zygote import Room
from course.grading.submission import Handed, Plan, work
from course.units import units

DIE_WITH_PARENT = 1  # prctl
BAR = "{percentage:3.0f} %|{bar:20}| {n}/{total} {elapsed} {desc}"
UNSAFE = """
  !! --unsafe: learners' code runs with your rights, on your files and your network, without any wall.
  !! Do this only with submissions that you would run by hand.
"""


def inbox(folder, wanted):
    """([Handed, ...], [a sentence about each thing left out, ...]) of what lies in the inbox `folder`, by learner.

    A learner is a folder in it; a submission is <learner>/<unit>/<unit>.ipynb or <learner>/<unit>.ipynb.  Its time is
    what `received.csv` in the inbox says (columns learner, unit, received; ISO 8601), else that of the folder it lies
    in: nothing that a learner hands in decides about it.  Links are not followed.

    Raises: CourseError if there is no such folder, or no submission of the units `wanted` in it.
    """
    folder = Path(folder)
    if not folder.is_dir():
        raise CourseError(f"the inbox must be a folder with one folder a learner; {folder} is none.")
    times, found, left_out = _times(folder / "received.csv"), [], []
    for learner in sorted(entry.name for entry in os.scandir(folder) if entry.is_dir()):
        if (folder / learner).is_symlink():
            left_out.append(f"{learner}: a link to a folder, which is not followed.")
            continue
        try:
            gradebook.check_learner(learner)
        except CourseError as error:
            left_out.append(str(error))
            continue
        here = [handed for unit in wanted if (handed := _handed(folder / learner, unit, times))]
        found += here
        if not here:
            left_out.append(f"{learner}: no notebook of {', '.join(wanted)} in this folder.")
    if not found:
        raise CourseError(f"looked in {folder} for <learner>/<unit>/<unit>.ipynb of {', '.join(wanted)}, found none.")
    return found, left_out


def _handed(place, unit, times):
    """The submission of `unit` in the learner's folder `place`, or None."""
    inner, file = place / unit, f"{unit}.ipynb"
    if inner.is_dir() and not inner.is_symlink():
        place = inner
    elif not os.path.lexists(place / file):
        return None
    seen = datetime.fromtimestamp(place.stat().st_mtime, UTC)
    name = place.parent.name if place is inner else place.name
    return Handed(name, unit, place / file, times.get((name, unit)) or seen)


def _times(path):
    """{(learner, unit): datetime in UTC} of a table that whoever collected submissions made; {} if there is none."""
    if not path.exists():
        return {}
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            table = csv.DictReader(file)
            if not {"learner", "unit", "received"} <= {*(table.fieldnames or ())}:
                raise ValueError(f"columns {table.fieldnames}")
            rows = [(row["learner"], row["unit"], datetime.fromisoformat(row["received"])) for row in table]
    except (OSError, TypeError, ValueError, csv.Error) as error:
        raise CourseError(
            f"{path} should be a CSV table with the columns learner, unit, received (2026-11-21T18:00+01:00); found "
            f"what is not ({type(error).__name__}: {error})."
        ) from None
    return {(learner, unit): time.astimezone(UTC) for learner, unit, time in rows}


class _Worker:
    """A process that grades what it is sent, and goes when the one that started it does."""

    def __init__(self, context, number, folder, zygote, **options):
        self.job, (self.pipe, theirs) = None, context.Pipe()
        shard = folder / f"{os.getpid()}-{number}.db"
        options["branch"] = branch = zygote.branch()
        self.process = context.Process(target=self._serve, args=(theirs, os.getpid(), shard), kwargs=options)
        self.process.start()
        for end in filter(None, (theirs, branch)):
            end.close()

    def _serve(self, pipe, parent, shard, **options):
        ctypes.CDLL(None).prctl(DIE_WITH_PARENT, signal.SIGKILL)
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # the one that started it ends it
        if os.getppid() == parent:
            try:
                for _ in work(iter(pipe.recv, None), shard=shard, **options):
                    pipe.send(None)
            except CourseError as error:
                pipe.send(error)

    def give(self, handed):
        self.job = handed
        with contextlib.suppress(OSError):  # it has just died, which `wait` will tell
            self.pipe.send(handed)


def grade_all(jobs, workers, folder, **options):
    """Yields (Handed, None) of each of `jobs` once it is in a shard in `folder`, (Handed, reason) if it could not be.

    Raises: CourseError if no worker could go on: a full disk, a process that does not start.
    """
    context = multiprocessing.get_context("fork")  # with the plans and the right facts, which are computed by now
    waiting, tried, pool = list(reversed(jobs)), set(), {}
    try:
        for number in range(min(workers, len(jobs))):
            pool[number] = _Worker(context, number, folder, **options)
            pool[number].give(waiting.pop())
        while busy := [worker for worker in pool.values() if worker.job]:
            ready = wait([end for worker in busy for end in (worker.pipe, worker.process.sentinel)])
            for number, worker in list(pool.items()):
                if not {worker.pipe, worker.process.sentinel} & {*ready} or not worker.job:
                    continue
                job, worker.job = worker.job, None
                try:
                    error = worker.pipe.recv()
                except (EOFError, OSError):  # the worker itself died
                    worker.process.join()
                    pool[number] = worker = _Worker(context, f"{number}-{len(tried)}", folder, **options)
                    if job in tried:
                        yield job, "the process that graded it died twice."
                    else:
                        tried.add(job)
                        waiting.append(job)
                else:
                    if error:
                        raise error
                    yield job, None
                if waiting:
                    worker.give(waiting.pop())
    finally:
        for worker in pool.values():
            worker.process.kill()
            worker.process.join()


@contextlib.contextmanager
def only_one(folder):
    """Inside the block no other grader works on this course folder.  Raises: CourseError if one does."""
    folder.mkdir(parents=True, exist_ok=True)
    with open(folder / "lock", "w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise CourseError(
                f"another grader is at work on this course (it holds {folder / 'lock'}); wait for it."
            ) from None
        yield


def still_to_do(handed, plans, root):
    """Those of `handed` whose score is not in the gradebook yet, or was given to another file or by other checks."""
    done = {(graded.learner, graded.unit): graded for graded in gradebook.records(root)}

    def same(job):
        known = done.get((job.learner, job.unit))
        if not known or known.received != job.received:
            return False
        with contextlib.suppress(Unreadable):
            return known.fingerprint == plans[job.unit].fingerprint(read_submission(job.path))
        return known.fingerprint == plans[job.unit].fingerprint(b"")

    return [job for job in handed if not same(job)]


def report(results, folder):
    """None; the table and the item analysis are printed and lie in `folder` as text, CSV and a picture."""
    found = analysis.items(results)
    table, items = analysis.table(results), analysis.items_text(found)
    print(f"\n{table}\n{items}")
    for name, text in (("scores.txt", table), ("scores.csv", analysis.table_csv(results)), ("items.txt", items),
                       ("items.csv", analysis.items_csv(found))):  # fmt: skip
        write_text(folder / name, text)
    rows = [(i.exercise, i.solved, i.partly, [(name, count) for name, count, _ in i.mistakes]) for i in found]
    from course.plots import grading as plots  # matplotlib, which would keep everybody waiting at the start

    figure = plots.shares(rows, f"{len({g.learner for g in results})} learners")
    with whole_file(folder / "items.png") as file:
        figure.savefig(file, format="png")
    print(f"These, as CSV and a plot: {folder}")


def find_right_answers(plans, workers, zygote):
    """None; this process and its forks know what each check of `plans` expects.

    Raises: CourseError if a check cannot be run on the reference.
    """
    try:
        _find(plans, workers, zygote)
    except (Gone, OSError) as error:
        raise CourseError(
            f"the processes that find out what checks expect have ended ({error}); is there enough memory? The same "
            "command tries again."
        ) from None


def _find(plans, workers, zygote):
    waiting = [(plan, test) for plan in plans for test in reversed(plan.tests.values())]
    busy = {}  # socket of a process that computes -> what it computes
    with contextlib.ExitStack() as stack:
        idle = [stack.enter_context(zygote.reference(solutions_folder())) for _ in range(workers)]
        bar = stack.enter_context(tqdm(total=len(waiting), desc="right answers", file=sys.stdout, bar_format=BAR))
        while waiting or busy:
            while waiting and idle:
                plan, test = busy[idle[-1]] = waiting.pop()
                Link(idle.pop()).send({"unit": plan.unit, "exercise": test.exercise.name, "seed": test.seed})
            for wire in wait(busy):
                plan, test = busy.pop(wire)
                found = Link(wire).receive()
                if "error" in found:
                    raise CourseError(f"{plan.unit}, {test.cell} cannot be checked: {found['error']}")
                plan.right[test.cell] = found
                idle.append(wire)
                bar.update()


def grade_into(shards, jobs, plans, zygote, args):
    """{"learner, unit": reason} of those of `jobs` without a result; those of all others lie in the folder `shards`."""
    limits = {name: getattr(args, name) for name in ("cell_seconds", "answer_seconds", "patience")}
    options = dict(unsafe=args.unsafe, cuda=args.cuda, room=Room(memory=int(args.memory * 2**30), **limits))
    unfinished = {}
    with contextlib.ExitStack() as stack:
        if args.cluster:
            results = grade_on_cluster(jobs, shards, args.cluster, args.jobs, dict(args.slurm), **options)
        else:
            find_right_answers(plans.values(), args.workers, zygote)
            results = grade_all(jobs, args.workers, shards, zygote=zygote, plans=plans, **options)
        stack.enter_context(contextlib.closing(results))
        bar = stack.enter_context(tqdm(total=len(jobs), file=sys.stdout, bar_format=BAR))
        for job, reason in results:
            bar.set_description_str(f"{job.learner} {job.unit}"[:40], refresh=False)
            bar.update()
            if reason:
                unfinished[f"{job.learner}, {job.unit}"] = reason
    return unfinished


def run(args, zygote):
    """None; everything in the inbox is in the gradebook.  `zygote` may still import; a cluster's tasks have their own.

    Raises: CourseError that names the submissions whose score could not be found, once all others are in.
    """
    root, folder = Path(args.course).resolve(), Path(args.course).resolve() / "build" / "grading"
    if args.unsafe:
        print(UNSAFE, file=sys.stderr)
    elif args.cluster != "slurm":  # where the tasks look for it themselves
        refuse_without_bubblewrap()
    wanted = args.unit or units()
    if unknown := {*wanted} - {*units()}:
        raise CourseError(f"--unit {min(unknown)} is no unit; there are {', '.join(units())}.")
    handed, left_out = inbox(args.inbox, wanted)
    with only_one(folder):
        plans = {unit: Plan(unit, "cuda" if args.cuda else "cpu") for unit in sorted({job.unit for job in handed})}
        for unit, plan in plans.items():
            gradebook.prepare(unit, root, plan.source)
        ended = sorted(folder.glob("run-*"))  # runs that something ended: what they have done counts
        gradebook.merge([shard for run in ended for shard in sorted(run.glob("*.db"))], root)
        for run in ended:
            shutil.rmtree(run, ignore_errors=True)
        jobs = handed if args.again else still_to_do(handed, plans, root)
        print(f"{len(handed)} submissions, {len(handed) - len(jobs)} of them graded before")
        shards = folder / f"run-{secrets.token_hex(4)}"
        unfinished = grade_into(shards, jobs, plans, zygote, args) if jobs else {}
        gradebook.merge(sorted(shards.glob("*.db")), root)
        if args.feedback:
            for unit in plans:
                gradebook.feedback(unit, root)
        asked = {(job.learner, job.unit) for job in handed}
        report([graded for graded in gradebook.records(root) if (graded.learner, graded.unit) in asked], folder)
    for sentence in left_out:
        print(f"left out: {sentence}")
    if unfinished:
        each = "".join(f"\n  {who}: {reason}" for who, reason in unfinished.items())
        raise CourseError(f"{len(unfinished)} submissions were not graded; the same command tries them again:{each}")
    shutil.rmtree(shards, ignore_errors=True)
