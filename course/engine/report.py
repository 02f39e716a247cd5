"""What a check says, in lines of at most 80 columns: each fact up to the first that is wrong.

All words of a report about values and exceptions are made here, from data: Difference, Relation and
Raised. What a hidden check may show is chosen here, too, by ReportOptions.
"""

import os
import re
import textwrap
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, NamedTuple

import torch

from course.engine.diagnosis import KnownOutcome
from course.engine.difference import Difference, Kind
from course.engine.known_answers import fault_and_fix
from course.engine.outcome import Comparison, Outcome
from course.engine.probing.laws import FOUND, TRIED_ON
from course.engine.relations import Relation, RelationKind, expected_elsewhere, relation
from course.engine.stops import Raised, Stop

WIDTH = 80  # columns of a message; nbgrader's validate cuts lines at 87
INDENT = "     "
PRINTED_LINES_MAX = 8
VALUE_LENGTH_MAX = 200  # characters of a value
EXACT_LENGTH = 60  # characters of a value from shortly before where it differs
EXACT_BEFORE = 30  # characters before that place
KNOWN_MISTAKE = "This looks like a known mistake:"
UNUSABLE = (
    "your code ended, and the check could not use what it returned or changed. Compare its types "
    "and shapes with the task. Python says:"
)
NOT_WRITTEN = "Not written yet: replace `raise NotImplementedError()`."
GPU_LOST = (
    "a computation on the GPU has failed, here or in an earlier cell (perhaps an index out of "
    "range), and this process cannot use the GPU any more. Restart the kernel; with "
    "COURSE_DEVICE=cpu Python names the line."
)

# what ended a probe, where nothing but the Stop is told
_FIXED_TEXTS = {
    Stop.NOT_WRITTEN: NOT_WRITTEN,
    Stop.GPU_LOST: GPU_LOST,
    Stop.PROCESS_ENDED: "your code ended the process that it ran in.",
    Stop.UNNAMED: "stopped by an exception of your code.",
}
_RELATION_TEXTS = {
    RelationKind.TRANSPOSED: "Yours is the expected tensor, transposed.",
    RelationKind.RESHAPED: "The values are right, only their shape is not.",
    RelationKind.ONE_PLACE_EARLIER: "Each value is the one that is expected one place earlier.",
    RelationKind.ONE_PLACE_LATER: "Each value is the one that is expected one place later.",
    RelationKind.REORDERED: "Yours are the expected values in another order.",
}


class CheckFailed(AssertionError):
    """An answer is not right yet; the message is the whole report."""

    def _render_traceback_(self) -> list[str]:
        # Jupyter prints these lines instead of library frames
        return str(self).splitlines()


@dataclass
class Verdict:
    """What a check says of an answer.

    Attributes:
        report: lines of at most WIDTH columns.
        mistake: name of the known mistake in solutions/<unit>/answers; None if none is named.
        begun: False for a stub that nobody has written in yet.
        fix: how to fix that mistake, where the report leaves it out.
        reason: in short why it is not right: the first wrong fact and what differs there.
    """

    correct: bool
    report: list[str]
    mistake: str | None = None
    begun: bool = True
    fix: str = ""
    reason: str = ""


@dataclass(frozen=True)
class ReportOptions:
    """What a report tells.

    Attributes:
        show_expected: the expected value and how the answer's follows from it; a hidden check may
            not.
        diagnose: the known mistake; to find it may run the known mistakes.
        hide_fix: whether to leave to `Exercise.hint` how that mistake is fixed.
    """

    show_expected: bool = True
    diagnose: bool = True
    hide_fix: bool = False


FULL = ReportOptions()


def refused(name: str, seen: Outcome) -> Verdict:
    """The Verdict on what exercise `name` did not look at."""
    lines = wrapped(f"{name}: {seen.refused}")
    return Verdict(False, lines, reason=lines[-1])


def not_written(name: str, seen: Outcome, device: torch.device) -> Verdict:
    """The Verdict on a stub."""
    lines = [f"{name}: not yet ({device.type})", *wrapped(NOT_WRITTEN, INDENT)]
    return Verdict(False, lines + printed(seen), begun=False, reason=NOT_WRITTEN)


def correct(name: str, compared: Comparison, device: torch.device) -> Verdict:
    """The Verdict on an answer that is right."""
    line = f"{name}: correct ({len(compared.expected.facts)} facts, {device.type})"
    return Verdict(True, [line, *printed(compared.seen)])


