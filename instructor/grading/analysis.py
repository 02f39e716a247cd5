"""What a batch of results says: learners x exercises, and for each exercise who solved it and which
mistakes were made.

    Graded ... -> table, table_csv
    Graded ... -> items -> items_text, items_csv, instructor.grading.plots.shares

Names of learners come from folders anybody may have named: in CSV none of them can become a
spreadsheet's formula.
"""

import csv
import io
import textwrap
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from course.engine.known_answers import load_mistakes
from instructor.grading.results import Graded, Mark
from instructor.grading.sanitize import safe_text

WIDTH = 100  # columns of a text
NAME_COLUMNS = 22  # of a learner's name
POINTS_COLUMNS = 4  # of the points of an exercise
TOTAL_COLUMNS = 12
ITEM_COLUMNS = (
    "unit",
    "part",
    "exercise",
    "points",
    "handed in",
    "solved",
    "partly",
    "mean points",
    "mistake",
    "made by",
    "advice",
)


class Made(NamedTuple):
    """A known mistake, and how many learners made it."""

    mistake: str
    learners: int
    advice: str


@dataclass
class Item:
    """One exercise, over all who handed in its unit."""

    unit: str
    part: str
    exercise: str
    points: float
    learners: int
    solved: float  # share with all points
    partly: float  # share with some
    mean: float  # points
    mistakes: list[Made]  # most frequent first


class _OfUnit(NamedTuple):
    """The results of one unit."""

    parts: dict[str, str]  # exercise -> its part, in the order of the notebooks
    results: list[Graded]


def exercises(graded: Graded) -> dict[str, list[Mark]]:
    """{exercise: its Marks} of one submission, in the order of the notebooks."""
    marks_of: dict[str, list[Mark]] = {}
    for mark in graded.marks:
        marks_of.setdefault(mark.exercise, []).append(mark)
    return marks_of


def _parts_of(graded: Graded) -> dict[str, str]:
    """{exercise: its part} of one submission."""
    parts = {}
    for result in graded.parts:
        for mark in result.marks:
            parts[mark.exercise] = result.part
    return parts


def _by_unit(results: Iterable[Graded]) -> dict[str, _OfUnit]:
    """The results by unit.

    Exercises come in the order of the submission that has most of them.
    """
    units: dict[str, list[Graded]] = {}
    for graded in results:
        units.setdefault(graded.unit, []).append(graded)
    by_unit = {}
    for unit, of_unit in sorted(units.items()):
        parts = max(map(_parts_of, of_unit), key=len)
        by_unit[unit] = _OfUnit(parts, of_unit)
    return by_unit


def _earned(marks: Iterable[Mark]) -> float:
    return sum(mark.score for mark in marks)


def _worth(marks: Iterable[Mark]) -> float:
    return sum(mark.points for mark in marks)


def _points_of(name: str, results: Iterable[Graded]) -> float:
    """The points that an exercise has."""
    return max(_worth(exercises(graded).get(name, [])) for graded in results)


def table(results: list[Graded]) -> str:
    """Points of learners x exercises as text of at most 100 columns.

    Per unit a legend, then one line per learner. A unit with more exercises than fit side by side
    has several blocks of lines. Notes of the grader stand below.
    """
    lines = []
    for unit, of_unit in _by_unit(results).items():
        worth = {name: _points_of(name, of_unit.results) for name in of_unit.parts}
        lines += [f"{unit}: exercises (points)", *_legend(of_unit.parts, worth), ""]
        names = list(of_unit.parts)
        fit = (WIDTH - NAME_COLUMNS - TOTAL_COLUMNS) // POINTS_COLUMNS
        for start in range(0, len(names), fit):
            block = names[start : start + fit]
            is_last = start + fit >= len(names)
            total = sum(worth.values()) if is_last else None
            lines += [*_block(block, start, of_unit.results, total), ""]
        lines += _notes(of_unit.results)
    return "\n".join(line.rstrip(" ") for line in lines)


def _notes(results: Iterable[Graded]) -> list[str]:
    """The notes of the grader, and an empty line; nothing if there are none."""
    lines = []
    for graded in results:
        if graded.note:
            note = f"* {safe_text(graded.learner)}: {safe_text(graded.note)}"
            lines.append(textwrap.fill(note, WIDTH, subsequent_indent="  "))
    return [*lines, ""] if lines else []


def _legend(parts: Mapping[str, str], worth: Mapping[str, float]) -> list[str]:
    """Lines that say which number is which exercise, a paragraph per part."""
    listed: dict[str, list[str]] = {}
    for number, (name, part) in enumerate(parts.items(), 1):
        shown = f"{number} {name} ({worth[name]:g})"
        # NUL: not broken there
        listed.setdefault(part, []).append(shown.replace(" ", "\0"))
    lines = []
    for part, shown_exercises in listed.items():
        text = textwrap.fill(
            "   ".join(shown_exercises), WIDTH - 4, break_on_hyphens=False, break_long_words=False
        )
        lines += [f"  {part}", textwrap.indent(text.replace("\0", " "), "    ")]
    return lines


def _block(
    names: Sequence[str], start: int, results: Iterable[Graded], total: float | None
) -> list[str]:
    """The lines of exercises side by side: a head, then one per learner.

    Args:
        start: how many exercises stand in blocks before.
        total: the points of the unit, if the block ends with them.
    """
    numbers = range(start + 1, start + 1 + len(names))
    head = " " * NAME_COLUMNS
    head += "".join(f"{number:>{POINTS_COLUMNS}}" for number in numbers)
    lines = [head if total is None else f"{head}{'total  ':>{TOTAL_COLUMNS}}"]
    for graded in results:
        marks = exercises(graded)
        line = _short(graded.learner)
        for name in names:
            line += f"{_earned(marks.get(name, [])):>{POINTS_COLUMNS}g}"
        if total is not None:
            mark = " *" if graded.note else "  "
            shown = f"{_earned(graded.marks):g} / {total:g}{mark}"
            line += f"{shown:>{TOTAL_COLUMNS}}"
        lines.append(line)
    return lines


