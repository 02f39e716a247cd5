"""What README says about parts and commands is what the masters and the commands say."""

import re

import pytest
from conftest import ROOT

from course import cli, units
from course.publish import execute

README = (ROOT / "README.md").read_text()


@pytest.mark.parametrize("unit", units.units())
def test_the_table_of_parts_has_every_part_with_its_question_and_minutes(unit):
    whole = units.load_unit(unit)
    rows = [f"| **{unit[:2]} {whole.title}** | | **{whole.core_minutes}** | **{whole.all_minutes}** |"]
    for part in whole.parts:
        link = f"[{part.number} {part.title}](notebooks/{unit}/{part.name}.ipynb)"
        rows.append(f"| {link} | {part.question} | {part.core_minutes or '–'} | {part.all_minutes} |")
    for row in rows:
        assert row in README, f"README's table of parts should have: {row}"


def test_the_table_of_commands_has_every_verb():
    named = set(re.findall(r"`course ([a-z]+)", README.split("## The command")[1].split("\n## ")[0]))
    assert named == set(cli.verbs.list_commands(None))


def test_its_figure_is_that_of_the_executed_notebook():
    assert execute.README_FIGURE.read_bytes() == execute.readme_figure(), "course build --execute 03/3 renews it"


def test_its_example_of_progress_counts_the_exercises_and_points_of_today():
    of, points = map(int, re.search(r"03 Large batches +2 +3 +(\d+) +\d+/(\d+)", README).groups())
    exercises = units.load_unit("03_large_batch").exercises
    assert (of, points) == (len(exercises), sum(exercise.points for exercise in exercises))
