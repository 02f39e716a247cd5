"""Plan a workshop of hours, days or weeks from the minutes that the units state.

Every part counts with its core minutes (reading, core exercises and experiments); only opening,
breaks and round-up have minutes here.
"""

import textwrap
from collections.abc import Iterable
from dataclasses import dataclass, field

import click

from course.errors import CourseError
from course.notebook.registry import Part, Unit, find_parts, load_unit, units

OPENING, ROUND_UP, BREAK = 5, 10, 10  # minutes
WORK = 65  # minutes at most between two breaks
SHORTEST = 10  # minutes of a part that are worth beginning
DAY = (("9:00", 180), ("13:00", 210))  # morning and afternoon of a whole day
SHORTEST_SESSION = 45
OPEN = "Opening: the question of the session, and a prediction by show of hands"
END = "Round-up: which claims held on whose machine, and why not on the others"
PAUSE, PART, FREE = "Break", "part", "Questions, extra exercises"


@dataclass(frozen=True)
class Item:
    """One line of an agenda."""

    kind: str  # OPEN, END, PAUSE or FREE, which is its text, or PART
    minutes: int
    part: Part | None = None
    exercises: tuple[str, ...] = ()  # core exercises of the part that are solved by its end
    continued: bool = False

    def __str__(self) -> str:
        if self.part is None:
            return self.kind
        again = " (continued)" if self.continued else ""
        names = f": {', '.join(self.exercises)}" if self.exercises else ""
        return f"{_short(self.part)} {self.part.title}{again}{names}"


@dataclass
class Session:
    """What happens between coming and going; the minutes of its items add up to `minutes`."""

    title: str
    start: int  # minutes after midnight
    minutes: int
    items: list[Item] = field(default_factory=list)


@dataclass
class Agenda:
    """Sessions, and what of the core is left for home: [(part, minutes), ...]."""

    sessions: list[Session]
    left: list[tuple[Part, int]]
    extra: int  # minutes of the extra exercises of the units

    def __str__(self) -> str:
        lines = []
        for session in self.sessions:
            lines += [f"{session.title}, {session.minutes} minutes", ""]
            now = session.start
            for item in session.items:
                head = f"  {now // 60:>2}:{now % 60:02}  {item.minutes:>3} min  "
                lines += textwrap.wrap(str(item), 100, initial_indent=head, subsequent_indent=" " * len(head),
                                       break_on_hyphens=False)  # fmt: skip
                now += item.minutes
            lines += [f"  {now // 60:>2}:{now % 60:02}           End", ""]
        left = ", ".join(f"{_short(part)} {minutes} min" for part, minutes in self.left)
        last = f"At home, core: {left or 'nothing'}. To choose from: {self.extra} minutes of extra exercises."
        return "\n".join([*lines, *textwrap.wrap(last, 100)])


def _short(part):
    return f"{part.unit[:2]}/{part.number}"


class _Work:
    """What of the core of some parts is still to be done, in order."""

    def __init__(self, parts: Iterable[Part]):
        self.queue = [part for part in parts if part.core_minutes]
        self.done = 0  # minutes of the first part in the queue

    @property
    def minutes(self):
        """Minutes left of the first part."""
        return self.queue[0].core_minutes - self.done

    def take(self, minutes):
        """The Item of the next `minutes` of the first part."""
        part, begin = self.queue[0], self.done
        item = Item(
            PART, minutes, part, tuple(_solved_between(part, begin, begin + minutes)), begin > 0
        )
        self.done += minutes
        if self.done == part.core_minutes:
            self.queue, self.done = self.queue[1:], 0
        return item

    def left(self):
        """[(part, minutes)] of what nobody took."""
        return [
            (part, part.core_minutes - self.done * (not i)) for i, part in enumerate(self.queue)
        ]


def _solved_between(part, begin, end):
    """Names of the core exercises solved in these minutes, if reading and measuring lie evenly
    around them.
    """
    core = [exercise for exercise in part.exercises if exercise.core]
    total, done = sum(exercise.minutes for exercise in core), 0
    for exercise in core:
        done += exercise.minutes
        if begin < part.core_minutes * done / max(total, 1) <= end:
            yield exercise.name