def _short(learner: str) -> str:
    name = safe_text(learner)
    if len(name) >= NAME_COLUMNS:
        name = name[: NAME_COLUMNS - 2] + "…"
    return f"{name:<{NAME_COLUMNS}}"


def table_csv(results: list[Graded]) -> str:
    """Points of learners x exercises as CSV.

    A line per learner, with columns "unit/exercise", a total, and the notes.
    """
    columns = []
    rows: dict[str, dict[str, Any]] = {}
    for unit, of_unit in _by_unit(results).items():
        columns += [f"{unit}/{name}" for name in of_unit.parts]
        for graded in of_unit.results:
            empty = {"learner": graded.learner, "total": 0, "notes": ""}
            row = rows.setdefault(graded.learner, empty)
            marks = exercises(graded)
            for name in of_unit.parts:
                row[f"{unit}/{name}"] = _earned(marks.get(name, []))
            row["total"] += _earned(graded.marks)
            row["notes"] = " ".join(filter(None, (row["notes"], graded.note)))
    ordered = [rows[learner] for learner in sorted(rows)]
    return _csv(["learner", *columns, "total", "notes"], ordered)


def items(results: Iterable[Graded]) -> list[Item]:
    """An Item for every exercise, by unit and in the order of the notebooks."""
    made = []
    for unit, of_unit in _by_unit(results).items():
        for name, part in of_unit.parts.items():
            marks = [exercises(graded).get(name, []) for graded in of_unit.results]
            made.append(_item(unit, part, name, marks))
    return made


def _item(unit: str, part: str, name: str, marks: list[list[Mark]]) -> Item:
    """The Item of an exercise, of which `marks` are those of each learner."""
    learners = len(marks)
    points = max(map(_worth, marks))
    earned = [_earned(of_one) for of_one in marks]
    return Item(
        unit=unit,
        part=part,
        exercise=name,
        points=points,
        learners=learners,
        solved=sum(one >= points for one in earned) / learners,
        partly=sum(0 < one < points for one in earned) / learners,
        mean=sum(earned) / learners,
        mistakes=_mistakes(unit, name, marks),
    )


def _mistakes(unit: str, name: str, marks: list[list[Mark]]) -> list[Made]:
    """The known mistakes of an exercise that learners made, each once per learner."""
    made: Counter[str] = Counter()
    for of_one in marks:
        made.update(sorted({mark.mistake for mark in of_one if mark.mistake is not None}))
    advice = _advice(unit, name) if made else {}
    return [Made(mistake, n, advice.get(mistake, "")) for mistake, n in made.most_common()]


def _advice(unit: str, exercise: str) -> dict[str, str]:
    """{name: advice} of the known mistakes of `exercise`."""
    return {known.name: known.advice for known in load_mistakes(unit, exercise)}


def items_text(rows: Iterable[Item]) -> str:
    """The items as text of at most 100 columns.

    Each with the mistakes that were recognised and what to say of them.
    """
    lines: list[str] = []
    unit = part = None
    for item in rows:
        if item.unit != unit:
            unit = item.unit
            if lines:
                lines.append("")
            title = f"{unit}, {item.learners} handed in"
            lines.append(f"{title:<44}   solved   partly   points")
        if item.part != part:
            part = item.part
            lines.append(part)
        points = f"{item.mean:.1f} of {item.points:g}"
        lines.append(f"  {item.exercise:<42}{item.solved:>9.0%}{item.partly:>9.0%}{points:>13}")
        for made in item.mistakes:
            lines += wrapped(f"{made.learners} x {made.mistake}: {made.advice}")
    return "\n".join(lines) + "\n"


def wrapped(text: str) -> list[str]:
    """The lines of what is said below an exercise, of at most 100 columns."""
    return textwrap.wrap(
        text, WIDTH, initial_indent=" " * 6, subsequent_indent=" " * 10, break_on_hyphens=False
    )


def items_csv(items: Iterable[Item]) -> str:
    """The items as CSV: a line for each exercise, and one more for each mistake made in it."""
    rows = []
    for item in items:
        values = (
            item.unit,
            item.part,
            item.exercise,
            item.points,
            item.learners,
            f"{item.solved:.4f}",
            f"{item.partly:.4f}",
            f"{item.mean:.4f}",
        )
        rows.append(dict(zip(ITEM_COLUMNS, values, strict=False)))
        for made in item.mistakes:
            rows.append(dict(zip(ITEM_COLUMNS, (*values, *made), strict=True)))
    return _csv(ITEM_COLUMNS, rows)


def _csv(columns: Sequence[str], rows: Iterable[Mapping[str, Any]]) -> str:
    out = io.StringIO()
    writer = csv.DictWriter(out, columns, lineterminator="\n")
    writer.writeheader()
    for row in rows:
        writer.writerow({name: harmless(value) for name, value in row.items()})
    return out.getvalue()


def harmless(value: Any) -> Any:
    """`value`; a text that a spreadsheet would take for a formula has an apostrophe before it."""
    if not isinstance(value, str):
        return value
    value = safe_text(value)
    return f"'{value}" if value.lstrip().startswith(tuple("=+-@＝＋－＠")) else value
