"""An answer that passed goes on in other notebooks and after a restart: real kernels, their store, what breaks it."""

import inspect
import json
import os
import subprocess
import sys

import pytest
from conftest import ROOT
from jupyter_client.manager import start_new_kernel

from course.checks import large_batch as check
from course.errors import CourseError
from course.learner import answers, solved

SETUP = "import course\nfrom course.checks import large_batch as check\n"
HELPER = "ONE = 1\ndef once(f):\n    return lambda *args, **kwargs: ONE * f(*args, **kwargs)\n"
RIGHT = "@once\n" + inspect.getsource(check.scaled_lr.reference())
WRONG = "def scaled_lr(*args, **kwargs):\n    return args[0]\n"
CHECK = "check.scaled_lr(scaled_lr)\n"
SOLVED = "answer = course.solved(check.scaled_lr)\nprint(answer(0.1, 64, 128), answer.__code__.co_filename)\n"


class Kernel:
    """A notebook's kernel: `run` returns what a cell printed, or the text of its error."""

    def __init__(self, **variables):
        env = os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"} | variables
        self.manager, self.client = start_new_kernel(env=env, cwd=str(ROOT))

    def restart(self):
        self.manager.restart_kernel(now=True)
        self.client.wait_for_ready(timeout=60)

    def run(self, *cells):
        for cell in cells:
            said = []
            self.client.execute_interactive(cell, timeout=120, output_hook=lambda m, said=said: said.append(_text(m)))
        return "".join(said)

    def stop(self):
        self.client.stop_channels()
        self.manager.shutdown_kernel(now=True)


def _text(message):
    content = message["content"]
    return content.get("text", "") + "\n".join(content.get("traceback", []))


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    return tmp_path_factory.mktemp("answers")


@pytest.fixture(scope="module")
def kernels(place):
    """Two kernels of one learner."""
    pair = [Kernel(COURSE_ANSWERS=str(place)) for _ in range(2)]
    yield pair
    for kernel in pair:
        kernel.stop()


@pytest.fixture
def first(kernels, place):
    """A kernel that knows nothing yet, and an empty store."""
    for file in place.rglob("*.json"):
        file.unlink()
    return fresh(kernels[0])


def fresh(kernel):
    kernel.run("%reset -f\nimport course.learner.solved as s; s.solved_answers.clear(); s.failed_here.clear()", SETUP)
    return kernel


@pytest.fixture
def store(tmp_path, monkeypatch):
    monkeypatch.setenv("COURSE_ANSWERS", str(tmp_path / "answers"))
    return tmp_path / "answers" / "03_large_batch" / "scaled_lr.json"


def test_an_answer_goes_on_after_a_restart_and_in_another_notebook(first, kernels, place):
    assert "scaled_lr: correct" in first.run(HELPER, RIGHT, CHECK)
    first.restart()
    said = first.run(SETUP, SOLVED)
    assert said.startswith("scaled_lr: your answer of ") and ", from part " in said.splitlines()[0]
    assert said.splitlines()[1].startswith("0.2 <your answer to scaled_lr, "), "not the reference"
    assert "your answer" in fresh(kernels[1]).run(SOLVED)
    assert "your answer" not in kernels[1].run("course.solved(check.scaled_lr)"), "said once"
    record = json.loads((place / "03_large_batch" / "scaled_lr.json").read_text())
    assert record["tries"] == 1 and "ONE = 1" in record["script"]


def test_a_later_failure_keeps_the_answer_that_passed(first, place):
    first.run(HELPER, RIGHT, CHECK, WRONG)
    assert "NO" in first.run(CHECK)
    said = " ".join(first.run(SOLVED).split())
    assert "scaled_lr: the latest check failed; using your answer of " in said and ". 0.2 " in said
    record = json.loads((place / "03_large_batch" / "scaled_lr.json").read_text())
    assert record["tries"] == 2


def test_a_stub_and_hidden_seeds_are_no_tries(first, place):
    first.run("def scaled_lr(*args, **kwargs):\n    raise NotImplementedError()", CHECK)
    first.run(HELPER, RIGHT, "check.scaled_lr(scaled_lr, seed=5)")
    assert not list(place.rglob("*.json"))


