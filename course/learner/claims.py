"""What a text says about a measurement, tested on the reader's machine: one line of output.

    claim("two workers are at least 10 % faster than none", result.ratio("2 workers"), above=1.1)

prints "Holds here: two workers are at least 10 % faster than none. Here 1.62 (1.51 to 1.74).
Recorded: H200 2.10." A claim about a measurement names its null, what would be expected if the
sentence were wrong, and holds only if the whole interval excludes it. An exact count is claimed by
its truth: claim("a ring sends 6 messages", sent == 6, f"{sent} messages").

What other machines found comes from the records (course/learner/recorded.py). The facts of the
claim go into the metadata of the output, from which instructor/authoring/records.py writes them. A
claim is not an exercise: it never raises, never counts for a grade and writes nothing to stderr.
"""

import contextlib
import html
import math
import sys
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from course.learner import recorded

if TYPE_CHECKING:  # importing torch takes a second
    from course.measure.comparison import Interval

MARK = "course_claim"  # the key of a claim in the metadata of an output
TEXT_CHARACTERS_MAX = 300  # of a sentence, a value or an explanation
NOT_MEASURED = "not measured here"  # the value of a claim about what another scale measures
WORDS = {True: "Holds here", False: "Does not hold here", None: "Not decided here"}
# most claims, at that scale
SMOKE_UNDECIDED = "Not decided at smoke scale, which only tests that the cells run"
_MADE: dict[str, "Claim"] = {}  # by sentence: what this kernel has claimed
# green, amber, grey: readable on white and on black
COLOURS = {True: "#2e7d32", False: "#c77700", None: "#757575"}


@dataclass(frozen=True)
class Claim:
    """A sentence about a measurement, and what this run found about it."""

    sentence: str
    held: bool | None  # None: not decided
    value: str  # the number behind it, as text; "" if there is none
    machine: str
    scale: str
    otherwise: str = ""  # why it may fail, and what to do then; for a claim that does not hold
    # of a measurement, and None of a count
    estimate: float | None = None
    low: float | None = None
    high: float | None = None
    null: str = ""  # such as "above 1"
    data: str = ""  # the data sets that were loaded, and whether they are real

    @property
    def verdict(self) -> str:
        """The words before the sentence, e.g. "Does not hold here at smoke scale"."""
        if self.scale != "smoke":
            return WORDS[self.held]
        if self.held is None and self.value != NOT_MEASURED:
            return SMOKE_UNDECIDED
        return f"{WORDS[self.held]} at smoke scale"

    @property
    def text(self) -> str:
        """The words after the verdict: the sentence, its number; `otherwise` if it fails."""
        text = self.sentence.rstrip(".")
        if self.estimate is None and self.value:
            text += f" ({self.value})"
        text += "."
        if self.estimate is not None:
            text += f" Here {self.value}."
        if self.otherwise and self.held is False:
            text += f" {self.otherwise}"
        return text

    def __str__(self) -> str:
        return f"{self.verdict}: {self.text}"


def claim(
    sentence: str,
    measured: object,
    value: object = "",
    otherwise: str = "",
    *,
    above: float | None = None,
    below: float | None = None,
    within: tuple[float, float] | None = None,
) -> None:
    """Print whether `sentence` holds on this machine, its number, and what other machines found.

    Args:
        sentence: the claim, complete in itself, with the size that the null has, e.g. "two workers
            are at least 10 % faster than none".
        measured: an Interval, with one of the nulls below, or None for what this machine cannot
            measure but others have recorded; or, for an exact count, a bool, a number or a tensor
            of one element. Anything else counts as undecided.
        value: the number behind a count, as text with its unit, or a number.
        otherwise: sentences printed if the claim does not hold: why, and what it means. Where it is
            not decided, there is nothing to explain.
        above: holds if the whole interval lies above this, fails if all of it lies below. From 1,
            the null of a ratio, it has to be LEAST away, as for a Comparison's verdict.
        below: the same the other way round.
        within: (low, high): holds if the whole interval lies inside, fails if all of it is outside.
    """
    from course.datasets import loaded
    from course.device import machine, machine_name, scale

    with contextlib.suppress(Exception, SystemExit):
        facts = {
            "sentence": _text(sentence),
            "machine": machine(),
            "scale": scale(),
            "otherwise": _text(otherwise),
            "data": loaded(),
        }
        has_null = not (above is None and below is None and within is None)
        if not has_null:
            made = Claim(held=_truth(measured), value=_text(value), **facts)
        elif measured is None:
            made = Claim(held=None, value=_text(value) or NOT_MEASURED, **facts)
        else:
            made = Claim(**facts, **_against_null(measured, above, below, within))
        if made.value != NOT_MEASURED:
            _MADE[made.sentence] = made
        _show(made, recorded.elsewhere(made.sentence, machine_name()))


