"""What each check of a batch expects, computed once by processes that may load a solution.

find_right_answers(parts, workers=4, zygote=zygote)    # into the parts of the plans
"""

import contextlib
import socket
import sys
import tempfile
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from multiprocessing.connection import wait
from pathlib import Path
from typing import NamedTuple

from tqdm import tqdm

from course.engine.wire import pack, unpack
from course.errors import CourseError
from course.notebook.registry import solutions_folder
from course.system.files import write_text
from instructor.authoring.masters import solved_notebook, text_of
from instructor.grading import BAR
from instructor.grading.pending_results import load, path_of
from instructor.grading.plan import Check, PartPlan, Plan
from instructor.grading.pool import grade_all
from instructor.grading.results import Mark, Submission
from instructor.grading.submission import Execution
from instructor.jail.transport import ConnectionLost, Frames
from instructor.jail.zygote import Zygote


def find_right_answers(parts: Iterable[PartPlan], workers: int, zygote: Zygote) -> None:
    """Find out what each check of `parts` expects, for this process and its forks.

    Args:
        workers: how many processes compute.

    Raises: CourseError if a check cannot be run on the reference.
    """
    jobs = []
    for part in parts:
        jobs += [_Job(part, check) for check in reversed(part.checks.values())]
    bar = tqdm(total=len(jobs), desc="right answers", file=sys.stdout, bar_format=BAR)
    try:
        with contextlib.ExitStack() as stack:
            stack.enter_context(bar)
            sockets = []
            for _ in range(workers):
                sockets.append(stack.enter_context(zygote.reference(solutions_folder())))
            _Search(jobs, sockets, bar).run()
    except (ConnectionLost, OSError):
        raise CourseError(
            "the processes that find out what checks expect have ended; is there enough memory? "
            "The same command tries again."
        ) from None


class _Job(NamedTuple):
    """A check of which is to be found out what it expects."""

    part: PartPlan
    check: Check


class _Search:
    """Hands `jobs` to the processes at the other ends of `sockets` until all are done.

    Checks that start processes, which may take half a gigabyte each, are computed one after the
    other, all by the first process.
    """

    def __init__(self, jobs: list[_Job], sockets: list[socket.socket], bar: "tqdm[None]") -> None:
        self.long: list[_Job] = []
        self.short: list[_Job] = []
        for job in jobs:
            self._put(job)
        self.idle = [Frames(stream) for stream in sockets]
        self.first = self.idle[0]
        self.busy: dict[socket.socket, tuple[Frames, _Job]] = {}
        self.bar = bar

    def run(self) -> None:
        """Find out all.  Raises: ConnectionLost, CourseError as PartPlan.accept."""
        while self.long or self.short or self.busy:
            for link in list(self.idle):
                self._give(link)
            for stream in wait(list(self.busy)):
                assert isinstance(stream, socket.socket)
                self._take(stream)

    def _put(self, job: _Job) -> None:
        queue = self.long if job.check.exercise.starts_processes else self.short
        queue.append(job)

    def _give(self, link: Frames) -> None:
        """Send the next job to an idle process, if there is one for it."""
        queue = self.long if link is self.first and self.long else self.short
        if not queue:
            return
        job = queue.pop()
        self.idle.remove(link)
        self.busy[link.socket] = link, job
        name = job.check.exercise.name
        link.send(pack({"unit": job.part.unit, "exercise": name, "seed": job.check.seed}))

    def _take(self, stream: socket.socket) -> None:
        """Receive what a process has found out."""
        link, job = self.busy.pop(stream)
        cell = job.check.cell
        if job.part.accept(cell, unpack(link.receive())):
            self.bar.update()
        else:  # with another seed
            self._put(_Job(job.part, job.part.checks[cell]))
        self.idle.append(link)


def refuse_unless_right_answers_pass(
    part: PartPlan, plans: Mapping[str, Plan], execution: Execution, zygote: Zygote
) -> None:
    """Grade the reference's own notebook of `part`.

    Without it a GPU that jails cannot use would cost a class all its points.
    Raises: CourseError with the report of the first check that it does not pass.
    """
    for mark in _marks_of_reference(part, plans, execution, zygote):
        if mark.score < mark.points:
            raise CourseError(
                "right answers would lose points on this machine, so nothing was graded; "
                f"{mark.cell} of {part.part} says: {' '.join(mark.report.split())}"
            )


def _marks_of_reference(
    part: PartPlan, plans: Mapping[str, Plan], execution: Execution, zygote: Zygote
) -> list[Mark]:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        file = folder / "solved.ipynb"
        write_text(file, text_of(solved_notebook(part.source)))
        files = dict.fromkeys(plans[part.unit].parts, folder / "missing") | {part.part: file}
        job = Submission("solved", part.unit, files, datetime.now(UTC))
        for _ in grade_all([job], plans, folder, execution, zygote, workers=1):
            pass
        for result in load(path_of(folder, job)).parts:
            if result.part == part.part:
                return result.marks
    return []
