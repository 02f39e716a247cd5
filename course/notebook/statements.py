"""Parse what the Markdown of a part states: its header, and the facts of each exercise.

Learners see these lines, and nothing states them a second time. The rest of the course asks
registry.py, which turns them into data.
"""

import re
from typing import NamedTuple

TITLE_LINE = re.compile(r"^# (?P<unit>.+?), part (?P<number>\d+): (?P<part>.+)$", re.M)
ANY_TITLE = re.compile(r"^# (?P<unit>.+)$", re.M)
QUESTION = re.compile(r"^\*\*(?P<question>[^*]+\?)\*\*$", re.M)
GOALS = re.compile(
    r"^\*\*You will be able to\*\*\n\n?(?P<goals>[-*] .*?)(?=\n\n\S|\Z)", re.M | re.S
)
MINUTES_LINE = re.compile(
    r"^\*\*Minutes\*\* (?P<core>\d+) core · (?P<all>\d+) in all( · session (?P<session>\d))?$", re.M
)
NEEDS = re.compile(r"^\*\*Needs\*\* (?P<needs>.+?)(?=\n\n|\Z)", re.M | re.S)
EXERCISE_TITLE = re.compile(r"^#{2,3} Exercise (?P<number>\d+)[a-z]? · (?P<title>.+)$", re.M)
FACTS_LINE = re.compile(
    r"^\*\*Points\*\* (?P<points>\d+) · (\*\*(?P<kind>Core|Extra)\*\* · )?"
    r"\*\*Difficulty\*\* (?P<difficulty>[●○]{3})"
    r" · \*\*Minutes\*\* (?P<minutes>\d+) · \*\*Lines\*\* (?P<lines>\d+)$",
    re.M,
)
EXTRA_HEADING = "· extra"  # ends the heading of a section that is not core


class TaskFacts(NamedTuple):
    """The line **Points** ... of a task."""

    line: str
    points: int
    kind: str | None  # "Core" or "Extra"; None if the line does not say it
    difficulty: int  # filled dots, of three
    minutes: int  # for somebody new to the topic
    lines: int  # of the reference answer

    @property
    def is_core(self) -> bool:
        return self.kind != "Extra"


class PartHeader(NamedTuple):
    """The first cell of a part; None or "" stands for what it does not state."""

    unit_title: str
    title: str
    number: int | None
    question: str
    goals: tuple[str, ...]
    core_minutes: int | None
    all_minutes: int | None
    session: int  # of the unit, in which the core of the part is done
    needs: str


def task_facts(text: str) -> list[TaskFacts]:
    """The facts of each task in a Markdown text, in order."""
    found = []
    for match in FACTS_LINE.finditer(text):
        facts = TaskFacts(
            line=match[0],
            points=int(match["points"]),
            kind=match["kind"],
            difficulty=match["difficulty"].count("●"),
            minutes=int(match["minutes"]),
            lines=int(match["lines"]),
        )
        found.append(facts)
    return found


def part_header(text: str) -> PartHeader:
    """What the first cell of a part states."""
    title = TITLE_LINE.search(text)
    any_title = ANY_TITLE.search(text)
    question = QUESTION.search(text)
    goals = GOALS.search(text)
    minutes = MINUTES_LINE.search(text)
    session = minutes["session"] if minutes else None
    needs = NEEDS.search(text)
    unit_title = title or any_title
    return PartHeader(
        unit_title=unit_title["unit"] if unit_title else "",
        title=title["part"].strip() if title else "",
        number=int(title["number"]) if title else None,
        question=one_line(question["question"]) if question else "",
        goals=_items(goals["goals"]) if goals else (),
        core_minutes=int(minutes["core"]) if minutes else None,
        all_minutes=int(minutes["all"]) if minutes else None,
        session=int(session or 1),
        needs=one_line(needs["needs"]) if needs else "",
    )


def one_line(text: str) -> str:
    """`text` with every run of white space as one space."""
    return " ".join(text.split())


def _items(listed):
    """The items of a Markdown list, each in one line."""
    items = re.split(r"^[-*] ", listed, flags=re.M)
    return tuple(one_line(item) for item in items if item.strip())
