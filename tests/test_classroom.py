"""What runs in a notebook from top to bottom is what is graded, whatever a tool or a hand did to its cells."""

import contextlib
import json
import random
from datetime import UTC, datetime

import pytest
from submissions import UNIT, part_of, release, solved

from course.errors import CourseError
from course.learner import check_notebook
from course.notebook.cells import grade_id
from course.notebook.code import execute, read_code
from instructor.authoring import masters
from instructor.grading.inbox import read_inbox
from instructor.grading.limits import DEFAULTS
from instructor.grading.plan import Plan
from instructor.grading.results import Submission
from instructor.grading.submission import grade

NAME = "scaled_lr"
PART = part_of(NAME)
IMPORT = "from functools import partial\n"


@pytest.fixture(scope="module")
def plan():
    """The plan of the part's one exercise."""
    return Plan(UNIT, asked={PART: {NAME}})


@pytest.fixture
def points(plan, zygote, tmp_path):
    """A function: notebook as JSON -> (points, reports) that the grader gives."""

    def graded(notebook):
        path = tmp_path / f"{PART}.ipynb"
        path.write_text(json.dumps(notebook))
        handed = Submission("ann", UNIT, {PART: path}, datetime(2026, 3, 1, tzinfo=UTC))
        (result,) = grade(plan, handed, zygote, DEFAULTS).parts
        return sum(mark.score for mark in result.marks), [mark.report for mark in result.marks]

    return graded


@pytest.fixture
def notebook():
    """The released part with the right answer, as JSON has it."""
    handed = release(PART)
    for cell, right in zip(handed.cells, solved(PART).cells, strict=True):
        if grade_id(cell) == NAME:
            cell.source = right.source
    return json.loads(masters.text_of(handed))


def place(notebook, name=NAME):
    """Where the cell `name` stands."""
    ids = [cell["metadata"].get("nbgrader", {}).get("grade_id") for cell in notebook["cells"]]
    return ids.index(name)


def text(cell):
    return "".join(cell["source"])


def split(notebook):
    """JupyterLab's split: both halves keep the metadata, the second has another id."""
    at = place(notebook)
    cell = notebook["cells"][at]
    notebook["cells"].insert(at + 1, {**cell, "id": "half"})
    notebook["cells"][at] = {**cell, "source": "HALF = 0.5\n"}


def copied(notebook):
    """A wrong first attempt stands above the right answer."""
    at = place(notebook)
    first = {**notebook["cells"][at], "id": "first", "source": f"def {NAME}(*args):\n    return 3.0"}
    notebook["cells"].insert(at, first)


def without_metadata(notebook):
    for cell in notebook["cells"]:
        cell["metadata"] = {}


def import_in_setup(notebook):
    setup = notebook["cells"][place(notebook, "setup")]
    setup["source"] = text(setup) + "\n" + IMPORT
    use(notebook, "partial(lambda value: value)")


def helper_in_a_given_cell(notebook):
    given = [cell for cell in notebook["cells"][: place(notebook)] if is_open(cell)]
    given[-1]["source"] = text(given[-1]) + "\ndef helper(value):\n    return value\n"
    use(notebook, "helper")


def is_open(cell):
    """Whether a given cell is neither locked nor an experiment."""
    is_marked = "nbgrader" in cell["metadata"] or "experiment" in cell["metadata"].get("tags", ())
    return cell["cell_type"] == "code" and not is_marked


def use(notebook, helper):
    """Let the answer need a name of another cell."""
    answer = notebook["cells"][place(notebook)]
    answer["source"] = (
        text(answer)
        + f"\n_plain = {NAME}\n\ndef {NAME}(*args, **named):\n    return ({helper})(_plain(*args, **named))\n"
    )


def own_cells_that_check_and_ask(notebook):
    """As a learner does while he works: what follows such a line in its cell still runs."""
    at = place(notebook)
    lines = [
        f"check.{NAME}({NAME})\nFACTOR = 1\nplain = course.solved(check.{NAME})",
        f"def {NAME}(*args, **named):\n    return FACTOR * plain(*args, **named)",
    ]
    for number, source in enumerate(lines):
        own = {"cell_type": "code", "id": f"own-{number}", "metadata": {}, "source": source, "outputs": []}
        notebook["cells"].insert(at + 1 + number, own)


KINDS = (own_cells_that_check_and_ask, split, copied, without_metadata, import_in_setup, helper_in_a_given_cell)


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_solved_in_the_notebook_has_all_points(notebook, points, kind):
    kind(notebook)
    score, reports = points(notebook)
    assert score == points_of(release(PART)), reports


def moved_into_a_file(notebook, folder):
    """The answer stands in helpers.py next to the notebook, whose cell imports it."""
    cell = notebook["cells"][place(notebook)]
    (folder / "helpers.py").write_text(f"import torch\n\n{text(cell)}")
    cell["source"] = f"from helpers import {NAME}\n"


def test_a_python_file_beside_the_notebook_can_be_imported(notebook, points, plan, tmp_path):
    before, _ = points(notebook)
    path = {PART: tmp_path / f"{PART}.ipynb"}
    first = plan.fingerprint(path)
    moved_into_a_file(notebook, tmp_path)
    (tmp_path / "no module.py").write_text("1 / 0")
    (tmp_path / "binary.py").write_bytes(b"\xff\xfe")
    assert points(notebook)[0] == before > 0
    in_file = plan.fingerprint(path)
    (tmp_path / "helpers.py").write_text("")
    assert len({first, in_file, plan.fingerprint(path)}) == 3


