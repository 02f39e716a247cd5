"""course check: the verdicts of a notebook's answers from a terminal, without its experiments."""

import inspect
import json
import re
import subprocess

import forks
import pytest
from conftest import ROOT

from course import cli
from course.checks import large_batch as check
from course.learner import answers

SETUP = "import torch\nimport course\nfrom course.checks import large_batch as check\nHALF = 0.5\n"
RIGHT = inspect.getsource(check.scaled_lr.reference())
STUB = "def exponential_warmup(*args):\n    raise NotImplementedError()\n"


def cell(source, tags=(), **marks):
    metadata = {"tags": list(tags)} | ({"nbgrader": marks} if marks else {})
    return {"cell_type": "code", "metadata": metadata, "source": source.splitlines(True), "outputs": []}


def answer(name, source):
    marks = dict(grade=True, locked=True, solution=False)
    return [
        cell(source, grade_id=name, solution=True, grade=False, locked=False),
        cell(f"check.{name}({name})", grade_id=f"{name}-visible", **marks),
        cell("raise SystemExit('a hidden test')", grade_id=f"{name}-hidden", **marks),
    ]


@pytest.fixture
def notebook(tmp_path):
    """A function: cells -> the path of a notebook with a setup cell before them."""

    def write(*cells):
        setup = cell(SETUP, grade_id="setup", locked=True, grade=False, solution=False)
        path = tmp_path / "my notebook.ipynb"
        path.write_text(json.dumps({"cells": [setup, *cells], "nbformat": 4, "nbformat_minor": 5, "metadata": {}}))
        return path

    return write


def run(path, *names):
    """(exit code, what is printed) of `course check`."""
    call = forks.python("course.cli", "check", str(path), *names)
    done = subprocess.run(call, cwd=ROOT, capture_output=True, text=True, timeout=100)
    assert not done.stderr, done.stderr
    return done.returncode, done.stdout


def test_right_and_unfinished_answers_and_experiments_that_are_not_run(notebook, monkeypatch, tmp_path):
    monkeypatch.setenv("COURSE_ANSWERS", str(tmp_path / "answers"))
    path = notebook(
        cell("raise RuntimeError('an experiment')", tags=["experiment"]),
        cell("%matplotlib inline\nprint('nothing')\nraise_if_run = course.no_such_function()"),
        cell("def helper(f):\n    return lambda *args, **kwargs: 2 * HALF * f(*args, **kwargs)"),
        *answer("scaled_lr", "@helper\n" + RIGHT),
        *answer("exponential_warmup", STUB),
    )
    code, said = run(path)
    assert code == 1 and said.startswith("scaled_lr: correct") and "exponential_warmup: not yet" in said
    assert said.endswith("\n1 of 2 solved; not solved: exponential_warmup\n") and "nothing" not in said
    code, said = run(path, "scaled_lr")
    assert code == 0 and said.endswith("\n1 of 1 solved\n")
    record = answers.read("03_large_batch", "scaled_lr")
    assert record.tries == 2 and "HALF = 0.5" in record.script, "answers travel from the terminal, too"
    assert answers.read("03_large_batch", "exponential_warmup") is None


def test_a_cell_that_stops_is_named_with_its_reason(notebook):
    path = notebook(*answer("scaled_lr", "def scaled_lr(:"), *answer("exponential_warmup", "import no_such_module_xyz"))
    code, said = run(path)
    assert code == 1
    assert "scaled_lr: its cell stops with SyntaxError: invalid syntax (line 1)" in said
    assert "exponential_warmup: its cell stops with ModuleNotFoundError: No module named 'no_such_module_xyz'" in said


def test_an_untouched_notebook_of_the_course_is_not_solved():
    path = next((ROOT / "notebooks" / "03_large_batch").glob("2_*.ipynb"))
    code, said = run(path)
    assert code == 1 and re.search(r"\n0 of (\d+) solved; not solved: ", said)
    assert "stops with" not in said


@pytest.mark.parametrize(
    ("content", "names", "words"),
    [
        ("{", (), "is not a notebook"),
        ("[]", (), "is not a notebook"),
        ('{"cells": []}', (), "holds no exercise of this course"),
        (None, ("scald_lr",), "has no exercise 'scald_lr'; did you mean scaled_lr?"),
    ],
)
def test_what_cannot_be_checked_is_one_sentence(notebook, content, names, words):
    path = notebook(*answer("scaled_lr", RIGHT))
    if content:
        path.write_text(content)
    with pytest.raises(SystemExit) as stopped:
        cli.main(["check", str(path), *names])
    said = stopped.value.code
    assert said.startswith("error: ") and words in said and "\n" not in said
