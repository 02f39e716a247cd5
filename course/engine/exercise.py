"""Declare an exercise, and check an answer to it.

    @exercise()
    def linear_warmup(answer, device, seed):  # the probe; its name is the exercise's name
        yield "step 0 has the learning rate of the small batch", answer(0, 10, base_lr=0.1, lr=0.8)

    linear_warmup(my_function)  # the check: prints and returns None, or raises CheckFailed
    linear_warmup.hint()  # prints how to fix the known mistake that it named
    ddp_facts.reasons(my_function)  # prints the reason of each verdict of a quiz that is passed

A probe yields (fact, plain data) from "has the right shape" to "is right in the corner case". Right
answers, however written, give equal facts; where several values are right, the fact is the law they
share. When a fact differs, the same probe runs on the known mistakes of the exercise: the one with
the learner's facts names what went wrong.

judge.py runs and compares: run.py runs a probe, within limits.py; compare.py finds the Difference
of a fact, diagnosis.py the mistake; report.py words it. learner/solved.py hands an answer that
passed to later cells.
"""

import functools
import importlib
import importlib.util
import inspect
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal, TypedDict, Unpack

import torch

from course.device import device as current_device
from course.engine import first_calls, report, rules  # noqa: F401  the first for what importing it does
from course.engine.expected import facts_file
from course.engine.judge import Judge, RecordedJudge
from course.engine.known_answers import Mistake, load_alternatives, load_mistakes
from course.engine.limits import Limits
from course.engine.outcome import Outcome
from course.engine.report import CheckFailed, ReportOptions, Verdict
from course.engine.run import Answer, Facts, Probe, is_same_object
from course.learner.solved import note
from course.notebook.registry import (
    ExerciseFacts,
    exercise_facts,
    has_solutions,
    is_grading,
    package_of,
)
from course.notebook.solutions import load_reference

__all__ = ["Answer", "CheckFailed", "Exercise", "Facts", "exercise"]


Tolerated = Literal["shape", "device", "input"]


class Options(TypedDict, total=False):
    """The properties of an exercise, see Exercise."""

    changes_inputs: bool
    needs: str | None
    seconds: float
    forbids: tuple[str, ...]
    quiz: bool
    starts_processes: bool
    same_facts_at_all_seeds: bool
    given_modules_only: bool
    returns_no_number: bool
    calls_no_method: bool
    tolerates: tuple[Tolerated, ...]


