"""What the lint refuses: one sentence for each fault of a master."""

import re

import pytest
from small_master import GOOD, HEADER

from course.errors import CourseError
from course.notebook.cells import grade_id
from instructor.authoring import lint, masters


def master(folder, text, part="1_a"):
    path = folder / "00_a" / f"{part}.py"
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)


@pytest.mark.parametrize(
    "old, new, words",
    [
        ("", "", None),
        ("**Convention** from 0.", "**Must** from 0.", None),
        ("**Core** · ", "", "it needs the line **Points** 2 · **Core**"),
        ("### Exercise 1 · Return it", "### Exercise", "needs a heading like ### Exercise 1"),
        (HEADER, "", "its first cell needs its title, # Fast loading, part 1"),
        ("# # Nothing much, part 1: ", "# # Nothing: ", "its first cell needs its title"),
        ("part 1: Return", "part 2: Return", "its title says part 2, its file is called 1_a.py"),
        ("**What is given back?**", "What is given back?", "its first cell needs its question"),
        ("# - return a value\n", "", "its first cell needs **You will be able to** with a list"),
        ("5 core · 10 in all", "10 minutes", "its first cell needs **Minutes** 55 core · 110 in all"),
        ("# **Needs** nothing\n", "", "its first cell needs **Needs** nothing"),
        ("5 core", "4 core", "says 4 minutes for the core, its core exercises take 5"),
        ("10 in all", "4 in all", "says 4 minutes in all, its core and its extra exercises take 5"),
        (
            "**Core** · **Difficulty** ●○○ · **Minutes** 5",
            "**Extra** · **Difficulty** ●○○ · **Minutes** 6",
            "says 10 minutes in all, its core and its extra exercises take 11",
        ),
        ("10 in all", "151 in all", "it takes 151 minutes, more than 150"),
        ("points=1\ncheck", "points=2\ncheck", "the text says 2 points, its grade cells give 3"),
        ("points=1\ncheck", "\ncheck", "needs points above 0"),
        ('test="f-hidden"', 'test="f-visible"', "more than one cell has this id"),
        ('test="f-hidden"', 'test="f-other"', "must be the tests f-visible and f-hidden"),
        ("### BEGIN SOLUTION", "", "the learner would get the answer"),
        ("**Minutes** 5 · ", "", "needs the line"),
        ("**Source** none.", "", "**Source**"),
        ("**Convention** from 0.", "", "**Convention**"),
        ("# <details><summary>2</summary>!</details>", "#", "at least two hints"),
        ("# <details>", "#\n# **Not allowed** `torch.sum`.\n#\n# <details>", "`sum`, which its check does not forbid"),
        ("check.f(f)\n", "check.f(f)\nf(1)\n", "is one call"),
        ("check.f(f)\n", "f(1)\n", "is one call"),
        (", seed=5", "", "needs ### BEGIN HIDDEN TESTS"),
        ("### BEGIN HIDDEN TESTS\n", "# seed=5 is known\n### BEGIN HIDDEN TESTS\n", "and nothing else"),
        ("check.f(f)\n", "check.f(f, seed=5)\n", "a seed in a visible cell"),
        ("solution=", "solutoin=", "unknown mark 'solutoin'"),
        ('solution="f"', "", "a solution is in a cell without the mark"),
        ('test="f-visible"', "test=5", "test=5 must be a name in quotes"),
        ('"f-visible" points=1', '"f-visible" points="1"', "points='1' must be a whole number"),
        ('"f-visible" points=1', '"f-visible" points=1 tags="x"', "'x' is not of type 'array'"),
        ("return x", "return x(", "is not a percent script in UTF-8"),
        (GOOD, "", "there is no cell in it"),
        ("from course.checks import", "# ", "says from course.checks import a as check"),
    ],
)
def test_lint_names_each_fault(old, new, words, tmp_path, monkeypatch):
    assert old in GOOD
    master(tmp_path, GOOD.replace(old, new, 1))
    monkeypatch.setenv("COURSE_SOLUTIONS", str(tmp_path))
    if words is None:
        nb = masters.source_notebook("00_a", "1_a")
        assert [grade_id(cell) for cell in nb.cells] == [None, "setup", None, "f", "f-visible", "f-hidden"]
    else:
        with pytest.raises(CourseError, match=re.escape(words)):
            masters.source_notebook("00_a", "1_a")


