"""Judge answers: exercise, device, seed -> a *Judge*, which runs answers and gives Verdicts.

    judge = exercise.at(torch.device("cpu"), seed=0)
    seen = judge.run(answer)            # the Outcome of the probe
    judge.verdict(seen)                 # compared with the reference's, never executed

A Judge runs the reference and the known mistakes of the course, each once; in a class's folder,
which has none of them, a RecordedJudge reads what was recorded of them.
"""

import multiprocessing.util
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import torch

from course.engine import report
from course.engine.diagnosis import KnownOutcome, find_mistake, first_wrong, shared_faults
from course.engine.expected import facts_file, load_facts
from course.engine.limits import Limits
from course.engine.outcome import Comparison, Outcome
from course.engine.report import ReportOptions, Verdict
from course.engine.run import Answer, run_probe
from course.engine.stops import Raised, Stop
from course.errors import CourseError

if TYPE_CHECKING:
    from course.engine.exercise import Exercise

# what torch's CPU kernels say where those of a GPU end CUDA for the whole process
ENDS_CUDA = re.compile("out of range|out of bounds|between 0 and 1|probability tensor contains")


class Judge:
    """Runs answers to one exercise on one device with one seed, and judges what the probe finds."""

    def __init__(self, exercise: "Exercise", device: torch.device, seed: int) -> None:
        self.exercise = exercise
        self.device = device
        self.seed = seed
        self._outcomes: dict[Answer, Outcome] = {}

    def outcome(self, answer: Any, is_class: bool, limits: Limits | None = None) -> Outcome:
        """The Outcome of a learner's answer, whatever it is.

        Args:
            is_class: whether the answer is to be a class, see `asks_for_class`.
            limits: those of the answer (default: the exercise's).
        """
        refusal = self.exercise.refusal(answer, is_class)
        if refusal:
            return Outcome(refused=refusal)
        return self.run(answer, limits)

    def run(
        self,
        answer: Answer,
        limits: Limits | None = None,
        stop_when_differs_from: Outcome | None = None,
    ) -> Outcome:
        """Run the probe on `answer` again at each call, and return its Outcome; see `run_probe`."""
        if self.device.type == "cuda" and torch.version.cuda:  # not the pretended one
            on_cpu = self._run_on(torch.device("cpu"), answer, limits, stop_when_differs_from)
            if on_cpu.raised and ENDS_CUDA.search(on_cpu.raised.message):
                return on_cpu
        return self._run_on(self.device, answer, limits, stop_when_differs_from)

    def _run_on(
        self,
        device: torch.device,
        answer: Answer,
        limits: Limits | None,
        stop_when_differs_from: Outcome | None,
    ) -> Outcome:
        if self.exercise.starts_processes:
            # Workers inherit this folder. One that makes its own removes it when it ends, and
            # prints a traceback if it is stopped while it still sends a batch through it.
            multiprocessing.util.get_temp_dir()
        return run_probe(
            self.exercise.probe,
            answer,
            device,
            self.seed,
            limits or self.exercise.limits,
            self.exercise.changes_inputs,
            stop_when_differs_from,
        )

    def run_once(self, answer: Answer, until_differs_from: Outcome | None = None) -> Outcome:
        """The Outcome of one of the course's own answers, which is kept.

        Args:
            until_differs_from: an Outcome; the probe is run no further than to the first fact that
                differs from this one's, unless it was before.
        """
        kept = self._outcomes.get(answer)
        if kept and not kept.is_cut:
            return kept
        if kept and until_differs_from and not kept.begins(until_differs_from):
            return kept
        outcome = self.run(answer, stop_when_differs_from=until_differs_from)
        self._outcomes[answer] = outcome
        return outcome

    def forget(self) -> None:
        """Forget the Outcomes of the course's own answers."""
        self._outcomes.clear()

    def asks_for_class(self) -> bool:
        """Whether the answer is to be a class."""
        return isinstance(self.exercise.reference(), type)

    def expected(self) -> Outcome:
        """The Outcome of the reference.

        Raises: CourseError if the machine is too busy for it or has lost its GPU; RuntimeError if
            the probe fails on the reference.
        """
        reference = self.exercise.reference()
        outcome = self.run_once(reference)
        if outcome.raised:  # on a busy machine processes may have been too slow
            self._outcomes.pop(reference)
            outcome = self.run_once(reference)
        if outcome.raised:
            self._outcomes.pop(reference)
            raise _reference_failed(self.exercise.name, outcome.raised)
        return outcome

    def known_mistakes(self, until_differs_from: Outcome | None = None) -> Iterator[KnownOutcome]:
        """Yield the known mistakes, in the order of their file; see `run_once`."""
        for mistake in self.exercise.mistakes():
            outcome = self.run_once(mistake.answer, until_differs_from)
            yield KnownOutcome(mistake.name, mistake.advice, outcome)

    def verdict(
        self,
        seen: Outcome,
        options: ReportOptions = report.FULL,
        expected: Outcome | None = None,
    ) -> Verdict:
        """The Verdict on an Outcome, which may come from another process: it is only compared.

        Args:
            expected: the Outcome of the reference, if another process has computed it.
        """
        name = self.exercise.name
        if seen.refused:
            return report.refused(name, seen)
        if seen.is_not_written and not seen.facts:  # the reference need not run
            return report.not_written(name, seen, self.device)
        compared = Comparison(seen, expected or self.expected())
        if compared.is_right():
            return report.correct(name, compared, self.device)
        mistake = self._mistake(compared) if options.diagnose else None
        return report.not_yet(name, compared, self.device, options, mistake)

    def _mistake(self, compared: Comparison) -> KnownOutcome | None:
        """The known mistake that the answer makes, or None."""
        if compared.seen.is_not_written or compared.is_undecided():
            return None
        if self.exercise.quiz:
            return self._mistake_in_quiz(compared)
        return find_mistake(compared, self._mistakes_to_compare(compared))

    def _mistakes_to_compare(self, compared: Comparison) -> Iterator[KnownOutcome]:
        """Yield the known mistakes, those that share a fault with the answer with all their facts.

        The others are run only to their first fact that differs from the answer's.
        """
        for known in self.known_mistakes(until_differs_from=compared.seen):
            if known.outcome.is_cut and shared_faults(known.outcome, compared):
                known = known._replace(outcome=self._whole_outcome(known.name))
            yield known

    def _whole_outcome(self, name: str) -> Outcome:
        """All that the probe finds of the known mistake with this name."""
        answers = {mistake.name: mistake.answer for mistake in self.exercise.mistakes()}
        return self.run_once(answers[name])

    def _mistake_in_quiz(self, compared: Comparison) -> KnownOutcome | None:
        """The known mistake that is as right as the answer up to the answer's first wrong fact."""
        expected = compared.expected
        begin = first_wrong(compared)
        known = self._mistakes_up_to_first_wrong(begin, expected)
        return find_mistake(Comparison(begin, expected), known)

    def _mistakes_up_to_first_wrong(
        self, seen: Outcome, expected: Outcome
    ) -> Iterator[KnownOutcome]:
        for known in self.known_mistakes(until_differs_from=seen):
            begin = first_wrong(Comparison(known.outcome, expected))
            yield known._replace(outcome=begin)

    def reasons(self) -> list[str]:
        """What is said of each statement of a quiz, in the order of the statements.

        It is what a known mistake says that judges this statement wrongly and all before it right.
        """
        expected = self.expected()
        by_statement: dict[str, str] = {}
        for known in self.known_mistakes():
            first = next(Comparison(known.outcome, expected).wrong_facts(), None)
            if first and isinstance(expected.facts[first], bool):
                by_statement.setdefault(first, known.advice)
        return [by_statement[fact] for fact in expected.facts if fact in by_statement]

    def record(self) -> dict[str, Any]:
        """What a RecordedJudge needs, as plain data without the code of a mistake."""
        mistakes = []
        for name, advice, outcome in self.known_mistakes():
            raised = outcome.raised
            ended_by = [raised.kind, raised.comparable_message] if raised else None
            mistakes.append([name, advice, outcome.facts, ended_by])
        return {
            "is_class": self.asks_for_class(),
            "expected": self.expected().facts,
            "mistakes": mistakes,
        }


