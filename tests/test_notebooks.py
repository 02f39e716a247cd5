"""Executed notebooks: how they are made; those here are complete, small, current and the same again (nbval)."""

import os
import subprocess

import forks
import nbformat
import pytest
from conftest import ROOT

from course.errors import CourseError
from course.notebook.cells import read_cells
from course.notebook.registry import parts, units
from instructor.authoring import execute, masters
from instructor.authoring.execute import NOTEBOOK_LIMIT
from instructor.authoring.records import claims_in

PARTS = [(unit, part) for unit in units() for part in parts(unit)]
every_part = pytest.mark.parametrize("unit, part", PARTS, ids=["-".join(pair) for pair in PARTS])


def executed(unit, part):
    path = ROOT / "solutions" / unit / f"{part}.ipynb"
    assert path.exists(), f"run course build --execute {unit}/{part}"
    return nbformat.read(path, as_version=4)


@every_part
def test_executed_notebook_is_current(unit, part):
    sources = [cell.source for cell in masters.source_notebook(unit, part).cells]
    current = [cell.source for cell in executed(unit, part).cells] == sources
    assert current, f"run course build --execute {unit}/{part}"


@every_part
def test_every_cell_was_executed_in_order_without_error_or_warning(unit, part):
    cells = [cell for cell in executed(unit, part).cells if cell.cell_type == "code"]
    assert [cell.execution_count for cell in cells] == list(range(1, len(cells) + 1))
    for cell in cells:
        for output in cell.outputs:
            assert output.output_type != "error", cell.source
            assert output.get("name") != "stderr", f"{cell.source}\nwrote to stderr: {output.text}"


@every_part
def test_executed_notebook_is_small_and_names_no_place_of_the_machine_it_ran_on(unit, part):
    path = ROOT / "solutions" / unit / f"{part}.ipynb"
    assert path.stat().st_size < NOTEBOOK_LIMIT
    assert str(ROOT) not in path.read_text()


@every_part
def test_answers_travel_so_no_executed_part_falls_back_on_the_reference(unit, part):
    """But on the one of an exercise that stands further down: a core experiment may use an extra exercise."""
    cells = executed(unit, part).cells
    for number, cell in enumerate(cells):
        below = "\n".join(later.source for later in cells[number + 1 :])
        lines = [line for output in cell.get("outputs", []) for line in output.get("text", "").splitlines()]
        names = [line.partition(":")[0] for line in lines if "not solved yet" in line]
        assert [name for name in names if f"check.{name}({name})" not in below] == []


@pytest.mark.parametrize("unit", units())
def test_marked_cells_give_the_same_output_again(unit, tmp_path):
    """One process of nbval for the parts of a unit, since it takes seconds to start."""
    for part in parts(unit):
        nb = executed(unit, part)
        nb.cells = [c for c in nb.cells if not c.source.startswith("### BEGIN HIDDEN TESTS")]  # test_grading runs them
        (tmp_path / f"{part}.ipynb").write_text(masters.text_of(nb))
        marked = [c for c in nb.cells if "nbval-check-output" in c.metadata.get("tags", [])]
        assert marked, f"nbval compares marked cells only; mark those of {part} whose output is certain"
        assert not any("course.claim(" in c.source for c in marked), f"{part}: a claim says at which scale it holds"
    call = forks.python("pytest", "--nbval-lax", "--nbval-cell-timeout=300", "-q", "-p", "no:cacheprovider", "-c",
                        os.devnull, "--rootdir", str(ROOT), str(tmp_path))  # fmt: skip
    env = os.environ | {"COURSE_DEVICE": "cpu", "COURSE_ANSWERS": "off"}
    done = subprocess.run(call, cwd=ROOT, capture_output=True, text=True, env=env)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-1000:]


def test_every_claim_that_failed_explains_itself():
    silent = []
    for unit, part in PARTS:
        found = claims_in(read_cells(ROOT / "solutions" / unit / f"{part}.ipynb"))
        silent += [claim["sentence"] for claim in found if claim["held"] is False and not claim["otherwise"]]
    assert silent == [], "give the claim otherwise=..."


CODE = {  # keeps an answer as the checks do, and reads what an earlier part kept
    "1_a": ["import os\nopen(os.environ['COURSE_ANSWERS'] + '/one', 'w').close()"],
    "2_b": ["import os\nprint(os.listdir(os.environ['COURSE_ANSWERS']))"],
}


@pytest.fixture
def small(tmp_path, monkeypatch):
    """A unit of two small parts; what is executed is written to the folder that is given."""

    def source(unit, part):
        cells = [nbformat.v4.new_code_cell(code) for code in CODE[part]]
        cells.append(nbformat.v4.new_code_cell("print('measured')", metadata={"tags": ["experiment"]}))
        nb = nbformat.v4.new_notebook(cells=cells)
        nb.metadata.course = {"built_from": f"solutions/{unit}/{part}.py"}
        return nb

    monkeypatch.setattr(execute, "source_notebook", source)
    monkeypatch.setattr(execute, "parts", lambda unit: [*CODE])
    monkeypatch.setattr(execute, "warm_up", lambda: None)  # imports, in a process of its own
    monkeypatch.setattr(execute, "solutions_folder", lambda: tmp_path)
    return tmp_path


def outputs(path):
    return [output.text for cell in nbformat.read(path, as_version=4).cells for output in cell.get("outputs", [])]


@pytest.mark.parametrize("wanted", [["1_a", "2_b"], ["2_b"]])
def test_answers_of_earlier_parts_are_there_also_if_one_part_is_executed_alone(wanted, small, capfd):
    seen = []
    execute.execute("00_a", wanted, progress=seen.append)
    assert capfd.readouterr().err == "", "a kernel that starts says nothing"
    assert outputs(small / "00_a" / "2_b.ipynb") == ["['one']\n", "measured\n"]
    assert [path.stem for path in sorted(small.rglob("*.ipynb"))] == wanted
    assert seen[0] == ("  cell 1 of 2" if len(wanted) == 2 else "  cell 1 of 1"), "no experiment of an earlier part"


def test_what_learners_predict_comes_back_with_its_measured_value(small, monkeypatch):
    unit = "05_batch_grouping"
    part = parts(unit)[0]
    monkeypatch.setitem(CODE, part, ["import course\ncourse.score('05/1', 'cells per token', None, 6.5)"])
    monkeypatch.setattr(execute, "parts", lambda unit: [part])
    measured = execute.execute(unit, [part], progress=lambda text: None)
    assert measured == {part: [{"what": "cells per token", "measured": "6.50"}]}
    assert execute.measured_values(small / "none.json", part) == []


def test_a_cell_that_fails_is_named_and_nothing_is_written(small, monkeypatch):
    monkeypatch.setitem(CODE, "1_a", ["1 / 0"])
    with pytest.raises(CourseError, match=r"a cell of solutions/00_a/1_a.py failed:\n(.|\n)*1 / 0"):
        execute.execute("00_a", ["1_a"], progress=lambda text: None)
    assert os.listdir(small) == []


def test_a_notebook_that_gets_too_large_is_refused(small, monkeypatch):
    monkeypatch.setattr(execute, "NOTEBOOK_LIMIT", 100)
    with pytest.raises(CourseError, match="the executed 1_a has .* bytes, over 100: draw smaller figures"):
        execute.execute("00_a", ["1_a"], progress=lambda text: None)
