"""The executed references: complete, small, current, and the same when CI runs them again (nbval)."""

import os
import subprocess
import sys

import nbformat
import pytest
from conftest import ROOT

from course.publish import build, claims
from course.publish.execute import NOTEBOOK_LIMIT
from course.units import parts, units

PARTS = [(unit, part) for unit in units() for part in parts(unit)]
every_part = pytest.mark.parametrize("unit, part", PARTS, ids=["-".join(pair) for pair in PARTS])


def executed(unit, part):
    path = ROOT / "solutions" / unit / f"{part}.ipynb"
    assert path.exists(), f"run course build --execute {unit}/{part}"
    return nbformat.read(path, as_version=4)


@every_part
def test_executed_notebook_is_current(unit, part):
    sources = [cell.source for cell in build.source_notebook(unit, part).cells]
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


# the ledger of part 4 counts the bytes of a step that the part asks for later
COUNTED_BEFORE_ASKED = {("04_fast_loading", "4_fewer_bytes_fewer_passes"): ["sgd_step_"]}


@every_part
def test_answers_travel_so_no_executed_part_falls_back_on_the_reference(unit, part):
    outputs = [output for cell in executed(unit, part).cells for output in cell.get("outputs", [])]
    lines = [line for output in outputs for line in output.get("text", "").splitlines() if "not solved yet" in line]
    assert [line.split(":")[0] for line in lines] == COUNTED_BEFORE_ASKED.get((unit, part), [])


@every_part
def test_marked_cells_give_the_same_output_again(unit, part, tmp_path):
    nb, path = executed(unit, part), tmp_path / f"{part}.ipynb"
    nb.cells = [c for c in nb.cells if not c.source.startswith("### BEGIN HIDDEN TESTS")]  # test_grading runs them
    path.write_text(build.text_of(nb))
    marked = [c for c in nb.cells if "nbval-check-output" in c.metadata.get("tags", [])]
    assert marked, "nbval compares marked cells only; mark those whose output is certain"
    call = [sys.executable, "-m", "pytest", "--nbval-lax", "--nbval-cell-timeout=120", "-q", "-p", "no:cacheprovider"]
    call += ["-c", os.devnull, "--rootdir", str(ROOT), str(path)]
    env = os.environ | {"COURSE_DEVICE": "cpu", "COURSE_ANSWERS": "off"}
    done = subprocess.run(call, cwd=ROOT, capture_output=True, text=True, env=env)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-1000:]


def test_every_claim_that_failed_explains_itself():
    failed = [found for found in claims.all_claims() if found.claim.held is not True]
    assert failed and [found for found in failed if not found.claim.otherwise] == [], "give the claim otherwise=..."


def test_the_table_of_claims_is_current():
    found = claims.claims_text(claims.all_claims(), claims.gpu_claims(claims.ON_GPU))
    assert claims.TABLE.read_text() == found, "run course build --execute"
