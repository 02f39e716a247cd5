"""What nbgrader's exchange needs of a graded submission: the secret with which a learner fetches
feedback.

`nbgrader submit` leaves a secret in each submission, and `nbgrader release_feedback` names the
pages after it, so that only the learner who handed in can fetch them. It looks for the secret next
to the autograded notebook, where `nbgrader autograde` puts it. `course grade` rebuilds that folder,
so it copies the secret too.
"""

import secrets
from collections.abc import Iterable
from pathlib import Path

from course.system.files import atomic_write
from instructor.grading.folders import course_folders
from instructor.grading.limits import EXCHANGE_SECRET_BYTES
from instructor.grading.rebuild import Unreadable, read_submission
from instructor.grading.results import Submission

FILE = "submission_secret.txt"


def hand_on_secrets(submissions: Iterable[Submission], root: Path) -> None:
    """Write the secret of each graded submission to autograded/<learner>/<unit>/ below `root`.

    A submission that did not come through the exchange gets one that nobody knows: nbgrader stops
    at the first learner without one.
    """
    _, directory = course_folders(root)
    for submission in submissions:
        folder = Path(
            directory.format_path(
                directory.autograded_directory, submission.learner, submission.unit
            )
        )
        if not folder.is_dir():
            continue
        handed_in = next(iter(submission.files.values())).parent
        secret = _secret(handed_in / FILE)
        if secret or not (folder / FILE).is_file():
            with atomic_write(folder / FILE) as file:
                file.write(secret or secrets.token_hex(64).encode())


def _secret(path: Path) -> bytes:
    """The bytes of a submission's secret; b"" if there is none that nbgrader could have written."""
    try:
        content = read_submission(path)
    except Unreadable:
        return b""
    is_plain = content.isascii() and content.isalnum()
    return content if is_plain and len(content) <= EXCHANGE_SECRET_BYTES else b""
