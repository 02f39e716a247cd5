"""`course grade` as a command: what it takes, refuses and names; what ends it in the middle costs only time."""

import csv
import functools
import io
import itertools
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import nbformat
import pytest
from click.testing import CliRunner
from conftest import ROOT
from nbformat.v4 import new_code_cell, new_notebook
from nbgrader.api import Gradebook
from submissions import DUE, UNIT, children, command, content, hand_in, orphans_adopted, part_of, solved, wait_until

from course.engine.judge import Judge
from course.engine.outcome import Outcome
from course.engine.report import raised_text
from course.engine.stops import Raised, Stop
from course.errors import CourseError
from course.notebook.cells import grade_id
from course.notebook.registry import parts
from course.system.files import write_text
from instructor.authoring import masters
from instructor.grading import batch, cluster, gradebook, pending_results, submission
from instructor.grading import command as grade_command
from instructor.grading.inbox import read_inbox
from instructor.grading.limits import CourseGrading
from instructor.grading.lock import only_one
from instructor.grading.plan import Plan
from instructor.grading.results import Graded, Submission
from instructor.grading.right_answers import refuse_unless_right_answers_pass
from instructor.grading.submission import Budget, Execution, PartRun
from instructor.jail.errors import JailError
from instructor.jail.zygote import Zygote
from instructor.release.asked import resolve, to_json

