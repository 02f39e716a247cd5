"""A learner in a real browser: wrong answer, diagnosis, progress, restart, the next part, nbgrader's Validate.

tests/browser.py does it.
"""

import browser
from walks import assert_all_steps

STEPS = (
    "a wrong answer is diagnosed",
    "the right one is correct",
    "progress shows it",
    "a new kernel takes the kept answer",
    "part 2 takes the answer over",
    "Validate says failed",
    "Validate says success",
    "figures.pipeline follows its slider",
    "figures.padding follows its slider",
    "figures.step_timeline follows its slider",
    "figures.rate_map follows its slider",
)


def test_a_learner_solves_restarts_goes_on_and_validates_in_a_real_browser(tmp_path):
    assert_all_steps(browser, tmp_path, STEPS)
