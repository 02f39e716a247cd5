"""A class on a real JupyterHub, from release to feedback, with Formgrader in a real browser; tests/hub.py does it."""

import hub
from walks import assert_all_steps


def test_a_class_works_on_a_hub_from_release_to_feedback(tmp_path):
    assert_all_steps(hub, tmp_path, (step.__name__ for step in hub.STEPS))
