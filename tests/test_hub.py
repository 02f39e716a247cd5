"""A class on a real JupyterHub, from release to feedback, with Formgrader in a real browser; tests/hub.py does it."""

import importlib.util

import browser
import hub
import pytest
from walks import assert_all_steps


@pytest.mark.skipif(not browser.chromium(), reason="no Chromium on this machine: apt install chromium")
@pytest.mark.skipif(not importlib.util.find_spec("playwright"), reason="playwright is not installed")
def test_a_class_works_on_a_hub_from_release_to_feedback(tmp_path):
    if reason := hub.missing():
        pytest.skip(reason)
    assert_all_steps(hub.call, tmp_path, (step.__name__ for step in hub.STEPS))
