"""Make slides of a part's opening, from its master and its executed notebook.

They are one HTML file that needs no network. Title, what one will be able to do, then per section:
what it says, the prediction to ask for, a figure and what was measured, in this order, so that no
slide gives away the answer to the one before it. Arrow keys, space and a click turn; printing gives
a page per slide.
"""

import html
from collections.abc import Iterator
from pathlib import Path

import click

from course.errors import CourseError
from course.figures.figure import figure_scripts
from course.learner.claims import Claim
from course.notebook.registry import Part, find_parts, load_part, load_unit
from course.system.files import write_text
from course.system.folders import ROOT
from instructor.show.guide import Section, executed_outputs, sections
from instructor.show.pages import asset, markdown, output, style

SECTIONS = 3  # of a part: ten minutes
CLAIMS_MAX = 4  # on a slide
HELD = {True: "Held", False: "Did not hold", None: "Undecided"}  # where the notebook was executed


def slides_of(part: Part, count: int = SECTIONS) -> list[str]:
    """The slides of `part` as HTML, the first `count` of its sections."""
    unit = load_unit(part.unit)
    place = f"{part.unit[:2]} {unit.title} · part {part.number}"
    goals = "\n".join(f"- {goal}" for goal in part.goals)
    pages = [
        markdown(f"{place}\n\n# {part.title}\n\n{part.question}"),
        markdown(f"## You will be able to\n\n{goals}"),
    ]
    figures = _figures(part)
    for section in sections(part)[:count]:
        pages += _of_section(section, figures.get(section.title))
    minutes = f"{part.all_minutes} minutes, all exercises are extra"
    if part.core_minutes:
        minutes = f"{part.core_minutes} minutes of core exercises"
    return [*pages, markdown(f"# Your turn\n\nPart {part.number}: {minutes}")]


def _of_section(section: Section, figure: str | None) -> Iterator[str]:
    yield markdown(f"## {section.title}\n\n{section.summary}")
    for prediction in section.predictions[:1]:
        question = markdown(prediction[:1].upper() + prediction[1:])
        yield f'<div class="predict"><h2>Write down your prediction</h2>{question}</div>'
    claims = "".join(_claim(claim) for claim in section.claims[:CLAIMS_MAX])
    if figure or claims:
        yield f"<h2>{html.escape(section.title)}</h2>{figure or ''}<ul>{claims}</ul>"


def _claim(claim: Claim) -> str:
    value = f" ({claim.value})" if claim.value else ""
    return f"<li><b>{HELD[claim.held]}{html.escape(value)}:</b> {html.escape(claim.sentence)}</li>"


def _figures(part):
    """{title of a section: its first figure with a measurement} of the executed notebook."""
    figures = {}
    for title, item in executed_outputs(part):
        if "image/png" in item.get("data", {}):
            figures.setdefault(title, output(item))
    return figures


def make_slides(part: Part, out: Path, count: int = SECTIONS) -> int:
    """Write the slides of `part` to the file `out`; return how many.

    Raises: CourseError if it cannot be written.
    """
    slides = slides_of(part, count)
    pages = "".join(f'<section class="slide">{slide}</section>' for slide in slides)
    title = f"<title>{html.escape(part.title)}</title>"
    head = f'<meta charset="utf-8">{title}<style>{style()}{asset("slides.css")}</style>'
    scripts = f"<script>{asset('slides.js')}</script>{figure_scripts(pages)}"
    body = f"<body>{pages}{scripts}</body>"
    write_text(out, f'<!doctype html><html lang="en">{head}{body}</html>')
    return len(slides)


@click.command()
@click.argument("part")
@click.option(
    "--out",
    type=click.Path(path_type=Path, dir_okay=False),
    help="The file  [default: build/slides/...]",
)
@click.option(
    "--sections",
    "count",
    type=click.IntRange(1),
    default=SECTIONS,
    show_default=True,
    help="How many sections; three are ten minutes.",
)
def slides(part: str, out: Path | None, count: int) -> None:
    """Make slides of the opening of PART, as one HTML file.

    \b
    Examples:
      course slides 03/2
      course slides 03/2 --sections 9 --out warm-up.html
    """
    matching = find_parts(part)
    if len(matching) > 1:
        raise CourseError(
            f"{part} is a unit of {len(matching)} parts; name one, as in {matching[0][0][:2]}/1."
        )
    unit, name = matching[0]
    out = out or ROOT / "build" / "slides" / unit / f"{name}.html"
    click.echo(f"{out}: {make_slides(load_part(unit, name), out, count)} slides")
