"""The flip map: advice x machine, what each piece gained where -> *cells with a verdict*.

A cell is the number that a machine recorded for the claim of a row (advice.py): a gain with its
interval. It wins or loses if the whole interval does; a ratio has to be LEAST away from 1, as for
every verdict of the course. Records of before the course kept intervals have a number alone: such a
cell says so. A ratio then has a sign only if it is FAR from 1. A difference in accuracy or loss has
none, because it is the mean of a few seeds.

A machine gets its column by one command: `course build --execute 06` on a CPU, `course bench gpu
--only 06` on a GPU. Both write recorded/<machine>.json. Apart from these only the claims that this
kernel has made are read: such a cell says "here". What it made at smoke scale is not entered.
"""

import html
import json
import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from course.learner.advice import ADVICE, COUNT, LOSS, POINTS, TIMES, Advice
from course.learner.recorded import FOLDER

WINS, LOSES = "wins", "loses"
SAME = "no difference"
NOT_DECIDED = "not decided"
EXACT = "exact count"
NOT_MEASURED = "not measured"
HEADS = ("advice", "promises", "wins on", "loses on", "why", "part")
HERE = "here"  # a cell that this kernel has measured
SMOKE = "smoke"  # the scale whose results are not entered
FAR = 1.1  # a ratio without an interval has a sign beyond this, and below its inverse
NO_EFFECT = {TIMES: (1.0, 0.05), POINTS: (0.0, 0.5), LOSS: (0.0, 0.05)}  # and what is called none
_RATIO = re.compile(r"(\d+(?:\.\d+)?) times")
_POINTS = re.compile(r"([+-]?\d+(?:\.\d+)?) points")
_AGAINST = re.compile(r"(\d+(?:\.\d+)?)(?: s)? against (\d+(?:\.\d+)?)(?: s)?\b")

Facts = Mapping[str, Any]  # of a claim, as recorded


@dataclass(frozen=True)
class Cell:
    """What one machine found about one piece of advice."""

    verdict: str = NOT_MEASURED
    text: str = NOT_MEASURED  # the gain with its interval
    has_interval: bool = True
    is_here: bool = False  # measured by this kernel, not read from a record

    @property
    def words(self) -> str:
        """The verdict and the gain, as a table says them."""
        if self.verdict in (NOT_MEASURED, EXACT):
            return self.text
        alone = "" if self.has_interval else ", no interval"
        return f"{self.verdict} {self.text}{alone}"


@dataclass(frozen=True)
class Row:
    """A piece of advice, and the Cell of each machine."""

    advice: Advice
    cells: dict[str, Cell]

    @property
    def flips(self) -> bool:
        """Whether it wins on one machine and loses on another."""
        return {WINS, LOSES} <= {cell.verdict for cell in self.cells.values()}

    @property
    def n_measured(self) -> int:
        """The number of machines that measured it."""
        return len(self.cells) - len(self.machines(NOT_MEASURED))

    def machines(self, verdict: str) -> list[str]:
        """The machines on which it has this verdict."""
        return [machine for machine, cell in self.cells.items() if cell.verdict == verdict]

    def places(self, verdict: str, before: str = "") -> str:
        """Where it has this verdict, with its gain: "here (1.40) and H200 (1.31)".

        Args:
            before: stands before the name of a recorded machine, such as "on ".
        """
        found = []
        for machine in self.machines(verdict):
            cell = self.cells[machine]
            found.append(f"{HERE if cell.is_here else before + machine} ({cell.text})")
        return " and ".join(found)


@dataclass(frozen=True, repr=False)
class Checklist:
    """A table with the columns HEADS; its text, and in a notebook HTML that opens with a click."""

    lines: list[tuple[str, ...]]

    def __repr__(self) -> str:
        return "\n".join(" | ".join(line) for line in [HEADS, *self.lines])

    def _repr_html_(self) -> str:
        rows = [_html_row(HEADS, "th")]
        rows += [_html_row(line, "td") for line in self.lines]
        title = f"<summary>All {len(self.lines)} pieces of advice</summary>"
        return f"<details>{title}<table>{''.join(rows)}</table></details>"


@dataclass(frozen=True)
class FlipMap:
    """All rows, and the machines that have a column."""

    machines: list[str]
    rows: list[Row]

    @property
    def flipping(self) -> list[str]:
        """The names of the advice that flips."""
        return [row.advice.name for row in self.rows if row.flips]

    def row(self, name: str) -> Row:
        """The Row of the advice called `name`."""
        return next(row for row in self.rows if row.advice.name == name)

    def checklist(self) -> "Checklist":
        """What each piece of advice promises, where it wins and loses, and why, as a table."""
        lines = []
        for row in self.rows:
            piece = row.advice
            places = [row.places(verdict) or "–" for verdict in (WINS, LOSES)]
            if piece.unit == COUNT:
                texts = [row.cells[machine].text for machine in row.machines(EXACT)]
                places[0] = f"counted: {texts[0]}" if texts else "–"
            lines.append((piece.name, piece.promise, *places, piece.why, piece.part))
        return Checklist(lines)

    def sentences(self) -> str:
        """A line per piece of advice that flips: where it wins, where it loses, and why."""
        lines = []
        for row in self.rows:
            if row.flips:
                wins, loses = (row.places(verdict, "on ") for verdict in (WINS, LOSES))
                places = f"wins {wins}, loses {loses}"
                lines.append(f"{row.advice.name}: {places}. {row.advice.why}")
        return "\n".join(lines)


