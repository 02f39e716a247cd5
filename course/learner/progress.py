"""Show what a learner has solved, in a terminal or a notebook.

course progress 04_fast_loading            in a terminal
course.progress("04_fast_loading")         in a notebook
"""

import html
from dataclasses import dataclass

from course.learner import answers
from course.notebook import registry as units

TITLE = 40  # columns
HEADS = "solved", "tried", "of", "points", "core min left"
GREEN, YELLOW, PLAIN = "\033[32m", "\033[33m", "\033[0m"
LEFT = 'style="text-align: left"'
FORM = "{:>7}{:>6}{:>4}{:>9}{:>14}"


@dataclass
class Row:
    """How far one part is, or one unit."""

    title: str
    solved: int
    tried: int
    of: int
    earned: int
    points: int
    minutes_left: int  # of the core
    next: units.ExerciseFacts | None = None  # the first one to solve, core before extra
    is_unit: bool = False

    def cells(self):
        """The texts of the columns after the title."""
        return self.solved, self.tried, self.of, f"{self.earned}/{self.points}", self.minutes_left


class Progress:
    """Rows of a table, shown as text in a terminal and as a table in a notebook."""

    def __init__(self, rows, note=""):
        self.rows, self.note = rows, note

    def __str__(self):
        return self.text()

    __repr__ = __str__

    def text(self, coloured: bool = False) -> str:
        """The table as text; if `coloured`, solved rows are green and begun ones yellow."""
        lines = [" " * TITLE + FORM.format(*HEADS)]
        for row in self.rows:
            title = row.title if row.is_unit else f"  {row.title}"
            title = title if len(title) < TITLE else title[: TITLE - 2] + "…"
            line = f"{title:<{TITLE}}{FORM.format(*row.cells())}"
            if coloured and row.tried:
                line = f"{GREEN if row.solved == row.of else YELLOW}{line}{PLAIN}"
            lines += ["", line] if row.is_unit else [line]
            lines += [f"  next: {_next(row.next)}"] if row.is_unit and row.next else []
        return "\n".join([*lines, *(["", self.note] if self.note else [])])

    def _repr_html_(self):
        head = "".join(f"<th>{name}</th>" for name in ("", *HEADS)) + f"<th {LEFT}>next</th>"
        body = "".join(_html_row(row) for row in self.rows)
        return f"<table><tr>{head}</tr>{body}</table><p>{html.escape(self.note)}</p>"


def _next(exercise):
    return f"{exercise.name} (part {exercise.part.partition('_')[0]}, {exercise.minutes} minutes)"


def _html_row(row):
    texts = [row.title, *map(str, row.cells()), _next(row.next) if row.next else ""]
    tag = "th" if row.is_unit else "td"
    cells = [f"<{tag}>{html.escape(text)}</{tag}>" for text in texts]
    for at in (0, -1):  # words; Jupyter puts everything to the right
        cells[at] = cells[at].replace(f"<{tag}>", f"<{tag} {LEFT}>")
    return f"<tr>{''.join(cells)}</tr>"


def progress(*asked: str) -> Progress:
    """A table of what is solved, tried and left in the units or parts `asked` ("04", "04/2";
    default: all units).

    Raises: CourseError if there is no such unit.
    """
    parts = [pair for text in asked for pair in units.find_parts(text)]
    parts = parts or [(unit, part) for unit in units.units() for part in units.parts(unit)]
    rows = []
    for unit in dict.fromkeys(unit for unit, _ in parts):
        records = answers.read_unit(unit)
        of_parts = [
            _row(units.load_part(unit, part), records)
            for of, part in dict.fromkeys(parts)
            if of == unit
        ]
        rows += [_sum(units.load_unit(unit), of_parts), *of_parts]
    off = answers.folder() is None
    return Progress(rows, "Nothing is kept here: COURSE_ANSWERS is off." if off else "")


def _row(part, records):
    exercises = [exercise for exercise in part.exercises if exercise.asked]
    solved = {
        exercise.name
        for exercise in exercises
        if exercise.name in records and records[exercise.name].passed
    }
    missing = [exercise for exercise in exercises if exercise.name not in solved]
    done = sum(
        exercise.minutes for exercise in exercises if exercise.core and exercise.name in solved
    )
    return Row(
        title=f"{part.number} {part.title}",
        solved=len(solved),
        tried=sum(exercise.name in records for exercise in exercises),
        of=len(exercises),
        earned=sum(exercise.points for exercise in exercises if exercise.name in solved),
        points=sum(exercise.points for exercise in exercises),
        minutes_left=max(0, part.core_minutes - done)
        if any(exercise.core for exercise in missing)
        else 0,
        next=min(missing, key=lambda exercise: not exercise.core, default=None),
    )


def _sum(unit, rows):
    names = "solved", "tried", "of", "earned", "points", "minutes_left"
    following = [row.next for row in rows if row.next]
    return Row(
        title=f"{unit.name.partition('_')[0]} {unit.title}",
        **{name: sum(getattr(row, name) for row in rows) for name in names},
        next=min(following, key=lambda exercise: not exercise.core, default=None),
        is_unit=True,
    )
