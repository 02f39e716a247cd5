"""Show what a learner has solved, in a terminal or a notebook.

course progress 04_fast_loading            in a terminal
course.progress("04_fast_loading")         in a notebook
"""

import html
import textwrap
from dataclasses import dataclass, field

from course.learner import answers, calibration
from course.notebook import registry as units

TITLE_COLUMNS = 40
WIDTH = 80
HEADS = ("solved", "tried", "of", "points", "core min left")
GREEN = "\033[32m"
YELLOW = "\033[33m"
PLAIN = "\033[0m"
LEFT = 'style="text-align: left"'
FORM = "{:>7}{:>6}{:>4}{:>9}{:>14}"


@dataclass
class Row:
    """How far one part is, or one unit."""

    title: str
    solved: int = 0
    tried: int = 0
    of: int = 0
    earned: int = 0
    points: int = 0
    minutes_left: int = 0  # of the core
    next: units.ExerciseFacts | None = None  # the first one to solve, core before extra
    is_unit: bool = False
    predictions: list[str] = field(default_factory=list)  # lines on how good they were, of a unit

    def cells(self) -> tuple[int, int, int, str, int]:
        """The texts of the columns after the title."""
        return self.solved, self.tried, self.of, f"{self.earned}/{self.points}", self.minutes_left


class Progress:
    """Rows of a table, shown as text in a terminal and as a table in a notebook."""

    def __init__(self, rows: list[Row], note: str = ""):
        self.rows = rows
        self.note = note

    def __str__(self) -> str:
        return self.text()

    __repr__ = __str__

    def text(self, coloured: bool = False) -> str:
        """The table as text; if `coloured`, solved rows are green and begun ones yellow."""
        lines = [" " * TITLE_COLUMNS + FORM.format(*HEADS)]
        for row in self.rows:
            if row.is_unit:
                lines.append("")
            lines.append(_text_row(row, coloured))
            if row.is_unit and row.next:
                lines.append(f"  next: {_next(row.next)}")
            lines += _prediction_lines(row)
        if self.note:
            lines += ["", self.note]
        return "\n".join(lines)

    def _repr_html_(self):
        heads = "".join(f"<th>{name}</th>" for name in ("", *HEADS))
        body = "".join(_html_row(row) for row in self.rows)
        table = f"<table><tr>{heads}<th {LEFT}>next</th></tr>{body}</table>"
        notes = [self.note]
        for row in self.rows:
            if row.predictions:
                notes.append(f"{row.title}, predictions: {'; '.join(row.predictions)}")
        return table + "".join(f"<p>{html.escape(note)}</p>" for note in notes)


def _text_row(row, coloured):
    title = row.title if row.is_unit else f"  {row.title}"
    if len(title) >= TITLE_COLUMNS:
        title = title[: TITLE_COLUMNS - 2] + "…"
    line = f"{title:<{TITLE_COLUMNS}}{FORM.format(*row.cells())}"
    if not coloured or not row.tried:
        return line
    colour = GREEN if row.solved == row.of else YELLOW
    return f"{colour}{line}{PLAIN}"


def _next(exercise):
    return f"{exercise.name} (part {exercise.part.partition('_')[0]}, {exercise.minutes} minutes)"


def _prediction_lines(row):
    """The lines below a unit on how good its predictions were."""
    lines = []
    for line in row.predictions:
        heading = "" if lines else "predictions:"
        lines += textwrap.wrap(f"  {heading:<12} {line}", WIDTH, subsequent_indent=" " * 15)
    return lines


def _html_row(row):
    texts = [row.title, *map(str, row.cells()), _next(row.next) if row.next else ""]
    tag = "th" if row.is_unit else "td"
    cells = [f"<{tag}>{html.escape(text)}</{tag}>" for text in texts]
    for column in (0, -1):  # words; Jupyter puts everything to the right
        cells[column] = cells[column].replace(f"<{tag}>", f"<{tag} {LEFT}>")
    return f"<tr>{''.join(cells)}</tr>"


def progress(*asked: str) -> Progress:
    """A table of what is solved, tried and left in the units or parts `asked`.

    Below a unit stands how good its predictions were; `course.calibration` shows all of them.

    Args:
        asked: names such as "04" or "04/2" (default: all units).

    Raises: CourseError if there is no such unit.
    """
    parts_of = {}  # unit -> its parts, in the order asked
    for unit, part in _parts(asked):
        parts_of.setdefault(unit, []).append(part)
    rows = []
    for unit, parts in parts_of.items():
        records = answers.read_unit(unit)
        of_parts = [_row(units.load_part(unit, part), records) for part in parts]
        total = _sum(units.load_unit(unit), of_parts)
        total.predictions = calibration.summary(unit, parts)
        rows.append(total)
        rows += of_parts
    off = answers.folder() is None
    return Progress(rows, "Nothing is kept here: COURSE_ANSWERS is off." if off else "")


def _parts(asked):
    """The pairs (unit, part) of the units and parts `asked`, none of them twice; all by default."""
    pairs = []
    for text in asked or units.units():
        pairs += units.find_parts(text)
    return list(dict.fromkeys(pairs))


def _row(part, records):
    """The Row of a part; `records` are {exercise: Kept} of its unit."""
    exercises = [exercise for exercise in part.exercises if exercise.asked]
    tried = [exercise for exercise in exercises if exercise.name in records]
    solved = [exercise for exercise in tried if records[exercise.name].passed]
    missing = [exercise for exercise in exercises if exercise not in solved]
    minutes_left = 0
    if any(exercise.core for exercise in missing):
        done = sum(exercise.minutes for exercise in solved if exercise.core)
        minutes_left = max(0, part.core_minutes - done)
    return Row(
        title=f"{part.number} {part.title}",
        solved=len(solved),
        tried=len(tried),
        of=len(exercises),
        earned=_points(solved),
        points=_points(exercises),
        minutes_left=minutes_left,
        next=_first_core(missing),
    )


def _points(exercises):
    return sum(exercise.points for exercise in exercises)


def _first_core(exercises):
    """The first exercise of the core, else the first; None if there is none."""
    return min(exercises, key=lambda exercise: not exercise.core, default=None)


def _sum(unit, rows):
    """The Row of a unit, whose parts have `rows`."""
    total = Row(f"{unit.name.partition('_')[0]} {unit.title}", is_unit=True)
    following = []
    for row in rows:
        total.solved += row.solved
        total.tried += row.tried
        total.of += row.of
        total.earned += row.earned
        total.points += row.points
        total.minutes_left += row.minutes_left
        if row.next:
            following.append(row.next)
    total.next = _first_core(following)
    return total
