"""What lies in an inbox: INBOX/<learner>/<unit>/<part>.ipynb -> Submissions, and a sentence about
all that is left out.

No notebook is opened here and no link is followed.  `received.csv` in the inbox says when a
submission was received (columns learner, unit, received; ISO 8601), else the time of the folder
that it lies in: nothing that a learner hands in decides about it.
"""

import csv
import os
import re
import unicodedata
from datetime import UTC, datetime
from pathlib import Path

from course.errors import CourseError
from course.notebook.registry import parts, units
from instructor.grading.results import Submission
from instructor.grading.sanitize import safe_text

PLAIN = re.compile(r"\w([\w .+@,-]*\w)?")  # of a learner's name
LONGEST = 128
NAMED = 3  # unknown files that a line names; of the others it says how many
# the last by nbgrader's submit
EXPECTED = re.compile(r"\..*|__pycache__|(timestamp|submission_secret)\.txt")


def read_inbox(folder: Path, wanted: dict[str, list[str]]) -> tuple[list[Submission], list[str]]:
    """([Submission, ...], [a sentence about each thing left out, ...]) of what lies in the inbox
    `folder`, by learner.

    Args:
        wanted: {unit: its parts that count}.

    A learner is a folder in it; a part lies in <learner>/<unit>/<part>.ipynb, or in
    <learner>/<part>.ipynb where no other unit has a part of that name.

    Raises: CourseError if there is no such folder, or no submission of the units `wanted` in it.
    """
    folder = Path(folder)
    if not folder.is_dir():
        raise CourseError(
            f"{folder} is no folder; name the inbox, a folder with one folder per learner."
        )
    times, submissions, left_out = _times(folder / "received.csv"), [], []
    for learner in sorted(entry.name for entry in os.scandir(folder) if entry.is_dir()):
        try:
            check_learner(learner)
        except CourseError as error:
            left_out.append(str(error))
            continue
        if (folder / learner).is_symlink():
            left_out.append(f"{learner}: a link to a folder, which is not followed.")
            continue
        try:
            here, said = _of_learner(folder / learner, wanted, times)
        except OSError as error:  # closed to whoever grades
            here, said = [], [f"its folder cannot be read ({error.strerror})."]
        submissions += here
        left_out += [safe_text(f"{learner}: {sentence}") for sentence in said]
        if not here and not said:
            left_out.append(f"{learner}: no notebook of {', '.join(wanted)} in this folder.")
    if not submissions:
        more = "".join(f"\n  left out: {sentence}" for sentence in left_out)
        raise CourseError(
            f"looked in {folder} for <learner>/<unit>/<part>.ipynb of {', '.join(wanted)}, found none.{more}"
        )
    return submissions, left_out


def check_learner(learner: str) -> None:
    """Raise CourseError if a folder's name may not be a learner's: nbgrader's pages show it as it
    is, markup too.
    """
    if (
        not PLAIN.fullmatch(unicodedata.normalize("NFC", learner)) or len(learner) > LONGEST
    ):  # macOS writes é as e + ´
        raise CourseError(
            f"the learner's folder {ascii(learner)[:200]} is left out: a name has at most {LONGEST} letters, digits, "
            "spaces and . _ - + @ , and starts and ends with a letter or digit. Rename it."
        )


def _of_learner(folder, wanted, times):
    """([Submission, ...], [a sentence about what is left out, ...]) of one learner's folder."""
    files, said = [], []
    for unit, counted in wanted.items():
        place, names = folder / unit, {f"{part}.ipynb" for part in counted}
        if place.is_dir() and not place.is_symlink():
            if unknown := _unknown({path.name for path in place.iterdir()} - names):
                said.append(f"{unit}: ignored {unknown}; its parts are {', '.join(counted)}.")
        else:
            # such a name tells no unit
            others = {part for other in units() if other != unit for part in parts(other)}
            place, names = folder, {f"{part}.ipynb" for part in counted if part not in others}
            if not names & {path.name for path in place.iterdir()}:
                continue
        received = times.get((folder.name, unit)) or _time_of(place)
        if not received:
            said.append(f"{unit}: its folder has no time that there is; it counts as received now.")
            received = datetime.now(UTC)
        files.append(
            Submission(
                folder.name, unit, {part: place / f"{part}.ipynb" for part in counted}, received
            )
        )
    return files, said


def _time_of(place):
    """When the folder `place` was last changed, in UTC; None if that is a year which no date
    has.
    """
    try:
        return datetime.fromtimestamp(place.stat().st_mtime, UTC)
    except (ValueError, OverflowError):
        return None


def _unknown(names):
    """The unknown files among `names`, a few of them by name; "" if there are none."""
    unknown = sorted(name for name in names if not EXPECTED.fullmatch(name))
    named = ", ".join(ascii(name)[1:-1][:60] for name in unknown[:NAMED])
    return named + (f" and {len(unknown) - NAMED} more" if len(unknown) > NAMED else "")


def _times(path):
    """{(learner, unit): datetime in UTC} of a table that whoever collected submissions made; {} if
    there is none.
    """
    if not path.exists() or path.is_dir():  # a learner's folder may be called so
        return {}
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            table = csv.DictReader(file)
            if not {"learner", "unit", "received"} <= {*(table.fieldnames or ())}:
                raise ValueError(f"columns {table.fieldnames}")
            rows = [
                (row["learner"], row["unit"], datetime.fromisoformat(row["received"]))
                for row in table
            ]
    except (OSError, TypeError, ValueError, csv.Error) as error:
        raise CourseError(
            f"{path} should be a CSV table with the columns learner, unit, received (2026-11-21T18:00+01:00); found "
            f"what is not ({type(error).__name__}: {error})."
        ) from None
    return {(learner, unit): time.astimezone(UTC) for learner, unit, time in rows}
