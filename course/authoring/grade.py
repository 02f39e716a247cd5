"""Grade a class: INBOX/<learner>/<unit>/<unit>.ipynb -> nbgrader's gradebook, a table, an item analysis.

    python -m course.authoring.grade INBOX [--unit 03_large_batch] [--workers 4 | --cluster slurm --jobs 20]

Each submission is graded by submission.py, in a jail of its own; workers write shards, one process enters them into the
gradebook.  Started again after whatever ended it, it goes on where it was; nothing in INBOX is ever written to.
"""

import argparse
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

from course.authoring import analysis, gradebook
from course.authoring.build import ROOT, units
from course.authoring.cluster import grade_on_cluster
from course.authoring.jail import Room, Zygote, refuse_without_bubblewrap
from course.authoring.rebuild import Unreadable, read_submission
from course.authoring.submission import Handed, Plan, work
from course.errors import CourseError, command
from course.files import whole_file, write_text
from course.lfw_dataset import positive
from course.loaders import cores
from course.plots import grading as plots

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
    figure = plots.shares(rows, f"{len({g.learner for g in results})} learners")
    with whole_file(folder / "items.png") as file:
        figure.savefig(file, format="png")
    print(f"These, as CSV and a plot: {folder}")


def grade_into(shards, jobs, plans, args):
    """{"learner, unit": reason} of those of `jobs` without a result; those of all others lie in the folder `shards`."""
    limits = {name: getattr(args, name) for name in ("cell_seconds", "answer_seconds", "patience")}
    options = dict(unsafe=args.unsafe, cuda=args.cuda, room=Room(memory=int(args.memory * 2**30), **limits))
    unfinished = {}
    with contextlib.ExitStack() as stack:
        if args.cluster:
            results = grade_on_cluster(jobs, shards, args.cluster, args.jobs, dict(args.slurm), **options)
        else:
            zygote = stack.enter_context(Zygote(args.unsafe, args.cuda))  # imports while this process computes
            tests = [(plan, test) for plan in plans.values() for test in plan.tests.values()]
            for plan, test in tqdm(tests, "right answers", file=sys.stdout, bar_format=BAR):
                test.exercise.expected(plan.device, test.seed)
            results = grade_all(jobs, args.workers, shards, zygote=zygote, plans=plans, **options)
        stack.enter_context(contextlib.closing(results))
        bar = stack.enter_context(tqdm(total=len(jobs), file=sys.stdout, bar_format=BAR))
        for job, reason in results:
            bar.set_description_str(f"{job.learner} {job.unit}"[:40], refresh=False)
            bar.update()
            if reason:
                unfinished[f"{job.learner}, {job.unit}"] = reason
    return unfinished


def run(args):
    """None; everything in the inbox is in the gradebook.

    Raises: CourseError that names the submissions whose score could not be found, once all others are in.
    """
    root, folder = Path(args.course).resolve(), Path(args.course).resolve() / "build" / "grading"
    if args.unsafe:
        print(UNSAFE, file=sys.stderr)
    elif args.cluster != "slurm":  # where the tasks look for it themselves
        refuse_without_bubblewrap()
    wanted = args.unit or units()
    handed, left_out = inbox(args.inbox, wanted)
    with only_one(folder):
        plans = {unit: Plan(unit, "cuda" if args.cuda else "cpu") for unit in sorted({job.unit for job in handed})}
        for unit in plans:
            gradebook.prepare(unit, root)
        ended = sorted(folder.glob("run-*"))  # runs that something ended: what they have done counts
        gradebook.merge([shard for run in ended for shard in sorted(run.glob("*.db"))], root)
        for run in ended:
            shutil.rmtree(run, ignore_errors=True)
        jobs = handed if args.again else still_to_do(handed, plans, root)
        print(f"{len(handed)} submissions, {len(handed) - len(jobs)} of them graded before")
        shards = folder / f"run-{secrets.token_hex(4)}"
        unfinished = grade_into(shards, jobs, plans, args) if jobs else {}
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


def setting(text):
    """("partition", "cpu") of "partition=cpu"; a whole number becomes one."""
    name, equals, value = text.partition("=")
    if not (name and equals and value):
        raise argparse.ArgumentTypeError(f"NAME=VALUE, as in partition=cpu, was expected; found {text}")
    return name, int(value) if value.isdecimal() else value


@command
def main(argv=None):
    parser = argparse.ArgumentParser(prog="python -m course.authoring.grade", description="Grade a class.")
    parser.add_argument("inbox", help="folder with one folder a learner, as nbgrader's submitted/")
    parser.add_argument(
        "--unit", action="append", choices=units(), metavar="UNIT", help="only this one (may be repeated)"
    )
    parser.add_argument("--workers", type=positive, default=cores(), help="submissions graded at the same time")
    parser.add_argument(
        "--cluster", choices=("slurm", "local"), help="grade by tasks of a scheduler (local: processes)"
    )
    parser.add_argument("--jobs", type=positive, default=8, help="tasks on the cluster (default: 8)")
    parser.add_argument(
        "--slurm", action="append", type=setting, default=[], metavar="NAME=VALUE", help="partition=cpu, time=60, ..."
    )
    parser.add_argument("--course", default=ROOT, help="where gradebook.db, autograded/ and feedback/ lie")
    parser.add_argument("--again", action="store_true", help="also what was graded before and has not changed")
    parser.add_argument("--feedback", action="store_true", help="also make the pages that learners get")
    parser.add_argument("--memory", type=float, default=4, help="GiB that one submission may take")
    for name, default, text in (
        ("cell", Room.cell_seconds, "seconds that a cell of the learner's may take"),
        ("answer", Room.answer_seconds, "seconds that an answer may take, where its exercise does not allow less"),
    ):
        parser.add_argument(f"--{name}-seconds", type=float, default=default, help=text)
    parser.add_argument(
        "--patience", type=float, default=Room.patience, help="seconds beyond either limit, on a busy machine"
    )
    parser.add_argument("--cuda", action="store_true", help="check on the GPU, which submissions then see")
    parser.add_argument("--unsafe", action="store_true", help="without bubblewrap: learners' code gets your rights")
    run(parser.parse_args(argv))


if __name__ == "__main__":
    main()
