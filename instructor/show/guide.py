"""Print the instructor's guide to a unit, made from its masters, known mistakes and claims.

Per section: what to say, what to ask before it runs, where people get stuck and what to ask them
then, what the measurement showed where it was executed, and what to say where it comes out
otherwise. What only a teacher knows is at the top, from docs/workshop/<unit>.md.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import click

from course.engine.known_answers import load_mistakes
from course.learner.claims import MARK, Claim
from course.notebook.cells import read_cells
from course.notebook.outline import outline
from course.notebook.registry import (
    ExerciseFacts,
    Part,
    find_parts,
    load_part,
    load_unit,
    solutions_folder,
)
from course.notebook.statements import one_line
from course.system.folders import ROOT

NOTES = ROOT / "docs" / "workshop"  # what is written by hand, a page per unit
MISTAKES_MAX = 3  # of an exercise
MACHINE_SAYS = {True: "held", False: "**did not hold**", None: "was undecided"}
_SUMMARY = re.compile(r"^## .+\n+\*\*(?P<text>[^*]+)\*\*", re.M)
_TAKEAWAY = re.compile(r"^\*\*Takeaway\*\*:?\s*(?P<text>.+?)(?=\n\n|\Z)", re.M | re.S)
_PREDICT = re.compile(
    r"(?:^|(?<=[.?)] ))(?:\*\*Predict\*\*:?|Predict:)\s*(?P<text>.+?)(?=\n\n|\Z)", re.M | re.S
)
_HINT = re.compile(r"<details><summary>Hint 1</summary>\s*(?P<text>.+?)\s*</details>", re.S)


class Task(NamedTuple):
    """An exercise, and its first hint, a question; "" if it has none."""

    exercise: ExerciseFacts
    hint: str


class SectionOutput(NamedTuple):
    """An output of an executed notebook, as nbformat has it, and the section that it is in."""

    title: str
    output: dict[str, Any]


@dataclass
class Section:
    """What a part says between two headings."""

    title: str
    summary: str = ""  # the question below its heading, or in it; a thesis in parts not yet revised
    takeaway: str = ""
    predictions: list[str] = field(default_factory=list)
    tasks: list[Task] = field(default_factory=list)
    claims: list[Claim] = field(default_factory=list)


def sections(part: Part) -> list[Section]:
    """The Sections of `part` in order, without the one of its references."""
    known = {exercise.name: exercise for exercise in part.exercises}
    done = [_section_of(found, known) for found in outline(read_cells(part.path))[1:]]
    for title, output in executed_outputs(part):
        facts = output.get("metadata", {}).get(MARK)
        if facts:
            for section in done:
                section.claims += [Claim(**facts)] if section.title == title else []
    return [s for s in done if s.tasks or s.claims or s.predictions]


def _section_of(found, known):
    """The Section of a section of the outline; `known` are its exercises by name."""
    summary = _SUMMARY.match(found.cells[0].source)
    section = Section(found.title)
    if summary:
        section.summary = one_line(summary["text"])
    elif "?" in found.title:
        section.summary = found.title
    hint = ""
    for cell in found.cells:
        if cell.kind == "markdown":
            takeaway = _TAKEAWAY.search(cell.source)
            if takeaway:
                section.takeaway = one_line(takeaway["text"])
            for prediction in _PREDICT.finditer(cell.source):
                section.predictions.append(one_line(prediction["text"]))
            match = _HINT.search(cell.source)
            hint = one_line(match["text"]) if match else ""
        elif cell.role == "answer" and cell.exercise in known:
            section.tasks.append(Task(known[cell.exercise], hint))
    return section


def executed_outputs(part: Part) -> Iterator[SectionOutput]:
    """Each output in the executed notebook of `part`; none if there is no such file."""
    path = solutions_folder() / part.unit / f"{part.name}.ipynb"
    for section in outline(read_cells(path)) if path.exists() else []:
        for cell in section.cells:
            for output in cell.outputs:
                yield SectionOutput(section.title, output)


def guide_text(unit: str, parts: list[str] | None = None) -> str:
    """The guide to the `parts` of `unit` (default: all), as Markdown."""
    whole = load_unit(unit)
    lines = [
        f"# {unit[:2]} {whole.title}: the instructor's guide",
        "",
        f"{whole.core_minutes} minutes of core, {whole.all_minutes} in all. "
        f"`course guide {unit[:2]}` makes this page "
        "from the unit itself; the text before the first part is written by hand.",
        "",
    ]
    notes = NOTES / f"{unit}.md"
    if notes.exists():
        body = notes.read_text(encoding="utf-8").partition("\n")[2]
        lines += [body.strip(), ""]
    for name in parts or [part.name for part in whole.parts]:
        lines += _part(load_part(unit, name))
    return "\n".join(lines)


def _part(part: Part) -> Iterator[str]:
    yield f"## {part.number} {part.title}\n"
    minutes = f"{part.core_minutes} minutes of core, {part.all_minutes} in all"
    yield f"**{part.question}** {minutes}. Needs {part.needs}\n"
    for section in sections(part):
        yield f"### {section.title}\n"
        yield from _section(section)
        yield ""


def _section(section: Section) -> Iterator[str]:
    if section.summary:
        yield f"- **{'Ask' if '?' in section.summary else 'Say'}** {section.summary}"
    for prediction in section.predictions:
        yield f"- **Ask, before it runs** {prediction}"
    for task in section.tasks:
        yield from _task(task)
    for claim in section.claims:
        value = f" ({claim.value})" if claim.value else ""
        yield f"- **Shows** {claim.sentence}: {MACHINE_SAYS[claim.held]}{value}"
        if claim.otherwise:
            yield f"  - If not: {claim.otherwise}"
    if section.takeaway:
        yield f"- **Say at the end** {section.takeaway}"


def _task(task: Task) -> Iterator[str]:
    exercise = task.exercise
    kind = "core" if exercise.core else "extra"
    yield f"- **Exercise** `{exercise.name}`, {exercise.title} ({kind}, {exercise.minutes} min)"
    if task.hint:
        yield f"  - Who is stuck: {task.hint}"
    for mistake in load_mistakes(exercise.unit, exercise.name)[:MISTAKES_MAX]:
        yield f"  - Seen often: {mistake.advice}"


@click.command()
@click.argument("unit")
def guide(unit: str) -> None:
    """Print the instructor's guide to UNIT, or to one part of it (03/2), as Markdown.

    \b
    Examples:
      course guide 03
      course guide 03/2 > guide.md
    """
    matching = find_parts(unit)
    asked = [place.part for place in matching] if "/" in unit else None
    click.echo(guide_text(matching[0].unit, asked))