def test_the_person_who_grades_reads_the_file_and_no_inbox_calls_it_unknown(notebook, plan, zygote, tmp_path):
    folder = tmp_path / "ann" / UNIT
    folder.mkdir(parents=True)
    moved_into_a_file(notebook, folder)
    (folder / f"{PART}.ipynb").write_text(json.dumps(notebook))
    (handed,), left_out = read_inbox(tmp_path, {UNIT: [PART]})
    (result,) = grade(plan, handed, zygote, DEFAULTS).parts
    assert left_out == [] and result.notebook.cells[0].source.startswith("%%writefile helpers.py\nimport torch")


def said_by(notebook, path):
    """Whether the notebook calls the answer correct, when its cells run from top to bottom."""
    path.write_text(json.dumps(notebook))
    names, said = {}, False
    for cell in read_code(path):
        if cell.exercise != NAME and cell.role not in ("given", "answer"):
            continue
        with contextlib.suppress(AssertionError, CourseError, NameError):
            execute(cell, "<a cell>", names)
            said = said or cell.role == "check"
    return said


def split_anywhere(notebook, rng):
    """Between two statements of the answer, as they come."""
    at = place(notebook)
    cell = notebook["cells"][at]
    extra = [f"BEFORE_{number} = {number}" for number in range(rng.randrange(3))]
    lines = [*extra, text(cell)]
    rng.shuffle(lines)
    border = rng.randrange(len(lines) + 1)
    notebook["cells"].insert(at + 1, {**cell, "id": f"half-{rng.random()}", "source": "\n".join(lines[border:])})
    notebook["cells"][at] = {**cell, "source": "\n".join(lines[:border])}


def copied_anywhere(notebook, rng):
    """A wrong attempt, as a copy of the answer's cell, above or below it."""
    at = place(notebook)
    wrong = f"def {NAME}(*args, **named):\n    return {rng.random()}"
    copy = {**notebook["cells"][at], "id": f"copy-{rng.random()}", "source": wrong}
    notebook["cells"].insert(at + rng.randrange(2), copy)


def moved_up(notebook, rng):
    """The answer's cell above some cells that were given."""
    at = place(notebook)
    cell = notebook["cells"].pop(at)
    notebook["cells"].insert(rng.randrange(place(notebook, "setup") + 1, at + 1), cell)


def metadata_dropped(notebook, rng):
    """From some cells, which keep their ids; but copies and halves have no id by which to know them."""
    ids = {cell["id"] for cell in json.loads(masters.text_of(release(PART)))["cells"]}
    for cell in notebook["cells"]:
        if cell["id"] in ids and rng.random() < 0.5:
            cell["metadata"] = {}


EDITS = (split_anywhere, copied_anywhere, moved_up)


@pytest.mark.parametrize("seed", range(6))
def test_whatever_a_hand_did_to_the_cells_the_score_is_what_the_notebook_said(notebook, points, seed, tmp_path):
    rng = random.Random(seed)
    for edit in rng.choices(EDITS, k=3):
        edit(notebook, rng)
    metadata_dropped(notebook, rng)
    score, reports = points(notebook)
    assert (score == points_of(release(PART))) == said_by(notebook, tmp_path / "as-it-is.ipynb"), reports


def points_of(notebook):
    grades = [cell.metadata.nbgrader for cell in notebook.cells if "nbgrader" in cell.metadata]
    return sum(marks.points for marks in grades if marks.grade and marks.grade_id.startswith(NAME))


@pytest.mark.parametrize("seed", range(4))
def test_cells_of_ones_own_anywhere_change_nothing(notebook, points, seed):
    rng = random.Random(seed)
    for number in range(6):
        kind = rng.choice(["code", "markdown"])
        own = {"cell_type": kind, "id": f"own-{number}", "metadata": {}, "source": f"x{number} = {number}"}
        if kind == "code":
            own |= {"outputs": [], "execution_count": None}
        notebook["cells"].insert(rng.randrange(len(notebook["cells"]) + 1), own)
    rng.choice([split, copied, import_in_setup])(notebook)
    assert points(notebook)[0] == points_of(release(PART))


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("import no_such_package", "its cell stops with ModuleNotFoundError: No module named 'no_such_package'"),
        ("x = '\0'", "null byte"),
    ],
)
def test_a_cell_that_stops_says_why(notebook, points, source, said):
    notebook["cells"][place(notebook)]["source"] = source
    score, reports = points(notebook)
    assert score == 0 and any(said in " ".join(report.split()) for report in reports), reports


def test_an_edited_check_is_told_before_it_costs_a_point(notebook, tmp_path, capfd):
    notebook["cells"][place(notebook, f"{NAME}-visible")]["source"] = f"check.{NAME}(other)"
    path = tmp_path / "mine.ipynb"
    path.write_text(json.dumps(notebook))
    assert check_notebook.check_notebook(path, (NAME,)) == 0
    assert f"{NAME}: its check was edited; what is graded, and run here" in capfd.readouterr().out


def test_without_metadata_a_notebook_can_be_checked(notebook, tmp_path, capfd):
    without_metadata(notebook)
    path = tmp_path / "mine.ipynb"
    path.write_text(json.dumps(notebook))
    assert check_notebook.check_notebook(path, (NAME,)) == 0
    assert "1 of 1 solved" in capfd.readouterr().out
