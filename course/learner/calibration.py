"""How good the predictions of a unit were, in words: kept_predictions -> lines of text.

`course progress` and `course.calibration` print them; plots/calibration.py draws them.
"""

import math
import textwrap
from collections.abc import Iterable, Sequence

from course.errors import CourseError
from course.learner import answers, kept_predictions
from course.learner.kept_predictions import Prediction
from course.notebook.registry import find_parts

WIDTH = 80


def of_place(place: str) -> list[Prediction]:
    """The predictions of a unit or part, such as "01" or "01/2", the worst first.

    Raises: CourseError if there is no such unit, or its file is damaged.
    """
    parts = find_parts(place)
    names = [part for _, part in parts]
    return sorted(kept_predictions.of_parts(parts[0][0], names), key=_order)


def _order(one):
    """Wrong ones first, then those that are far off; within these by distance; uncounted last."""
    if not one.counts:
        return 3, 0.0
    if one.direction is False or one.right is False:
        return 0, -distance(one)
    return 1 if one.near is False else 2, -distance(one)


def distance(one: Prediction) -> float:
    """How many factors of two lie between a prediction and its measurement.

    Infinite if the two have no ratio; 0 of names, sets and bools.
    """
    if one.estimate is None:
        return 0.0
    if one.first == one.estimate:
        return 0.0
    if one.first * one.estimate <= 0:
        return math.inf
    return abs(math.log2(one.first / one.estimate))


def summary(unit: str, parts: Sequence[str]) -> list[str]:
    """Lines such as "7 of 9 in the right direction, 4 within a factor of two"; none without any.

    A damaged file gives its sentence.
    """
    try:
        return summary_of(kept_predictions.of_parts(unit, parts))
    except CourseError as error:
        return [str(error)]


def summary_of(predictions: Iterable[Prediction]) -> list[str]:
    """The lines of `summary` for some predictions."""
    counted = [one for one in predictions if one.counts]
    with_direction = [one.direction for one in counted if one.direction is not None]
    numbers = [one.near for one in counted if one.near is not None]
    others = [one.right for one in counted if one.right is not None]
    lines = []
    if numbers:
        lines.append(_numbers(with_direction, numbers))
    if others:
        noun = "other answers " if numbers else ""
        lines.append(f"{sum(others)} of {len(others)} {noun}right")
    return lines


def _numbers(with_direction, numbers):
    """The line about numbers; the total stands once if it is the same."""
    near = f"{sum(numbers)} of {len(numbers)} within a factor of two"
    if not with_direction:
        return near
    direction = f"{sum(with_direction)} of {len(with_direction)} in the right direction"
    if len(numbers) == len(with_direction):
        near = f"{sum(numbers)} within a factor of two"
    return f"{direction}, {near}"


def text(place: str, predictions: Sequence[Prediction]) -> str:
    """All `predictions` of a `place`, two lines each, after their summary; a sentence if none.

    They have the numbers that the figure shows.
    """
    if answers.folder() is None:
        return "Nothing is kept here: COURSE_ANSWERS is off."
    if not predictions:
        return (
            f"No prediction of {place} is kept yet. Replace None in a cell `predicted_… = None`, "
            "then run the measurement below it."
        )
    lines = [f"Your predictions in {place}, the worst first"]
    lines += [f"  {line}" for line in summary_of(predictions)]
    for number, one in enumerate(predictions, 1):
        lines += ["", *_lines(number, one)]
    return "\n".join(lines)


def _lines(number, one):
    """The lines of one prediction."""
    part = one.part.partition("_")[0]
    heading = f"{number:>2}  part {part}, {one.what}"
    if one.counts:
        body = f"you said {one.said}; measured {one.measured}: {one.verdict}"
        if one.latest != one.said:
            body += f" (later you said {one.latest})"
    elif one.latest is None:
        body = f"you made no prediction; measured {one.measured}"
    else:
        body = f"measured {one.measured}; you said {one.latest} after it was shown: not counted"
    return [
        *textwrap.wrap(heading, WIDTH, subsequent_indent="    "),
        *textwrap.wrap(body, WIDTH, initial_indent="    ", subsequent_indent="    "),
    ]
