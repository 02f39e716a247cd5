"""README, CONTRIBUTING and the pages of commands and parts say what the masters, the checks and the commands say."""

import re
import subprocess

import pytest
import torch
import yaml
from conftest import ROOT

from course import cli
from course.checks import batch_grouping, large_batch
from course.engine.limits import Limits
from course.engine.run import run_probe
from course.notebook.registry import all_units
from instructor.authoring import build
from instructor.release.class_folder import given_files

README = (ROOT / "README.md").read_text()


def test_the_list_of_parts_is_current():
    assert (ROOT / "notebooks/README.md").read_text() == build.contents(), "course build renews it"


def test_the_table_of_commands_has_every_verb():
    named = set(re.findall(r"`course ([a-z][a-z-]*)", (ROOT / "docs/commands.md").read_text().split("\n## ")[0]))
    assert named == set(cli.verbs.list_commands(None))


def test_readme_starts_with_commands_that_the_makefile_has():
    """Two commands do all on a fresh machine: one shows the whole, one passes the tests."""
    targets = {"install": "a file's target"}
    for makefile in (ROOT / "Makefile", ROOT / "learners/Makefile"):
        targets |= dict(re.findall(r"^([a-z-]+):.*?  ## (.*)$", makefile.read_text(), re.M))
    start = re.search(r"^## Start\n(.*?)^## ", README, re.M | re.S)[1]
    shown = re.findall(r"^make (\w+)", start, re.M)
    assert shown == ["doctor", "lab", "demo", "test"]
    assert {*re.findall(r"`(?:\w+=\w+ )?make ([a-z-]+)", README)} <= targets.keys()
    assert "grade a solved and an untouched submission" in targets["demo"] and "CI runs" in targets["test"]


def test_it_has_a_row_per_unit():
    assert re.findall(r"^\| (\d\d .*?) \|", README, re.M) == [f"{u.name[:2]} {u.title}" for u in all_units()]


def test_the_failing_check_that_it_shows_is_what_the_check_says():
    pad_batch = batch_grouping.pad_batch
    (inverted,) = [known for known in pad_batch.mistakes() if "The mask is inverted" in known.advice]
    report = pad_batch.judge(inverted.answer, device=torch.device("cpu"), hide_fix=True).report
    shown = re.search(r"```\n( NO .*?)```", README, re.S)[1]
    assert shown in "\n".join([*report, ""])


pytestmark = pytest.mark.check
BLOCKS = re.findall(r"^   ```python\n(.*?)^   ```", (ROOT / "CONTRIBUTING.md").read_text(), re.S | re.M)
CELL, PROBE, ANSWERS = [re.sub("^   ", "", block, flags=re.M) for block in BLOCKS]


def defined(code, name=None):
    """The names that `code` defines, or what it calls `name`."""
    names = {"torch": torch, "__name__": f"{large_batch.__name__}.clipped_norm"}
    exec(code, names)
    return names[name] if name else names


def facts(answer):
    return run_probe(defined(PROBE, "clipped_norm").probe, answer, torch.device("cpu"), 3, Limits())


def test_right_answers_have_the_facts_of_the_reference_and_mistakes_do_not():
    cell = CELL[CELL.index("def ") :]
    expected, answers = facts(defined(cell, "clipped_norm")), defined(ANSWERS)
    assert expected.raised is None and len(answers["MISTAKES"]) >= 3
    for name in ("clip_the_flat_vector", "root_of_squares"):
        assert facts(answers[name]).same(expected), name
    for name, (_, *edits) in answers["MISTAKES"].items():
        changed = cell
        for old, new in edits:
            assert changed.count(old) == 1, name
            changed = changed.replace(old, new)
        assert not facts(defined(changed, "clipped_norm")).same(expected), name


def test_the_workflow_for_a_class_runs_commands_that_there_are():
    """What a class's repository runs on every push."""
    steps = yaml.safe_load((ROOT / "learners/.github/workflows/check.yml").read_text())["jobs"]["check"]["steps"]
    commands = "\n".join(step.get("run", "") for step in steps)
    assert "make install" in commands and ".venv/bin/course check" in commands
    assert subprocess.run(["bash", "-n"], input=commands, text=True).returncode == 0
    assert {".github/workflows/check.yml", "AGENTS.md", "README.md", "Makefile"} <= given_files().keys()