def not_yet(
    name: str,
    compared: Comparison,
    device: torch.device,
    options: ReportOptions,
    mistake: KnownOutcome | None = None,
) -> Verdict:
    """The Verdict on an answer to exercise `name` that is not right.

    Args:
        compared: its Outcome, and that of the reference.
    """
    lines = [f"{name}: not yet ({device.type})"]
    wrong: list[str] = []
    for fact in compared.expected.facts:
        wrong = _wrong_lines(fact, compared, options)
        if wrong:
            break
        lines += _item(" ok  ", fact)
    if not wrong and compared.seen.raised:
        wrong = wrapped(raised_text(compared.seen.raised), INDENT)
    lines += wrong
    fix = ""
    if mistake:
        fault = mistake.advice
        if options.hide_fix:
            fault, fix = fault_and_fix(mistake.advice)
        lines += [KNOWN_MISTAKE, *wrapped(fault, INDENT)]
    if fix:
        lines.append(f"How to fix it: check.{name}.hint()")
    return Verdict(
        False,
        lines + printed(compared.seen),
        mistake=mistake.name if mistake else None,
        fix=fix,
        reason=" ".join(line[len(INDENT) :] for line in wrong[:2]),
    )


class Said(NamedTuple):
    """What the text of a report says."""

    correct: bool
    mistake: str  # what it says about the known mistake; "" if it names none


def read(name: str, text: str) -> Said | None:
    """What a report on exercise `name` in `text` says; None for a stub or without a report."""
    if f"{name}: correct" in text:
        return Said(True, "")
    if f"{name}: not yet" not in text or NOT_WRITTEN in text:
        return None
    _, _, after = text.partition(f"{KNOWN_MISTAKE}\n")
    sentences = []
    for line in after.splitlines():
        if not line.startswith(INDENT):
            break
        sentences.append(line.strip())
    return Said(False, " ".join(sentences))


def wrapped(text: str, indent: str = "") -> list[str]:
    """The lines of `text`, none longer than WIDTH."""
    lines = []
    for paragraph in text.splitlines():
        part = textwrap.wrap(
            paragraph,
            WIDTH,
            initial_indent=indent,
            subsequent_indent=indent,
            break_on_hyphens=False,
        )
        lines += part or [""]
    return lines


def printed(outcome: Outcome) -> list[str]:
    """The lines that show what the answer printed."""
    lines = re.sub(r"\x1b\[[\d;]*m", "", outcome.printed).expandtabs().splitlines()
    if not lines:
        return []
    shown = [f"  | {line[: WIDTH - 4]}" for line in lines[:PRINTED_LINES_MAX]]
    if len(lines) > PRINTED_LINES_MAX:
        shown.append(f"  | ... {len(lines) - PRINTED_LINES_MAX} more lines")
    return ["Your code printed:", *shown]


def raised_text(raised: Raised) -> str:
    """What to tell a learner about what ended the probe."""
    if raised.stop is Stop.RAISED:
        rank = "" if raised.rank is None else f" in rank {raised.rank}"
        error = f"{raised.kind}{rank}: {raised.message}"
        if raised.is_after:
            return f"{UNUSABLE} {error}"
        text = f"stopped by {error}"
        if raised.line is None:
            return text
        return f"{text}\nin line {raised.line} of your cell: {raised.source}"
    if raised.stop is Stop.HELPER_NOT_WRITTEN:
        return f"Your code calls {raised.message}, which is not written yet: write that one first."
    if raised.stop is Stop.PATCHED:
        return f"your code changed {raised.message}, which is not its own."
    return _FIXED_TEXTS.get(raised.stop, raised.message)


def _wrong_lines(fact: str, compared: Comparison, options: ReportOptions) -> list[str]:
    """The lines about a fact that is wrong or missing; none if it is right."""
    if fact not in compared.seen.facts:  # the answer stopped the probe here
        raised = compared.seen.raised
        text = raised_text(raised) if raised else "the check ended before this."
        return _item(" NO  ", fact) + wrapped(text, INDENT)
    found = compared.difference(fact)
    if not found:
        return []
    lines = _item(" NO  ", fact)
    for text in difference_texts(found, options.show_expected):
        lines += wrapped(text, INDENT)
    if options.show_expected:
        known = _relation_of(fact, compared)
        lines += wrapped(relation_text(known), INDENT) if known else []
    return lines


def _relation_of(fact: str, compared: Comparison) -> Relation | None:
    """How the wrong value of `fact` follows from the expected one, or from that of another fact."""
    value = compared.seen.facts[fact]
    expected = compared.expected.facts
    return relation(value, expected[fact]) or expected_elsewhere(fact, value, expected)


