"""What lies in an inbox: INBOX/<learner>/<unit>/<part>.ipynb -> Submissions, and a sentence about
all that is left out, or read under another name.

No notebook is opened here and no link is followed.  `received.csv` in the inbox says when a
submission was received (columns learner, unit, received; ISO 8601), else the time of the folder
that it lies in: nothing that a learner hands in decides about it.
"""

import csv
import re
import unicodedata
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

from course.errors import CourseError
from course.notebook.registry import parts, units
from instructor.grading.limits import LEARNER_NAME_CHARACTERS, UNKNOWN_FILES_NAMED
from instructor.grading.own_modules import names_among
from instructor.grading.results import Submission
from instructor.grading.sanitize import safe_text

PLAIN = re.compile(r"\w([\w .+@,-]*\w)?")  # of a learner's name
# what a browser, a file manager, Jupyter or `course update` makes of a part's name
RENAMED = r"[ _-]*(?:\(\d+\)|\(old\)|\(copy\)|copy ?\d*|\d+)"
# the last by nbgrader's submit
EXPECTED = re.compile(r"\..*|__pycache__|(timestamp|submission_secret)\.txt")

TABLE = "received.csv"

Times = Mapping[tuple[str, str], datetime]  # (learner, unit) -> when it was received, in UTC


class Inbox(NamedTuple):
    """What lies in an inbox, or in one learner's folder."""

    submissions: list[Submission]
    left_out: list[str]  # a sentence about each thing that is not read


def read_inbox(folder: Path, wanted: dict[str, list[str]]) -> Inbox:
    """What lies in the inbox `folder`, by learner.

    Args:
        wanted: {unit: its parts that count}.

    A learner is a folder in it; a part lies in <learner>/<unit>/<part>.ipynb, or in
    <learner>/<part>.ipynb where no other unit has a part of that name. One whose name was changed
    as programs do, "<part> (1).ipynb", counts where there is none of the name itself.

    Raises: CourseError if there is no such folder, or no submission of the units `wanted` in it.
    """
    folder = Path(folder)
    if not folder.is_dir():
        raise CourseError(
            f"{folder} is no folder; name the inbox, a folder with one folder per learner."
        )
    times = _times(folder / TABLE)
    submissions = []
    left_out = []
    for path in sorted(folder.iterdir()):
        if path.is_dir():
            here = _of_folder(path, wanted, times)
            submissions += here.submissions
            left_out += here.left_out
        elif path.name != TABLE and not EXPECTED.fullmatch(path.name):
            left_out.append(safe_text(f"{path.name}: a file beside the folders of learners."))
    left_out += _rows_of_nobody(times, wanted, submissions)
    if not submissions:
        more = "".join(f"\n  left out: {sentence}" for sentence in left_out)
        raise CourseError(
            f"looked in {folder} for <learner>/<unit>/<part>.ipynb of {', '.join(wanted)}, found "
            f"none.{more}"
        )
    return Inbox(submissions, left_out)


def check_learner(learner: str) -> None:
    """Raise CourseError if a folder's name may not be a learner's.

    nbgrader's pages show it as it is, markup too.
    """
    composed = unicodedata.normalize("NFC", learner)  # macOS writes é as e + ´
    if not PLAIN.fullmatch(composed) or len(learner) > LEARNER_NAME_CHARACTERS:
        raise CourseError(
            f"the learner's folder {ascii(learner)[:200]} is left out: a name has at most "
            f"{LEARNER_NAME_CHARACTERS} letters, digits, spaces and . _ - + @ , and starts and "
            "ends with a letter or digit. Rename it."
        )


def _of_folder(folder: Path, wanted: dict[str, list[str]], times: Times) -> Inbox:
    """What a folder in the inbox holds; each sentence about it names it."""
    learner = folder.name
    try:
        check_learner(learner)
    except CourseError as error:
        return Inbox([], [str(error)])
    if folder.is_symlink():
        return Inbox([], [f"{learner}: a link to a folder, which is not followed."])
    try:
        here = _of_learner(folder, wanted, times)
    except OSError as error:  # the grader may not read it
        here = Inbox([], [f"its folder cannot be read ({error.strerror})."])
    if not here.submissions and not here.left_out:
        return Inbox([], [f"{learner}: no notebook of {', '.join(wanted)} in this folder."])
    left_out = [safe_text(f"{learner}: {sentence}") for sentence in here.left_out]
    return Inbox(here.submissions, left_out)


