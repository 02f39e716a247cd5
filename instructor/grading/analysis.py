"""What a batch of results says: learners x exercises, and for each exercise who solved it and which
mistakes were made.

    Graded ... -> table, table_csv;  Graded ... -> items -> items_text, items_csv,
    instructor.grading.plots.shares

Names of learners come from folders anybody may have named: in CSV none of them can become a
spreadsheet's formula.
"""

import csv
import io
import textwrap
from collections import Counter
from dataclasses import dataclass

from course.engine.known_answers import load_mistakes
from instructor.grading.results import Graded, Mark
from instructor.grading.sanitize import safe_text

WIDTH = 100  # columns of a text
NAME, NUMBER = 22, 4  # columns of a learner's name, of the points of an exercise


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
    mistakes: list  # (name, number of learners, advice), most frequent first


def exercises(graded: Graded) -> dict[str, list[Mark]]:
    """{exercise: [its Marks]} of one submission, in the order of the notebooks."""
    points = {}
    for mark in graded.marks:
        points.setdefault(mark.exercise, []).append(mark)
    return points


def _parts_of(graded):
    """{exercise: its part} of one submission."""
    return {mark.exercise: result.part for result in graded.parts for mark in result.marks}


def _by_unit(gradeds):
    """{unit: ({exercise: part}, [Graded, ...])}; exercises in the order of the submission that has
    most of them.
    """
    units = {}
    for graded in gradeds:
        units.setdefault(graded.unit, []).append(graded)
    return {
        unit: (max(map(_parts_of, them), key=len), them) for unit, them in sorted(units.items())
    }


def _earned(marks):
    return sum(mark.score for mark in marks)


def _worth(marks):
    return sum(mark.points for mark in marks)


def table(gradeds: list[Graded]) -> str:
    """Points of learners x exercises as text of at most 100 columns: per unit a legend, then one
    line per learner.

    A unit with more exercises than fit side by side has several blocks of lines. Notes of the
    grader stand below.
    """
    lines = []
    for unit, (parts, them) in _by_unit(gradeds).items():
        worth = {name: max(_worth(exercises(g).get(name, [])) for g in them) for name in parts}
        lines += [f"{unit}: exercises (points)", *_legend(parts, worth), ""]
        fit = (WIDTH - NAME - 12) // NUMBER
        for start in range(0, len(parts), fit):
            lines += [*_block(list(parts), start, fit, them, sum(worth.values())), ""]
        notes = [
            f"* {safe_text(graded.learner)}: {safe_text(graded.note)}"
            for graded in them
            if graded.note
        ]
        lines += [textwrap.fill(note, WIDTH, subsequent_indent="  ") for note in notes] + [
            ""
        ] * bool(notes)
    return "\n".join(line.rstrip(" ") for line in lines)


def _legend(parts, worth):
    """Lines that say which number is which exercise, a paragraph per part."""
    numbers, lines = {name: number for number, name in enumerate(parts, 1)}, []
    for part in dict.fromkeys(parts.values()):
        names = [name for name in parts if parts[name] == part]
        listed = "   ".join(
            f"{numbers[name]} {name} ({worth[name]:g})".replace(" ", "\0") for name in names
        )
        listed = textwrap.fill(listed, WIDTH - 4, break_on_hyphens=False, break_long_words=False)
        # NUL: not broken there
        lines += [
            f"  {part}",
            textwrap.indent(listed.replace("\0", " "), "    "),
        ]
    return lines


def _block(names, start, fit, them, worth):
    """The lines of as many exercises as fit from number `start` on: a head, then one per
    learner.
    """
    block, last = names[start : start + fit], start + fit >= len(names)
    head = " " * NAME + "".join(f"{start + i:>{NUMBER}}" for i in range(1, len(block) + 1))
    lines = [head + (f"{'total  ':>12}" if last else "")]
    for graded in them:
        marks = exercises(graded)
        line = _short(graded.learner) + "".join(
            f"{_earned(marks.get(n, [])):>{NUMBER}g}" for n in block
        )
        total = f"{_earned(graded.marks):g} / {worth:g}{' *' if graded.note else '  '}"
        lines.append(line + (f"{total:>12}" if last else ""))
    return lines


