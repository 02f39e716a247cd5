"""What is read from a part's text: the same from master and notebook, and near misses named."""

import ast
import json
import re

import pytest
from conftest import ROOT

from course import checks
from course.errors import CourseError
from course.notebook import registry as units
from course.notebook.cells import Cell, read_cells, script_cells, solution_cell
from course.notebook.outline import outline
from instructor.authoring.new import package_text

MASTER = """# %% [markdown]
# # Fast loading, part 2: Order that a disk likes
#
# **What does
# a shuffle cost?**
#
# An introduction.
#
# **You will be able to**
#
# - name the cost
#   of a random read
# - write a shuffle
#
# **Minutes** 55 core · 110 in all
#
# **Needs** part 1 (its answers
# are taken over if you solved it)

# %% locked="setup"
import torch

# %% [markdown]
# ### Exercise 1 · First
#
# **Points** 4 · **Core** · **Difficulty** ●●○ · **Minutes** 35 · **Lines** 12

# %% solution="first"
def first(): ...

# %% test="first-visible" points=4
check.first(first)

# %% [markdown]
# ### Exercise 2 · Second thing
#
# **Points** 1 · **Extra** · **Difficulty** ●○○ · **Minutes** 5 · **Lines** 1

# %% solution="second"
def second(): ...

# %% [markdown] answer="essay" points=3
# Why?
"""


def notebook(cells, built_from):
    made = []
    for cell in cells:
        made.append({"cell_type": cell.kind, "source": cell.source.splitlines(True), "metadata": {}})
        for role in {"solution", "test", "answer"} & cell.marks.keys():
            marks = {"grade_id": cell.marks[role], "solution": role != "test", "grade": role != "solution"}
            made[-1]["metadata"]["nbgrader"] = marks
    return json.dumps({"cells": made, "metadata": {"course": {"built_from": built_from}}}, indent=1)


@pytest.fixture
def one_unit(tmp_path, monkeypatch):
    """A folder with the master of one part, from which everything is read."""
    master = tmp_path / "solutions" / "04_fast_loading" / "2_order.py"
    master.parent.mkdir(parents=True)
    master.write_text(MASTER)
    monkeypatch.setenv("COURSE_SOLUTIONS", str(tmp_path / "solutions"))
    return tmp_path


def test_a_part_says_what_its_header_and_its_tasks_say(one_unit):
    part = units.load_part("04_fast_loading", "2_order")
    assert (part.number, part.title, part.question) == (2, "Order that a disk likes", "What does a shuffle cost?")
    assert part.goals == ("name the cost of a random read", "write a shuffle")
    assert (part.core_minutes, part.all_minutes, part.points) == (55, 110, 5)
    assert part.needs == "part 1 (its answers are taken over if you solved it)"
    first, second = part.exercises
    assert first == units.ExerciseFacts(
        "04_fast_loading", "2_order", "first", 1, "First", 4, True, 35, 12, difficulty=2
    )
    assert (second.name, second.title, second.core, second.number) == ("second", "Second thing", False, 2)
    unit = units.load_unit("04_fast_loading")
    assert (unit.title, unit.points, unit.core_minutes, unit.all_minutes) == ("Fast loading", 5, 55, 110)
    assert unit.exercises == part.exercises


def test_a_class_without_masters_reads_the_same_from_its_notebooks(one_unit, monkeypatch):
    expected = units.load_unit("04_fast_loading")
    cells = read_cells(expected.parts[0].path)
    folder = one_unit / "notebooks" / "04_fast_loading"
    folder.mkdir(parents=True)
    text = notebook(cells, "solutions/04_fast_loading/2_order.py")
    (folder / "2_order.ipynb").write_text(text)
    (folder / "2_order-Copy1.ipynb").write_text(text)  # JupyterLab's copy is not a part
    monkeypatch.setattr(units, "has_solutions", lambda: False)
    monkeypatch.setattr(units, "ROOT", one_unit)
    loaded = units.load_unit("04_fast_loading")
    assert loaded.exercises == expected.exercises and len(loaded.parts) == 1
    assert loaded.parts[0].goals == expected.parts[0].goals and loaded.parts[0].needs == expected.parts[0].needs
    (folder / "2_order.ipynb").write_text("{ broken")
    with pytest.raises(CourseError, match="2_order.ipynb is not a notebook of the course that can be read"):
        units.load_unit("04_fast_loading")


@pytest.mark.parametrize("asked", ["04_fast_loading", "04", "4", "fast_loading", "04/2", "fast_loading/order", "4/2/"])
def test_units_and_parts_have_short_names(asked, one_unit):
    assert units.find_parts(asked) == [("04_fast_loading", "2_order")]


