"""Make slides of a part's opening, from its master and its executed notebook: one HTML file that
needs no network.

Title, what one will be able to do, then per section: what it says, the prediction to ask for, a
figure and what was measured, in this order, so that no slide gives away the answer to the one
before it. Arrow keys, space and a click turn; printing gives a page per slide.
"""

import html
from collections.abc import Iterator
from pathlib import Path

import click

from course.errors import CourseError
from course.learner.claims import Claim
from course.notebook.registry import Part, find_parts, load_part, load_unit
from course.system.files import write_text
from course.system.folders import ROOT
from instructor.show.guide import Section, executed_outputs, sections
from instructor.show.pages import markdown, output, style

SECTIONS = 3  # of a part: ten minutes
MOST_CLAIMS = 4  # on a slide
HELD = {True: "Held", False: "Did not hold", None: "Undecided"}  # where the notebook was executed


def slides_of(part: Part, count: int = SECTIONS) -> list[str]:
    """The slides of `part` as HTML, the first `count` of its sections."""
    unit = load_unit(part.unit)
    goals = "\n".join(f"- {goal}" for goal in part.goals)
    pages = [
        markdown(
            f"{part.unit[:2]} {unit.title} · part {part.number}\n\n# {part.title}\n\n{part.question}"
        ),
        markdown(f"## You will be able to\n\n{goals}"),
    ]
    figures = _figures(part)
    for section in sections(part)[:count]:
        pages += _of_section(section, figures.get(section.title))
    core = part.core_minutes
    minutes = (
        f"{core} minutes of core exercises"
        if core
        else f"{part.all_minutes} minutes, all exercises are extra"
    )
    return [*pages, markdown(f"# Your turn\n\nPart {part.number}: {minutes}")]


def _of_section(section: Section, figure: str | None) -> Iterator[str]:
    yield markdown(f"## {section.title}\n\n{section.summary}")
    for prediction in section.predictions[:1]:
        question = markdown(prediction[:1].upper() + prediction[1:])
        yield f'<div class="predict"><h2>Write down your prediction</h2>{question}</div>'
    claims = "".join(_claim(claim) for claim in section.claims[:MOST_CLAIMS])
    if figure or claims:
        yield f"<h2>{html.escape(section.title)}</h2>{figure or ''}<ul>{claims}</ul>"


def _claim(claim: Claim):
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
    """Write the slides of `part` to the file `out`; return how many. Raises: CourseError if it
    cannot be written.
    """
    slides = slides_of(part, count)
    pages = "".join(f'<section class="slide">{slide}</section>' for slide in slides)
    head = f'<meta charset="utf-8"><title>{html.escape(part.title)}</title><style>{style()}{LAYOUT}</style>'
    write_text(
        out,
        f'<!doctype html><html lang="en">{head}<body>{pages}<script>{TURN}</script></body></html>',
    )
    return len(slides)


LAYOUT = """
.slide { display: none; height: 100vh; padding: 6vh 9vw; font-size: 3.4vmin; overflow: hidden; }
.slide.shown { display: flex; flex-direction: column; justify-content: center; }
.slide h1 { font-size: 7.5vmin; line-height: 1.15; margin: 2vh 0; } .slide h2 { font-size: 5.2vmin; margin: 0 0 3vh; }
.slide img.figure { width: 100%; max-height: 58vh; margin: 0 auto 2vh; object-fit: contain; }
.slide li { margin: 0.7vh 0; } .slide ul { margin: 0; } .slide img.figure + ul { font-size: 2.5vmin; }
.predict { border-left: 1vmin solid var(--link); padding-left: 4vmin; }
.slide img.figure:has(+ ul > li:nth-child(4)) { max-height: 50vh; }
body::after { content: attr(data-at); position: fixed; right: 2vw; bottom: 2vh; color: var(--soft); font-size: 14px; }
@media print { .slide { display: flex; flex-direction: column; justify-content: center; page-break-after: always; } }
"""
TURN = """
const all = [...document.querySelectorAll(".slide")];
let at = Math.min(Math.max((parseInt(location.hash.slice(1)) || 1) - 1, 0), all.length - 1);
const show = to => {
  at = Math.min(Math.max(to, 0), all.length - 1);
  all.forEach((slide, i) => slide.classList.toggle("shown", i == at));
  document.body.dataset.at = `${at + 1} / ${all.length}`; history.replaceState(null, "", `#${at + 1}`);
};
addEventListener("keydown", event => {
  const step = {ArrowRight: 1, PageDown: 1, " ": 1, ArrowLeft: -1, PageUp: -1, Home: -all.length, End: all.length};
  if (event.key in step) { event.preventDefault(); show(at + step[event.key]); }
});
addEventListener("click", event => show(at + (event.clientX < innerWidth / 3 ? -1 : 1)));
show(at);
"""


@click.command()
@click.argument("part")
@click.option(
    "--out",
    type=click.Path(path_type=Path, dir_okay=False),
    help="The file  [default: build/slides/...]",
)
@click.option("--sections", "count", type=click.IntRange(1), default=SECTIONS, show_default=True,
              help="How many sections; three are ten minutes.")  # fmt: skip
def slides(part, out, count):
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