def _of_learner(folder: Path, wanted: dict[str, list[str]], times: Times) -> Inbox:
    """What a learner's folder holds."""
    submissions = []
    left_out = []
    own: set[str] = set()  # Python files next to notebooks, see own_modules.py
    loose = _names_in(folder)
    for unit, counted in wanted.items():
        place = folder / unit
        if place.is_symlink():
            left_out.append(f"{unit}: a link to a folder, which is not followed.")
        has_folder = place.is_dir() and not place.is_symlink()
        holder = place if has_folder else folder
        inside = _names_in(place) if has_folder else set()
        found = _Found(unit, [(place, inside), (folder, loose & _loose_names(unit, loose))])
        files = {part: found.file_of(part) or holder / f"{part}.ipynb" for part in counted}
        left_out += found.sentences
        if unknown := unknown_among(inside - found.taken - {*names_among(inside)}):
            left_out.append(f"{unit}: ignored {unknown}; its parts are {', '.join(counted)}.")
        if not has_folder and not found.taken:
            continue
        loose -= found.taken
        own.update(names_among(inside if has_folder else loose))
        received = times.get((folder.name, unit))
        is_told = received is not None
        received = received or _time_of(holder)
        if not received:
            left_out.append(
                f"{unit}: its folder has no time that there is; it counts as received now."
            )
            received = datetime.now(UTC)
        submissions.append(Submission(folder.name, unit, files, received, is_told))
    for unit in set(units()) - {*wanted}:
        loose -= _loose_names(unit, loose)
    handed_in = {name for name in loose - own if name.endswith((".ipynb", ".zip", ".py"))}
    if unknown := unknown_among(handed_in):
        left_out.append(f"ignored {unknown}, outside the folder of a unit.")
    return Inbox(submissions, left_out)


class _Found:
    """Finds the notebooks of one unit among what a learner handed in.

    Args:
        places: (folder, names of files in it), the first one first.
    """

    def __init__(self, unit: str, places: list[tuple[Path, set[str]]]) -> None:
        self.unit = unit
        self.places = places
        self.taken: set[str] = set()  # names of files that are parts, or other versions of them
        self.sentences: list[str] = []

    def file_of(self, part: str) -> Path | None:
        """The notebook of `part`: of its own name, else the only or latest one renamed."""
        own = []
        renamed = []
        pattern = re.compile(re.escape(part) + RENAMED + r"\.ipynb", re.I)
        for folder, names in self.places:
            if f"{part}.ipynb" in names:
                own.append(folder / f"{part}.ipynb")
            copies = [name for name in names if pattern.fullmatch(name)]
            copies.sort(key=lambda name: _number_in(name[len(part) :]))
            renamed += [folder / name for name in copies]
        found = own + renamed[::-1]
        self.taken.update(path.name for path in found)
        if len(found) > 1:
            first, *others = map(self._shown, found)
            self.sentences.append(f"{first} counts for {part}, not {', '.join(others)}.")
        elif renamed:
            self.sentences.append(f"{self._shown(found[0])} is read as {part}.")
        return found[0] if found else None

    def _shown(self, path: Path) -> str:
        """The path in the learner's folder."""
        return path.relative_to(self.places[-1][0]).as_posix()


def _number_in(ending: str) -> int:
    """What sorts copies of a notebook by age: the number that its name ends in."""
    number = re.search(r"\d+", ending)
    return int(number[0]) if number else 0


def _names_in(folder: Path) -> set[str]:
    """The names in a folder."""
    return {path.name for path in folder.iterdir()}


def _loose_names(unit: str, names: set[str]) -> set[str]:
    """Those of `names` that tell the unit, because no other unit has such a part."""
    others: set[str] = set()
    for other in units():
        if other != unit:
            others.update(parts(other))
    mine = [part for part in parts(unit) if part not in others]
    pattern = re.compile(
        "(?:" + "|".join(map(re.escape, mine)) + f")(?:{RENAMED})?" + r"\.ipynb", re.I
    )
    return {name for name in names if mine and pattern.fullmatch(name)}


def _rows_of_nobody(
    times: Times, wanted: Mapping[str, list[str]], submissions: Iterable[Submission]
) -> list[str]:
    """A sentence about each row of the table of times that tells of nothing in the inbox."""
    known = {(submission.learner, submission.unit) for submission in submissions}
    sentences = []
    for learner, unit in times:
        is_of_another_batch = unit in units() and unit not in wanted
        if (learner, unit) not in known and not is_of_another_batch:
            who = safe_text(f"{learner}, {unit}")
            sentences.append(f"{TABLE}: the row of {who} tells of no submission in this inbox.")
    return sentences


def _time_of(place: Path) -> datetime | None:
    """When the folder `place` was last changed, in UTC; None if no date has that year."""
    try:
        return datetime.fromtimestamp(place.stat().st_mtime, UTC)
    except (ValueError, OverflowError):
        return None


def unknown_among(names: Iterable[str]) -> str:
    """The unknown files among `names`, a few of them by name; "" if there are none."""
    unknown = sorted(name for name in names if not EXPECTED.fullmatch(name))
    named = ", ".join(ascii(name)[1:-1][:60] for name in unknown[:UNKNOWN_FILES_NAMED])
    more = len(unknown) - UNKNOWN_FILES_NAMED
    return f"{named} and {more} more" if more > 0 else named


def _times(path: Path) -> Times:
    """The times in a table made by the person who collected submissions; none without a table."""
    if not path.exists() or path.is_dir():  # a learner's folder may be called so
        return {}
    times = {}
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            table = csv.DictReader(file)
            if not {"learner", "unit", "received"} <= {*(table.fieldnames or ())}:
                raise ValueError(f"columns {table.fieldnames}")
            for row in table:
                received = datetime.fromisoformat(row["received"])
                times[row["learner"], row["unit"]] = received.astimezone(UTC)
    except (OSError, TypeError, ValueError, csv.Error) as error:
        raise CourseError(
            f"{path} should be a CSV table with the columns learner, unit, received "
            f"(2026-11-21T18:00+01:00); found what is not ({type(error).__name__}: {error})."
        ) from None
    return times
