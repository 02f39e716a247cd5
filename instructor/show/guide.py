"""Print the instructor's guide to a unit, made from the unit itself: its masters, known mistakes
and claims.

Per section: what to say, what to ask before it runs, where people get stuck and what to ask them
then, what the measurement showed where it was executed, and what to say where it comes out
otherwise. What only a teacher knows is at the top, from docs/workshop/<unit>.md.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

import click
import nbformat

from course.engine.known_answers import load_mistakes
from course.learner.claims import MARK, Claim
from course.notebook.registry import (
    ExerciseFacts,
    Part,
    find_parts,
    load_part,
    load_unit,
    read_cells,
    solutions_folder,
)
from course.system.folders import ROOT

NOTES = ROOT / "docs" / "workshop"  # what is written by hand, a page per unit
MOST_MISTAKES = 3  # of an exercise
MACHINE_SAYS = {True: "held", False: "**did not hold**", None: "was undecided"}
_HEADING = re.compile(r"^## (?P<title>.+)$", re.M)
_SUMMARY = re.compile(r"^## .+\n+\*\*(?P<text>[^*]+)\*\*", re.M)
_TAKEAWAY = re.compile(r"^\*\*Takeaway\*\*:?\s*(?P<text>.+?)(?=\n\n|\Z)", re.M | re.S)
_PREDICT = re.compile(
    r"(?:^|(?<=[.?)] ))(?:\*\*Predict\*\*:?|Predict:)\s*(?P<text>.+?)(?=\n\n|\Z)", re.M | re.S
)
_HINT = re.compile(r"<details><summary>Hint 1</summary>\s*(?P<text>.+?)\s*</details>", re.S)


@dataclass
class Section:
    """What a part says between two headings."""

    title: str
    summary: str = ""  # the question below its heading, or in it; a thesis in parts not yet revised
    takeaway: str = ""
    predictions: list[str] = field(default_factory=list)
    # with the first hint, a question
    exercises: list[tuple[ExerciseFacts, str]] = field(default_factory=list)
    claims: list[Claim] = field(default_factory=list)


def sections(part: Part) -> list[Section]:
    """The Sections of `part` in order, without the one of its references."""
    known = {exercise.name: exercise for exercise in part.exercises}
    done, hint = [], ""
    for cell in read_cells(part.path):
        text = cell.source if cell.kind == "markdown" else ""
        if heading := _HEADING.search(text):
            summary, title = _SUMMARY.search(text), heading["title"]
            done.append(
                Section(title, _flat(summary["text"]) if summary else title * ("?" in title))
            )
        if not done:
            continue
        if takeaway := _TAKEAWAY.search(text):
            done[-1].takeaway = _flat(takeaway["text"])
        done[-1].predictions += [_flat(match["text"]) for match in _PREDICT.finditer(text)]
        if text:
            match = _HINT.search(text)
            hint = _flat(match["text"]) if match else ""
        name = cell.marks.get("solution")
        if name in known:
            done[-1].exercises.append((known[name], hint))
    for title, output in executed_outputs(part):
        if facts := output.get("metadata", {}).get(MARK):
            for section in done:
                section.claims += [Claim(**facts)] if section.title == title else []
    return [s for s in done if s.exercises or s.claims or s.predictions]


def executed_outputs(part: Part) -> Iterator[tuple[str, dict]]:
    """(title of the section, output) of each output in the executed notebook of `part`, as far as
    there is one.
    """
    path, title = solutions_folder() / part.unit / f"{part.name}.ipynb", ""
    for cell in nbformat.read(path, as_version=4).cells if path.exists() else []:
        if cell.cell_type == "markdown" and (heading := _HEADING.search(cell.source)):
            title = heading["title"]
        yield from ((title, output) for output in cell.get("outputs", []))


def _flat(text):
    return " ".join(text.split())


def guide_text(unit: str, parts: list[str] | None = None) -> str:
    """The guide to the `parts` of `unit` (default: all), as Markdown."""
    whole = load_unit(unit)
    lines = [
        f"# {unit[:2]} {whole.title}: the instructor's guide",
        "",
        f"{whole.core_minutes} minutes of core, {whole.all_minutes} in all. `course guide {unit[:2]}` makes this page "
        "from the unit itself; the text before the first part is written by hand.",
        "",
    ]
    notes = NOTES / f"{unit}.md"
    lines += (
        [notes.read_text(encoding="utf-8").partition("\n")[2].strip(), ""] if notes.exists() else []
    )
    for name in parts or [part.name for part in whole.parts]:
        lines += _part(load_part(unit, name))
    return "\n".join(lines)


def _part(part) -> Iterator[str]:
    yield f"## {part.number} {part.title}\n"
    yield f"**{part.question}** {part.core_minutes} minutes of core, {part.all_minutes} in all. Needs {part.needs}\n"
    for section in sections(part):
        yield f"### {section.title}\n"
        yield from _section(section)
        yield ""


def _section(section):
    if section.summary:
        yield f"- **{'Ask' if '?' in section.summary else 'Say'}** {section.summary}"
    for prediction in section.predictions:
        yield f"- **Ask, before it runs** {prediction}"
    for exercise, hint in section.exercises:
        kind = "core" if exercise.core else "extra"
        yield f"- **Exercise** `{exercise.name}`, {exercise.title} ({kind}, {exercise.minutes} min)"
        if hint:
            yield f"  - Who is stuck: {hint}"
        known = load_mistakes(exercise.unit, exercise.name)
        yield from (f"  - Seen often: {mistake.advice}" for mistake in known[:MOST_MISTAKES])
    for claim in section.claims:
        value = f" ({claim.value})" if claim.value else ""
        yield f"- **Shows** {claim.sentence}: {MACHINE_SAYS[claim.held]}{value}"
        if claim.otherwise:
            yield f"  - If not: {claim.otherwise}"
    if section.takeaway:
        yield f"- **Say at the end** {section.takeaway}"


@click.command()
@click.argument("unit")
def guide(unit):
    """Print the instructor's guide to UNIT, or to one part of it (03/2), as Markdown.

    \b
    Examples:
      course guide 03
      course guide 03/2 > guide.md
    """
    matching = find_parts(unit)
    click.echo(guide_text(matching[0][0], [part for _, part in matching] if "/" in unit else None))
