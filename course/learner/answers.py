"""Keep what a learner has solved for other notebooks: a file per exercise, next to the data.

    <data folder>/answers/<user>/<unit>/<exercise>.json

COURSE_ANSWERS names another folder than <data folder>/answers/<user>; `off` keeps nothing. A file
holds the script of the latest answer that passed (carry.py collects it) and how often it was tried.
Predictions lie next to the answers (kept_predictions.py). Nothing here runs an answer or imports
torch; solved.py does.
"""

import contextlib
import dataclasses
import getpass
import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from course.errors import CourseError
from course.learner.carry import shell_of_kernel
from course.system.files import write_text
from course.system.folders import data_folder

try:
    import fcntl
except ImportError:  # on Windows two kernels that write one file in the same instant count one try
    fcntl = None

recording = False  # `course check` sets it; an interactive session needs none


@dataclass
class Kept:
    """What is known of a learner's work on one exercise."""

    unit: str
    exercise: str
    tries: int = 0
    # when `script` passed, ISO 8601 with its offset; None if no answer has
    passed: str | None = None
    script: str | None = None  # None too if the answer could not be carried
    name: str | None = None  # of the answer in the script
    mistake: str | None = None  # the known mistake of the latest try


def folder() -> Path | None:
    """The Path of the folder of this learner's answers, or None if nothing is to be kept."""
    wanted = os.environ.get("COURSE_ANSWERS")
    if wanted == "off":
        return None
    return Path(wanted) if wanted else data_folder() / "answers" / _user()


def _user():
    try:
        return os.environ.get("JUPYTERHUB_USER") or getpass.getuser()
    except (KeyError, OSError):  # a container's number without a name
        return "learner"


def is_recording() -> bool:
    """True in a notebook, an IPython session and `course check`, unless COURSE_ANSWERS is off."""
    return folder() is not None and (recording or shell_of_kernel() is not None)


def read(unit: str, exercise: str) -> Kept | None:
    """What is Kept of an exercise, or None if nothing is.

    Raises: CourseError if the file is damaged, or another user's: what it holds would run with your
        rights.
    """
    answers = folder()
    if answers is None:
        return None
    path = answers / unit / f"{exercise}.json"
    try:
        if not path.exists():
            return None
        if hasattr(os, "getuid") and path.stat().st_uid not in (os.getuid(), 0):
            raise CourseError(
                f"{path} belongs to another user; set COURSE_ANSWERS to a folder that you own."
            )
        stored = json.loads(path.read_text(encoding="utf-8"))
        return Kept(**{field.name: stored[field.name] for field in dataclasses.fields(Kept)})
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise CourseError(
            f"{path} cannot be read ({error}); check {exercise} again to replace it."
        ) from None


def read_unit(unit: str) -> dict[str, Kept]:
    """{exercise: Kept} of a unit, without files that cannot be read."""
    records = {}
    answers = folder()
    if answers is None:
        return records
    for path in sorted((answers / unit).glob("*.json")):  # predictions.json is none of them
        with contextlib.suppress(CourseError):
            records[path.stem] = read(unit, path.stem)
    return records


def record(
    unit: str,
    exercise: str,
    passed: bool,
    mistake: str | None = None,
    script: str | None = None,
    name: str | None = None,
) -> None:
    """Add a try to what is kept of an exercise.

    Args:
        passed: whether its check passed; if so, `script` and `name` of the answer replace those
            kept before.

    Raises: CourseError if the folder cannot be written.
    """
    path = folder() / unit / f"{exercise}.json"
    with locked(path.parent):
        try:
            answer = read(unit, exercise) or Kept(unit, exercise)
        except CourseError:
            answer = Kept(unit, exercise)
        answer.tries += 1
        answer.mistake = mistake
        if passed:
            answer.passed = datetime.now().astimezone().isoformat(timespec="seconds")
            answer.script = script
            answer.name = name
        write_text(path, json.dumps(dataclasses.asdict(answer), indent=1))


@contextlib.contextmanager
def locked(place: Path) -> Iterator[None]:
    """Keep other kernels of this learner out of the block, if the file system supports locks."""
    try:
        place.mkdir(mode=0o700, parents=True, exist_ok=True)
        file = open(place / ".lock", "ab")
    except OSError as error:
        raise CourseError(f"{place} cannot be written ({error.strerror})") from None
    with file:  # closing it unlocks
        # Windows, or a file system without locks
        with contextlib.suppress(AttributeError, OSError):
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


def when(text: str) -> str:
    """Text "22 Nov, 14:03" of a time as it is kept; the year too if it is another one."""
    moment = datetime.fromisoformat(text)
    year = "" if moment.year == datetime.now().year else f" {moment.year}"
    return f"{moment.day} {moment:%b}{year}, {moment:%H:%M}"
