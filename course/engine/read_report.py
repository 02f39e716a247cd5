"""Reads a report that a check printed into a notebook, back from the text: who solved what.

    read_report("pad_batch", text)     # ReadVerdict(correct=False, mistake="The mask is inverted.")

report.py and exercise.py write these sentences; tests/test_class_progress.py reads what they write.
No other module takes a report apart. A text can be edited: nothing that counts depends on it.
"""

import re
from dataclasses import dataclass

KNOWN_MISTAKE = "This looks like a known mistake:\n"
INDENT = " " * 5  # of what is said about a mistake
UNTOUCHED = "raise NotImplementedError"  # in the report on a stub
_ANSI = re.compile(r"\x1b\[[0-9;]*m")


@dataclass(frozen=True)
class ReadVerdict:
    """What a report says of an answer."""

    correct: bool
    mistake: str = ""  # what it says about a known mistake, "" if it names none


def read_report(name: str, text: str) -> ReadVerdict | None:
    """What the text of a cell's outputs says about the exercise `name`.

    None if it holds no report on an answer that somebody has begun.
    """
    text = _ANSI.sub("", text)
    if f"{name}: correct" in text:
        return ReadVerdict(True)
    if f"{name}: not yet" in text and UNTOUCHED not in text:
        return ReadVerdict(False, _mistake_in(text))
    return None


def _mistake_in(report: str) -> str:
    _, _, after = report.partition(KNOWN_MISTAKE)
    lines = []
    for line in after.splitlines():
        if not line.startswith(INDENT):
            break
        lines.append(line.strip())
    return " ".join(lines)
