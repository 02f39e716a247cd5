"""Grade one submission: released notebook + the learner's sources -> a jail -> facts -> verdicts, points, reports.

The learner's code never runs in this process; what its jail says is plain data, which the check engine compares here
with what the reference gives here.
"""

import ast
import contextlib
import hashlib
import importlib
import re
import socket
import time
from dataclasses import dataclass
from pathlib import Path

import torch
from nbformat.v4 import new_output

from course.checks import rules
from course.checks.engine import Exercise, Outcome
from course.checks.expected import solutions_folder
from course.checks.limits import Raised
from course.grading import gradebook
from course.grading.gradebook import Graded, Mark
from course.grading.rebuild import EXTRA, Unreadable, learners_cells, read_submission, rebuild
from course.grading.sandbox.client import Jail
from course.grading.sandbox.usage import too_much
from course.grading.sandbox.zygote import JailError, Zygote
from course.publish.build import grade_id, release_notebook, source_notebook
from course.units import parts

CELLS = 5  # times the seconds of one cell are what all cells may take together
OUTPUTS, OUTPUT, KEPT = 50, 3_000_000, 20_000_000  # outputs of a cell, bytes of one, and of all cells together
COURSE = Path(__file__).parents[1]


@dataclass(frozen=True)
class Handed:
    """One submission as it lies in the inbox."""

    learner: str
    unit: str
    path: Path
    received: object  # datetime in UTC


@dataclass(frozen=True)
class Test:
    """One grade cell: which exercise, which name holds the answer, which inputs."""

    cell: str
    exercise: Exercise
    answer: str
    seed: int
    points: float


class Plan:
    """What is needed to grade submissions of one unit: its notebooks, its grade cells with their seeds, right facts."""

    def __init__(self, unit, device="cpu"):
        self.unit, self.device, self.right = unit, torch.device(device), {}
        self.source = source_notebook(unit, parts(unit)[0])
        self.release = release_notebook(self.source)
        self.tests = {test.cell: test for test in map(self._test, filter(_is_test, self.source.cells))}
        files = sorted([*(solutions_folder() / unit).rglob("*.py"), *COURSE.glob("*.py")])
        files += sorted([*COURSE.glob("checks/**/*.py"), *COURSE.glob("grading/**/*.py")])
        self.checks = hashlib.sha256(b"\0".join(file.read_bytes() for file in files)).hexdigest()

    def _test(self, cell):
        call = ast.parse(cell.source).body[0].value
        module = importlib.import_module(f"course.checks.{self.unit[3:]}")
        seed = next((ast.literal_eval(k.value) for k in call.keywords if k.arg == "seed"), 0)
        points = cell.metadata.nbgrader.points
        return Test(grade_id(cell), getattr(module, call.func.attr), call.args[0].id, seed, points)

    def find_out(self, cell):
        """{"is_class": whether the answer is to be a class, "expected": the facts of a right one} of a grade cell."""
        if cell not in self.right:
            exercise, seed = self.tests[cell].exercise, self.tests[cell].seed
            expected = exercise.expected(self.device, seed).facts
            self.right[cell] = {"is_class": exercise.asks_for_class(self.device, seed), "expected": expected}
        return self.right[cell]

    def fingerprint(self, data):
        """A text that changes with the submitted bytes `data` and with whatever decides about their points."""
        return hashlib.sha256(f"{self.checks} {self.device}".encode() + data).hexdigest()


def _is_test(cell):
    marks = cell.metadata.get("nbgrader", {})
    return marks.get("grade") and marks.get("locked")


def grade(plan, handed, zygote, room=None):
    """The Graded of one submission, whatever it is: one that cannot be read has no points and a reason."""
    start = time.monotonic()
    data, marks, note, notebook = b"", {}, "", plan.release
    try:
        data = read_submission(handed.path)
        notebook = rebuild(plan.release, learners_cells(data))
    except Unreadable as error:
        note = f"This submission could not be read: {error}"
    else:
        marks, note = run(plan, notebook, zygote, room)
    missing = "not graded: the submission was stopped before this check."
    every = [marks.get(t.cell) or Mark(t.cell, 0, t.points, note or missing) for t in plan.tests.values()]
    seconds = time.monotonic() - start
    return Graded(handed.learner, handed.unit, every, notebook, handed.received, plan.fingerprint(data), note, seconds)


def work(jobs, plans, shard, unsafe, cuda, room, branch=None):
    """Yields the Graded of each Handed in `jobs`, once it is saved in `shard`; one zygote for all of them."""
    torch.set_num_threads(1)
    with Zygote(unsafe, cuda, branch) as zygote:
        for handed in jobs:
            graded = grade(plans[handed.unit], handed, zygote, room)
            gradebook.save(shard, graded)
            yield graded


def run(plan, notebook, zygote, room=None):
    """Run the learner's cells and the probes of `notebook`, a rebuilt one, whose cells get their outputs.

    Returns: ({grade cell: Mark}, a plain reason why it ended before its end, or "").
    """
    marks, note, left, busy, seen = {}, "", KEPT, 0.0, []
    with contextlib.ExitStack() as stack:
        probes = _Probes(stack, zygote, room)
        try:
            jail = stack.enter_context(Jail(zygote, "learner", room))
            for cell in notebook.cells:
                test = plan.tests.get(grade_id(cell))
                if test:
                    wrong = [m for m in marks.values() if plan.tests[m.cell].exercise is test.exercise and not m.score]
                    outcome = _refused(test, seen) or _look(jail, probes, plan, test)
                    marks[test.cell] = _mark(plan, test, outcome, diagnose=not wrong)
                elif cell.cell_type == "code" and not _is_left_out(cell):
                    broken = rules.reaching(cell.source, seen) if _is_learners(cell) else []
                    if broken:
                        cell.outputs = [_not_run(broken)]
                    else:
                        start = time.monotonic()
                        cell.outputs, left = _run_cell(jail, cell, left)
                        seen.append(cell.source)
                        busy += time.monotonic() - start
                        if busy > CELLS * jail.room.cell_seconds:
                            raise JailError(f"its cells took {busy:.0f} seconds together.")
        except JailError as error:
            note = f"This submission was stopped: {error}"
    return marks, note