@pytest.mark.parametrize(
    "find, asked, words",
    [
        (units.find_parts, "fast_loadin", "no unit is called 'fast_loadin'; did you mean 04_fast_loading?"),
        (units.find_parts, "9", "no unit is called '9'; there are 04_fast_loading."),
        (units.find_parts, "04/9", "no part of 04_fast_loading is called '9'; there are 2_order."),
        (units.parts, "05", "no unit is called '05'; the units are 04_fast_loading."),
        (lambda part: units.load_part("04_fast_loading", part), "3", "has no part '3'; its parts are 2_order."),
    ],
)
def test_what_is_not_there_is_one_sentence(find, asked, words, one_unit):
    with pytest.raises(CourseError) as raised:
        find(asked)
    assert str(raised.value).endswith(words)


@pytest.mark.parametrize("unit", units.units())
def test_each_package_of_probes_imports_the_exercises_in_its_folder(unit):
    folder = ROOT / "course" / "checks" / units.package_of(unit)
    names = [path.stem for path in folder.glob("*.py") if defines_an_exercise(path)]
    right = package_text(unit, names)
    advice = f"the exercises in its folder are {', '.join(sorted(names))}; write it as package_text in new.py does"
    assert (folder / "__init__.py").read_text() == right, f"{folder.name}/__init__.py: {advice}"
    assert units.unit_of(folder.name) == unit
    for name in names:
        found = checks.exercise(unit, name)
        assert (found.name, found.unit, found.facts.name) == (name, unit, name)
        assert found.sibling(names[0]) is checks.exercise(unit, names[0])


def defines_an_exercise(path):
    """Whether the module at `path` has a probe of its own name."""
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.FunctionDef) and node.name == path.stem:
            return any(ast.unparse(decorator).startswith("exercise(") for decorator in node.decorator_list)
    return False


@pytest.mark.parametrize(("unit", "part"), units.all_parts())
def test_an_answer_that_is_used_before_its_exercise_is_taken_again_after_it(unit, part):
    """Else a learner who writes it goes on with the reference, taken when the notebook was opened."""
    cells = read_cells(ROOT / "solutions" / unit / f"{part}.py")
    exercises = {cell.marks["solution"]: number for number, cell in enumerate(cells) if "solution" in cell.marks}
    for name, number in exercises.items():
        taken = [i for i, cell in enumerate(cells) if re.search(rf"course\.solved\(\s*check\.{name}\b", cell.source)]
        assert not taken or max(taken) > number, f"{name} is taken before its exercise only"


def test_an_unknown_exercise_is_one_sentence():
    with pytest.raises(CourseError, match="03_large_batch has no exercise 'LRAS'; did you mean LARS?"):
        checks.exercise("03_large_batch", "LRAS")
    with pytest.raises(CourseError, match="03_large_batch asks no exercise 'LRAS'; did you mean LARS?"):
        units.exercise_facts("03_large_batch", "LRAS")
    assert checks.exercises("00_nothing") == []


def test_cells_of_a_master_have_their_kind_marks_and_line():
    cells = script_cells(MASTER + '# %% tags=["experiment"]\nprint(1)\n')
    kinds = [(cell.kind, cell.role, cell.grade_id, cell.exercise, cell.points) for cell in cells]
    assert kinds == [
        ("markdown", "other", None, None, 0),
        ("code", "given", "setup", None, 0),
        ("markdown", "other", None, None, 0),
        ("code", "answer", "first", "first", 0),
        ("code", "check", "first-visible", "first", 4),
        ("markdown", "other", None, None, 0),
        ("code", "answer", "second", "second", 0),
        ("markdown", "hidden", "essay", None, 3),
        ("code", "other", None, None, 0),
    ]
    assert cells[-1].tags == ("experiment",) and cells[-1].source == "print(1)"
    lines = MASTER.split("\n")
    assert [lines[cell.line - 1][:4] for cell in cells[:-1]] == ["# %%"] * 8
    assert solution_cell(cells, "second").source == "def second(): ..."
    with pytest.raises(LookupError, match="no cell is the solution of third"):
        solution_cell(cells, "third")


def test_sections_begin_at_headings_also_inside_a_cell():
    texts = ["# Title\n\nopening", "end of it\n\n## One\n\nread", "more", "## Two · extra"]
    facts = "**Points** 2 · **{}** · **Difficulty** ●○○ · **Minutes** 5 · **Lines** 2"
    cells = [Cell("markdown", {}, text) for text in [*texts, facts.format("Extra")]]
    opening, one, two = outline(cells)
    assert (opening.title, opening.text) == ("", "# Title\n\nopening\n\nend of it\n\n")
    assert (one.title, one.text, one.is_extra) == ("One", "## One\n\nread\n\nmore", False)
    assert two.says_extra and two.is_extra and two.kinds == {"Extra"} and two.facts[0].points == 2


def test_a_folder_without_masters_is_one_sentence(tmp_path, monkeypatch):
    monkeypatch.setenv("COURSE_SOLUTIONS", str(tmp_path))
    with pytest.raises(CourseError, match="looked for units in .*, found none"):
        units.units()
