"""The check engine: declare an exercise, and check an answer to it against the reference, fact by
fact.

    @exercise()
    def linear_warmup(answer, device, seed):          # the probe; its name is the exercise's name
        yield "step 0 has the learning rate of the small batch", answer(0, 10, base_lr=0.1, lr=0.8)

    linear_warmup(my_function)                        # the check: returns None and prints, or
    raises CheckFailed linear_warmup.hint()                              # prints how to fix the
    known mistake that it named

A probe yields (fact, plain data) from "has the right shape" to "is right in the corner case". Right
answers, however written, give equal facts; where several values are right, the fact is the law they
share. When a fact differs, the
same probe runs on the known mistakes of the exercise: the one with the learner's facts names what
went wrong. run.py runs a probe, within limits.py; report.py says what differs, by compare.py and
relations.py; diagnosis.py names the mistake; expected.py loads the reference; solved.py hands an
answer that passed to later cells.
"""

import functools
import importlib
import importlib.util
import inspect
import re
import sys
from collections.abc import Callable, Iterator

import torch

from course.device import device as current_device
from course.engine import first_calls, report, rules  # noqa: F401  the first for what importing it does
from course.engine.diagnosis import find_mistake, first_wrong, shared_faults
from course.engine.expected import facts_file, load_facts
from course.engine.known_answers import fault_and_fix, load_alternatives, load_mistakes
from course.engine.limits import GPU_LOST, NOTHING_YET, Limits, Raised
from course.engine.report import CheckFailed, Verdict
from course.engine.run import Outcome, is_same_object, run_probe
from course.errors import CourseError
from course.learner.solved import note
from course.notebook.registry import ExerciseFacts, exercise_facts, has_solutions, package_of
from course.notebook.solutions import load_reference

Answer = Callable  # what a learner writes: a function or a class
Facts = Iterator[tuple[str, object]]  # what a probe yields: a sentence, and plain data
# what torch's CPU kernels say where those of a GPU end CUDA for the whole process
ENDS_CUDA = re.compile("out of range|out of bounds|between 0 and 1|probability tensor contains")


