"""How fast a class is graded beside nbgrader autograde, and whether a killed batch resumes.

`speed` grades solved submissions by `nbgrader autograde`, one call for all of them, and by `course
grade`, in turn; each is timed from its start to its end and finds the same course folder, with the
unit in its gradebook.  `cohort` grades a class in one batch without interruption, then one that is
killed with -9 three times, each time after a random number of it was graded, and compares;
meanwhile it watches the memory of the grader's own processes. Linux only.
"""

import contextlib
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

import torch

from course.device import machine
from course.errors import CourseError
from course.notebook.cells import grade_id
from course.notebook.registry import parts
from course.system.files import write_text
from course.system.folders import ROOT
from instructor.authoring.build import build
from instructor.authoring.masters import (
    release_notebook,
    solved_notebook,
    source_notebook,
    text_of,
)
from instructor.bench import spread
from instructor.grading import demo, gradebook, seeds

LOOK = 0.5  # seconds between two looks at a running grader
KILLS = 3
LOG, GRADING = "grade.log", Path("build", "grading")  # in a course folder
RUNS = f"{GRADING}/run-*"


def run(units, submissions=6, rounds=3, cohort_size=None):
    """Print what both graders take for each unit asked, or with `cohort_size` what a killed batch
    takes of all these units, each handed in by as many learners as make that many submissions.
    """
    os.environ["COURSE_SCALE"] = (
        "smoke"  # of what a submission may measure; the same for both graders
    )
    with tempfile.TemporaryDirectory() as folder:
        if cohort_size:
            cohort(units, -(-cohort_size // len(units)), Path(folder))
        else:
            for unit in units:
                speed(unit, submissions, rounds, Path(folder) / unit)
    print(machine())


def speed(unit, submissions, rounds, folder):
    """Print seconds of both graders and their ratio. Raises: CourseError if their scores are not
    the same.
    """
    template, solved = _course(unit, folder / "template")
    for number in range(submissions):
        _put(template / "submitted", f"learner{number}", unit, solved)
    contestants = {
        "nbgrader autograde": lambda course: demo.nbgrader("autograde", unit, course),
        "course grade": lambda course: _finish(
            _start([unit], course / "submitted", course), course
        ),
    }
    seconds = torch.zeros(rounds, len(contestants), dtype=torch.float64)
    for number in range(rounds):
        scores = {}
        for place, (name, grade) in list(enumerate(contestants.items()))[
            :: 1 if number % 2 else -1
        ]:
            course = Path(shutil.copytree(template, folder / "course"))
            started = time.perf_counter()
            grade(course)
            seconds[number, place] = time.perf_counter() - started
            scores[name] = gradebook.scores(unit, course)
            shutil.rmtree(course)
        _same(*scores.values(), "the two graders")
        if any(
            score < points
            for cells in scores["course grade"].values()
            for score, points in cells.values()
        ):
            raise CourseError("a solved submission should have all points; one has not.")
    what = f"{unit}, {submissions} solved submissions, {rounds} rounds"
    print(f"{what}: seconds, times as fast; the same scores, checked")
    for name, own in zip(contestants, seconds.T, strict=True):
        print(
            f"  {name:<20} {spread(own, '.1f'):>28}   {spread(seconds[:, 0] / own, '.2f')}",
            flush=True,
        )


def solved_once(unit, folder, cuda):
    """(seconds, points reached, points in all) of one solved submission of `unit`, graded in
    `folder`.

    Raises: CourseError if the grader fails.
    """
    course, solved = _course(unit, folder)
    _put(course / "submitted", "learner", unit, solved)
    started = time.perf_counter()
    _finish(_start([unit], course / "submitted", course, *["--cuda"] * cuda), course)
    seconds = time.perf_counter() - started
    (cells,) = gradebook.scores(unit, course).values()
    return (
        seconds,
        sum(score for score, _ in cells.values()),
        sum(points for _, points in cells.values()),
    )


def cohort(units, learners, folder):
    """Print what one batch takes in which `learners` hand in each unit asked, uninterrupted and
    killed three times.

    Raises: CourseError if a score, a comment or a report differs between the two.
    """
    inbox, draw, kinds = folder / "inbox", random.Random(0), Counter()
    for unit in units:
        kinds += _hand_in(unit, learners, inbox, draw)
    number = learners * len(units)
    drawn = ", ".join(f"{count} {kind}" for kind, count in sorted(kinds.items()))
    print(f"{number} submissions of {len(units)} units: {drawn}", flush=True)
    whole, killed = folder / "whole", folder / "killed"
    _uninterrupted(units, inbox, whole, number)
    # the other batch asks with the same seeds, or reports would differ
    seeds.secret_of(whole / GRADING, again=True)
    write_text(killed / GRADING / seeds.FILE, (whole / GRADING / seeds.FILE).read_text())
    _killed(units, inbox, killed, number, draw)
    _same_marks(gradebook.records(whole), gradebook.records(killed))
    _same(
        *[[gradebook.scores(unit, course) for unit in units] for course in (whole, killed)],
        "the two gradebooks",
    )
    print("  every score, report and note is the same", flush=True)
    started = time.perf_counter()
    _finish(_start(units, inbox, whole, "--feedback"), whole)
    print(
        f"  once more with --feedback, nothing left to grade: {time.perf_counter() - started:.0f} s"
    )


def _uninterrupted(units, inbox, course, number):
    """Print what a batch takes: seconds, where they went, memory."""
    started, most, moments = time.perf_counter(), 0, {}
    process = _start(units, inbox, course)
    while process.poll() is None:
        most = max(most, _memory(process.pid))
        # a count -> when it was first seen
        moments.setdefault(_saved(course), time.perf_counter() - started)
        time.sleep(LOOK)
    _finish(process, course)
    whole, last = time.perf_counter() - started, moments[max(moments)]
    first = min((moment for count, moment in moments.items() if count), default=last)
    print(f"  uninterrupted: {whole:.0f} s, {whole / number:.2f} s per submission; the first was graded after "
          f"{first:.0f} s, the last after {last:.0f} s")  # fmt: skip
    print(f"  the grader's own processes took {most / 1e6:,.0f} MB at most (PSS)")
    for unit in units:
        seconds = torch.tensor(
            [graded.seconds for graded in gradebook.records(course) if graded.unit == unit]
        )
        print(f"  {unit:<24} {spread(seconds, '.1f')} s per submission in its worker", flush=True)


def _killed(units, inbox, course, number, draw):
    """Grade a batch of `number` that is killed with -9 whenever a random number of it is graded,
    and started again.
    """
    for _ in range(KILLS):
        before, wanted = {*course.glob(RUNS)}, draw.randint(1, max(1, number // (KILLS + 1)))
        process, started = _start(units, inbox, course), time.perf_counter()
        while process.poll() is None and _saved(course, before) < wanted:
            time.sleep(LOOK)
        if process.poll() is not None:
            _finish(process, course)
            raise CourseError("the batch ended before it was killed; take a larger one.")
        process.kill()
        process.wait()
        seconds = time.perf_counter() - started
        print(
            f"  killed (-9) after {seconds:.0f} s, {_saved(course, before)} saved in this run",
            flush=True,
        )
    started = time.perf_counter()
    said = _finish(_start(units, inbox, course), course)
    summary = next(line for line in said.splitlines() if "graded before" in line)
    print(f"  then: {summary}; {time.perf_counter() - started:.0f} s")


def _course(unit, course):
    """(`course`, now a course folder whose gradebook knows `unit`, {part: its solved notebook})"""
    sources = {part: build(unit, part, root=course)[0] for part in parts(unit)}
    demo.nbgrader("generate_assignment", unit, course)
    return course, {part: solved_notebook(source) for part, source in sources.items()}


def _put(inbox, learner, unit, notebooks):
    for part, nb in notebooks.items():
        write_text(inbox / learner / unit / f"{part}.ipynb", text_of(nb))


def _hand_in(unit, learners, inbox, draw):
    """Counter of the kinds of submissions that now lie in `inbox`, drawn from `draw`: solved,
    partly, untouched.
    """
    sources = {part: source_notebook(unit, part) for part in parts(unit)}
    releases = {part: release_notebook(source) for part, source in sources.items()}
    solved, kinds = {part: solved_notebook(source) for part, source in sources.items()}, Counter()
    for number in range(learners):
        kind = draw.choices(("solved", "partly", "untouched"), (5, 4, 1))[0]
        kinds[kind] += 1
        share = {"solved": 1, "partly": draw.random(), "untouched": 0}[kind]
        notebooks = {
            part: _partly(release, solved[part], share, draw) for part, release in releases.items()
        }
        _put(inbox, f"learner{number:04d}", unit, notebooks)
    return kinds


def _partly(release, solved, share, draw):
    """The notebook `release` with this share of the answers of the notebook `solved`."""
    nb = type(release)(release)
    nb.cells = [right if grade_id(right) and draw.random() < share else given
                for given, right in zip(release.cells, solved.cells, strict=True)]  # fmt: skip
    return nb


def _start(chosen, inbox, course, *options):
    """`course grade`, which has just started; what it says goes to a file, which holds any number
    of words.
    """
    call = [
        sys.executable,
        "-m",
        "course.cli",
        "grade",
        str(inbox),
        "--course",
        str(course),
        *options,
    ]
    course.mkdir(parents=True, exist_ok=True)
    with (course / LOG).open("w") as file:
        units = [word for unit in chosen for word in ("--unit", unit)]
        return subprocess.Popen([*call, *units], cwd=ROOT, stdout=file, stderr=subprocess.STDOUT)


def _finish(process, course):
    """What the grader said.  Raises: CourseError with its last words if it failed."""
    process.wait()
    said = (course / LOG).read_text(errors="replace")
    if process.returncode:
        raise CourseError(
            f"the grader ended with exit code {process.returncode}: {said.strip()[-500:]}"
        )
    return said


def _memory(pid):
    """Bytes (PSS) of a grader: its process, its workers and theirs, without what lives in a
    jail.
    """
    parents = {}
    for number in filter(str.isdecimal, os.listdir("/proc")):
        with contextlib.suppress(OSError):
            if os.readlink(f"/proc/{number}/ns/pid") == os.readlink("/proc/self/ns/pid"):
                parents[number] = (
                    Path(f"/proc/{number}/stat").read_text().rpartition(")")[2].split()[1]
                )
    ours, more = set(), {str(pid)}
    while more:
        ours |= more
        more = {number for number, parent in parents.items() if parent in ours} - ours
    total = 0
    for number in ours:
        with contextlib.suppress(OSError):
            lines = Path(f"/proc/{number}/smaps_rollup").read_text().splitlines()
            total += sum(int(line.split()[1]) * 1024 for line in lines if line.startswith("Pss:"))
    return total


def _saved(course, before=frozenset()):
    """How many submissions a running grader has graded; folders of runs `before` it do not
    count.
    """
    return sum(len([*run.glob("*.json")]) for run in course.glob(RUNS) if run not in before)


def _same_marks(whole, killed):
    """Raise a CourseError that says what differs, if anything but the seconds does between two
    lists of Graded.
    """
    whole, killed = (
        {(graded.learner, graded.unit): graded for graded in batch} for batch in (whole, killed)
    )
    differ = [
        who for who in sorted(whole.keys() | killed.keys()) if whole.get(who) != killed.get(who)
    ]
    if differ:
        shown = "\n".join(
            f"{' '.join(who)}: {whole.get(who)}, {killed.get(who)}" for who in differ[:20]
        )
        raise CourseError(
            f"{len(differ)} of {len(whole)} submissions differ in the killed batch:\n{shown}"
        )


def _same(one, other, who):
    if one != other:
        raise CourseError(f"{who} should give the same; they do not.")