@pytest.fixture
def two_parts(tmp_path, monkeypatch):
    """A function: text of part 1, of part 2 -> the faults of a unit of these parts, which has checks of f and g."""

    def faults(first, second):
        for number, text in enumerate((first, second), 1):
            master(tmp_path, text.replace("part 1:", f"part {number}:"), f"{number}_a")
        return lint.lint_unit("00_a")

    for name in ("f", "g"):
        answers = tmp_path / "00_a" / "answers" / f"{name}.py"
        answers.parent.mkdir(parents=True, exist_ok=True)
        answers.write_text("")
    monkeypatch.setenv("COURSE_SOLUTIONS", str(tmp_path))
    of_checks = {name: type("Exercise", (), {"name": name, "forbids": ()}) for name in ("f", "g")}
    monkeypatch.setattr(lint, "exercises", lambda unit: [*of_checks.values()])
    return faults


SECOND = re.sub(r"\bf\b", "g", GOOD)
CLAIMS = "course.claim('f is fast', True)\n    ### BEGIN SOLUTION"


@pytest.mark.parametrize(
    "first, second, words",
    [
        (GOOD, SECOND, None),
        (GOOD, GOOD, "f: this id is in 1_a and 2_a; a unit has every name once"),
        (GOOD, HEADER, "g: course/checks/a/g.py holds its check, but no part asks it"),
        (GOOD, SECOND.replace('"g', '"h'), "h: no check; it belongs in course/checks/a/h.py"),
        (GOOD, SECOND.replace('"g', '"h'), "h: no known mistakes; they belong in solutions/00_a/answers/h.py"),
        (GOOD, SECOND.replace("Exercise 1", "Exercise 2"), "2_a: its exercises are numbered [2], not from 1"),
        (GOOD, SECOND.replace("Nothing much", "Much"), "00_a: its parts give it different titles: Much, Nothing much"),
        (GOOD, SECOND.replace("5 core", "90 core"), None),
        (GOOD, SECOND.replace("5 core", "91 core"), "00_a: the core of session 1 takes 96 minutes, more than 95"),
        (GOOD, SECOND.replace("5 core · 10 in all", "91 core · 100 in all · session 2"), None),
        (
            GOOD,
            SECOND.replace("10 in all", "10 in all · session 3"),
            "00_a: a part is in session 3; a unit has at most 2",
        ),
        (
            GOOD.replace("### BEGIN SOLUTION", CLAIMS),
            SECOND.replace("### BEGIN SOLUTION", CLAIMS),
            'the claim "f is fast" is in 00_a/1_a and 00_a/2_a; a sentence is in the course once',
        ),
    ],
)
def test_a_unit_is_linted_as_a_whole(first, second, words, two_parts):
    faults = two_parts(first, second)
    assert faults == [] if words is None else any(words in fault for fault in faults)


def test_each_todo_in_the_cells_and_in_the_answers_is_a_fault(two_parts, tmp_path):
    (tmp_path / "00_a" / "answers" / "f.py").write_text('@mistake("TODO: the idea")')
    faults = two_parts(GOOD + "\n# %% [markdown]\n# TODO: a hint\n", SECOND)
    assert faults == ["00_a/1_a.py: TODO: a hint", 'answers/f.py: @mistake("TODO: the idea")']


def test_what_a_check_forbids_is_said_in_the_task(tmp_path, monkeypatch):
    master(tmp_path, GOOD)
    monkeypatch.setenv("COURSE_SOLUTIONS", str(tmp_path))
    monkeypatch.setattr(masters, "forbidden", lambda unit: {"f": ["torch.amp.GradScaler"]})
    with pytest.raises(CourseError, match="f: its check forbids GradScaler; .* must say `GradScaler`"):
        masters.source_notebook("00_a", "1_a")
    master(tmp_path, GOOD.replace("**Source**", "\n#\n# **Not allowed** `torch.amp.GradScaler`.\n#\n# **Source**"))
    masters.source_notebook("00_a", "1_a")