def _fill(session, work):
    """Give `session` its items, taken from `work`."""
    free, since = session.minutes - OPENING - ROUND_UP, 0
    items = [Item(OPEN, OPENING)]
    while work.queue:
        if free < min(SHORTEST, work.minutes):
            break
        takes = min(work.minutes, free)
        if since + takes > WORK:
            if since >= WORK // 2 or WORK - since < SHORTEST:
                if free < BREAK + SHORTEST:
                    break
                items.append(Item(PAUSE, BREAK))
                free, since = free - BREAK, 0
                continue
            rest = since + takes - WORK
            # so that what follows the break is worth beginning
            takes = WORK - since - max(0, SHORTEST - rest)
        items.append(work.take(takes))
        free, since = free - takes, since + takes
    session.items = [*items, *([Item(FREE, free)] if free else []), Item(END, ROUND_UP)]


def plan(sessions: list[Session], chosen: list[Unit], one_each: bool = False) -> Agenda:
    """The Agenda of the core of the `chosen` units over `sessions`, which get their items.

    Args:
        one_each: whether every session has a unit of its own (what does not fit is done at home);
            else the units are done one after the other, a part over several sessions if need be.

    Raises: CourseError if there are fewer units than sessions that want one each.
    """
    if one_each and len(chosen) < len(sessions):
        raise CourseError(
            f"{len(sessions)} weeks were asked for, a unit each; give at most {len(chosen)} weeks."
        )
    groups = [[unit] for unit in chosen[: len(sessions)]] if one_each else [chosen]
    works = [_Work(part for unit in group for part in unit.parts) for group in groups]
    for number, session in enumerate(sessions):
        _fill(session, works[number if one_each else 0])
    done = {item.part.unit for session in sessions for item in session.items if item.part}
    extra = sum(
        e.minutes for unit in chosen if unit.name in done for e in unit.exercises if not e.core
    )
    left = [pair for work in works for pair in work.left() if pair[0].unit in done]
    return Agenda(sessions, left, extra)


def sessions_of(
    hours: float | None, days: int | None, weeks: int | None, start: str = "9:00"
) -> list[Session]:
    """The empty Sessions of what was asked: one of some hours, whole days, or one of some hours (2)
    per week.

    Raises: CourseError if that is no length of a workshop.
    """
    if bool(days) + bool(weeks or hours) != 1:
        raise CourseError(
            "say how long: --hours 2, --days 2, or --weeks 6 (with --hours: per week)."
        )
    if days:
        return [
            Session(f"Day {day}, {half}", _clock(begin), minutes)
            for day in range(1, days + 1)
            for half, (begin, minutes) in zip(("morning", "afternoon"), DAY, strict=True)
        ]
    minutes = round(60 * (hours or 2))
    if minutes < SHORTEST_SESSION:
        raise CourseError(
            f"{minutes} minutes were asked for; a session takes {SHORTEST_SESSION} or more."
        )
    titles = [f"Week {week}" for week in range(1, (weeks or 0) + 1)] or ["One session"]
    return [Session(title, _clock(start), minutes) for title in titles]


def _clock(text):
    """Minutes after midnight of "9:00"."""
    hours, _, minutes = text.partition(":")
    if not (hours.isdecimal() and minutes.isdecimal() and int(hours) < 24 and int(minutes) < 60):
        raise CourseError(f"{text!r} is not a time of day; write it as 9:00.")
    return 60 * int(hours) + int(minutes)


@click.command()
@click.option(
    "--hours",
    type=click.FloatRange(0, 12),
    help="One session of so many hours; with --weeks: per week.",
)
@click.option("--days", type=click.IntRange(1, 10), help="So many whole days.")
@click.option("--weeks", type=click.IntRange(1, 26), help="A session per week, with a unit each.")
@click.option(
    "--unit", "names", multiple=True, help="This unit (may be repeated; default: all, from 01 on)."
)
@click.option(
    "--start", default="9:00", show_default=True, help="When a session begins (not with --days)."
)
def agenda(hours, days, weeks, names, start):
    """Print an agenda, built from the minutes that the units state.

    \b
    Examples:
      course agenda --hours 2 --unit 03
      course agenda --hours 4
      course agenda --days 2
      course agenda --weeks 6
    """
    wanted = [find_parts(name)[0][0] for name in names] or units()
    sessions = sessions_of(hours, days, weeks, start)
    click.echo(
        plan(sessions, [load_unit(unit) for unit in dict.fromkeys(wanted)], one_each=bool(weeks))
    )
