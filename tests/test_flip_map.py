"""The flip map: what a record says of a claim becomes a cell, and what wins here and loses there flips."""

import json

import pytest

from course.learner import claims, flip_map
from course.learner.advice import ADVICE, COUNT, LOSS, POINTS, TIMES, Advice
from course.learner.flip_map import EXACT, LOSES, NOT_DECIDED, NOT_MEASURED, SAME, WINS
from course.measure.comparison import Interval
from course.notebook.cells import read_cells
from course.notebook.registry import find_parts, solutions_folder
from course.plots import flip_map as plots
from instructor.authoring import documents, evidence

pytestmark = pytest.mark.check

WORKERS = Advice("workers", "faster", "cores", "workers are faster")
ROWS = (
    WORKERS,
    Advice("cyclic", "faster", "ends high", "cosine is ahead", unit=POINTS, is_opposite=True),
    Advice("two GPUs", "faster", "needs two"),
)


def facts(sentence, estimate=None, low=None, high=None, value="", held=True):
    return {"sentence": sentence, "held": held, "value": value, "estimate": estimate, "low": low, "high": high}


def record(folder, machine, claims_, is_gpu=False):
    """Write the record of `machine`, as `course build --execute` and `course bench gpu` do."""
    parts = {"06_faster_training/1_a": {"claims": claims_}}
    made = {"machine": machine, "details": machine, "is_gpu": is_gpu, "parts": parts, "steps": {}, "benchmarks": {}}
    (folder / f"{machine.lower()}.json").write_text(json.dumps(made))


@pytest.fixture
def two(tmp_path):
    """A folder with the records of a GPU, which has a number without an interval, and a CPU."""
    record(tmp_path, "A-GPU", [facts("workers are faster", value="1.31 times")], is_gpu=True)
    record(tmp_path, "B-CPU", [facts("workers are faster", 0.8, 0.7, 0.9), facts("cosine is ahead", 1.9, 1.2, 2.6)])
    return tmp_path


@pytest.mark.parametrize(
    ("interval", "unit", "verdict"),
    [
        ((1.2, 1.1, 1.3), TIMES, WINS),
        ((0.8, 0.7, 0.9), TIMES, LOSES),
        ((1.0, 0.97, 1.04), TIMES, SAME),
        ((1.02, 1.002, 1.03), TIMES, SAME),
        ((1.1, 0.9, 1.3), TIMES, NOT_DECIDED),
        ((1.5, None, None), TIMES, NOT_DECIDED),
        ((0.8, 0.1, 1.5), POINTS, WINS),
        ((0.1, -0.3, 0.4), POINTS, SAME),
        ((-0.8, -1.5, -0.1), LOSS, LOSES),
    ],
)
def test_a_cell_has_the_sign_of_its_whole_interval(interval, unit, verdict):
    piece = Advice("x", "", "", "s", unit=unit)
    cell = flip_map.cell_of(piece, facts("s", *interval))
    assert cell.verdict == verdict and cell.has_interval


def test_the_gain_of_advice_whose_claim_leaves_it_out_is_turned_round():
    times = Advice("x", "", "", "s", is_opposite=True)
    assert flip_map.cell_of(times, facts("s", 2.0, 1.6, 2.5)).words == "loses 0.50 (0.40 to 0.62)"
    points = Advice("x", "", "", "s", unit=POINTS, is_opposite=True)
    assert flip_map.cell_of(points, facts("s", 2.0, 1.0, 3.0)).words == "loses -2.0 (-3.0 to -1.0)"


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ("1.11 times", "wins 1.11, no interval"),
        ("1.05 times", "not decided 1.05, no interval"),
        ("0.77 against 0.89 times", "loses 0.87, no interval"),
        ("0.30 s against 0.20 s", "wins 1.50, no interval"),
    ],
)
def test_an_old_number_has_a_sign_only_far_from_no_effect(value, words):
    assert flip_map.cell_of(WORKERS, facts("s", value=value)).words == words


def test_an_old_mean_of_a_few_seeds_has_no_sign():
    piece = Advice("x", "", "", "s", unit=POINTS)
    assert flip_map.cell_of(piece, facts("s", value="+1.1 points; per seed +2.2 +2.0 -1.0")).words == (
        "not decided +1.1, no interval"
    )


def test_a_count_is_shown_and_has_no_sign():
    piece = Advice("x", "", "", "s", unit=COUNT)
    assert flip_map.cell_of(piece, facts("s", value="36 against 1")) == flip_map.Cell(EXACT, "36 against 1")