def flip_map(
    made: Mapping[str, Facts] | None = None,
    here: str = "",
    folder: Path = FOLDER,
    advice: Iterable[Advice] = ADVICE,
) -> FlipMap:
    """The FlipMap of all recorded machines, CPUs before GPUs, this machine first.

    Args:
        made: {sentence: facts of a claim that this kernel made}; see claims.claimed. Those of smoke
            scale are left out: they test that cells run, and measure nothing.
        here: the short name of this machine: its record fills what `made` lacks.
    """
    found = recorded_claims(folder)
    full = {said: facts for said, facts in (made or {}).items() if facts.get("scale") != SMOKE}
    if full or here in found:
        found = {here: {**found.pop(here, {}), **full}} | found
    machines = [machine for machine, claims in found.items() if _has_any(claims, advice)]
    rows = []
    for piece in advice:
        cells = {machine: cell_of(piece, found[machine].get(piece.claim)) for machine in machines}
        if piece.claim in full and here in cells:
            cells[here] = replace(cells[here], is_here=True)
        rows.append(Row(piece, cells))
    return FlipMap(machines, rows)


def recorded_claims(folder: Path = FOLDER) -> dict[str, dict[str, Facts]]:
    """{machine: {sentence: recorded facts}}, CPUs before GPUs."""
    records = [json.loads(path.read_text(encoding="utf-8")) for path in folder.glob("*.json")]
    records.sort(key=lambda record: (record["is_gpu"], record["machine"]))
    found = {}
    for record in records:
        claims = found.setdefault(record["machine"], {})
        for part in record["parts"].values():
            claims.update({facts["sentence"]: facts for facts in part["claims"]})
    return found


def _html_row(texts, tag):
    style = ' style="text-align: left; vertical-align: top"'
    return f"<tr>{''.join(f'<{tag}{style}>{html.escape(text)}</{tag}>' for text in texts)}</tr>"


def _has_any(claims, advice):
    return any(piece.claim in claims for piece in advice)


def cell_of(advice: Advice, facts: Facts | None) -> Cell:
    """The Cell of what a machine found, which is None if it measured nothing."""
    if facts is None:
        return Cell()
    if advice.unit == COUNT:
        return Cell(EXACT, facts["value"] or ("yes" if facts["held"] else "no"))
    if facts.get("estimate") is not None:
        return _with_interval(advice, facts)
    number = _number(facts["value"])
    return Cell(EXACT, facts["value"]) if number is None else _alone(advice, number)


def _with_interval(advice, facts):
    ends = [facts["estimate"], facts.get("low"), facts.get("high")]
    estimate, low, high = (math.nan if end is None else _turned(advice, end) for end in ends)
    low, high = sorted((low, high)) if low == low and high == high else (-math.inf, math.inf)
    text = _shown(advice, estimate)
    if math.isfinite(high - low):
        text += f" ({_shown(advice, low)} to {_shown(advice, high)})"
    return Cell(_verdict(advice, low, high), text)


def _verdict(advice, low, high):
    from course.measure.comparison import LEAST  # imports torch

    null, reach = NO_EFFECT[advice.unit]
    least = LEAST if advice.unit == TIMES else 0.0
    if low > null + least:
        return WINS
    if high < null - least:
        return LOSES
    return SAME if null - reach <= low and high <= null + reach else NOT_DECIDED


def _alone(advice, number):
    """The Cell of a number without an interval."""
    gain = _turned(advice, number)
    verdict = NOT_DECIDED
    if advice.unit == TIMES and not 1 / FAR <= gain <= FAR:
        verdict = WINS if gain > 1 else LOSES
    return Cell(verdict, _shown(advice, gain), has_interval=False)


def _turned(advice, number):
    """The gain of the advice, if `number` may be that of leaving it out."""
    if not advice.is_opposite:
        return number
    return 1 / number if advice.unit == TIMES else -number


def _shown(advice, number):
    if advice.unit == POINTS:
        return f"{number:+.1f}"
    if advice.unit == LOSS:
        return f"{number:+.2f}"
    return f"{number:.2f}" if number < 9.95 else f"{number:.0f}"


def _number(value):
    """The number in an old record's text; None if there is none."""
    against = _AGAINST.search(value)
    if against:
        return float(against[1]) / float(against[2])
    match = _RATIO.search(value) or _POINTS.search(value)
    return float(match[1]) if match else None
