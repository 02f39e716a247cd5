"""What a check says of an Outcome, in lines of at most 80 columns: each fact up to the first that
is wrong.
"""

import re
import textwrap
from dataclasses import dataclass

from course.engine.compare import differs
from course.engine.relations import distinguish, expected_elsewhere, relation

WIDTH = 80  # columns of a message; nbgrader's validate cuts lines at 87


class CheckFailed(AssertionError):
    """An answer is not right yet; the message is the whole report."""

    def _render_traceback_(self):  # Jupyter prints these lines instead of library frames
        return str(self).splitlines()


@dataclass
class Verdict:
    """What a check says of an answer: whether it is right, the lines of the report, the known
    mistake that it makes.
    """

    correct: bool
    report: list
    mistake: str | None = None  # the name of that answer in solutions/<unit>/answers
    begun: bool = True  # False for a stub that nobody has written in yet
    fix: str = ""  # how to fix that mistake, where the report leaves it out


def difference(name, seen, expected, device, reveal):
    """The lines of a report up to the first fact that is wrong; none if all is right.

    Args:
        name: of the exercise.
        seen, expected: Outcomes of the answer and of the reference.
        reveal: of "yours" and "expected" those whose values the report gives.
    """
    lines = [f"{name}: not yet ({device.type})"]
    for fact, right in expected.facts.items():
        if fact not in seen.facts:  # the answer stopped the probe here
            stopped = seen.raised.text if seen.raised else "the check ended before this."
            return lines + _item(" NO  ", fact) + wrapped(stopped, "     ")
        difference = differs(seen.facts[fact], right)
        if difference:
            shown = _shown_of(difference, fact, seen.facts[fact], expected.facts, reveal)
            lines += _item(" NO  ", fact)
            return lines + [line for text in shown for line in wrapped(text, "     ")]
        lines += _item(" ok  ", fact)
    return lines + wrapped(seen.raised.text, "     ") if seen.raised else []


def _shown_of(difference, fact, value, expected, reveal):
    """What a report says of a `difference`: the values it may reveal, and how one follows from the
    other.
    """
    hidden = tuple({"yours", "expected"} - {*reveal})
    if hidden:
        return [text for text in difference if reveal and not text.startswith(hidden)]
    known = relation(value, expected[fact]) or expected_elsewhere(fact, value, expected)
    return distinguish(difference, value, expected[fact]) + ([known] if known else [])


def wrapped(text, indent=""):
    """The lines of `text`, none longer than WIDTH."""
    options = {"initial_indent": indent, "subsequent_indent": indent, "break_on_hyphens": False}
    return [
        line
        for paragraph in text.splitlines()
        for line in textwrap.wrap(paragraph, WIDTH, **options) or [""]
    ]


def _item(mark, fact):
    return textwrap.wrap(fact, WIDTH, initial_indent=mark, subsequent_indent="     ")


def printed(outcome):
    """The lines that show what the answer printed."""
    lines = re.sub(r"\x1b\[[\d;]*m", "", outcome.printed).expandtabs().splitlines()
    if not lines:
        return []
    shown = [f"  | {line[: WIDTH - 4]}" for line in lines[:8]]
    return ["Your code printed:", *shown] + (
        [f"  | ... {len(lines) - 8} more lines"] if len(lines) > 8 else []
    )