def test_the_map_of_two_machines(two):
    found = flip_map.flip_map(folder=two, advice=ROWS)
    assert found.machines == ["B-CPU", "A-GPU"]
    assert found.flipping == ["workers"]
    assert found.row("workers").machines(WINS) == ["A-GPU"] and found.row("workers").machines(LOSES) == ["B-CPU"]
    assert [cell.text for cell in found.row("two GPUs").cells.values()] == [NOT_MEASURED, NOT_MEASURED]
    assert found.row("cyclic").cells["A-GPU"].verdict == NOT_MEASURED
    assert found.sentences() == "workers: wins on A-GPU (1.31), loses on B-CPU (0.80 (0.70 to 0.90)). cores"
    assert flip_map.flip_map({}, "A-GPU", two, ROWS).machines == ["A-GPU", "B-CPU"]


def test_the_checklist_says_where_each_item_wins_and_why(two):
    table = flip_map.flip_map(folder=two, advice=ROWS).checklist()
    assert table.lines[0] == ("workers", "faster", "A-GPU (1.31)", "B-CPU (0.80 (0.70 to 0.90))", "cores", "06/1")
    assert table.lines[2] == ("two GPUs", "faster", "–", "–", "needs two", "06/1")
    assert table._repr_html_().count("<tr>") == 4 and str(table).count("\n") == 3


def test_one_more_record_is_one_more_column_in_picture_and_page(two):
    record(two, "C-CPU", [facts("workers are faster", 1.0, 0.99, 1.01)])
    found = flip_map.flip_map(folder=two, advice=ROWS)
    assert found.machines == ["B-CPU", "C-CPU", "A-GPU"]
    page = documents.map_text(found)
    assert "| **workers** | faster | loses 0.80 (0.70 to 0.90) | no difference 1.00 (0.99 to 1.01) | wins 1.31" in page
    (axes,) = plots.flip_map(found).axes
    names = [label.get_text().replace("\n", " ") for label in axes.get_xticklabels()]
    assert names == ["B-CPU", "C-CPU", "A-GPU"]
    assert len(axes.patches) == 4  # a coloured cell per measured one


def test_the_picture_counts_what_flips_and_writes_each_cell(two):
    figure = plots.flip_map(flip_map.flip_map(folder=two, advice=ROWS))
    assert figure.get_suptitle() == "1 piece of advice wins on one machine and loses on another"
    texts = [text.get_text() for text in figure.axes[0].texts]
    assert {"0.80 (0.70 to 0.90)", "1.31", "-1.9 (-2.6 to -1.2)", NOT_MEASURED} <= set(texts)
    assert [text.get_text() for text in figure.axes[0].texts if text.get_weight() == "bold"] == ["workers"]


def test_only_what_this_kernel_claimed_is_called_here_and_its_record_fills_the_rest(two, monkeypatch, capsys):
    monkeypatch.setattr(claims, "_MADE", {})
    monkeypatch.setenv("COURSE_SCALE", "laptop")
    claims.claim("workers are faster", Interval(1.4, 1.3, 1.5), above=1.0)
    claims.claim("cosine is ahead", None, above=0)  # this machine cannot measure it
    assert "Holds here" in capsys.readouterr().out
    found = flip_map.flip_map(claims.claimed(), "B-CPU", two, ROWS)
    assert found.machines == ["B-CPU", "A-GPU"]
    assert found.row("workers").cells["B-CPU"].words == "wins 1.40 (1.30 to 1.50)"
    assert found.row("workers").places(WINS, "on ") == "here (1.40 (1.30 to 1.50)) and on A-GPU (1.31)"
    recorded = found.row("cyclic").cells["B-CPU"]  # from the record of this machine
    assert recorded.verdict == LOSES and not recorded.is_here
    assert found.row("cyclic").places(LOSES) == "B-CPU (-1.9 (-2.6 to -1.2))"
    framed = [patch for patch in plots.flip_map(found).axes[0].patches if patch.get_edgecolor()[3]]
    assert len(framed) == 1


def test_what_a_kernel_claimed_at_smoke_scale_is_not_entered(two):
    made = {"workers are faster": facts("workers are faster", 1.4, 1.3, 1.5) | {"scale": "smoke"}}
    found = flip_map.flip_map(made, "B-CPU", two, ROWS)
    assert found.row("workers").cells["B-CPU"].words == "loses 0.80 (0.70 to 0.90)"
    assert flip_map.flip_map(made, "C-CPU", two, ROWS).machines == ["B-CPU", "A-GPU"]  # has no record


def test_each_row_has_a_claim_that_its_part_makes():
    names = [piece.name for piece in ADVICE]
    assert len(set(names)) == len(names)
    for piece in ADVICE:
        if piece.claim:
            ((unit, part),) = find_parts(piece.part)
            assert piece.claim in _sentences(unit, part), f"{piece.part} has no claim {piece.claim!r}"


def _sentences(unit, part):
    """All strings in the code of a part, as Python joins them."""
    found = []
    for cell in read_cells(solutions_folder() / unit / f"{part}.py"):
        if cell.kind == "code":
            found += evidence._strings(cell)
    return found
