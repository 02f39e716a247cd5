"""Keep what a learner predicted, next to the answers: a file per unit.

    <data folder>/answers/<user>/<unit>/predictions.json

The file is replaced as a whole or stays as it is. If it is damaged, it is renamed and a new one
begins. predictions.py writes what is kept here, calibration.py shows it; nothing here imports
torch.
"""

import contextlib
import json
import os
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from course.errors import CourseError
from course.learner import answers
from course.system.files import write_text

FILE = "predictions.json"
Key = tuple[str, str]  # part, what


@dataclass(frozen=True)
class Prediction:
    """What a learner said about one measurement, and how it compares with what was measured.

    The first prediction counts, compared with the latest measurement: a learner who changes it has
    seen the measurement. If a measurement was shown before any prediction, `first` is None and
    nothing counts.
    """

    part: str  # e.g. "2_honest_measurements"
    what: str
    measured: str  # as it was shown
    first: Any  # a number, bool, name or list of names
    said: str | None  # `first` as it was shown
    latest: str | None  # the latest prediction, as it was shown
    verdict: str  # in words, on `first`; "" without one
    direction: bool | None = None  # None: there is none, or the measurement does not decide it
    near: bool | None = None  # within a factor of two; None of names, sets and bools
    right: bool | None = None  # of names, sets and bools
    # of a number; low and high are those of its interval, if that is known
    estimate: float | None = None
    low: float | None = None
    high: float | None = None

    @property
    def counts(self) -> bool:
        """True if it was made before the measurement was shown."""
        return self.first is not None


TEXTS = ("part", "what", "measured", "verdict")
NUMBERS = ("estimate", "low", "high")
VERDICTS = ("direction", "near", "right")


def _path(unit: str) -> Path | None:
    folder = answers.folder()
    return folder / unit / FILE if folder else None


def read(unit: str) -> dict[Key, Prediction]:
    """{(part, what): Prediction} of a unit, in the order in which they were first shown.

    Raises: CourseError if the file is damaged.
    """
    path = _path(unit)
    try:
        if path is None or not path.exists():
            return {}
        kept = parsed(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise CourseError(
            f"{path} cannot be read ({type(error).__name__}); your next prediction renames it and "
            "begins a new one."
        ) from None
    return {(one.part, one.what): one for one in kept}


def parsed(text: str) -> list[Prediction]:
    """The predictions in the text of a file.

    Raises: ValueError, KeyError, TypeError, RecursionError if it holds anything else.
    """
    return [_prediction(entry) for entry in json.loads(text)]


def _prediction(entry):
    """The Prediction of an entry of the file.  Raises: KeyError, TypeError if it is not one."""
    made = Prediction(**{field.name: entry[field.name] for field in fields(Prediction)})
    fits = _are(made, TEXTS, str) and _are(made, NUMBERS, float | int | None)
    fits = fits and _are(made, VERDICTS, bool | None)
    if made.estimate is not None:
        fits = fits and _are(made, ("first",), float | int | None)
    if not fits:
        raise TypeError("a field is of another type")
    return made


def _are(made, names, kind):
    return all(isinstance(getattr(made, name), kind) for name in names)


@contextlib.contextmanager
def changing(unit: str) -> Iterator[tuple[dict[Key, Prediction], str]]:
    """Give the block the predictions to change and a note on a damaged file, or ""; then keep them.

    Raises: CourseError if the folder cannot be written.
    """
    path = _path(unit)
    with answers.locked(path.parent):
        note = ""
        try:
            kept = read(unit)
        except CourseError:
            note = f"{path} was damaged; it is kept as {_set_aside(path)}."
            kept = {}
        yield kept, note
        write_text(path, json.dumps([asdict(one) for one in kept.values()], indent=1))


def _set_aside(path):
    """Rename the file at `path` so that no other is replaced; return its new name.

    Raises: CourseError if the folder cannot be written.
    """
    number = 1
    while path.with_name(f"{path.name}.damaged-{number}").exists():
        number += 1
    aside = path.with_name(f"{path.name}.damaged-{number}")
    try:
        os.rename(path, aside)
    except OSError as error:
        raise CourseError(f"{path} cannot be renamed ({error.strerror}).") from None
    return aside.name


def of_parts(unit: str, parts: Sequence[str]) -> list[Prediction]:
    """The predictions of some `parts` of a unit.  Raises: CourseError as `read` does."""
    return [one for one in read(unit).values() if one.part in parts]
