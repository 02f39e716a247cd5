"""The executed references: complete, small, current, and the same when CI runs them again (nbval)."""

import os
import subprocess
import sys

import nbformat
import pytest
from conftest import ROOT

from course.publish import build

every_unit = pytest.mark.parametrize("unit", build.units())


def executed(unit):
    return nbformat.read(ROOT / "solutions" / f"{unit}.ipynb", as_version=4)


@every_unit
def test_executed_notebook_is_current(unit):
    sources = [cell.source for cell in build.source_notebook(unit).cells]
    assert [cell.source for cell in executed(unit).cells] == sources, "run make solutions"


@every_unit
def test_every_cell_was_executed_in_order_without_error_or_warning(unit):
    cells = [cell for cell in executed(unit).cells if cell.cell_type == "code"]
    assert [cell.execution_count for cell in cells] == list(range(1, len(cells) + 1))
    for cell in cells:
        for output in cell.outputs:
            assert output.output_type != "error", cell.source
            assert output.get("name") != "stderr", f"{cell.source}\nwrote to stderr: {output.text}"


@every_unit
def test_executed_notebook_is_small_and_names_no_place_of_the_machine_it_ran_on(unit):
    path = ROOT / "solutions" / f"{unit}.ipynb"
    assert path.stat().st_size < build.NOTEBOOK_LIMIT
    assert str(ROOT) not in path.read_text()


@every_unit
def test_marked_cells_give_the_same_output_again(unit, tmp_path):
    nb, path = executed(unit), tmp_path / f"{unit}.ipynb"
    nb.cells = [c for c in nb.cells if not c.source.startswith("### BEGIN HIDDEN TESTS")]  # test_grading runs them
    path.write_text(build.text_of(nb))
    marked = [c for c in nb.cells if "nbval-check-output" in c.metadata.get("tags", [])]
    assert len(marked) >= 3, "nbval compares marked cells only; mark those whose output is certain"
    call = [sys.executable, "-m", "pytest", "--nbval-lax", "--nbval-cell-timeout=120", "-q", "-p", "no:cacheprovider"]
    call += ["-c", os.devnull, "--rootdir", str(ROOT), str(path)]
    done = subprocess.run(call, cwd=ROOT, capture_output=True, text=True, env=os.environ | {"COURSE_DEVICE": "cpu"})
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-1000:]
