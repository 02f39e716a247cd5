"""How fast a class is graded compared with nbgrader, and whether a killed batch resumes.

`speed` grades solved submissions alternately by `nbgrader autograde`, one call for all of them, and
by `course grade`; each is timed from its start to its end and finds the same course folder, with
the unit in its gradebook. `cohort` grades a class in one batch without interruption, then in one
that is killed with -9 three times, each time after a random number of submissions, and compares;
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
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from nbformat import NotebookNode

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
from instructor.grading.results import Graded

POLL_SECONDS = 0.5  # between two looks at a running grader
KILLS = 3
KINDS = ("solved", "partly", "untouched")  # of submissions in a cohort
KIND_WEIGHTS = (5, 4, 1)
DIFFERENCES_MAX = 20  # in a message
NBGRADER = "nbgrader autograde"
COURSE = "course grade"
# in a course folder
LOG = "grade.log"
GRADING = Path("build", "grading")
RUNS = f"{GRADING}/run-*"

Notebooks = dict[str, NotebookNode]  # by the name of their part


@dataclass(frozen=True)
class Submission:
    """What grading one submission took and gave."""

    seconds: float
    score: float
    points: float  # that could be reached


def run(
    units: Sequence[str], submissions: int = 6, rounds: int = 3, cohort_size: int | None = None
) -> None:
    """Print what both graders take for each unit; with `cohort_size` what a killed batch takes.

    Args:
        cohort_size: submissions of that batch, of all units, each handed in by as many learners.
    """
    # of what a submission may measure; the same for both graders
    os.environ["COURSE_SCALE"] = "smoke"
    with tempfile.TemporaryDirectory() as folder:
        if cohort_size:
            learners = -(-cohort_size // len(units))
            cohort(units, learners, Path(folder))
        else:
            for unit in units:
                speed(unit, submissions, rounds, Path(folder) / unit)
    print(machine())


# ---- both graders, interleaved


def speed(unit: str, submissions: int, rounds: int, folder: Path) -> None:
    """Print seconds of both graders and their ratio.

    Raises: CourseError if their scores are not the same.
    """
    template = folder / "template"
    solved = _make_course(unit, template)
    for number in range(submissions):
        _put(template / "submitted", f"learner{number}", unit, solved)
    seconds = {NBGRADER: [], COURSE: []}
    for number in range(rounds):
        order = (NBGRADER, COURSE) if number % 2 else (COURSE, NBGRADER)
        scores = {}
        for name in order:
            course = Path(shutil.copytree(template, folder / "course"))
            seconds[name].append(_seconds_of(name, unit, course))
            scores[name] = gradebook.scores(unit, course)
            shutil.rmtree(course)
        _same(scores[NBGRADER], scores[COURSE], "the two graders")
        _all_points(scores[COURSE])
    what = f"{unit}, {submissions} solved submissions, {rounds} rounds"
    print(f"{what}: seconds, times as fast; the same scores, checked")
    base = torch.tensor(seconds[NBGRADER], dtype=torch.float64)
    for name, own in seconds.items():
        own = torch.tensor(own, dtype=torch.float64)
        print(f"  {name:<20} {spread(own, '.1f'):>28}   {spread(base / own, '.2f')}", flush=True)


def _seconds_of(name: str, unit: str, course: Path) -> float:
    """Seconds in which the grader of this name grades what was submitted to `course`."""
    started = time.perf_counter()
    if name == NBGRADER:
        demo.nbgrader("autograde", unit, course)
    else:
        _finish(_start([unit], course / "submitted", course), course)
    return time.perf_counter() - started


def _all_points(scores: dict[str, dict[str, tuple[float, float]]]) -> None:
    """Raise a CourseError unless every learner has all points."""
    for cells in scores.values():
        for score, points in cells.values():
            if score < points:
                raise CourseError("a solved submission should have all points; one has not.")


def solved_once(unit: str, folder: Path, cuda: bool) -> Submission:
    """What one solved submission of `unit` takes and gives, graded in `folder`.

    Raises: CourseError if the grader fails.
    """
    solved = _make_course(unit, folder)
    _put(folder / "submitted", "learner", unit, solved)
    options = ["--cuda"] if cuda else []
    started = time.perf_counter()
    _finish(_start([unit], folder / "submitted", folder, *options), folder)
    seconds = time.perf_counter() - started
    (cells,) = gradebook.scores(unit, folder).values()
    reached = sum(score for score, _ in cells.values())
    return Submission(seconds, reached, sum(points for _, points in cells.values()))


# ---- a batch that is killed


def cohort(units: Sequence[str], learners: int, folder: Path) -> None:
    """Print what one batch takes, uninterrupted and killed three times.

    Args:
        learners: how many hand in each unit.

    Raises: CourseError if a score, a comment or a report differs between the two.
    """
    inbox = folder / "inbox"
    draw = random.Random(0)
    kinds = Counter()
    for unit in units:
        kinds += _hand_in(unit, learners, inbox, draw)
    number = learners * len(units)
    drawn = ", ".join(f"{count} {kind}" for kind, count in sorted(kinds.items()))
    print(f"{number} submissions of {len(units)} units: {drawn}", flush=True)
    whole = folder / "whole"
    killed = folder / "killed"
    _uninterrupted(units, inbox, whole, number)
    # the other batch asks with the same seeds, or reports would differ
    seeds.secret_of(whole / GRADING, again=True)
    write_text(killed / GRADING / seeds.FILE, (whole / GRADING / seeds.FILE).read_text())
    _killed(units, inbox, killed, number, draw)
    _same_marks(gradebook.records(whole), gradebook.records(killed))
    for unit in units:
        _same(gradebook.scores(unit, whole), gradebook.scores(unit, killed), "the two gradebooks")
    print("  every score, report and note is the same", flush=True)
    started = time.perf_counter()
    _finish(_start(units, inbox, whole, "--feedback"), whole)
    seconds = time.perf_counter() - started
    print(f"  once more with --feedback, nothing left to grade: {seconds:.0f} s")


def _uninterrupted(units: Sequence[str], inbox: Path, course: Path, number: int) -> None:
    """Print what a batch takes: seconds, where they went, memory."""
    started = time.perf_counter()
    memory = 0
    moments = {}  # a count of graded submissions -> when it was first seen
    process = _start(units, inbox, course)
    while process.poll() is None:
        memory = max(memory, _memory(process.pid))
        moments.setdefault(_saved(course), time.perf_counter() - started)
        time.sleep(POLL_SECONDS)
    _finish(process, course)
    whole = time.perf_counter() - started
    last = moments[max(moments)]
    first = min((moment for count, moment in moments.items() if count), default=last)
    print(
        f"  uninterrupted: {whole:.0f} s, {whole / number:.2f} s per submission; "
        f"the first was graded after {first:.0f} s, the last after {last:.0f} s"
    )
    print(f"  the grader's own processes took {memory / 1e6:,.0f} MB at most (PSS)")
    records = gradebook.records(course)
    for unit in units:
        seconds = torch.tensor([graded.seconds for graded in records if graded.unit == unit])
        print(f"  {unit:<24} {spread(seconds, '.1f')} s per submission in its worker", flush=True)


def _killed(
    units: Sequence[str], inbox: Path, course: Path, number: int, draw: random.Random
) -> None:
    """Grade a batch that is killed with -9 three times, and started again.

    Each time it is killed when a random number of its `number` submissions is graded.
    """
    for _ in range(KILLS):
        before = {*course.glob(RUNS)}
        wanted = draw.randint(1, max(1, number // (KILLS + 1)))
        started = time.perf_counter()
        process = _start(units, inbox, course)
        while process.poll() is None and _saved(course, before) < wanted:
            time.sleep(POLL_SECONDS)
        if process.poll() is not None:
            _finish(process, course)
            raise CourseError("the batch ended before it was killed; take a larger one.")
        process.kill()
        process.wait()
        seconds = time.perf_counter() - started
        saved = f"{_saved(course, before)} saved in this run"
        print(f"  killed (-9) after {seconds:.0f} s, {saved}", flush=True)
    started = time.perf_counter()
    output = _finish(_start(units, inbox, course), course)
    summary = next(line for line in output.splitlines() if "graded before" in line)
    print(f"  then: {summary}; {time.perf_counter() - started:.0f} s")


# ---- submissions


def _make_course(unit: str, course: Path) -> Notebooks:
    """Make `course` a course folder whose gradebook knows `unit`; return its solved notebooks."""
    solved = {}
    for part in parts(unit):
        source = build(unit, part, root=course)[0]
        solved[part] = solved_notebook(source)
    demo.nbgrader("generate_assignment", unit, course)
    return solved


def _put(inbox: Path, learner: str, unit: str, notebooks: Notebooks) -> None:
    for part, notebook in notebooks.items():
        write_text(inbox / learner / unit / f"{part}.ipynb", text_of(notebook))


def _hand_in(unit: str, learners: int, inbox: Path, draw: random.Random) -> Counter:
    """Put submissions of drawn KINDS into `inbox`; return how many there are of each."""
    releases = {}
    solved = {}
    for part in parts(unit):
        source = source_notebook(unit, part)
        releases[part] = release_notebook(source)
        solved[part] = solved_notebook(source)
    kinds = Counter()
    for number in range(learners):
        kind = draw.choices(KINDS, KIND_WEIGHTS)[0]
        kinds[kind] += 1
        share = {"solved": 1, "partly": draw.random(), "untouched": 0}[kind]
        notebooks = {}
        for part, release in releases.items():
            notebooks[part] = _partly(release, solved[part], share, draw)
        _put(inbox, f"learner{number:04d}", unit, notebooks)
    return kinds


def _partly(
    release: NotebookNode, solved: NotebookNode, share: float, draw: random.Random
) -> NotebookNode:
    """The notebook `release` with this share of the answers of the notebook `solved`."""
    notebook = type(release)(release)
    notebook.cells = []
    for given, right in zip(release.cells, solved.cells, strict=True):
        is_answered = grade_id(right) and draw.random() < share
        notebook.cells.append(right if is_answered else given)
    return notebook


# ---- a running grader


def _start(units: Sequence[str], inbox: Path, course: Path, *options: str) -> subprocess.Popen:
    """`course grade`, which has just started; its output goes to a file, which holds any amount."""
    call = [sys.executable, "-m", "course.cli", "grade", str(inbox), "--course", str(course)]
    call += options
    for unit in units:
        call += ["--unit", unit]
    course.mkdir(parents=True, exist_ok=True)
    with (course / LOG).open("w") as file:
        return subprocess.Popen(call, cwd=ROOT, stdout=file, stderr=subprocess.STDOUT)


def _finish(process: subprocess.Popen, course: Path) -> str:
    """The grader's output.  Raises: CourseError with its last words if it failed."""
    try:
        process.wait()
    finally:
        output = (course / LOG).read_text(errors="replace")
        if process.returncode is None:  # interrupted, so nobody else tells how far it got
            print(output)
    if process.returncode:
        end = output.strip()[-500:]
        raise CourseError(f"the grader ended with exit code {process.returncode}: {end}")
    return output