def _short(learner):
    name = safe_text(learner)
    return f"{name if len(name) < NAME else name[: NAME - 2] + '…':<{NAME}}"


def table_csv(gradeds: list[Graded]) -> str:
    """Points of learners x exercises as CSV: a line per learner, columns "unit/exercise", a total,
    the notes.
    """
    columns, rows = [], {}
    for unit, (names, them) in _by_unit(gradeds).items():
        columns += [f"{unit}/{name}" for name in names]
        for graded in them:
            row = rows.setdefault(
                graded.learner, {"learner": graded.learner, "total": 0, "notes": ""}
            )
            row |= {f"{unit}/{name}": _earned(exercises(graded).get(name, [])) for name in names}
            row["total"] += _earned(graded.marks)
            row["notes"] = " ".join(filter(None, (row["notes"], graded.note)))
    return _csv(
        ["learner", *columns, "total", "notes"], [rows[learner] for learner in sorted(rows)]
    )


def items(gradeds: list[Graded]) -> list[Item]:
    """[Item, ...] of every exercise, by unit and in the order of the notebooks."""
    rows = []
    for unit, (names, them) in _by_unit(gradeds).items():
        for name, part in names.items():
            marks = [exercises(graded).get(name, []) for graded in them]
            points = max(map(_worth, marks))
            earned = [_earned(m) for m in marks]
            made = Counter(
                mistake for m in marks for mistake in sorted({mark.mistake for mark in m} - {None})
            )
            advice = _advice(unit, name) if made else {}
            rows.append(
                Item(unit, part, name, points, len(them), sum(e >= points for e in earned) / len(them),
                     sum(0 < e < points for e in earned) / len(them), sum(earned) / len(them),
                     [(mistake, count, advice.get(mistake, "")) for mistake, count in made.most_common()])
            )  # fmt: skip
    return rows


def _advice(unit, exercise):
    """{name: advice} of the known mistakes of `exercise`."""
    return {known.name: known.advice for known in load_mistakes(unit, exercise)}


def items_text(rows: list[Item]) -> str:
    """The items as text of at most 100 columns, each with the mistakes that were recognised and
    what to say of them.
    """
    lines, unit, part = [], None, None
    for item in rows:
        if item.unit != unit:
            unit = item.unit
            lines += [""] * bool(lines) + [
                f"{f'{unit}, {item.learners} handed in':<44}   solved   partly   points"
            ]
        if item.part != part:
            part = item.part
            lines.append(part)
        points = f"{item.mean:.1f} of {item.points:g}"
        lines.append(f"  {item.exercise:<42}{item.solved:>9.0%}{item.partly:>9.0%}{points:>13}")
        for name, count, advice in item.mistakes:
            lines += textwrap.wrap(f"{count} x {name}: {advice}", WIDTH, initial_indent="      ",
                                   subsequent_indent="          ", break_on_hyphens=False)  # fmt: skip
    return "\n".join(lines) + "\n"


def items_csv(items: list[Item]) -> str:
    """The items as CSV: a line for each exercise, and one more for each mistake that was recognised
    in it.
    """
    columns = "unit,part,exercise,points,handed in,solved,partly,mean points,mistake,made by,advice".split(
        ","
    )
    rows = []
    for item in items:
        shares = (f"{item.solved:.4f}", f"{item.partly:.4f}", f"{item.mean:.4f}")
        values = item.unit, item.part, item.exercise, item.points, item.learners, *shares
        rows += [
            dict(zip(columns, (*values, *mistake), strict=False))
            for mistake in [(), *item.mistakes]
        ]
    return _csv(columns, rows)


def _csv(columns, rows):
    out = io.StringIO()
    writer = csv.DictWriter(out, columns, lineterminator="\n")
    writer.writeheader()
    writer.writerows({name: harmless(value) for name, value in row.items()} for row in rows)
    return out.getvalue()


def harmless(value):
    """`value`; a text that a spreadsheet would take for a formula has an apostrophe before it."""
    if not isinstance(value, str):
        return value
    value = safe_text(value)
    return f"'{value}" if value.lstrip().startswith(tuple("=+-@＝＋－＠")) else value
