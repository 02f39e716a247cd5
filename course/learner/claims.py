"""What a text says about a measurement, tested on the reader's machine: one line of output.

    claim("two workers are faster than one", ratio > 1, f"{ratio:.2f} times",
          otherwise="You have one free core.")

prints "Holds here: two workers are faster than one (1.62 times)."; `otherwise` is printed only if
the claim fails. The facts of the claim also go into the metadata of the output, from which
instructor/authoring/claims.py writes docs/claims.md. A claim is not an exercise: it never raises,
never counts for a grade and writes nothing to stderr.
"""

import contextlib
import html
import math
import sys
from dataclasses import asdict, dataclass

MARK = "course_claim"  # the key of a claim in the metadata of an output
TEXT_CHARACTERS_MAX = 300  # of a sentence, a value or an explanation
WORDS = {True: "Holds here", False: "Does not hold here", None: "Cannot be decided here"}
# green, amber, grey: readable on white and on black
COLOURS = {True: "#2e7d32", False: "#c77700", None: "#757575"}


@dataclass(frozen=True)
class Claim:
    """A sentence about a measurement, and what this run found about it."""

    sentence: str
    held: bool | None  # None: the condition was neither true nor false, e.g. NaN
    value: str  # the number behind it, as text; "" if there is none
    machine: str
    scale: str
    otherwise: str = ""  # why it may fail, and what to do then

    @property
    def verdict(self) -> str:
        """The words before the sentence, e.g. "Does not hold here at smoke scale"."""
        words = WORDS[self.held]
        return f"{words} at smoke scale" if self.scale == "smoke" else words

    @property
    def text(self) -> str:
        """The words after the verdict: the sentence, its number, and `otherwise` unless it held."""
        text = self.sentence.rstrip(".")
        if self.value:
            text += f" ({self.value})"
        text += "."
        if self.otherwise and self.held is not True:
            text += f" {self.otherwise}"
        return text

    def __str__(self) -> str:
        return f"{self.verdict}: {self.text}"

    def as_html(self) -> str:
        """The same line with a coloured bar and verdict."""
        colour = COLOURS[self.held]
        return (
            f'<div style="border-left: 4px solid {colour}; padding: 2px 10px; margin: 2px 0">'
            f'<b style="color: {colour}">{self.verdict}:</b> {html.escape(self.text)}</div>'
        )


def claim(sentence: str, holds: object, value: object = "", otherwise: str = "") -> None:
    """Print whether `sentence` holds on this machine, and the number that says so.

    Args:
        sentence: the claim, complete in itself, e.g. "two workers are faster than one with the
            heavy transform".
        holds: bool, or a number, array or tensor of one element; NaN and anything else count as
            undecided.
        value: the measured number, as text with its unit, or a number.
        otherwise: sentences printed only if the claim fails: the likely cause, and what to do.
    """
    from course.device import machine, scale

    with contextlib.suppress(Exception, SystemExit):
        made = Claim(
            sentence=_text(sentence),
            held=_decided(holds),
            value=_text(value),
            machine=machine(),
            scale=scale(),
            otherwise=_text(otherwise),
        )
        _show(made)


def _decided(holds):
    """True, False, or None if `holds` is neither."""
    try:
        number = float(holds.item() if hasattr(holds, "item") else holds)
        if isinstance(holds, str) or math.isnan(number):
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


def _show(made):
    """Display `made` in a notebook, print it elsewhere."""
    ipython = sys.modules.get("IPython")
    if ipython and ipython.get_ipython():
        bundle = {"text/plain": str(made), "text/html": made.as_html()}
        ipython.display.display(bundle, metadata={MARK: asdict(made)}, raw=True)
        return
    encoding = getattr(sys.stdout, "encoding", None) or "utf-8"
    print(str(made).encode(encoding, "replace").decode(encoding))
