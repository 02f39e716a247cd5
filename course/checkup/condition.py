"""The condition of `--fail-if`: "data > 20%"."""

import re
from dataclasses import dataclass

from course.checkup.phases import EVALUATION, PHASES
from course.checkup.report import Report
from course.errors import CourseError

FORM = re.compile(r"\s*([a-z ]+?)\s*([<>])\s*([\d.]+)\s*(%?)\s*")
ADVICE = "advice"  # how many lines of it
NAMES = (*PHASES, EVALUATION, ADVICE)


@dataclass(frozen=True)
class Condition:
    """A share of a phase, or the lines of advice, on one side of a limit."""

    name: str  # one of NAMES
    is_above: bool
    limit: float

    def holds(self, report: Report) -> bool:
        """Whether it holds for a report."""
        if self.name == ADVICE:
            value = len(report.advice)
        elif self.name == EVALUATION:
            value = report.facts.evaluation.share
        else:
            value = report.facts.phases.share(self.name)
        return value > self.limit if self.is_above else value < self.limit


def parse(text: str) -> Condition:
    """The Condition that a user wrote.  Raises: CourseError if it is none."""
    match = FORM.fullmatch(text)
    if not match or match[1] not in NAMES:
        raise CourseError(
            f'--fail-if got "{text}"; write a phase, < or >, and a share: "data > 20%". '
            f"Phases: {', '.join(NAMES)}."
        )
    limit = float(match[3]) / (100 if match[4] else 1)
    return Condition(match[1], match[2] == ">", limit)