def _item(mark: str, fact: str) -> list[str]:
    return textwrap.wrap(fact, WIDTH, initial_indent=mark, subsequent_indent=INDENT)


def difference_texts(found: Difference, show_expected: bool = True) -> list[str]:
    """What to tell of a Difference: where, the answer's value and perhaps the expected one."""
    texts = []
    path = [step for step in found.path if step != FOUND]
    if path:
        steps = [f"place {step}" if isinstance(step, int) else repr(step) for step in path]
        texts.append(f"at {', '.join(steps)}:")
    if found.kind is Kind.LAW or _is_broken_law(found):
        return [*texts, "your answer does not do this"]
    if _is_picture(found.expected):
        texts.append(f"yours\n{found.yours}")
        return [*texts, f"expected\n{found.expected}"] if show_expected else texts
    yours, expected = _both_texts(found, show_expected)
    texts.append(f"yours    {yours}")
    if show_expected:
        texts.append(f"expected {expected}")
    return texts


def _is_picture(value: Any) -> bool:
    """True for a text of several lines, which is shown as it is: a drawing."""
    return isinstance(value, str) and "\n" in value


def _is_broken_law(found: Difference) -> bool:
    """Whether a law that `tried` made a fact of does not hold."""
    return found.yours is False and found.expected == [TRIED_ON]


def _both_texts(found: Difference, show_expected: bool) -> tuple[str, str]:
    """The words about the answer's value and the expected one."""
    if found.kind is Kind.SHAPE:
        return f"has shape {found.yours}", f"shape {found.expected}"
    if found.kind is Kind.DTYPE:
        return f"has dtype {found.yours}", f"dtype {found.expected}"
    if found.kind is Kind.LAYOUT:
        return f"has layout {found.yours}", f"{found.expected}"
    if found.kind is Kind.DEVICE:
        return f"is on device {found.yours}", f"on {found.expected}, where the inputs are"
    yours = _shown(found.yours)
    expected = _shown(found.expected)
    if show_expected and yours == expected:
        yours, expected = _exact_texts(found.yours, found.expected)
    if found.index:
        yours += f" at {list(found.index)}"
    if found.n_values > 1:
        yours += f" ({found.n_wrong} of {found.n_values} values differ)"
    return yours, expected


def _shown(value: Any) -> str:
    """The text of a value, short."""
    if isinstance(value, torch.Tensor):
        dtype = str(value.dtype).removeprefix("torch.")
        return f"a {dtype} tensor of shape {tuple(value.shape)}"
    if isinstance(value, float):
        return f"{value:.6g}"
    text = repr(value)
    return text if len(text) <= VALUE_LENGTH_MAX else text[:VALUE_LENGTH_MAX] + " ..."


def _exact_texts(yours: Any, expected: Any) -> tuple[str, str]:
    """Texts of two values that look the same when short, with enough of them to differ."""
    texts = [repr(yours), repr(expected)]
    if texts[0] == texts[1]:
        return _with_type(yours), _with_type(expected)
    begin = max(0, len(os.path.commonprefix(texts)) - EXACT_BEFORE)
    return _excerpt(texts[0], begin), _excerpt(texts[1], begin)


def _with_type(value: Any) -> str:
    return f"{repr(value)[:EXACT_LENGTH]} of type {type(value).__name__}"


def _excerpt(text: str, begin: int) -> str:
    """EXACT_LENGTH characters of `text` from `begin`, with dots where some are left out."""
    end = begin + EXACT_LENGTH
    before = "... " if begin > 0 else ""
    after = " ..." if len(text) > end else ""
    return f"{before}{text[begin:end]}{after}"


def relation_text(known: Relation) -> str:
    """The sentence about a Relation."""
    if known.kind is RelationKind.FACTOR:
        return _factor_text(known)
    if known.kind is RelationKind.ROUNDED:
        dtype = str(known.dtype).removeprefix("torch.")
        return f"Yours has the digits of {dtype}. Is a part computed or kept in it?"
    if known.kind is RelationKind.EXPECTED_ELSEWHERE:
        return f'Yours is what is expected under "{known.fact}".'
    return _RELATION_TEXTS[known.kind]


def _factor_text(known: Relation) -> str:
    each, one = ("Each value that differs", "one") if known.is_of_several else ("Yours", "value")
    factor = known.factor
    if factor == -1:
        return f"{each} is the expected {one} with the other sign."
    if not isinstance(factor, Fraction):
        return f"{each} is {factor:.5g} times the expected {one}."
    if factor.denominator == 1:
        return f"{each} is {factor} times the expected {one}."
    return f"{each} is {factor} of the expected {one}."
