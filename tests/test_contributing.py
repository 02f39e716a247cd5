"""The exercise that CONTRIBUTING.md shows is one: its probe tells its right answers from its mistakes."""

import re

import pytest
import torch
from conftest import ROOT

from course.checks.engine import exercise
from course.checks.limits import Limits
from course.checks.run import run_probe

pytestmark = pytest.mark.check
BLOCKS = re.findall(r"^   ```python\n(.*?)^   ```", (ROOT / "CONTRIBUTING.md").read_text(), re.S | re.M)
CELL, PROBE, ANSWERS = [re.sub("^   ", "", block, flags=re.M) for block in BLOCKS]


def defined(code, name=None):
    """The names that `code` defines, or what it calls `name`."""
    names = {"torch": torch, "exercise": lambda: exercise("03_large_batch")}
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
