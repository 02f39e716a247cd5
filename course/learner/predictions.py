"""Compare what the learner predicted with what was measured, in one line, and keep it.

    print(course.score("01/2", "two workers over none", predicted_speedup, measured))

prints "two workers over none: 1.13 (1.05 to 1.20); you said 2: right direction, within a factor of
two". kept_predictions.py has the file, calibration.py shows how good the predictions of a unit are.
"""

import math
from collections.abc import Mapping
from dataclasses import replace

from course.errors import CourseError
from course.learner import answers
from course.learner.kept_predictions import Prediction, changing
from course.learner.verdicts import (
    FORM,
    Odd,
    Verdict,
    judge,
    measurement,
    plain_value,
    shown_prediction,
    shown_text,
)
from course.notebook.registry import find_parts


def leaders(values: Mapping[str, float], margin: float, most: bool = False) -> list[str]:
    """The names whose value is within `margin` of the best one, best first.

    More than one are too close to call. If all of them are, nothing is decided: no names.

    Args:
        values: {name: measured value}.
        margin: differences up to this are noise, in the unit of the values.
        most: whether the largest value is the best (default: the smallest).
    """
    ranked = sorted(values, key=values.get, reverse=most)
    best = ranked[:1]
    for name in ranked[1:]:
        if abs(values[name] - values[ranked[0]]) <= margin:
            best.append(name)
    return best if len(best) < len(values) or len(best) == 1 else []


def score(
    place: str,
    what: str,
    prediction: object,
    measured: object,
    *,
    null: float | None = 1.0,
    form: str = FORM,
) -> str:
    """A line with what was measured, what the learner said, and how the two compare.

    In a notebook and in `course check` it is kept, next to the answers, one per part and `what`.
    The first prediction counts, compared with the latest measurement: a learner who changes it has
    seen the measurement. The latest one is kept, too. If the measurement was shown while the
    prediction was None, a later one does not count. Nothing is kept if the prediction is odd, such
    as "2x", or the measurement is not decided.

    Args:
        place: the part, such as "01/2".
        what: what was predicted, in words; unique in its part.
        prediction: what the learner wrote before the measurement; None shows the measurement only.
        measured: a number or an Interval, compared in direction and by a factor of two; or a bool,
            a name, or a set, which are right or wrong. One name of a list is right: its names are
            too close to call, as `leaders` finds them. None or NaN: not decided here.
        null: the number that no effect would give, 1 for ratios and 0 for differences; None: the
            number has no direction.
        form: format of the numbers, such as "{:.0%}".
    """
    found = measurement(measured, form)
    line = f"{what}: {found.shown}"
    plain = plain_value(prediction)
    if plain is None:
        return line + _keep(place, what, None, found, null, form)
    try:
        verdict = judge(plain, found, null)
    except Odd as expected:
        return f"{line}; {expected} was expected as prediction, found {shown_text(plain)}."
    said = shown_prediction(plain, form)
    if verdict is None:
        return f"{line}; you said {said}"
    note = _keep(place, what, plain, found, null, form)
    return f"{line}; you said {said}: {verdict.words}{note}"


def _keep(place, what, plain, found, null, form):
    """Keep a prediction, or None and that its measurement was shown; a note for the line, or ""."""
    if not answers.is_recording() or found.value is None:
        return ""
    try:
        unit, part = find_parts(place)[0]
        with changing(unit) as (kept, note):
            new = _updated(kept.get((part, what)), plain, found, null, form)
            kept[part, what] = replace(new, part=part, what=what)
    except CourseError as error:
        return f" (not kept: {error})"
    notes = [note, _note_on_first(new)]
    return "".join(f" ({text})" for text in notes if text)


def _updated(earlier, plain, found, null, form):
    """The Prediction to keep; `earlier` is the one that was kept, or None."""
    first = plain
    said = None if plain is None else shown_prediction(plain, form)
    latest = said
    if earlier and _fits(earlier.first, found):
        first = earlier.first
        said = earlier.said
        latest = latest or earlier.latest
    verdict = Verdict("") if first is None else judge(first, found, null)
    is_number = isinstance(found.value, float)
    return Prediction(
        part="",
        what="",
        measured=found.shown,
        first=sorted(first, key=str) if isinstance(first, set | frozenset) else first,
        said=said,
        latest=latest,
        verdict=verdict.words,
        direction=verdict.direction,
        near=verdict.near,
        right=verdict.right,
        estimate=found.value if is_number else None,
        low=_finite(found.low),
        high=_finite(found.high),
    )


def _finite(number):
    """`number`, or None for None and for the ends of an interval that is unknown."""
    return number if number is not None and math.isfinite(number) else None


def _fits(first, found):
    """False if an earlier version of the part measured another kind of thing."""
    try:
        return first is None or judge(first, found, None) is not None
    except Odd:
        return False


def _note_on_first(new):
    """What to say if the latest prediction is not the one that counts."""
    if new.latest is None or new.latest == new.said:
        return ""
    if not new.counts:
        return "it was made after the measurement was shown, so it does not count"
    return f"your first prediction, {new.said}, counts"
