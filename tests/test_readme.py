"""README, the list of parts and the page of commands say what the masters, the checks and the commands say."""

import re

import torch
from conftest import ROOT

from course import cli
from course.checks import batch_grouping
from course.publish import build

README = (ROOT / "README.md").read_text()


def test_the_list_of_parts_is_current():
    assert (ROOT / "notebooks/README.md").read_text() == build.contents(), "course build renews it"


def test_the_table_of_commands_has_every_verb():
    named = set(re.findall(r"`course ([a-z]+)", (ROOT / "docs/commands.md").read_text().split("\n## ")[0]))
    assert named == set(cli.verbs.list_commands(None))


def test_it_is_short_and_has_a_row_per_unit():
    assert len(README.split()) <= 800
    assert re.findall(r"^\| (\d\d .*?) \|", README, re.M) == [f"{u.name[:2]} {u.title}" for u in build.all_units()]


def test_the_failing_check_that_it_shows_is_what_the_check_says():
    pad_batch = batch_grouping.pad_batch
    (inverted,) = [known for known in pad_batch.mistakes() if "The mask is inverted" in known.advice]
    report = pad_batch.judge(inverted.answer, device=torch.device("cpu"), fold=True).report
    shown = re.search(r"```\n( NO .*?)```", README, re.S)[1]
    assert shown in "\n".join([*report, ""])