SOLVED = ("scaled_lr", "linear_warmup", "polynomial_decay", "flushed_share")
IDIOMS = [  # what any notebook may hold
    "import importlib, json\nimportlib.reload(json)",
    "import importlib, course.training.models as models\nimportlib.reload(models)",
    "print(sorted(globals())[:3])",
    "print(eval('2 ** 10'))",
    "exec('tau = 6.28')",
    "print(eval(compile('1 + 1', 'cell', 'eval')))",
    "import gc, torch\nprint(sum(isinstance(thing, torch.Tensor) for thing in gc.get_objects()))",
    "import gc\nmany = []\nprint(len(gc.get_referrers(many)))",
    "def look(x):\n    breakpoint()\n    return x",
    "print(open('/proc/cpuinfo').readline())",
    "import os\nprint(os.listdir('/dev/shm'))",
    "import builtins\nbuiltins.tau = 6.28",
    "import builtins, time\nplain = print\nbuiltins.print = lambda *a: plain(time.time(), *a)",
    "import torch\ntorch.Tensor.__repr__ = lambda self: f'{tuple(self.shape)} {self.dtype}'",
    "import torch\nfor name in ('float32', 'int64'):\n    print(getattr(torch, name))",
    "import sys\nfor name in ('numpy', 'torch'):\n    print(name, sys.modules[name].__version__)",
    "import warnings\nwarnings.showwarning = lambda message, *rest: print(message)",
    "import inspect\nprint(inspect.currentframe().f_lineno)",
    "import sys\nprint(sys._getframe().f_code.co_name)",
    "import importlib\nprint([importlib.import_module(name) for name in ('json', 'math')])",
    "def double(x):\n    return 2 * x\nprint(double.__code__.co_varnames, double.__globals__ is globals())",
    "import torch\nprint(len(torch.optim.Optimizer.__subclasses__()))",
    "from unittest import mock\nwith mock.patch('time.sleep'):\n    __import__('time').sleep(100)",
    "import ctypes\nprint(ctypes.sizeof(ctypes.py_object))",
    "import torch\ntorch.Tensor.plot = lambda self: print(self.tolist())\ntorch.ones(2).plot()",
    "import torch\ntorch.set_default_dtype(torch.float64)",
]  # fmt: skip
pytestmark = [pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning"), pytest.mark.usefixtures("one_zygote")]


@pytest.fixture(scope="module")
def inbox(tmp_path_factory):
    """Three learners; the last one hands in what is no notebook.  The folder's name holds a space."""
    folder = tmp_path_factory.mktemp("my inbox")
    hand_in(folder, "ann", *SOLVED[:2])
    hand_in(folder, "bob", SOLVED[2])
    write_text(folder / "eve" / f"{part_of('scaled_lr')}.ipynb", "{")
    return folder


def run(inbox, course, *more):
    """What the command prints."""
    words = ["--course", str(course), "--unit", UNIT, *map(str, more)]
    return grade_command.grade.main([str(inbox), *words], standalone_mode=False)


def refused(*arguments):
    """The exit code of a command line that is refused, and what is said."""
    inbox, course, *more = map(str, arguments)
    done = CliRunner().invoke(grade_command.grade, [inbox, "--course", course, "--unit", UNIT, *more])
    return done.exit_code, done.output


def sentence(*arguments):
    """What a command that fails says."""
    with pytest.raises(SystemExit) as ended:
        run(*arguments)
    assert str(ended.value.code).startswith("error: ")
    return str(ended.value.code)


def state(course):
    """All that came of grading, but the seconds that it took."""
    with Gradebook(f"sqlite:///{course / 'gradebook.db'}") as book:
        comments = {
            (s.student_id, n.name, c.name): c.comment
            for s in book.assignment_submissions(UNIT)
            for n in s.notebooks
            for c in n.comments
        }
    return gradebook.scores(UNIT, course), comments, [replace(one, seconds=0) for one in gradebook.records(course)]


@pytest.fixture(scope="module")
def graded(inbox, prepared, tmp_path_factory):
    """The course folder after `inbox` was graded by one worker."""
    root = tmp_path_factory.mktemp("graded")
    shutil.copy(prepared / "gradebook.db", root)
    before = content(inbox)
    run(inbox, root, "--workers", "1")
    assert content(inbox) == before, "the inbox is never written to"
    return root


def points(course):
    return {who: sum(score for score, _ in cells.values()) for who, cells in gradebook.scores(UNIT, course).items()}


def test_learners_get_their_points_and_the_teacher_a_table(graded):
    assert points(graded) == {"ann": 4, "bob": 2, "eve": 0}
    made = {path.name for path in (graded / "build" / "grading").iterdir()}
    assert made == {"lock", "seeds.json", "scores.txt", "scores.csv", "items.txt", "items.csv", "items.png"}
    rows = list(csv.DictReader(io.StringIO((graded / "build" / "grading" / "scores.csv").read_text())))
    assert [row["learner"] for row in rows] == ["ann", "bob", "eve"] and "not a notebook" in rows[2]["notes"]
    assert "not handed in" in rows[0]["notes"], "three parts of four are missing, and cost nothing else"
    graded_parts = {one.learner: one.parts for one in gradebook.records(graded)}
    with_points = {who: [r.part for r in each if any(m.score for m in r.marks)] for who, each in graded_parts.items()}
    assert with_points == {
        "ann": [part_of(name) for name in SOLVED[:2]],
        "bob": [part_of("polynomial_decay")],
        "eve": [],
    }
    for part in parts(UNIT):
        assert (graded / "autograded" / "ann" / UNIT / f"{part}.ipynb").is_file()


def test_only_what_changed_is_graded_again_and_replaces_the_score(graded, inbox, course, tmp_path, capsys):
    shutil.copytree(graded, course, dirs_exist_ok=True)
    mine = shutil.copytree(inbox, tmp_path / "inbox")
    times = {one.learner: one.received for one in gradebook.records(course)}
    for folder in mine.glob(f"*/{UNIT}"):  # somebody opens them in JupyterLab
        write_text(folder / ".ipynb_checkpoints" / f"{part_of(SOLVED[0])}-checkpoint.ipynb", "{}")
    run(mine, course)
    assert "3 submissions, 3 of them graded before" in capsys.readouterr().out
    assert {one.learner: one.received for one in gradebook.records(course)} == times
    (mine / "ann" / UNIT / f"{part_of(SOLVED[1])}.ipynb").unlink()
    hand_in(mine, "dan", SOLVED[2])
    run(mine, course)
    assert "4 submissions, 2 of them graded before" in capsys.readouterr().out
    assert points(course) == {"ann": 2, "bob": 2, "dan": 2, "eve": 0}
    shutil.rmtree(mine / "ann"), shutil.rmtree(mine / "dan")
    run(mine, course, "--again", "--workers", "1")
    assert "2 submissions, 0 of them graded before" in capsys.readouterr().out
    assert points(course) == {"ann": 2, "bob": 2, "dan": 2, "eve": 0}


def test_without_walls_the_scores_are_the_same_and_the_warning_is_loud(graded, inbox, course, monkeypatch, capsys):
    monkeypatch.setenv("PATH", str(course))  # no bwrap
    run(inbox, course, "--unsafe", "--workers", "1")
    assert "--unsafe: learners' code runs with your rights" in capsys.readouterr().err
    assert state(course) == state(graded)


@pytest.mark.parametrize("script", [None, "echo no namespaces for you >&2; exit 1"])
def test_without_bubblewrap_nothing_is_graded(script, inbox, tmp_path, monkeypatch):
    if script:
        (tmp_path / "bwrap").write_text(f"#!/bin/sh\n{script}\n")
        (tmp_path / "bwrap").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    said = sentence(inbox, tmp_path / "course")
    assert ("not permitted here: no namespaces for you" if script else "apt install bubblewrap") in said
    assert "--unsafe" in said and not (tmp_path / "course").exists()


def test_an_inbox_that_cannot_be_graded_is_one_sentence(inbox, tmp_path, capsys):
    (tmp_path / "empty" / "ann").mkdir(parents=True)
    assert "found none" in sentence(tmp_path / "empty", tmp_path)
    assert re.search("no unit is called '99_none'; .*03_large_batch", sentence(inbox, tmp_path, "--unit", "99_none"))
    code, said = refused(inbox, tmp_path, "--workers", "0")
    assert code == 2 and "--workers" in said
    assert "give one of them" in sentence(inbox, tmp_path, "--ask", "core", "--release", tmp_path)
    with only_one(tmp_path / "build" / "grading"):
        assert "another grader is at work" in sentence(inbox, tmp_path)
    assert not (tmp_path / "gradebook.db").exists()


def test_a_reference_that_cannot_be_asked_is_named(inbox, course, tmp_path, monkeypatch):
    masters = shutil.copytree(ROOT / "solutions", tmp_path / "masters")
    broken = 'def scaled_lr(*args, **kwargs):\n    raise ValueError("no idea")\n\n\ndef unused('
    master = masters / UNIT / f"{part_of('scaled_lr')}.py"
    master.write_text(master.read_text().replace("def scaled_lr(", broken, 1))
    with monkeypatch.context() as patch:
        patch.setenv("COURSE_SOLUTIONS", str(masters))
        said = sentence(inbox, course)
    either = rf"error: {UNIT}, scaled_lr-(visible|hidden) cannot be checked: .*no idea"  # whichever ends first
    assert re.match(either, said)
    ours, theirs = socket.socketpair()
    theirs.close()
    monkeypatch.setattr(Zygote, "reference", lambda *_: ours)
    assert sentence(inbox, course) == (
        "error: the processes that find out what checks expect have ended; is there enough memory? The same command "
        "tries again."
    )
    assert points(course) == {}


def test_nothing_is_graded_where_a_gpu_takes_the_points_of_right_answers(one_zygote):
    plan = Plan(UNIT)
    how = dict(part=plan.parts[part_of("scaled_lr")], plans={UNIT: plan}, zygote=one_zygote)
    refuse_unless_right_answers_pass(execution=Execution(), **how)
    little = Execution(CourseGrading(memory_gib=2**-10))
    with pytest.raises(CourseError, match="right answers would lose points on this .*was stopped: it took more than"):
        refuse_unless_right_answers_pass(execution=little, **how)


def test_values_that_cannot_be_compared_cost_one_check(monkeypatch):
    plan = Plan(UNIT).parts[part_of("scaled_lr")]
    check = plan.checks["scaled_lr-hidden"]
    plan.find_out(check.cell)  # what is right, before nothing can be compared any more

    def overflows(*_, **__):
        raise OverflowError("a secret value")

    monkeypatch.setattr(Judge, "verdict", overflows)
    mark = submission.mark(plan, check, Outcome({}), diagnose=True)
    assert (mark.cell, mark.score, mark.points) == (check.cell, 0, check.points)
    assert "cannot be compared (OverflowError)" in mark.report and "secret" not in mark.report


def test_a_check_that_a_busy_machine_ended_is_asked_once_more(monkeypatch):
    busy, right = Outcome(raised=Raised(Stop.BUSY)), Outcome({"a": 1})
    for each, expected in ([right], right), ([busy, right], right), ([busy, busy], busy):
        outcomes = iter(each)
        monkeypatch.setattr(PartRun, "_outcome", lambda *_, outcomes=outcomes: next(outcomes))
        running = PartRun(None, None, CourseGrading(), Budget(600))
        assert running._timed_outcome(None) is expected and not list(outcomes)


def test_only_the_grader_says_that_its_machine_is_too_busy(monkeypatch):
    """An answer may raise an exception of that name."""
    clock = itertools.count(step=30)
    monkeypatch.setattr(submission.time, "monotonic", lambda: next(clock))
    plan = Plan(UNIT).parts[part_of("scaled_lr")]
    running = PartRun(plan, None, CourseGrading(), Budget(600))
    claimed = Raised(Stop.BUSY, "MachineBusy", "it is the machine")
    said = {"facts": {}, "raised": claimed.to_plain(), "restored": ["print", 3]}
    running.jail = SimpleNamespace(send=lambda message: None, receive=lambda seconds: said)
    for is_busy, step, stop in (True, 30, Stop.UNNAMED), (False, 60, Stop.UNNAMED), (True, 60, Stop.BUSY):
        clock = itertools.count(step=step)
        monkeypatch.setattr(submission, "is_busy", lambda is_busy=is_busy: is_busy)
        raised = running._outcome(plan.checks["scaled_lr-visible"]).raised
        assert raised.stop is stop and "it is the machine" not in raised_text(raised)
    assert set(running.restored) == {"print"}


def test_a_submission_has_its_minutes_and_keeps_the_points_before(monkeypatch):
    clock = itertools.count(step=400)
    monkeypatch.setattr(submission.time, "monotonic", lambda: next(clock))
    budget = Budget(600)
    for _ in range(2):
        with budget.take():
            pass
    with pytest.raises(JailError, match="took more than 10 minutes"), budget.take():
        pass


@pytest.mark.parametrize("times", [1, 2])
def test_a_part_whose_process_ended_is_run_once_more(times, monkeypatch, tmp_path):
    left, part = iter([True] * times), Plan(UNIT).parts[part_of("scaled_lr")]
    monkeypatch.setattr(submission, "read_submission", lambda path, bytes_max: masters.text_of(part.release).encode())

    def run(self, notebook):
        self.ended_by_itself = next(left, False)
        return {}, "it ended" * self.ended_by_itself

    monkeypatch.setattr(PartRun, "run", run)
    handed_in = Submission("ann", UNIT, {part.part: tmp_path}, DUE)
    graded = submission._grade_part(part, handed_in, None, CourseGrading(), Budget(600))
    assert (graded.note == "it ended") == (times == 2)


def test_answers_that_do_not_end_stop_a_part_after_a_while(monkeypatch):
    """Each of them swallows what is to stop it, and takes a minute."""
    clock, late = (
        itertools.count(step=20),
        Outcome(raised=Raised(Stop.LIMIT, "LimitReached", "it took more than 20 seconds")),
    )
    monkeypatch.setattr(submission.time, "monotonic", lambda: next(clock))
    monkeypatch.setattr(PartRun, "_outcome", lambda *_: late)
    running = PartRun(None, None, CourseGrading(cell_seconds=60), Budget(600))
    assert [running._timed_outcome(None) for _ in range(5)] == [late] * 5
    with pytest.raises(JailError, match="do not end took 360 seconds together"):
        running._timed_outcome(None)


def test_of_a_release_that_asks_less_only_what_was_asked_counts(inbox, course, tmp_path):
    """In the table and in nbgrader's own maximum; by the release's record or by the same words."""
    (tmp_path / "class").mkdir()
    (tmp_path / "class" / "asked.json").write_bytes(to_json(resolve("scaled_lr,noise_scale")))
    run(inbox, course, "--release", tmp_path / "class", "--workers", "1")
    assert points(course) == {"ann": 2, "bob": 0, "eve": 0}
    with Gradebook(f"sqlite:///{course / 'gradebook.db'}") as book:
        assert book.find_assignment(UNIT).max_score == 2 + 3
    records = gradebook.records(course)
    assert {mark.exercise for one in records for mark in one.marks} == {"scaled_lr", "noise_scale"}
    ann = records[0].parts
    assert [bool(result.note) for result in ann] == [result.part == part_of("noise_scale") for result in ann], (
        "what is missed"
    )
    table = (course / "build" / "grading" / "scores.txt").read_text()
    assert "1 scaled_lr (2)" in table and "2 noise_scale (3)" in table and "2 / 5" in table
    same = grade_command._asked(None, "scaled_lr,noise_scale", (UNIT,))
    assert same == grade_command._asked(tmp_path / "class", None, (UNIT,)), "by the same words"
    more = "--release", tmp_path / "class", "--unit", "04"
    assert "nothing of 04_fast_loading is asked" in sentence(inbox, course, *more)


def run_part(sources, one_zygote, before=()):
    """(marks, note, cells) of a part cut to its setup cell and the exercises in `sources`, {exercise: its cell's text}.

    Args:
        before: texts of cells that the learner added above the answers.
    """
    (part,) = {part_of(name) for name in sources}
    plan = Plan(UNIT).parts[part]
    wanted = [*sources, *(f"{name}-{kind}" for name in sources for kind in ("visible", "hidden"))]
    setup = [cell for cell in plan.release.cells if grade_id(cell) == "setup"]
    below = nbformat.from_dict([cell for cell in plan.release.cells if grade_id(cell) in wanted])
    for cell in below:
        cell.source = sources.get(grade_id(cell), cell.source)
    notebook = new_notebook(cells=[*setup, *map(new_code_cell, before), *below])
    return *PartRun(plan, one_zygote, CourseGrading(), Budget(600)).run(notebook), notebook.cells


KEEPS = """
kept = []
right = linear_warmup


def linear_warmup(*args, **kwargs):
    kept.append(args)
    return right(*args, **kwargs)
"""


def test_what_a_hidden_check_asked_is_not_there_for_the_next_visible_one(one_zygote):
    cells = {grade_id(cell): cell.source for cell in solved(part_of("linear_warmup")).cells}
    counts = "def exponential_warmup(*args, **kwargs):\n    return float(len(kept))\n"
    marks, note, _ = run_part(
        {"linear_warmup": cells["linear_warmup"] + KEEPS, "exponential_warmup": counts}, one_zygote
    )
    assert not note and [mark.score > 0 for mark in marks.values()] == [True, True, False, False]
    assert re.search(r"yours +0\b", marks["exponential_warmup-visible"].report), marks


def test_right_answers_below_what_any_notebook_may_hold_keep_their_points(one_zygote):
    """Every cell runs, and what it changed is put back before a check."""
    cells = {grade_id(cell): cell.source for cell in solved(part_of("linear_warmup")).cells}
    marks, note, ran = run_part({name: cells[name] for name in SOLVED[1:3]}, one_zygote, IDIOMS)
    errors = [output.evalue for cell in ran for output in cell.outputs if output["output_type"] == "error"]
    assert errors == [] and not note
    assert {mark.cell: mark.report for mark in marks.values() if mark.score < mark.points} == {}
    restored = [mark.report.partition(submission.RESTORED)[2] for mark in marks.values()]
    assert "builtins.print, json.dump" in restored[0] and "..." in restored[0] and not any(restored[1:]), "told once"


DIES_ONCE = """
import os
right = exponential_warmup
os.makedirs("/tmp/mine", exist_ok=True)

def exponential_warmup(*args, **kwargs):
    if not os.path.exists("/tmp/mine/died"):
        open("/tmp/mine/died", "w").close()
        os.kill(os.getpid(), 9)
    return right(*args, **kwargs)
"""
DIES = "def polynomial_decay(*args, **kwargs):\n    os.kill(os.getpid(), 9)\n"
TOO_MUCH = "def linear_warmup(*args, **kwargs):\n    return [9 * 10**4299] * 300\n"


def test_a_check_whose_process_dies_is_asked_once_more_and_a_bad_one_is_lost_alone(one_zygote):
    cells = {grade_id(cell): cell.source for cell in solved(part_of("linear_warmup")).cells}
    dies_once = cells["exponential_warmup"] + DIES_ONCE
    answers = {"linear_warmup": TOO_MUCH, "exponential_warmup": dies_once, "polynomial_decay": DIES}
    marks, note, _ = run_part(answers, one_zygote)
    assert not note and [mark.score > 0 for mark in marks.values()] == [False, False, True, True, False, False]
    assert "far more bytes" in marks["linear_warmup-visible"].report
    assert "ended the process" in marks["polynomial_decay-visible"].report
    assert not any(submission.RESTORED in mark.report for mark in marks.values()), "honest cells change nothing"


LEAVES_PROCESSES = """
import os, time
try:
    while os.fork():
        pass
    time.sleep(1000)
except OSError:
    pass
"""


def test_a_part_that_leaves_no_room_for_the_process_of_a_check_ends_and_says_so(one_zygote):
    marks, note, _ = run_part({"scaled_lr": KEEPS}, one_zygote, [LEAVES_PROCESSES])
    sentence = "its code left so many processes that none could be started for a check."
    assert (marks, note) == ({}, f"This part was stopped: {sentence}")


def test_what_a_task_forbids_is_told_and_loses_its_points(one_zygote):
    marks, note, _ = run_part({"LossScaler": "LossScaler = torch.amp.GradScaler"}, one_zygote)
    assert not note and [mark.score for mark in marks.values()] == [0, 0]
    assert "is torch.amp.GradScaler or derived from it" in marks["LossScaler-visible"].report


# ---- what ends a batch in the middle


def saved(course):
    """How many submissions are graded and not entered yet."""
    return len([*course.glob("build/grading/run-*/*.json")])


@pytest.fixture(scope="module")
def crowd(tmp_path_factory):
    """An inbox of six."""
    folder = tmp_path_factory.mktemp("crowd")
    for number in range(6):
        hand_in(folder, f"learner{number}", SOLVED[number % 4], *SOLVED[: number % 3])
    return folder


@pytest.fixture(scope="module")
def uninterrupted(crowd, prepared, tmp_path_factory):
    root = tmp_path_factory.mktemp("uninterrupted")
    shutil.copy(prepared / "gradebook.db", root)
    run(crowd, root, "--workers", "2")
    return state(root)


def heed_interrupts():
    """Heed Ctrl-C, also where the tests themselves were started in the background."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def killed_while_merging(arguments, at):
    """Run the command in a fork of this process, which is killed as it enters submission number `at`."""
    child = os.fork()
    if not child:
        enter, entered = gradebook._enter, iter(range(at))

        def enter_or_die(*args):
            if next(entered, None) is None:
                os.kill(os.getpid(), signal.SIGKILL)
            enter(*args)

        gradebook._enter = enter_or_die
        try:
            run(*arguments)
        finally:
            os._exit(0)
    assert os.WTERMSIG(os.waitpid(child, 0)[1]) == signal.SIGKILL


TWO_RESULTS = """
import sys, time
from course.cli import main
from instructor.grading import pending_results

save = pending_results.save

def save_two(folder, graded):
    while len([*folder.glob("*.json")]) >= 2:
        time.sleep(0.1)
    save(folder, graded)

pending_results.save = save_two
main()
"""


def workers(pid):
    """The numbers of the processes that grade: forks of the command, other than its zygote."""
    commands = {number: Path(f"/proc/{number}/cmdline").read_bytes() for number in children(pid)}
    return [number for number, words in commands.items() if b"instructor.jail.server" not in words]


@pytest.mark.parametrize("ending", [signal.SIGKILL, signal.SIGINT])
def test_a_batch_that_is_ended_in_the_middle_goes_on_where_it_was(ending, crowd, course, uninterrupted, capsys):
    """It is in the middle for as long as it takes: after two or three results its workers wait."""
    _, _, _, *words = command(crowd, "--course", course, "--unit", UNIT, "--workers", "2")
    call = [sys.executable, "-c", TWO_RESULTS, *words]
    with orphans_adopted() as remaining:
        process = subprocess.Popen(call, cwd=ROOT, stdout=subprocess.DEVNULL,
                                   stderr=subprocess.PIPE, text=True, start_new_session=True,
                                   preexec_fn=heed_interrupts)  # fmt: skip
        try:
            wait_until(lambda: saved(course) >= 1)
            os.kill(workers(process.pid)[0], signal.SIGKILL)  # its work is given to another
            wait_until(lambda: saved(course) >= 2)
            os.kill(process.pid, ending) if ending == signal.SIGKILL else os.killpg(process.pid, ending)  # as Ctrl-C
            _, said = process.communicate(timeout=60)
        finally:
            process.kill()
        assert not remaining()
    assert process.returncode == {signal.SIGKILL: -9, signal.SIGINT: 130}[ending], said
    assert said.strip() == {signal.SIGKILL: "", signal.SIGINT: "stopped"}[ending]
    done = saved(course)
    assert 2 <= done < 6
    if ending == signal.SIGKILL:
        killed_while_merging([crowd, course, "--workers", "2"], at=1)
        assert len(gradebook.records(course)) == 1
    run(crowd, course, "--workers", "2")
    assert f"6 submissions, {done} of them graded before" in capsys.readouterr().out
    assert state(course) == uninterrupted
    assert not list(course.glob("build/grading/run-*"))


def test_a_grader_that_dies_twice_is_named_and_the_rest_graded(inbox, course, monkeypatch):
    save = pending_results.save
    monkeypatch.setattr(
        pending_results, "save", lambda shard, one: os._exit(1) if one.learner == "bob" else save(shard, one)
    )
    said = sentence(inbox, course, "--workers", "1")
    assert said.startswith("error: 1 submissions were not graded") and "bob, 03_large_batch: the process" in said
    assert points(course) == {"ann": 4, "eve": 0}


def test_a_full_disk_is_one_sentence(inbox, course, monkeypatch):
    def full(shard, one):
        raise CourseError(f"could not write {shard}: no space")

    monkeypatch.setattr(pending_results, "save", full)
    assert "no space" in sentence(inbox, course, "--workers", "1")


def test_the_configuration_that_nbgrader_reads_sets_numbers_and_an_option_overrides_it(inbox, course, monkeypatch):
    (course / "nbgrader_config.py").write_text(
        "c = get_config()\nc.CourseGrading.workers = 1\nc.CourseGrading.cell_seconds = 7\n"
    )
    seen = []

    def grade(self, jobs, zygote):
        seen.append(self.limits)
        raise CourseError("enough is seen.")

    monkeypatch.setattr(batch.Batch, "grade", grade)
    assert sentence(inbox, course, "--cell-seconds", "5") == "error: enough is seen."
    assert (seen[0].workers, seen[0].cell_seconds, seen[0].patience_seconds) == (1, 5, 20)


@pytest.mark.parametrize(
    "line, said",
    [
        ("cel_seconds = 7", "CourseGrading.cel_seconds, which there is not; did you mean cell_seconds?"),
        (
            "cell_seconds = '7'",
            "The 'cell_seconds' trait of a CourseGrading instance expected a float, not the str '7'",
        ),
    ],
)
def test_a_number_that_there_is_not_or_of_a_wrong_type_is_one_sentence(line, said, inbox, course):
    (course / "nbgrader_config.py").write_text(f"c = get_config()\nc.CourseGrading.{line}\n")
    assert said in sentence(inbox, course)
    assert not (course / "build").exists()


# ---- a cluster


def test_tasks_of_a_cluster_give_the_same_and_one_that_dies_is_named(graded, inbox, course, monkeypatch, capsys):
    """submitit's own local mode: every task is a process of its own, as on another machine."""
    import submitit

    submit = cluster._submit

    def and_kill_the_first(*arguments):
        first, second = submit(*arguments)
        (task,) = wait_until(lambda: children(int(first.job_id)))
        os.kill(task, signal.SIGKILL)
        return first, second

    monkeypatch.setattr(submitit.LocalJob, "_results_timeout_s", 0)
    with monkeypatch.context() as patch:
        patch.setattr(cluster, "_submit", and_kill_the_first)
        said = sentence(inbox, course, "--cluster", "local", "--jobs", "2")
    assert said.startswith("error: 2 submissions were not graded") and "eve, 03_large_batch: its task died" in said
    assert points(course) == {"bob": 2}
    run(inbox, course, "--workers", "1")
    assert "3 submissions, 1 of them graded before" in capsys.readouterr().out
    assert state(course) == state(graded)


def test_a_task_whose_grader_is_gone_ends_after_the_submission_at_hand(inbox, tmp_path, monkeypatch):
    folder, begun = tmp_path / "run", []

    def grade(plan, handed, *options):
        begun.append(handed)
        if len(begun) == 2:
            shutil.rmtree(folder)  # as a new start does
        return Graded(handed.learner, handed.unit, [], handed.received, "")

    monkeypatch.setattr(submission, "grade", grade)
    folder.mkdir()
    handed, _ = read_inbox(inbox, {UNIT: parts(UNIT)})
    share = [cluster.Job(pending_results.path_of(folder, one), one) for one in handed]
    assert "is gone" in cluster.grade_share(share, folder, Execution(unsafe=True))
    assert begun == handed[:2] and not folder.exists()


def test_what_a_task_cannot_do_is_said_here(inbox, course, monkeypatch):
    handed, _ = read_inbox(inbox, {UNIT: parts(UNIT)})
    monkeypatch.setenv("PATH", str(course))  # no bwrap
    here = course / "run"
    here.mkdir()

    def submit(share, shares, *_):
        ended = SimpleNamespace(result_pickle=here)
        return [SimpleNamespace(done=lambda: True, paths=ended, result=functools.partial(share, one)) for one in shares]

    monkeypatch.setattr(cluster, "_submit", submit)
    execution = Execution(CourseGrading(cluster_tasks=1))
    reasons = dict(cluster.grade_on_cluster(handed, here, cluster.Cluster("local"), execution))
    assert len(reasons) == 3 and all("apt install bubblewrap" in reason for reason in reasons.values())


def test_a_scheduler_that_takes_no_jobs_is_one_sentence(inbox, course, monkeypatch):
    asked = inbox, course, "--cluster", "slurm"
    code, said = refused(*asked, "--slurm", "partition")
    assert code == 2 and "partition=cpu, was expected; found partition" in said
    monkeypatch.setenv("PATH", str(course))
    assert re.search("the scheduler slurm took no jobs: .*srun", sentence(*asked), re.S)
    write_text(course / "srun", "#!/bin/sh\n")
    (course / "srun").chmod(0o755)
    assert re.search("the scheduler slurm took no jobs: .*colour", sentence(*asked, "--slurm", "colour=red"), re.S)
    monkeypatch.setitem(sys.modules, "submitit", None)
    assert "pip install submitit" in sentence(*asked)
