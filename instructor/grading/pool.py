"""Processes that grade submissions on this machine; one that dies is replaced.

for submission, failure in grade_all(jobs, plans, folder, execution, zygote, workers=4):
    ...
"""

import contextlib
import ctypes
import multiprocessing
import os
import signal
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.context import ForkContext
from pathlib import Path
from typing import Any

from course.errors import CourseError
from instructor.grading.plan import Plan
from instructor.grading.results import Attempt, Attempts, Submission
from instructor.grading.submission import Execution, work
from instructor.jail.zygote import Zygote

DIE_WITH_PARENT = 1  # prctl


def grade_all(
    jobs: list[Submission],
    plans: Mapping[str, Plan],
    folder: Path,
    execution: Execution,
    zygote: Zygote,
    workers: int,
) -> Attempts:
    """Yield an Attempt for each of `jobs`, once its result is saved in `folder` or could not be.

    Raises: CourseError if no worker could continue: a full disk, a process that does not start.
    """
    pool = _Pool(jobs, _Task(plans, folder, execution, zygote))
    try:
        yield from pool.run(min(workers, len(jobs)))
    finally:
        pool.end()


@dataclass(frozen=True)
class _Task:
    """What all workers share: with the plans and the right facts, computed by now."""

    plans: Mapping[str, Plan]
    folder: Path
    execution: Execution
    zygote: Zygote


class _Worker:
    """A process that grades what it is sent, and goes when the one that started it does."""

    def __init__(self, context: ForkContext, task: _Task) -> None:
        self.job: Submission | None = None
        self.pipe, theirs = context.Pipe()
        branch = task.zygote.branch()
        # a fork: nothing of these is pickled
        self.process = context.Process(target=_serve, args=(theirs, os.getpid(), task, branch))
        self.process.start()
        theirs.close()
        if branch:
            branch.close()

    def give(self, submission: Submission) -> None:
        """Send the next submission."""
        self.job = submission
        with contextlib.suppress(OSError):  # it has just died, which `wait` will tell
            self.pipe.send(submission)


def _serve(pipe: "Connection[Any, Any]", parent: int, task: _Task, branch: Any) -> None:
    """In a worker: grade what comes through `pipe`; answer None, or why it cannot continue."""
    ctypes.CDLL(None).prctl(DIE_WITH_PARENT, signal.SIGKILL)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the one that started it ends it
    if os.getppid() != parent:
        return
    jobs = iter(pipe.recv, None)
    try:
        for _ in work(jobs, task.plans, task.folder, task.execution, branch):
            pipe.send(None)
    except CourseError as error:
        pipe.send(error)


class _Pool:
    """Workers that grade `jobs`; the job of one that dies is tried again."""

    def __init__(self, jobs: list[Submission], task: _Task) -> None:
        self.context = multiprocessing.get_context("fork")
        self.waiting = list(reversed(jobs))
        self.task = task
        self.tries: Counter[Submission] = Counter()
        self.workers: dict[int, _Worker] = {}  # number -> the process that works there now

    def run(self, size: int) -> Attempts:
        """Yield an Attempt for each job, by `size` workers."""
        for number in range(size):
            self._start(number)
        while busy := [worker for worker in self.workers.values() if worker.job]:
            ready = _ready(busy)
            for number, worker in list(self.workers.items()):
                if worker in ready:
                    yield from self._finish(number, worker)

    def _start(self, number: int) -> None:
        self.workers[number] = _Worker(self.context, self.task)
        self._give_next(self.workers[number])

    def _give_next(self, worker: _Worker) -> None:
        if self.waiting:
            worker.give(self.waiting.pop())

    def _finish(self, number: int, worker: _Worker) -> Attempts:
        """Yield the Attempt of a worker that has answered or died.

        Nothing if it died and its job is tried again.
        """
        job = worker.job
        assert job is not None, "only a busy worker is ready"
        worker.job = None
        try:
            error = worker.pipe.recv()
        except (EOFError, OSError):  # the worker itself died
            worker.process.join()
            self.tries[job] += 1
            if self.tries[job] < self.task.execution.limits.worker_tries:
                self.waiting.append(job)
            else:
                yield Attempt(job, _died(self.tries[job]))
            self._start(number)
            return
        if error:
            raise error
        yield Attempt(job, None)
        self._give_next(worker)

    def end(self) -> None:
        """Kill all workers."""
        for worker in self.workers.values():
            worker.process.kill()
            worker.process.join()


def _ready(busy: list[_Worker]) -> list[_Worker]:
    """Wait; return the workers that have answered or died."""
    ends: list[Any] = []
    for worker in busy:
        ends += [worker.pipe, worker.process.sentinel]
    ready = set(wait(ends))
    return [worker for worker in busy if {worker.pipe, worker.process.sentinel} & ready]


def _died(times: int) -> str:
    often = {1: "", 2: " twice"}.get(times, f" {times} times")
    return f"the process that graded it died{often}."