def claimed() -> dict[str, dict[str, object]]:
    """{sentence: the facts of a claim}: what this kernel has measured, the latest of each."""
    return {sentence: asdict(claim) for sentence, claim in _MADE.items()}


def _against_null(measured: "Interval", above, below, within):
    """The facts of a Claim that compares an Interval with its null."""
    facts = {
        "value": str(measured),
        "estimate": measured.estimate,
        "low": measured.low if math.isfinite(measured.low) else None,  # JSON has no infinity
        "high": measured.high if math.isfinite(measured.high) else None,
    }
    if within is not None:
        low, high = within
        return facts | {
            "held": _inside(measured, low, high),
            "null": f"within {low:g} to {high:g}",
        }
    if above is not None:
        return facts | {"held": _beyond(measured, above), "null": f"above {above:g}"}
    held = _beyond(measured, below)
    return facts | {"held": None if held is None else not held, "null": f"below {below:g}"}


def _beyond(measured, null):
    """True if the interval lies above `null`, False if it lies below, None if `null` is inside."""
    from course.measure.comparison import LEAST

    if not measured.excludes(null, by=LEAST if null == 1 else 0.0):
        return None
    return measured.low > null


def _inside(measured, low, high):
    if measured.lies_within(low, high):
        return True
    return False if measured.high < low or measured.low > high else None


def _truth(measured):
    """True, False, or None if `measured` is neither."""
    try:
        number = float(measured.item() if hasattr(measured, "item") else measured)
        if isinstance(measured, str) or math.isnan(number):
            return None
        return bool(number)
    except (Exception, SystemExit):
        return None


def _text(value):
    """`value` in one line of at most TEXT_CHARACTERS_MAX, numbers with four digits."""
    if value is None:
        return ""
    with contextlib.suppress(Exception):  # not an array or tensor of one element
        value = value.item()
    text = f"{value:.4g}" if type(value) is float else str(value)
    printable = "".join(character if character.isprintable() else " " for character in text)
    line = " ".join(printable.split())
    if len(line) <= TEXT_CHARACTERS_MAX:
        return line
    return line[: TEXT_CHARACTERS_MAX - 3] + "..."


def _show(made, others):
    """Display `made` in a notebook, print it elsewhere, with what `others` found."""
    found = recorded.sentence_of(others, made.held)
    text = f"{made} {found}".rstrip()
    ipython = sys.modules.get("IPython")
    if ipython and ipython.get_ipython():
        bundle = {"text/plain": text, "text/html": _html(made, found)}
        facts = {} if made.value == NOT_MEASURED else {MARK: asdict(made)}
        ipython.display.display(bundle, metadata=facts, raw=True)
        return
    encoding = getattr(sys.stdout, "encoding", None) or "utf-8"
    print(text.encode(encoding, "replace").decode(encoding))


def _html(made, found):
    """A line with a coloured bar and verdict."""
    colour = COLOURS[made.held]
    return (
        f'<div style="border-left: 4px solid {colour}; padding: 2px 10px; margin: 2px 0">'
        f'<b style="color: {colour}">{made.verdict}:</b> {html.escape(made.text)} '
        f"{html.escape(found)}</div>"
    )
