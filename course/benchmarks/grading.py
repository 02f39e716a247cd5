"""How fast and how surely a class is graded: submissions -> *ratios to nbgrader autograde*, a killed batch resumed.

    course bench grading [03_large_batch] [--submissions 6] [--rounds 3]
    course bench grading [03_large_batch] --cohort 200

The first grades solved submissions by `nbgrader autograde`, one call for all of them, and by `course grade`, in turn;
each is timed from its start to its end and finds the same course folder, with the unit in its gradebook.  The second
grades a class without interruption, then with a kill -9 in the middle, and compares; meanwhile it watches the memory of
the grader's own processes.  Linux only.
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
from dataclasses import replace
from pathlib import Path

import torch

from course.benchmarks import spread
from course.device import machine
from course.errors import CourseError
from course.files import write_text
from course.grading import demo, gradebook, shards
from course.publish.build import ROOT, build, grade_id, release_notebook, solved_notebook, source_notebook, text_of
from course.units import parts

UNIT = "03_large_batch"  # the one whose answers take least themselves: what is left is the grader's
LOOK = 0.5  # seconds between two looks at a running grader


def run(unit=UNIT, submissions=6, rounds=3, cohort_size=None):
    """Print what both graders take, or with `cohort_size` what a killed batch of that many submissions takes."""
    os.environ["COURSE_SCALE"] = "smoke"  # of what a submission may measure; the same for both graders
    with tempfile.TemporaryDirectory() as folder:
        if cohort_size:
            cohort(unit, cohort_size, Path(folder))
        else:
            speed(unit, submissions, rounds, Path(folder))
    print(machine())


def speed(unit, submissions, rounds, folder):
    """Prints seconds of both graders and their ratio.  Raises: CourseError if their scores are not the same."""
    template, solved = _course(unit, folder / "template")
    for number in range(submissions):
        _put(template / "submitted", f"learner{number}", unit, solved)
    contestants = {
        "nbgrader autograde": lambda course: demo.nbgrader("autograde", unit, course),
        "course grade": lambda course: _finish(_start(unit, course / "submitted", course)),
    }
    seconds = torch.zeros(rounds, len(contestants), dtype=torch.float64)
    for number in range(rounds):
        scores = {}
        for place, (name, grade) in list(enumerate(contestants.items()))[:: 1 if number % 2 else -1]:
            course = Path(shutil.copytree(template, folder / "course"))
            started = time.perf_counter()
            grade(course)
            seconds[number, place] = time.perf_counter() - started
            scores[name] = gradebook.scores(unit, course)
            shutil.rmtree(course)
        _same(*scores.values(), "the two graders")
        if any(score < points for cells in scores["course grade"].values() for score, points in cells.values()):
            raise CourseError("a solved submission should have all points; one has not.")
    print(
        f"{unit}, {submissions} solved submissions, {rounds} rounds: seconds, times as fast; the same scores, checked"
    )
    for name, taken in zip(contestants, seconds.T, strict=True):
        print(f"  {name:<20} {spread(taken, '.1f'):>28}   {spread(seconds[:, 0] / taken, '.2f')}")


def solved_once(unit, folder, cuda):
    """(seconds, points reached, points in all) of one solved submission of `unit`, graded in `folder`.

    Raises: CourseError if the grader fails.
    """
    course, solved = _course(unit, folder)
    _put(course / "submitted", "learner", unit, solved)
    started = time.perf_counter()
    _finish(_start(unit, course / "submitted", course, *["--cuda"] * cuda))
    seconds = time.perf_counter() - started
    (cells,) = gradebook.scores(unit, course).values()
    return seconds, sum(score for score, _ in cells.values()), sum(points for _, points in cells.values())


def cohort(unit, learners, folder):
    """Prints what a batch of `learners` takes, uninterrupted and killed in the middle.

    Raises: CourseError if a score, a comment or a report differs between the two.
    """
    template, solved = _course(unit, folder / "template")
    inbox = folder / "inbox"
    kinds = _hand_in(unit, learners, solved, inbox)
    print(f"{unit}, {learners} submissions: {', '.join(f'{count} {kind}' for kind, count in sorted(kinds.items()))}")

    whole = Path(shutil.copytree(template, folder / "whole"))
    started, most = time.perf_counter(), 0
    process = _start(unit, inbox, whole)
    while process.poll() is None:
        most = max(most, _memory(process.pid))
        time.sleep(LOOK)
    _finish(process)
    taken = time.perf_counter() - started
    print(f"  uninterrupted: {taken:.0f} s; the grader's own processes took {most / 1e6:,.0f} MB at most (PSS)")

    killed = Path(shutil.copytree(template, folder / "killed"))
    process = _start(unit, inbox, killed)
    while (done := _saved(killed)) < learners // 2 and process.poll() is None:
        time.sleep(LOOK)
    process.kill()
    process.communicate()
    started = time.perf_counter()
    said = _finish(_start(unit, inbox, killed))
    print(f"  killed (-9) with {done} saved; then: {said.splitlines()[0]}, {time.perf_counter() - started:.0f} s")
    for state in (gradebook.scores, _records):
        _same(state(unit, whole), state(unit, killed), "the uninterrupted and the resumed batch")
    print("  every score, report and note is the same")


def _course(unit, course):
    """(`course`, now a course folder whose gradebook knows `unit`, {part: its solved notebook})"""
    sources = {part: build(unit, part, root=course)[0] for part in parts(unit)}
    demo.nbgrader("generate_assignment", unit, course)
    return course, {part: solved_notebook(source) for part, source in sources.items()}


def _put(inbox, learner, unit, notebooks):
    for part, nb in notebooks.items():
        write_text(inbox / learner / unit / f"{part}.ipynb", text_of(nb))


def _hand_in(unit, learners, solved, inbox):
    """Counter of the kinds of submissions that now lie in `inbox`, drawn with a seed: solved, partly, untouched."""
    releases = {part: release_notebook(source_notebook(unit, part)) for part in solved}
    draw, kinds = random.Random(0), Counter()
    for number in range(learners):
        kind = draw.choices(("solved", "partly", "untouched"), (5, 4, 1))[0]
        kinds[kind] += 1
        share = {"solved": 1, "partly": draw.random(), "untouched": 0}[kind]
        notebooks = {part: _partly(release, solved[part], share, draw) for part, release in releases.items()}
        _put(inbox, f"learner{number:04d}", unit, notebooks)
    return kinds


def _partly(release, solved, share, draw):
    """The notebook `release` with this share of the answers of the notebook `solved`."""
    nb = type(release)(release)
    nb.cells = [right if grade_id(right) and draw.random() < share else given
                for given, right in zip(release.cells, solved.cells, strict=True)]  # fmt: skip
    return nb


def _start(unit, inbox, course, *options):
    call = [sys.executable, "-m", "course.cli", "grade", str(inbox), "--unit", unit, "--course", str(course), *options]
    words = dict(stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    return subprocess.Popen(call, cwd=ROOT, **words)


def _finish(process):
    """What the grader said.  Raises: CourseError with its last words if it failed."""
    said, words = process.communicate()
    if process.returncode:
        raise CourseError(f"the grader ended with exit code {process.returncode}: {words.strip()[-500:]}")
    return said


def _memory(pid):
    """Bytes (PSS) of a grader: its process, its workers and theirs, without what lives in a jail."""
    parents = {}
    for number in filter(str.isdecimal, os.listdir("/proc")):
        with contextlib.suppress(OSError):
            if os.readlink(f"/proc/{number}/ns/pid") == os.readlink("/proc/self/ns/pid"):
                parents[number] = Path(f"/proc/{number}/stat").read_text().rpartition(")")[2].split()[1]
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


def _saved(course):
    """How many submissions lie in the shards of a running grader."""
    return sum(map(shards.count, course.glob("build/grading/run-*/*.db")))


def _records(unit, course):
    return [replace(graded, seconds=0) for graded in gradebook.records(course)]


def _same(one, other, who):
    if one != other:
        raise CourseError(f"{who} should give the same; they do not.")