class RecordedJudge(Judge):
    """A Judge in a class's folder: of the reference and the mistakes it knows the recorded facts.

    They are those of seed 0; another seed is a CourseError.
    """

    def asks_for_class(self) -> bool:
        """Whether the answer is to be a class."""
        return bool(self._recorded()["is_class"])

    def expected(self) -> Outcome:
        """The Outcome of the reference, as it was recorded."""
        return Outcome(self._recorded()["expected"])

    def known_mistakes(self, until_differs_from: Outcome | None = None) -> Iterator[KnownOutcome]:
        """Yield the known mistakes, as they were recorded: with all their facts."""
        for name, advice, facts, ended_by in self._recorded()["mistakes"]:
            raised = Raised(Stop.RAISED, *ended_by) if ended_by else None
            yield KnownOutcome(name, advice, Outcome(facts, raised))

    def _recorded(self) -> dict[str, Any]:
        """What `Judge.record` gave when the folder was made."""
        if self.seed:
            raise CourseError(
                f"{self.exercise.name}: the check was asked for seed={self.seed}, but this folder "
                "holds facts of seed 0 alone; leave the seed out."
            )
        file = facts_file(self.exercise.unit, self.device)
        return load_facts(file)[self.exercise.name]


def _reference_failed(name: str, raised: Raised) -> Exception:
    """What to raise where the reference itself did not come to its end."""
    if raised.stop in (Stop.LIMIT, Stop.BUSY):
        return CourseError(
            f"{name}: the machine is too busy for this check: the reference answer itself was too "
            "slow. Your answer was not judged; end other work, then run the check again."
        )
    text = report.raised_text(raised)
    if raised.stop is Stop.GPU_LOST:
        return CourseError(f"{name}: {text}")
    return RuntimeError(f"the probe of {name} fails on the reference: {text}")
