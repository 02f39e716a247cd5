"""The report as one file of HTML, without network.

It shows the screen, a bar of the phases of a step, and a timeline of ten steps.
"""

import html
from collections.abc import Iterator

from course.checkup.facts import Phases
from course.checkup.phases import (
    BACKWARD,
    CODE,
    COMMUNICATION,
    DATA,
    EVALUATION,
    FORWARD,
    OPTIMIZER,
    TRANSFER,
    Step,
)
from course.checkup.report import Report
from course.checkup.text import NAMES

COLOURS = {
    DATA: "#e69f00",
    TRANSFER: "#cc79a7",
    FORWARD: "#009e73",
    BACKWARD: "#56b4e9",
    OPTIMIZER: "#0072b2",
    COMMUNICATION: "#d55e00",
    EVALUATION: "#f0e442",
    CODE: "#999999",
}
WIDTH = 900  # pixels of a bar
HEIGHT = 22
SPACE = 6  # pixels between bars
AXIS_HEIGHT = 22
TICKS = 4  # of the axis of time, besides 0
STYLE = "body{font-family:sans-serif;margin:2em;max-width:62em}pre{white-space:pre-wrap}"


def page(report: Report) -> str:
    """The document."""
    title = html.escape(f"Check-up of {report.name}: {report.regime}")
    return (
        f"<!doctype html><meta charset=utf-8><title>{title}</title>"
        f"<style>{STYLE}</style>"
        f"<h1>{title}</h1>{_legend()}<h2>A step</h2>{_bar(report.facts.phases)}"
        f"<h2>Ten steps</h2>{_timeline(report.timeline)}"
        f"<pre>{html.escape(str(report))}</pre>"
    )


def _legend() -> str:
    entries = []
    for name, colour in COLOURS.items():
        entries.append(f'<span style="color:{colour}">&#9632;</span> {NAMES.get(name, name)}')
    return " ".join(entries)


def _rectangle(x: float, y: int, width: float, phase: str, text: str) -> str:
    colour = COLOURS.get(phase, COLOURS[CODE])
    place = f'x="{x:.1f}" y="{y}" width="{max(0.3, width):.1f}" height="{HEIGHT}"'
    return f'<rect {place} fill="{colour}"><title>{html.escape(text)}</title></rect>'


def _picture(height: int, shapes: list[str]) -> str:
    return f'<svg width="{WIDTH}" height="{height}" role="img">{"".join(shapes)}</svg>'


def _bar(phases: Phases) -> str:
    x = 0.0
    shapes = []
    for name, phase in phases.items():
        width = WIDTH * phase.share
        shapes.append(_rectangle(x, 0, width, name, f"{name} {phase.share:.1%}"))
        x += width
    return _picture(HEIGHT, shapes)


def _timeline(steps: list[Step]) -> str:
    scale = WIDTH / max((step.seconds for step in steps), default=1.0)  # pixels per second
    shapes = []
    for row, step in enumerate(steps):
        begin = step.pieces[0].start
        y = row * (HEIGHT + SPACE)
        for phase, start, end in step.pieces:
            text = f"{phase} {1000 * (end - start):.3g} ms"
            x = scale * (start - begin)
            shapes.append(_rectangle(x, y, scale * (end - start), phase, text))
    height = len(steps) * (HEIGHT + SPACE)
    if steps:
        shapes += _axis(WIDTH / scale, height)
        height += AXIS_HEIGHT
    return _picture(height, shapes)


def _axis(seconds: float, y: int) -> Iterator[str]:
    """Times from 0 to `seconds`, the width of the picture, in ms."""
    for tick in range(TICKS + 1):
        share = tick / TICKS
        anchor = {0: "start", TICKS: "end"}.get(tick, "middle")
        place = f'x="{WIDTH * share:.0f}" y="{y + AXIS_HEIGHT - 6}" text-anchor="{anchor}"'
        yield f'<text {place} font-size="12" fill="#666">{1000 * seconds * share:.3g} ms</text>'
