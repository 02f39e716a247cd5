"""A learner in a real browser: wrong answer, diagnosis, progress, restart, the next part, nbgrader's Validate.

tests/browser.py does it.
"""

import importlib.util
import sys

import browser
import pytest
from walks import ROOT, assert_all_steps

STEPS = (
    "a wrong answer is diagnosed",
    "the right one is correct",
    "progress shows it",
    "a new kernel takes the kept answer",
    "part 2 takes the answer over",
    "Validate says failed",
    "Validate says success",
)


@pytest.mark.skipif(not browser.chromium(), reason="no Chromium on this machine: apt install chromium")
@pytest.mark.skipif(not importlib.util.find_spec("playwright"), reason="playwright is not installed")
def test_a_learner_solves_restarts_goes_on_and_validates_in_a_real_browser(tmp_path):
    def call(folder):
        return [sys.executable, str(ROOT / "tests" / "browser.py"), str(folder)]

    assert_all_steps(call, tmp_path, STEPS)
