"""What nbgrader needs next to a graded submission: the secret for feedback,
and the time, by which formgrader sees that the submission is graded.

`nbgrader submit` leaves a secret in each submission, and `nbgrader release_feedback` names the
pages after it, so that only the learner who handed in can fetch them. It looks for the secret next
to the autograded notebook, where `nbgrader autograde` puts it. `course grade` rebuilds that folder,
so it copies the secret too.
"""

import contextlib
import os
import secrets
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path

from course.errors import CourseError
from course.system.files import atomic_write
from instructor.grading.folders import course_folders
from instructor.grading.limits import EXCHANGE_SECRET_BYTES
from instructor.grading.rebuild import Unreadable, read_submission
from instructor.grading.results import Submission

FILE = "submission_secret.txt"
TIME_FILE = "timestamp.txt"


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


def write_times(submissions: Iterable[Submission], root: Path) -> None:
    """Write the time of each submission that lies in the course's own submitted/.

    Without it formgrader says "needs autograding" of what is graded, and offers to run it outside
    the sandbox. The folder keeps its time. Of another inbox formgrader sees nothing, so nothing is
    written there.
    """
    _, directory = course_folders(root)
    for submission in submissions:
        of_course = directory.format_path(
            directory.submitted_directory, submission.learner, submission.unit
        )
        folder = Path(of_course)
        handed_in = next(iter(submission.files.values())).parent
        if not folder.is_dir() or not os.path.samefile(folder, handed_in):
            continue
        status = folder.stat()
        with contextlib.suppress(CourseError), atomic_write(folder / TIME_FILE) as file:
            file.write(time_text(submission.received).encode())
        os.utime(folder, ns=(status.st_atime_ns, status.st_mtime_ns))


def time_text(received: datetime) -> str:
    """A time as nbgrader writes it into timestamp.txt."""
    return f"{received.astimezone(UTC):%Y-%m-%d %H:%M:%S.%f %Z}"


def _secret(path: Path) -> bytes:
    """The bytes of a submission's secret; b"" if there is none that nbgrader could have written."""
    try:
        content = read_submission(path)
    except Unreadable:
        return b""
    is_plain = content.isascii() and content.isalnum()
    return content if is_plain and len(content) <= EXCHANGE_SECRET_BYTES else b""
