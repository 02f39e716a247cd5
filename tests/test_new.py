"""A new exercise works as it is made: its check, its mistakes, its cells; only its TODOs are refused."""

import re
import subprocess
import sys

import pytest
import torch
from click.testing import CliRunner
from conftest import ROOT
from small_master import GOOD

from course.errors import CourseError
from course.notebook.cells import grade_id
from course.notebook.solutions import exercise_parts
from instructor.authoring import command, masters, new

UNIT, PART = "00_a", "1_a"
CPU = torch.device("cpu")
ONE = f"{GOOD}\n# %% [markdown]\n# ## References\n#\n# 1. Nobody.\n"


@pytest.fixture
def author(tmp_path, monkeypatch):
    """An author's folder with one unit of one exercise."""
    for folder in ("solutions/00_a/answers", "course/checks/a"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "solutions" / UNIT / f"{PART}.py").write_text(ONE)
    (tmp_path / "course/checks/a/__init__.py").write_text(new.package_text(UNIT, ["f"]))
    monkeypatch.setenv("COURSE_SOLUTIONS", str(tmp_path / "solutions"))
    monkeypatch.setattr(new, "ROOT", tmp_path)
    exercise_parts.cache_clear()
    yield tmp_path
    exercise_parts.cache_clear()


def make(*args):
    return CliRunner().invoke(command.new, ["exercise", *args])


def test_what_is_made_builds(author):
    done = make("00", "clipped_norm")
    assert done.exit_code == 0, done.output
    files = sorted(path.relative_to(author).as_posix() for path in author.rglob("*.py"))
    assert files == [
        "course/checks/a/__init__.py",
        "course/checks/a/clipped_norm.py",
        "solutions/00_a/1_a.py",
        "solutions/00_a/answers/clipped_norm.py",
    ]
    master = author / "solutions" / UNIT / f"{PART}.py"
    package = (author / "course/checks/a/__init__.py").read_text()
    assert package == new.package_text(UNIT, ["f", "clipped_norm"]), "the name is added to those that are there"
    assert "TODO: " in master.read_text(), "course build names these: test_lint.py"
    nb = masters.source_notebook(UNIT, PART)
    names = [grade_id(cell) for cell in nb.cells if grade_id(cell)]
    assert names[4:] == ["clipped_norm", "clipped_norm-visible", "clipped_norm-hidden"]
    assert nb.cells[-1].source.startswith("## References"), "they stay at the end"
    assert "**Minutes** 5 core · 20 in all" in nb.cells[0].source
    assert "### Exercise 2 · " in nb.cells[6].source
    for path in author.rglob("*.py"):
        for check in ("check", "format --check"):
            width = 120 if path.is_relative_to(author / "solutions") else 100
            config = ["--config", str(ROOT / "pyproject.toml"), "--config", f"line-length = {width}"]
            config += ["--config", 'lint.isort.known-first-party = ["course"]']  # `author` has little of it
            call = [sys.executable, "-m", "ruff", *check.split(), *config]
            ruff = subprocess.run([*call, str(path)], cwd=author, capture_output=True, text=True)
            assert ruff.returncode == 0 or path == master, ruff.stdout


def test_its_check_knows_right_from_wrong(author, monkeypatch):
    make(f"{UNIT}/1", "clipped_norm", "--after", "f")
    import course.checks.large_batch as package

    source = (author / "course/checks/a/clipped_norm.py").read_text().replace("@exercise()", f"@exercise('{UNIT}')")
    names = {"__name__": f"{package.__name__}.clipped_norm"}
    exec(source, names)
    check = names["clipped_norm"]
    right, wrong = check.alternatives(), check.mistakes()
    assert len(right) >= 2 and len(wrong) >= 3
    for seed in (0, new._seed("clipped_norm")):
        judge = check.at(CPU, seed)
        for answer in [check.reference(), *right]:
            assert judge.verdict(judge.run(answer)).correct
        for known in wrong:
            assert judge.verdict(judge.run(known.answer)).mistake == known.name


def test_behind_an_exercise_the_others_are_numbered_anew(author):
    make("00", "last")
    make("00", "middle", "--after", "f")
    master = author / "solutions" / UNIT / f"{PART}.py"
    assert re.findall(r"Exercise (\d+) ·", master.read_text()) == ["1", "2", "3"]
    assert re.findall(r'solution="(\w+)"', master.read_text()) == ["f", "middle", "last"]
    assert "**Minutes** 5 core · 30 in all" in master.read_text()


@pytest.mark.parametrize(
    "args, words",
    [
        (["00", "f"], "00_a has an exercise 'f' already"),
        (["00", "two words"], "'two words' cannot name a function"),
        (["00", "class"], "'class' cannot name a function"),
        (["00", "_hidden"], "'_hidden' cannot name a function"),
        (["00", "check"], "'check' means something else in every notebook"),
        (["00", "../g"], "'../g' cannot name a function"),
        (["00", "g", "--after", "h"], "00_a/1_a asks no exercise 'h'"),
        (["07", "g"], "no unit is called '07'"),
        (["00/7", "g"], "no part of 00_a is called '7'"),
    ],
)
def test_what_cannot_be_made_is_one_sentence_and_nothing_is_written(args, words, author):
    before = {path: path.read_text() for path in author.rglob("*.py")}
    done = make(*args)
    assert isinstance(done.exception, CourseError), done.output
    assert str(done.exception).startswith(words) and "\n" not in str(done.exception)
    assert {path: path.read_text() for path in author.rglob("*.py")} == before


def test_a_file_that_is_there_is_not_overwritten(author):
    mine = author / "solutions" / UNIT / "answers" / "g.py"
    mine.write_text("mine")
    assert "is there already" in str(make("00", "g").exception)
    assert mine.read_text() == "mine" and not (author / "course/checks/a/g.py").exists()