class Exercise:
    """One exercise, made by `exercise`; called with an answer it checks it.

    Args:
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
        quiz: True if each fact is a verdict of its own: the first wrong one alone decides which
            mistake is named.
    """

    def __init__(
        self,
        unit,
        probe,
        changes_inputs=False,
        needs=None,
        seconds=Limits.seconds,
        forbids=(),
        quiz=False,
    ):
        functools.update_wrapper(self, probe)
        self.unit, self.name, self.probe, self.changes_inputs = (
            unit,
            probe.__name__,
            probe,
            changes_inputs,
        )
        self.needs, self.limits, self.forbids, self.quiz = needs, Limits(seconds), forbids, quiz
        self._outcomes, self._fix = {}, ""

    def __call__(self, answer, seed=0, device=None, limits=None):
        """Print that `answer` is right, or raise CheckFailed with a report of at most 80 columns;
        solved.py notes it.

        Args:
            seed: inputs and sizes are made from it; 0 is the visible check, others the hidden ones.
            device: where the inputs live (default: course.device(), or the CPU where nothing was
                recorded on that one).
            limits: seconds and bytes the answer may use, for tests of the engine.

        Where there are no solutions, other seeds than 0, and devices that nothing was recorded on,
        are a CourseError.
        """
        verdict = self.judge(answer, seed, device, limits, fold=not self.quiz)
        self._fix = verdict.fix
        if verdict.correct:
            print("\n".join(verdict.report))
        note(self, answer, verdict, is_visible=not seed)
        if not verdict.correct:
            raise CheckFailed("\n".join(verdict.report))

    def hint(self):
        """Print how to fix the known mistake that the latest check named."""
        nothing = (
            f"The latest check of {self.name} named no known mistake: open Hint 1 below the task."
        )
        print("\n".join(report.wrapped(self._fix or nothing)))

    def judge(self, answer, seed=0, device=None, limits=None, diagnose=True, fold=False):
        """The Verdict on `answer`; nothing is printed or noted."""
        device = torch.device(device or self._default_device())
        if has_solutions() and is_same_object(answer, self.reference()):
            seen = Outcome(refused="this is the reference itself, imported. Write your own.")
        else:
            seen = self.outcome(answer, device, seed, limits, self.asks_for_class(device, seed))
        return self.verdict(seen, device, seed, diagnose=diagnose, fold=fold)

    @property
    def facts(self) -> ExerciseFacts:
        """What the text of its task says about it."""
        return exercise_facts(self.unit, self.name)

    def sibling(self, name: str) -> "Exercise":
        """The exercise `name` of the same unit."""
        return getattr(importlib.import_module(f"course.checks.{package_of(self.unit)}"), name)

    def reference(self):
        """The reference answer.  Raises: CourseError where there are no solutions."""
        return load_reference(self.unit, self.name)

    def mistakes(self):
        """The Mistakes of this exercise, in the order of their file."""
        return load_mistakes(self.unit, self.name)

    def alternatives(self):
        """Right answers in other styles."""
        return load_alternatives(self.unit, self.name)

    def asks_for_class(self, device, seed):
        """Whether the answer is to be a class."""
        return (
            isinstance(self.reference(), type)
            if has_solutions()
            else self._recorded(device, seed)["is_class"]
        )

    def expected(self, device, seed):
        """The Outcome of the reference."""
        if not has_solutions():
            return Outcome(self._recorded(device, seed)["expected"])
        for _ in range(2):  # on a busy machine processes may have been too slow
            outcome = self._kept_outcome(self.reference(), device, seed)
            if not outcome.raised:
                return outcome
            del self._outcomes[self.reference(), str(device), seed]
        if outcome.raised.kind in ("LimitReached", "MachineBusy"):
            raise CourseError(
                f"{self.name}: the machine is too busy for this check: the reference answer itself was too slow. "
                "Your answer was not judged; end other work, then run the check again."
            )
        if outcome.raised.text == GPU_LOST:
            raise CourseError(f"{self.name}: {GPU_LOST}")
        raise RuntimeError(
            f"the probe of {self.name} fails on the reference: {outcome.raised.text}"
        )

    def known_mistakes(self, device, seed, like=None, expected=None):
        """(name, what to say about it, Outcome) of every known mistake, in the order of their file.

        Args:
            like: an Outcome; a mistake that shares no fault with it is run only to its first fact
                that differs from it.
            expected: the Outcome of the reference, which says what is a fault.
        """
        if has_solutions():
            for name, advice, wrong in self.mistakes():
                outcome = self._kept_outcome(wrong, device, seed, like)
                if outcome.is_cut and expected and shared_faults(outcome, like, expected):
                    outcome = self._kept_outcome(wrong, device, seed)
                yield name, advice, outcome
        else:
            for name, advice, facts, raised in self._recorded(device, seed)["mistakes"]:
                yield (
                    name,
                    advice,
                    Outcome(
                        facts, raised and Raised(raised[0], "stopped by {}: {}".format(*raised))
                    ),
                )

    def record(self, device):
        """What the visible check needs where there are no solutions, as plain data without the code
        of a mistake.
        """
        known = self.known_mistakes(device, 0)
        return {
            "is_class": self.asks_for_class(device, 0),
            "expected": self.expected(device, 0).facts,
            "mistakes": [
                [n, advice, o.facts, o.raised and [o.raised.kind, o.raised.gist]]
                for n, advice, o in known
            ],
        }

    def _recorded(self, device, seed):
        if seed:
            raise CourseError(
                f"{self.name}: the check was asked for seed={seed}, but this folder holds facts of seed 0 alone; "
                "leave the seed out."
            )
        return load_facts(facts_file(self.unit, device))[self.name]

    def _default_device(self):
        device = current_device()
        return device if has_solutions() or facts_file(self.unit, device).exists() else "cpu"

    def _kept_outcome(self, answer, device, seed, like=None):
        """The Outcome of one of the course's own answers, run once per device and seed, as far as
        needed.
        """
        key = answer, str(device), seed
        outcome = self._outcomes.get(key)
        if outcome is None or outcome.is_cut and (like is None or outcome.begins(like)):
            self._outcomes[key] = self.outcome(answer, device, seed, like=like)
        return self._outcomes[key]

    def outcome(self, answer, device, seed, limits=None, is_class=None, like=None):
        """The Outcome of the probe on `answer`, see run_probe; `is_class` None does not look at the
        answer's kind.
        """
        if is_class is not None and (refusal := self.refusal(answer, is_class)):
            return Outcome(refused=refusal)
        run = functools.partial(
            run_probe, self.probe, answer, changes_inputs=self.changes_inputs, like=like
        )
        if torch.device(device).type == "cuda" and torch.version.cuda:  # not the pretended one
            on_cpu = run(torch.device("cpu"), seed, limits or self.limits)
            if on_cpu.raised and ENDS_CUDA.search(on_cpu.raised.text):
                return on_cpu
        return run(device, seed, limits or self.limits)

    def refusal(self, answer, is_class):
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
        return broken and f"not yet: {broken}"

    def verdict(
        self,
        seen,
        device,
        seed,
        reveal=("yours", "expected"),
        diagnose=True,
        expected=None,
        fold=False,
    ):
        """The Verdict on the Outcome `seen`, which may come from another process: it is compared,
        never executed.

        Args:
            reveal: of "yours" and "expected" those whose values the report gives.
            diagnose: whether to look for the mistake, which may run the known ones.
            expected: the Outcome of the reference, if another process has computed it.
            fold: whether the report leaves the fix of a known mistake to `hint`.
        """
        if seen.refused:
            return Verdict(False, report.wrapped(f"{self.name}: {seen.refused}"))
        if (
            seen.raised and seen.raised.text == NOTHING_YET and not seen.facts
        ):  # the reference need not run
            lines = [f"{self.name}: not yet ({device.type})", *report.wrapped(NOTHING_YET, "     ")]
            return Verdict(False, lines + report.printed(seen), begun=False)
        expected = expected or self.expected(device, seed)
        lines = report.difference(self.name, seen, expected, device, reveal)
        if not lines:
            done = f"{self.name}: correct ({len(expected.facts)} facts, {device.type})"
            return Verdict(True, [done, *report.printed(seen)])
        mistake, advice = (
            self._diagnosis(seen, expected, device, seed) if diagnose else (None, None)
        )
        fault, fix = fault_and_fix(advice) if mistake and fold else (advice, "")
        if mistake:
            lines += ["This looks like a known mistake:", *report.wrapped(fault, "     ")]
        lines += [f"How to fix it: check.{self.name}.hint()"] if fix else []
        return Verdict(False, lines + report.printed(seen), mistake, fix=fix)

    def _diagnosis(self, seen, expected, device, seed):
        """(name, advice) of the known mistake that the answer makes, or (None, None)."""
        if seen.raised and seen.raised.text == NOTHING_YET:
            return None, None
        if self.quiz:
            seen = first_wrong(seen, expected)
        known = self.known_mistakes(device, seed, seen, None if self.quiz else expected)
        if self.quiz:
            known = ((name, advice, first_wrong(o, expected)) for name, advice, o in known)
        return find_mistake(seen, expected, known)


def exercise(unit=None, **options):
    """A decorator: probe -> Exercise, with its `options`; the default `unit` is UNIT of the probe's
    package.
    """

    def made(probe):
        of = unit or sys.modules[probe.__module__.rpartition(".")[0]].UNIT
        return Exercise(of, probe, **options)

    return made


def _shown(answer):
    try:
        return repr(answer)[:60]
    except Exception:  # the learner's own __repr__
        return f"an object of type {type(answer).__name__}"