@dataclass(eq=False)
class Exercise:
    """One exercise, made by `exercise`; called with an answer it checks it.

    Attributes:
        unit: folder of the masters, e.g. "03_large_batch".
        probe: generator function (answer, device, seed) that makes its inputs itself and yields
            (fact, value).
        changes_inputs: True if the task is to change an argument in place; otherwise doing so is a
            mistake.
        needs: name of a package that only this exercise needs, or None.
        seconds: what the answer may take in all, more where ranks are started: a grader takes that
            as their mark, and finds out the facts of such exercises one after the other.
        forbids: dotted paths of what does the task's work ready-made; the task says so under **Not
            allowed**.
        quiz: True if each fact is judged separately: the first wrong one alone decides which
            mistake is named.

    What tests of all exercises must know of one:
        starts_processes: True if a check takes seconds because it starts processes.
        same_facts_at_all_seeds: True if the facts are laws, or if the answer is given nothing.
        given_modules_only: True if the only tensors that it is given are those of modules; that
            they stay the same is then a fact, because the engine watches only tensors.
        returns_no_number: True if it returns an object, a string or nothing.
        calls_no_method: True if the probe reads attributes of the class, and results of no method.
        tolerates: what no fact compares: the "shape" or the "device" of results, or writing into an
            "input".
    """

    unit: str
    probe: Probe
    changes_inputs: bool = False
    needs: str | None = None
    seconds: float = Limits.seconds
    forbids: tuple[str, ...] = ()
    quiz: bool = False
    starts_processes: bool = False
    same_facts_at_all_seeds: bool = False
    given_modules_only: bool = False
    returns_no_number: bool = False
    calls_no_method: bool = False
    tolerates: tuple[Tolerated, ...] = ()
    name: str = field(init=False)

    def __post_init__(self) -> None:
        functools.update_wrapper(self, self.probe)
        self.name = self.probe.__name__
        self._judges: dict[tuple[str, int], Judge] = {}
        self._latest = Verdict(correct=True, report=[])

    @property
    def limits(self) -> Limits:
        """The limits of an answer."""
        return Limits(self.seconds)

    def __call__(
        self,
        answer: Any,
        seed: int = 0,
        device: torch.device | str | None = None,
        limits: Limits | None = None,
    ) -> None:
        """Print that `answer` is right, or raise CheckFailed; solved.py remembers which.

        Args:
            seed: inputs and sizes are made from it; 0 is the visible check, others the hidden ones.
            device: where the inputs live (default: course.device(), or the CPU where nothing was
                recorded on that one).
            limits: seconds and bytes the answer may use, for tests of the engine.

        Raises: CheckFailed with a report of at most 80 columns; CourseError where there are no
            solutions for other seeds than 0, and for devices that nothing was recorded on.
        """
        if is_grading():  # what follows in the cell runs, as after a check that passes
            return
        verdict = self.judge(answer, seed, device, limits, hide_fix=not self.quiz)
        self._latest = verdict
        if verdict.correct:
            print("\n".join(verdict.report))
        note(self, answer, verdict, is_visible=not seed)
        if not verdict.correct:
            raise CheckFailed("\n".join(verdict.report))

    def hint(self) -> None:
        """Print how to fix the known mistake that the latest check named."""
        if self._latest.fix:
            text = self._latest.fix
        elif self._latest.mistake:
            text = "The report of the check says all that is known: open Hint 1 below the task."
        else:
            text = f"The latest check of {self.name} named no known mistake: open its Hint 1."
        print("\n".join(report.wrapped(text)))

    def reasons(self, answer: Any) -> None:
        """Print, for a quiz, why each statement is true or false, once `answer` passes."""
        if not self.judge(answer, diagnose=False).correct:
            print(f"The reasons appear here as soon as your {self.name} passes its check.")
            return
        for reason in self.at(self._default_device(), 0).reasons():
            print("\n".join(report.wrapped(reason)))

    def judge(
        self,
        answer: Any,
        seed: int = 0,
        device: torch.device | str | None = None,
        limits: Limits | None = None,
        diagnose: bool = True,
        hide_fix: bool = False,
    ) -> Verdict:
        """The Verdict on `answer`; nothing is printed or remembered.

        Args:
            diagnose, hide_fix: see ReportOptions.
        """
        judge = self.at(device or self._default_device(), seed)
        if has_solutions() and is_same_object(answer, self.reference()):
            seen = Outcome(refused="this is the reference itself, imported. Write your own.")
        else:
            seen = judge.outcome(answer, judge.asks_for_class(), limits)
        return judge.verdict(seen, ReportOptions(diagnose=diagnose, hide_fix=hide_fix))

    @property
    def facts(self) -> ExerciseFacts:
        """What the text of its task says about it."""
        return exercise_facts(self.unit, self.name)

    def sibling(self, name: str) -> "Exercise":
        """The exercise `name` of the same unit."""
        package = importlib.import_module(f"course.checks.{package_of(self.unit)}")
        found: Exercise = getattr(package, name)
        return found

    def at(self, device: torch.device | str, seed: int = 0) -> Judge:
        """The Judge of answers to this exercise on `device` with `seed`."""
        device = torch.device(device)
        if not has_solutions():
            return RecordedJudge(self, device, seed)
        key = (str(device), seed)
        if key not in self._judges:
            self._judges[key] = Judge(self, device, seed)
        return self._judges[key]

    def reference(self) -> Answer:
        """The reference answer.  Raises: CourseError where there are no solutions."""
        return load_reference(self.unit, self.name)

    def mistakes(self) -> list[Mistake]:
        """The Mistakes of this exercise, in the order of their file."""
        return load_mistakes(self.unit, self.name)

    def alternatives(self) -> list[Answer]:
        """Right answers in other styles."""
        return load_alternatives(self.unit, self.name)

    def refusal(self, answer: Any, is_class: bool) -> str | None:
        """A sentence if `answer` is not even of the right kind, else None."""
        if not callable(answer):
            return f"expected a function or a class, found {_shown(answer)}."
        if is_class and not isinstance(answer, type):
            return f"expected the class itself, found {_shown(answer)}. Pass it without ()."
        if inspect.iscoroutinefunction(answer):
            return "expected a plain function, found an `async def`."
        if self.needs and importlib.util.find_spec(self.needs) is None:
            return (
                f"this check needs a package that is not here; install it: pip install {self.needs}"
            )
        broken = rules.refusal(answer, self.forbids)
        return f"not yet: {broken}" if broken else None

    def _default_device(self) -> torch.device | str:
        device = current_device()
        return device if has_solutions() or facts_file(self.unit, device).exists() else "cpu"


def exercise(unit: str | None = None, **options: Unpack[Options]) -> Callable[[Probe], Exercise]:
    """A decorator: probe -> Exercise with these properties.

    Args:
        unit: folder of the masters (default: UNIT of the probe's package).
    """

    def declare(probe: Probe) -> Exercise:
        return Exercise(unit or _unit_of(probe), probe, **options)

    return declare


def _unit_of(probe: Probe) -> str:
    """UNIT of the package that holds the module of a probe."""
    package = sys.modules[probe.__module__.rpartition(".")[0]]
    unit: str = package.UNIT
    return unit


def _shown(answer: Any) -> str:
    try:
        return repr(answer)[:60]
    except Exception:  # the learner's own __repr__
        return f"an object of type {type(answer).__name__}"
