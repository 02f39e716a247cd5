"""The rules of evidence: each refuses a planted offence, and the build holds every part to them."""

import inspect
import re

import pytest
from conftest import ROOT
from small_master import GOOD, MEASURES, faults_of

from course.notebook.cells import script_cells
from course.notebook.registry import load_unit, units
from instructor.authoring import evidence, prose

MASTER = GOOD + MEASURES
TAKEAWAY = "# **Takeaway** It is fast."
EXPERIMENT = 'print(f"{11 / 4} times")'
FOUR = "predicted_speed, predicted_a, predicted_b, predicted_c = None, None, None, None"


@pytest.mark.parametrize(
    "old, new, words",
    [
        ("", "", ""),
        (TAKEAWAY, f"{TAKEAWAY} 2.75 times.", '"Is it fast?" says 2.75, which a cell measures'),
        (TAKEAWAY, f"{TAKEAWAY} `2.75` times.", ""),  # code is not prose
        (TAKEAWAY, f"{TAKEAWAY} 2.76 times.", ""),  # printed by nothing
        (EXPERIMENT, f"{EXPERIMENT}\n2.75\n# %% [markdown]\n# It is 2.75.\n\n# %%", ""),  # given by code
        (TAKEAWAY, f"{TAKEAWAY} Torch 2.75, not torch 2.75, is a number.", '"Is it fast?" says 2.75'),
        (TAKEAWAY, f"{TAKEAWAY} It hangs in torch 2.75.", ""),  # a version
        (TAKEAWAY, f"{TAKEAWAY} At 64 %.", '"Is it fast?" says 64, which a cell measures'),
        (TAKEAWAY, f"{TAKEAWAY} Of 64 batches.", ""),  # may be an exact count
        (", predicted_speed, 11 / 4", "", "predicted_speed is never scored"),
        ("course.score(", "score(", "predicted_speed is never scored"),
        ("predicted_speed = None", FOUR, "it asks for 4 predictions, more than 3"),
        (EXPERIMENT, EXPERIMENT + "\n# a comment\n\n1" * 18, ""),
        (EXPERIMENT, EXPERIMENT + "\n1" * 19, '"Is it fast?" has an experiment of 21 statements, more than 20'),
        (TAKEAWAY, f"# Run\n# the cell again.\n#\n{TAKEAWAY}", 'it says "Run the cell again"'),
        (TAKEAWAY, f"# Change it, then run the section.\n#\n{TAKEAWAY}", ""),
        (EXPERIMENT, "print('Busy? Run '\n      'it again.')", 'it says "Run it again"'),
        (EXPERIMENT, "course.claim('it is fast', ratio, above=1)", ""),
        (EXPERIMENT, "course.claim(f'it is {11} fast', ratio, above=1)", "is not a constant string"),
        (EXPERIMENT, "course.claim(sentence, ratio, above=1)", "the sentence of course.claim(sentence...)"),
        (EXPERIMENT, "course.claim('it is fast', ratio > 1)", "compares with < or >: pass an Interval"),
        (EXPERIMENT, "course.claim('it is equal', a == b)", ""),
        ("**We think** that", "That", "it gives no reason marked **Shown**, **Known** or **We think**"),
        ("**We think** that", "**Shown**: that", ""),
        (EXPERIMENT, f"plots.curves(1)\n{EXPERIMENT}", "plots.curves(1)... draws a figure that nobody sees"),
        (EXPERIMENT, f"figure = plots.curves(1)\n{EXPERIMENT}", ""),
    ],
)
def test_each_rule_refuses_its_offence(old, new, words, tmp_path, monkeypatch):
    monkeypatch.setenv("COURSE_SOLUTIONS", str(tmp_path))
    assert old in MASTER
    said = faults_of(MASTER.replace(old, new, 1), tmp_path)
    assert words in said if words else said == ""


def test_the_sizes_of_the_experiments_may_stand_in_the_text():
    cells = script_cells(f"{MASTER}\n# %% [markdown]\n# With a learning rate of 0.035, it holds.")
    runs = {"": prose.Run("at 0.035")}
    assert [*evidence.static_numbers("03_large_batch", cells, runs)] == []
    assert len([*evidence.static_numbers("00_a", cells, runs)]) == 1


def test_a_section_of_a_source_may_have_the_number_that_a_cell_prints():
    cells = script_cells(f"{MASTER}\n# %% [markdown]\n# ## References\n#\n# 1. A. Author, A Paper, 2015, section 3.2.")
    assert [*evidence.static_numbers("00_a", cells, {"": prose.Run("at 3.2")})] == []


def test_the_style_guide_names_each_rule_that_a_program_checks():
    listed = (ROOT / "docs/style.md").read_text().split("\n## What a program checks\n")[1]
    assert {*re.findall(r"\| `(\w+)` \|", listed)} == rules(prose) | rules(evidence)
    for limit in (prose.MUST_CONDITIONS_MAX, prose.TAKEAWAY_WORDS_MAX, evidence.PREDICTIONS_MAX):
        assert str(limit) in listed


def rules(module):
    """The names of the functions of a module that give faults, other than those that call these."""
    functions = dict(inspect.getmembers(module, inspect.isfunction)).items()
    own = {name: function for name, function in functions if function.__module__ == module.__name__}
    found = {name for name, function in own.items() if "Iterator" in str(inspect.signature(function))}
    return {name for name in found if not name.startswith(("_", "lint_"))}


def test_the_page_of_the_workshop_names_the_units_with_two_sessions():
    """Its table of minutes is that of the masters."""
    page = (ROOT / "docs/workshop.md").read_text()
    rows = []
    for unit in units():
        minutes = load_unit(unit).session_minutes
        rows.append(f"| {unit[:2]} | {minutes[1]} | {minutes.get(2, '–')} |")
    assert "\n".join(rows) in page, "\n".join(rows)