def _is_learners(cell):
    return cell.metadata.get("nbgrader", {}).get("solution") or cell.id.startswith(EXTRA)


def _is_left_out(cell):
    """Whether it is an experiment, or a diagram that is the same for everybody: no graded cell needs either."""
    diagram = re.fullmatch(r"plots\.\w+\(\)\s*", cell.source) and not _is_learners(cell)
    return "experiment" in cell.metadata.get("tags", []) or diagram


def _not_run(broken):
    told = [f"This cell was not run: {sentence}" for sentence in broken[:3]]
    return new_output("error", ename="NotAllowed", evalue=broken[0], traceback=told)


def _refused(test, cells):
    """The Outcome of an answer that takes what its task forbids, or None."""
    broken = rules.shortcuts(cells, test.answer, test.exercise.forbids)
    return Outcome(refused=f"not yet: {broken[0]}") if broken else None


class _Probes:
    """The jail of isolated probes; made when it is first needed, and once more."""

    def __init__(self, stack, zygote, room):
        self.stack, self.zygote, self.room, self.jail = stack, zygote, room, None

    def __enter__(self):
        if not self.jail or self.jail.reason:
            self.jail = self.stack.enter_context(Jail(self.zygote, "probe", self.room))
        return self.jail

    def __exit__(self, *error):
        pass


def _look(jail, probes, plan, test):
    """The Outcome of the probe on the learner's answer; raises JailError if the learner's jail is gone."""
    limit, patience = min(test.exercise.limits.seconds, jail.room.answer_seconds), jail.room.patience
    seconds = limit + patience
    where = {"unit": plan.unit, "exercise": test.exercise.name}
    is_class, takes = plan.find_out(test.cell)["is_class"], plan.find_out(test.cell).get("takes")
    asked = where | {"answer": test.answer, "is_class": is_class, "limit": limit, "seconds": seconds}
    if not (test.exercise.isolated and plan.device.type == "cpu"):
        before = _usage(jail, test.exercise, takes, seconds)
        jail.send({"do": "check", **asked, "seed": test.seed})
        outcome = _outcome(jail.receive(seconds + patience))
        outcome.violation = too_much(before.until(jail.usage()), takes) if before else None
        return outcome
    ours, theirs = socket.socketpair()
    with ours, theirs, probes as prober:
        jail.send({"do": "lend", **asked}, [theirs.fileno()])
        try:
            prober.send(where | {"seed": test.seed, "is_class": is_class, "limit": limit}, [ours.fileno()])
            ours.close()
            theirs.close()
            outcome = _outcome(prober.receive(seconds + patience))
        except JailError as error:
            outcome = Outcome(raised=Raised("Stopped", f"the check of your code was stopped: {error}"))
    jail.receive(seconds + patience)
    return outcome


def _usage(jail, exercise, takes, seconds):
    """The Usage of the jail before a check that is to be measured, whose process is there already; else None."""
    if not takes or jail.zygote.unsafe:
        return None
    jail.send({"do": "copy", "exercise": exercise.name})
    jail.receive(seconds)
    return jail.usage()


def _outcome(message):
    """The Outcome in a message of a jail, whatever it holds; its texts are cut to what a report needs."""
    facts, raised = message.get("facts"), message.get("raised")
    if isinstance(raised, list) and len(raised) == 2 and all(isinstance(text, str) for text in raised):
        raised = Raised(raised[0][:100], raised[1][:2000])
    else:
        raised = None
    printed, refused = (message[k] if isinstance(message.get(k), str) else "" for k in ("printed", "refused"))
    return Outcome(facts if isinstance(facts, dict) else {}, raised, printed[:4000], refused[:500] or None)


def _mark(plan, test, outcome, diagnose):
    """The Mark for an Outcome.  No report tells what was expected, and that of a hidden check nothing of its inputs."""
    told = ("yours",)
    if not test.cell.endswith("-visible"):
        told, outcome.printed = (), ""
        if outcome.raised and outcome.raised.text.startswith("stopped by"):  # the message may quote an input
            outcome.raised = Raised(outcome.raised.kind, f"stopped by {outcome.raised.kind}.")
    expected = Outcome(plan.find_out(test.cell)["expected"])
    try:
        verdict = test.exercise.verdict(outcome, plan.device, test.seed, told, diagnose, expected)
    except Exception as error:  # values that no comparison was made for: whoever sends them loses this check alone
        report = f"{test.exercise.name}: not yet. What your code gave cannot be compared ({type(error).__name__})."
        return Mark(test.cell, 0, test.points, report)
    score = test.points if verdict.correct else 0
    return Mark(test.cell, score, test.points, "\n".join(verdict.report), verdict.mistake)


def _run_cell(jail, cell, left):
    """(the outputs of a code cell, the bytes that are left for others); raises JailError if the jail is gone."""
    jail.send({"do": "cell", "source": cell.source, "seconds": jail.room.cell_seconds})
    outputs, seconds = [], jail.room.cell_seconds + jail.room.patience
    deadline = time.monotonic() + seconds
    while True:
        message = jail.receive(seconds, deadline)
        if not isinstance(message.get("output"), dict):
            return outputs, left
        if len(outputs) < OUTPUTS and jail.size < min(OUTPUT, left):
            outputs.append(message["output"])
            left -= jail.size