def _memory(pid: int) -> int:
    """Bytes (PSS) of a grader and its workers, without what lives in a jail."""
    total = 0
    for number in _family(str(pid), _parents()):
        with contextlib.suppress(OSError):
            for line in Path(f"/proc/{number}/smaps_rollup").read_text().splitlines():
                if line.startswith("Pss:"):
                    total += int(line.split()[1]) * 1024
    return total


def _parents() -> dict[str, str]:
    """{process: its parent} of the processes outside jails."""
    parents = {}
    for number in filter(str.isdecimal, os.listdir("/proc")):
        with contextlib.suppress(OSError):
            if os.readlink(f"/proc/{number}/ns/pid") == os.readlink("/proc/self/ns/pid"):
                stat = Path(f"/proc/{number}/stat").read_text()
                parents[number] = stat.rpartition(")")[2].split()[1]
    return parents


def _family(first: str, parents: dict[str, str]) -> set[str]:
    """The process `first` and all that descend from it."""
    found = set()
    new = {first}
    while new:
        found |= new
        children = {number for number, parent in parents.items() if parent in found}
        new = children - found
    return found


def _saved(course: Path, before: Collection[Path] = frozenset()) -> int:
    """How many submissions a running grader has graded; runs `before` it do not count."""
    return sum(len([*run.glob("*.json")]) for run in course.glob(RUNS) if run not in before)


# ---- comparisons


def _same_marks(whole: list[Graded], killed: list[Graded]) -> None:
    """Raise a CourseError that says what differs, if anything but the seconds does."""
    of_whole = {(graded.learner, graded.unit): graded for graded in whole}
    of_killed = {(graded.learner, graded.unit): graded for graded in killed}
    differences = []
    for who in sorted(of_whole.keys() | of_killed.keys()):
        if of_whole.get(who) != of_killed.get(who):
            both = f"{of_whole.get(who)}, {of_killed.get(who)}"
            differences.append(f"{' '.join(who)}: {both}")
    if differences:
        shown = "\n".join(differences[:DIFFERENCES_MAX])
        count = f"{len(differences)} of {len(of_whole)} submissions"
        raise CourseError(f"{count} differ in the killed batch:\n{shown}")


def _same(one: object, other: object, who: str) -> None:
    if one != other:
        raise CourseError(f"{who} should give the same; they do not.")