def test_an_answer_that_needs_a_live_object_counts_in_its_notebook_and_says_so(first):
    live = "import threading\nme = threading.current_thread()\n"
    said = first.run(
        live, RIGHT.replace("@once", "@(lambda f: lambda *args, **kwargs: f(*args, **kwargs) * bool(me))"), CHECK
    )
    assert "scaled_lr: correct" in said
    assert "counts in this notebook only; it uses me, which no definition sets;" in " ".join(said.split())
    assert "reference" not in first.run(SOLVED)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"script": WRONG, "name": "scaled_lr"}, "no longer passes its check"),
        ({"script": "import no_such_module_xyz"}, "ModuleNotFoundError"),
        ({"script": "def scaled_lr(:"}, "SyntaxError"),
        ({"script": None}, "works only in its own notebook"),
        ("{", "cannot be read"),
    ],
)
def test_what_no_longer_works_falls_back_and_says_why(first, place, change, reason):
    first.run(HELPER, RIGHT, CHECK)
    path = place / "03_large_batch" / "scaled_lr.json"
    path.write_text(change if isinstance(change, str) else json.dumps(json.loads(path.read_text()) | change))
    said = " ".join(fresh(first).run(SOLVED).split())
    assert reason in said and "using the reference answer from here" in said and "/solutions/" in said
    assert "scaled_lr: correct" in first.run(HELPER, RIGHT, CHECK), "a new answer replaces it"
    assert "your answer" in fresh(first).run(SOLVED)


def test_a_place_that_cannot_be_written_is_said_once(first, place, tmp_path):
    (tmp_path / "file").touch()
    try:
        said = first.run(f"import os; os.environ['COURSE_ANSWERS'] = {str(tmp_path / 'file')!r}", HELPER, RIGHT, CHECK)
        assert "scaled_lr: correct" in said and "(answers count in this kernel only: " in " ".join(said.split())
        assert "only" not in first.run(CHECK)
        assert first.run("os.environ['COURSE_ANSWERS'] = 'off'", CHECK).count("\n") == 1
        assert "reference" not in first.run(SOLVED)
    finally:
        first.run(f"os.environ['COURSE_ANSWERS'] = {str(place)!r}")


def test_off_keeps_and_reads_nothing(monkeypatch):
    monkeypatch.setenv("COURSE_ANSWERS", "off")
    assert answers.folder() is None and not answers.is_recording()
    assert answers.read("03_large_batch", "scaled_lr") is None and answers.read_unit("03_large_batch") == {}


def test_nothing_is_kept_outside_a_notebook(store, capsys):
    check.scaled_lr(lambda *args, **kwargs: check.scaled_lr.reference()(*args, **kwargs))
    assert not store.exists()


def test_in_a_class_an_answer_that_fails_is_missing_and_says_why(store, monkeypatch, capsys):
    monkeypatch.setattr(solved, "has_solutions", lambda: False)
    monkeypatch.setattr(solved, "solved_answers", {})
    answers.record("03_large_batch", "scaled_lr", True, script=WRONG, name="scaled_lr")
    missing = solved.solved(check.scaled_lr)
    said = " ".join(capsys.readouterr().out.split())
    assert "no longer passes its check: " in said and said.endswith("and this folder holds no reference answer.")
    with pytest.raises(CourseError, match="this needs your answer to scaled_lr"):
        missing(0.1, 64, 128)


def test_two_processes_lose_no_try(store):
    code = (
        "from course.learner import answers\nfor _ in range(50): answers.record('03_large_batch', 'scaled_lr', False)"
    )
    call = [sys.executable, "-c", code]
    for process in [subprocess.Popen(call, cwd=ROOT) for _ in range(3)]:
        assert process.wait(60) == 0
    assert answers.read("03_large_batch", "scaled_lr").tries == 150


def test_a_file_of_another_user_is_not_run(store, monkeypatch):
    answers.record("03_large_batch", "scaled_lr", True, script="", name="")
    monkeypatch.setattr(os, "getuid", lambda: store.stat().st_uid + 1)
    monkeypatch.setattr(type(store), "stat", lambda self, **_: os.stat_result((0o644, *[0] * 3, 5, *[0] * 5)))
    with pytest.raises(CourseError, match="belongs to another user"):
        answers.read("03_large_batch", "scaled_lr")
