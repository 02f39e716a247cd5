"""Judge a prediction: a measurement and what a learner said -> Verdict.

Numbers are compared in direction and by a factor of two; names, sets and bools are right or wrong.
Nothing here is kept or printed.
"""

import contextlib
import math
from dataclasses import dataclass
from typing import Any

FACTOR = 2.0
FORM = "{:.2f}"
SHOWN_CHARACTERS_MAX = 60  # of what a learner wrote
CLOSE = 0.01  # relative: closer than this to a number without an interval is right
RIGHT = "right"
INSIDE = "inside the interval"
WRONG = "wrong"
NEAR = f"within a factor of {'two' if FACTOR == 2 else FACTOR}"


class Odd(Exception):
    """A prediction of another kind than its measurement; the message says what was expected."""


@dataclass(frozen=True)
class Measured:
    """A measurement as plain Python, and how to show it."""

    value: Any  # float, bool, str, frozenset, list of names too close to call; None: not decided
    shown: str
    low: float | None = None  # None: exact; infinite: unknown
    high: float | None = None


@dataclass(frozen=True)
class Verdict:
    """How a prediction compares with a measurement; the fields are those of a kept Prediction."""

    words: str
    direction: bool | None = None
    near: bool | None = None
    right: bool | None = None


def plain_value(value: object) -> Any:
    """`value` as plain Python, if it is an array or a tensor of one element."""
    with contextlib.suppress(Exception, SystemExit):
        return value.item()
    return value


def measurement(measured: object, form: str) -> Measured:
    """The Measured of what was measured."""
    from course.measure.comparison import Interval  # imports torch

    if isinstance(measured, Interval):
        return _measured_interval(measured, form)
    value = plain_value(measured)
    if isinstance(value, bool | str):
        return Measured(value, str(value))
    if isinstance(value, set | frozenset):
        return Measured(frozenset(value), _names(value) or "none")
    if isinstance(value, list | tuple) and value:
        close = ": too close to call" if len(value) > 1 else ""
        return Measured(list(value), " or ".join(map(str, value)) + close)
    number = _number(value)
    if number is None:
        return Measured(None, "not decided here")
    if isinstance(value, int) and form == FORM:
        return Measured(number, f"{value:,}")
    return Measured(number, _formatted(number, form))


def _measured_interval(interval, form):
    shown = _formatted(interval.estimate, form)
    if not math.isfinite(interval.estimate):
        return Measured(None, "not decided here")
    if not interval.is_known:
        return Measured(interval.estimate, f"{shown} ({interval.why_unknown})", -math.inf, math.inf)
    low, high = _formatted(interval.low, form), _formatted(interval.high, form)
    return Measured(interval.estimate, f"{shown} ({low} to {high})", interval.low, interval.high)


def _number(value):
    """`value` as a float, or None if it is not a finite number."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    with contextlib.suppress(OverflowError):
        number = float(value)
        if math.isfinite(number):
            return number
    return None


def _formatted(number, form):
    try:
        return form.format(number)
    except (ValueError, IndexError, KeyError):
        return f"{number:.4g}"


def shown_prediction(plain: Any, form: str) -> str:
    """A prediction as it is shown: as the learner wrote it, unless `form` is special."""
    if isinstance(plain, set | frozenset | list | tuple):
        return _names(plain) or "none"
    number = _number(plain)
    if number is None or (isinstance(plain, int) and form == FORM):
        return shown_text(plain)
    return f"{number:g}" if form == FORM else _formatted(number, form)


def _names(values):
    return ", ".join(sorted(map(str, values)))


def shown_text(value: object) -> str:
    """What a learner wrote, in one printable line."""
    try:
        text = f"{value:,}" if type(value) is int else str(value)
    except (Exception, SystemExit):
        text = type(value).__name__
    printable = "".join(character if character.isprintable() else " " for character in text)
    line = " ".join(printable.split())
    if len(line) <= SHOWN_CHARACTERS_MAX:
        return line
    return line[: SHOWN_CHARACTERS_MAX - 3] + "..."


def judge(prediction: object, found: Measured, null: float | None) -> Verdict | None:
    """The Verdict on a prediction; None if the measurement is not decided.

    Raises: Odd if the prediction is of another kind than what was measured.
    """
    if found.value is None:
        return None
    if isinstance(found.value, float):
        number = _number(prediction)
        if number is None:
            raise Odd("a number such as 2")
        return _verdict_on_number(number, found, null)
    right = _is_right(prediction, found.value)
    return Verdict(RIGHT if right else WRONG, right=right)


def _is_right(prediction, value):
    """True if a bool, name or set is the measured `value`.  Raises: Odd as `judge` does."""
    if isinstance(value, bool):
        if not isinstance(prediction, int) or prediction not in (True, False):
            raise Odd("True or False")
        return bool(prediction) == value
    if isinstance(value, frozenset):
        return _as_set(prediction) == _as_set(value)
    names = value if isinstance(value, list) else [value]
    wanted = str if isinstance(names[0], str) else int | float
    if not isinstance(prediction, wanted):
        raise Odd(f"an answer such as {names[0]!r}")
    return _folded(prediction) in map(_folded, names)


def _as_set(value):
    """The names and numbers in `value`, which may be a single one.  Raises: Odd."""
    values = value if isinstance(value, set | frozenset | list | tuple) else [value]
    if not all(isinstance(one, str | int | float) for one in values):
        raise Odd("a set of names or numbers")
    return set(map(_folded, values))


def _folded(name):
    """A name without what does not matter: capitals and blanks around it."""
    return name.strip().casefold() if isinstance(name, str) else name


def _verdict_on_number(number, found, null):
    if _is_as_measured(number, found):
        words = RIGHT if found.low is None else INSIDE
        return Verdict(words, None if null is None else True, True)
    near = found.value != 0 and 1 / FACTOR <= number / found.value <= FACTOR
    words = NEAR if near else f"not {NEAR}"
    if null is None:
        return Verdict(words, None, near)
    if found.low is not None and found.low <= null <= found.high:
        return Verdict(f"direction not decided here, {words}", None, near)
    said = _sign(number - null)
    seen = _sign(found.value - null)
    if said == 0:
        return Verdict(f"no effect, but there is one; {words}", False, near)
    if seen == 0:
        return Verdict(f"an effect, but there is none; {words}", False, near)
    direction = "right direction" if said == seen else "wrong direction"
    link = "" if (said == seen) == near else " but"
    return Verdict(f"{direction},{link} {words}", said == seen, near)


def _is_as_measured(number, found):
    """True if a prediction is in the interval, or close to a number without one."""
    if found.low is None:
        return math.isclose(number, found.value, rel_tol=CLOSE)
    return math.isfinite(found.high - found.low) and found.low <= number <= found.high


def _sign(number):
    return (number > 0) - (number < 0)
