"""An instructor's path from the class's folder to the feedback, as docs/workshop.md says (tests/workshop.py)."""

import workshop
from walks import assert_all_steps


def test_the_path_of_the_document_leads_from_the_classs_folder_to_the_feedback(tmp_path):
    assert_all_steps(workshop, tmp_path, (step.__name__ for step in workshop.STEPS))
