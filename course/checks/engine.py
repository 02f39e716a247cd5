"""The check engine: one probe, run on the learner's answer and on the reference, compared fact by fact.

    @exercise()
    def linear_warmup(answer, device, seed):          # the probe; its name is the exercise's name
        yield "step 0 has the learning rate of the small batch", answer(0, 10, base_lr=0.1, lr=0.8)

    linear_warmup(my_function)                        # the check: returns None and prints, or raises CheckFailed

A probe yields (fact, plain data) from "has the right shape" to "is right in the corner case".  Right answers, however
written, give equal facts; where several values are right, the fact is the law they share.  When a fact differs, the
same probe runs on the known mistakes of the exercise: the one with the learner's facts names what went wrong.
What runs the answer under limits is limits.py; what is compared is in compare.py; where expected facts come from, the
live reference or a recording of it, is known to course.checks.expected alone.
"""

import functools
import importlib
import importlib.util
import inspect
import itertools
import pkgutil
import re
import sys
import textwrap
from dataclasses import dataclass, field

import torch

from course.checks import first_calls, rules  # noqa: F401  the former for what importing it does
from course.checks.compare import differs, plain, same_values
from course.checks.diagnosis import find_mistake, shared_faults
from course.checks.expected import facts_file, has_solutions, load_answers, load_facts, load_reference
from course.checks.limits import NOTHING_YET, InputChanged, LeftBehind, Limits, NoReturn, Raised, run_answer
from course.checks.relations import apart, expected_elsewhere, relation
from course.checks.solved import forget, note
from course.device import device as current_device
from course.errors import CourseError

WIDTH = 80  # columns of a message; nbgrader's validate cuts lines at 87


class CheckFailed(AssertionError):
    """An answer is not right yet; the message is the whole report."""

    def _render_traceback_(self):  # Jupyter prints these lines instead of library frames
        return str(self).splitlines()


@dataclass
class Outcome:
    """What a probe found about one answer: its facts in order, and the exception that ended it, if any."""

    facts: dict = field(default_factory=dict)
    raised: Raised | None = None
    printed: str = ""
    refused: str | None = None  # why there was nothing to look at: no function, no class
    violation: str | None = None  # a limit that a grader saw the answer break, from outside of its process
    is_cut: bool = False  # its last fact was unlike the one it was compared with, so nobody asked further

    def same(self, other):
        """True if both say the same, fact by fact, and ended the same way, with messages alike where they are known."""
        kinds = [o.raised and o.raised.kind for o in (self, other)]
        gists = {o.raised.gist for o in (self, other) if o.raised and o.raised.gist}
        return kinds[0] == kinds[1] and len(gists) < 2 and len(self.facts) == len(other.facts) and self.begins(other)

    def begins(self, other):
        """True if `other` holds all facts of this Outcome, with equal values."""
        facts = self.facts.items()
        return all(fact in other.facts and differs(value, other.facts[fact]) is None for fact, value in facts)


@dataclass
class Verdict:
    """What is said about an Outcome: whether it is right, the lines of the report, the known mistake that it is."""

    correct: bool
    report: list
    mistake: str | None = None  # the name of that answer in solutions/<unit>/answers
    begun: bool = True  # False for a stub that nobody has written in yet


class Exercise:
    """One exercise: called with an answer it checks it.  Made by `exercise`."""

    def __init__(
        self,
        unit,
        probe,
        changes_inputs,
        needs=None,
        seconds=Limits.seconds,
        forbids=(),
        isolated=False,
        measured=False,
        quiz=False,
    ):
        functools.update_wrapper(self, probe)
        self.unit, self.name, self.probe, self.changes_inputs = unit, probe.__name__, probe, changes_inputs
        self.needs, self.limits, self.forbids = needs, Limits(seconds), forbids
        self.isolated, self.measured, self.quiz = isolated, measured, quiz
        self._outcomes = {}

    def __call__(self, answer, seed=0, device=None, limits=None):
        """Print that `answer` is right, or raise CheckFailed with a report of at most 80 columns.

        Args:
            seed: inputs and sizes are made from it; 0 is the visible check, others the hidden ones.
            device: where the inputs live (default: course.device(), or the CPU where nothing was recorded on that one).
            limits: seconds and bytes the answer may use, for tests of the engine.

        Where there are no solutions, other seeds than 0, and devices that nothing was recorded on, are a CourseError.
        """
        forget(self)
        verdict = self.judge(answer, seed, device, limits)
        if verdict.correct:
            print("\n".join(verdict.report))
        note(self, answer, verdict, is_visible=not seed)
        if not verdict.correct:
            raise CheckFailed("\n".join(verdict.report))

    def judge(self, answer, seed=0, device=None, limits=None, diagnose=True):
        """The Verdict on `answer`, as a call says it; nothing is printed or remembered."""
        device = torch.device(device or self._default_device())
        if has_solutions() and is_same_object(answer, self.reference()):
            seen = Outcome(refused="this is the reference itself, imported. Write your own.")
        else:
            like = self.expected(device, seed) if self.quiz and self._is_expected_known(device, seed) else None
            seen = self.outcome(answer, device, seed, limits, self.asks_for_class(device, seed), like)
        return self.verdict(seen, device, seed, diagnose=diagnose)

    def reference(self):
        """The reference answer, as the master defines it.  Raises: CourseError where there are no solutions."""
        return load_reference(self.unit, self.name)

    def mistakes(self):
        """[(wrong answer, what to say about it)] of this exercise, in the order of their file."""
        known = vars(load_answers(self.unit, self.name)).values()
        return [(m, m.advice) for m in known if getattr(m, "mistake_of", None) == self.name]

    def alternatives(self):
        """Right answers in other styles."""
        known = vars(load_answers(self.unit, self.name)).values()
        return [a for a in known if getattr(a, "alternative_of", None) == self.name]

    def asks_for_class(self, device, seed):
        """Whether the answer is to be a class."""
        return isinstance(self.reference(), type) if has_solutions() else self._recorded(device, seed)["is_class"]

    def expected(self, device, seed):
        """The Outcome of the reference."""
        if not has_solutions():
            return Outcome(self._recorded(device, seed)["expected"])
        outcome = self._kept_outcome(self.reference(), device, seed)
        if outcome.raised:  # on a busy machine processes may have been too slow: once more
            del self._outcomes[self.reference(), str(device), seed]
            outcome = self._kept_outcome(self.reference(), device, seed)
        if outcome.raised and outcome.raised.kind in ("LimitReached", "MachineBusy"):
            raise CourseError(
                f"{self.name}: the machine is too busy for this check: the reference answer itself was too slow. "
                "Your answer was not judged; end other work, then run the check again."
            )
        if outcome.raised:
            raise RuntimeError(f"the probe of {self.name} fails on the reference: {outcome.raised.text}")
        return outcome

    def _is_expected_known(self, device, seed):
        return not has_solutions() or (self.reference(), str(device), seed) in self._outcomes

    def known_mistakes(self, device, seed, like=None, expected=None):
        """(name, what to say about it, Outcome) of every known mistake, in the order of their file.

        Args:
            like: an Outcome; a mistake that shares no fault with it is asked no further than to its first fact that
                differs from this one's.
            expected: the Outcome of the reference, which says what is a fault.
        """
        if has_solutions():
            for wrong, advice in self.mistakes():
                outcome = self._kept_outcome(wrong, device, seed, like)
                if outcome.is_cut and expected and shared_faults(outcome, like, expected):
                    outcome = self._kept_outcome(wrong, device, seed)
                yield wrong.__name__, advice, outcome
        else:
            for name, advice, facts, kind in self._recorded(device, seed)["mistakes"]:
                yield name, advice, Outcome(facts, kind and Raised(kind, ""))

    def record(self, device):
        """What the visible check needs where there are no solutions: plain data, and no text that quotes a mistake."""
        known = self.known_mistakes(device, 0)
        return {
            "is_class": self.asks_for_class(device, 0),
            "expected": self.expected(device, 0).facts,
            "mistakes": [[name, advice, o.facts, o.raised and o.raised.kind] for name, advice, o in known],
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
        """The Outcome of one of the course's own answers, computed once for each device and seed, as far as needed."""
        key = answer, str(device), seed
        kept = self._outcomes.get(key)
        if kept is None or kept.is_cut and (like is None or kept.begins(like)):
            self._outcomes[key] = self.outcome(answer, device, seed, like=like)
        return self._outcomes[key]

    def outcome(self, answer, device, seed, limits=None, is_class=None, like=None):
        """The probe's Outcome for `answer`; every random number it draws is the same at every call.

        Args:
            is_class: whether a class is asked for; None does not look at the kind of `answer`.
            like: an Outcome; the probe is asked no further than to the first fact that differs from this one's.
        """
        outcome = Outcome(refused=None if is_class is None else self.refusal(answer, is_class))
        if outcome.refused:
            return outcome
        a_class = isinstance(answer, type) or getattr(answer, "is_class", False)  # the latter: elsewhere
        watched = answer if self.changes_inputs or a_class else unchanged_inputs(answer)

        def collect():
            facts = self.probe(watched, device, seed)
            for fact, value in facts:
                outcome.facts[fact] = plain(value)
                outcome.is_cut = like is not None and not Outcome({fact: outcome.facts[fact]}).begins(like)
                if outcome.is_cut:
                    facts.close()
                    break
            if not torch.is_grad_enabled():
                raise LeftBehind("your code switched autograd off and left it off: use `with torch.no_grad():`.")
            if device.type == "cuda":
                torch.cuda.synchronize(device)  # an error of a kernel shows up here, not in the comparison

        outcome.raised, outcome.printed = run_answer(collect, answer, limits or self.limits)
        return outcome

    def refusal(self, answer, is_class):
        """A sentence if `answer` is not even of the right kind, else None."""
        if not callable(answer):
            return f"expected a function or a class, found {_shown(answer)}."
        if is_class and not isinstance(answer, type):
            return f"expected the class itself, found {_shown(answer)}. Pass it without ()."
        if inspect.iscoroutinefunction(answer):
            return "expected a plain function, found an `async def`."
        if self.needs and importlib.util.find_spec(self.needs) is None:
            return f"this check needs a package that is not here; install it: pip install {self.needs}"
        broken = rules.refusal(answer, self.name, self.forbids)
        return broken and f"not yet: {broken}"

    def verdict(self, seen, device, seed, told=("yours", "expected"), diagnose=True, expected=None):
        """The Verdict on the Outcome `seen`, which may come from another process: it is compared, never executed.

        Args:
            told: of "yours" and "expected" those that the report gives the values of.
            diagnose: whether to look for the mistake, which runs the known ones where nobody has yet.
            expected: the Outcome of the reference, where another process has found it out.
        """
        if seen.refused:
            return Verdict(False, _wrap(f"{self.name}: {seen.refused}").splitlines())
        if seen.raised and seen.raised.text == NOTHING_YET and not seen.facts:  # the reference need not run
            lines = [f"{self.name}: not yet ({device.type})", *_wrap(NOTHING_YET, "     ").splitlines()]
            return Verdict(False, lines + _printed(seen), begun=False)
        expected = expected or self.expected(device, seed)
        lines = self._difference(seen, expected, device, told)
        if not lines and seen.violation:
            return Verdict(False, _wrap(f"{self.name}: not yet: {seen.violation}").splitlines())
        if not lines:
            done = f"{self.name}: correct ({len(expected.facts)} facts, {device.type})"
            return Verdict(True, [done, *_printed(seen)])
        mistake, advice = self._diagnosis(seen, expected, device, seed) if diagnose else (None, None)
        if mistake:
            lines += ["This looks like a known mistake:", *_wrap(advice, "     ").splitlines()]
        return Verdict(False, lines + _printed(seen), mistake)

    def _difference(self, seen, expected, device, told):
        """The lines of a report up to the first fact that is wrong; none if all is right."""
        lines = [f"{self.name}: not yet ({device.type})"]
        for fact, right in expected.facts.items():
            if fact not in seen.facts:  # the answer stopped the probe here
                stopped = seen.raised.text if seen.raised else "nothing was found out about it."
                return lines + _item(" NO  ", fact) + _wrap(stopped, "     ").splitlines()
            difference = differs(seen.facts[fact], right)
            if difference:
                shown = _shown_of(difference, fact, seen.facts[fact], expected.facts, told)
                lines += _item(" NO  ", fact)
                return lines + [line for text in shown for line in _wrap(text, "     ").splitlines()]
            lines += _item(" ok  ", fact)
        return lines + _wrap(seen.raised.text, "     ").splitlines() if seen.raised else []

    def _diagnosis(self, seen, expected, device, seed):
        """(name, advice) of the known mistake that the answer makes, or (None, None)."""
        if seen.raised and seen.raised.text == NOTHING_YET:
            return None, None
        if self.quiz:
            seen = _first_wrong(seen, expected)
        known = self.known_mistakes(device, seed, seen, None if self.quiz else expected)
        if self.quiz:
            known = ((name, advice, _first_wrong(o, expected)) for name, advice, o in known)
        return find_mistake(seen, expected, known)


def exercise(
    unit=None,
    changes_inputs=False,
    needs=None,
    seconds=Limits.seconds,
    forbids=(),
    isolated=False,
    measured=False,
    quiz=False,
):
    """A decorator: probe -> Exercise.

    A probe is a generator function (answer, device, seed) that makes its inputs itself and yields (fact, value).

    Args:
        unit: folder of the masters, e.g. "03_large_batch" (default: UNIT of the probe's package).
        changes_inputs: True if the task is to change an argument in place; otherwise doing so is a mistake.
        needs: name of a package that the course runs without and this exercise does not, or None.
        seconds: what the answer may take in all, more where ranks are started: a grader takes that as their mark, and
            finds out the facts of such exercises one after the other.
        forbids: dotted paths of what does the task's work ready-made; the task says so under **Not allowed**.
        isolated: True if all that the probe looks at can cross as messages: a grader runs it in a process of its own.
        measured: True if facts say how much is read or held: a grader then measures both from outside, too.
        quiz: True if each fact is a verdict of its own: the first wrong one alone decides which mistake is named, and
            where the reference's facts are known by then, no further ones are asked for.
    """

    def made(probe):
        of = unit or sys.modules[probe.__module__.rpartition(".")[0]].UNIT
        return Exercise(of, probe, changes_inputs, needs, seconds, forbids, isolated, measured, quiz)

    return made


def load_probes(package, path):
    """{name: Exercise} of the modules in a package of probes, each named like the exercise that it holds."""
    names = sorted(module.name for module in pkgutil.iter_modules(path))
    modules = {name: importlib.import_module(f"{package}.{name}") for name in names}
    return {name: vars(module)[name] for name, module in modules.items() if name in vars(module)}


def mistake(name, advice):
    """A decorator for solutions/<unit>/answers: a wrong answer to `name` and the sentence that names its idea."""

    def mark(answer):
        answer.mistake_of, answer.advice = name, advice
        return answer

    return mark


def alternative(name):
    """A decorator for solutions/<unit>/answers: a right answer to exercise `name` in another style."""

    def mark(answer):
        answer.alternative_of = name
        return answer

    return mark


def _first_wrong(outcome, expected):
    """The part of `outcome` up to its first fact that is not as expected, that fact included."""
    kept = Outcome()
    for fact, value in outcome.facts.items():
        kept.facts[fact] = value
        if differs(value, expected.facts.get(fact)):
            return kept
    kept.raised = outcome.raised
    return kept


def _shown_of(difference, fact, value, expected, told):
    """What a report says of a `difference`: the values that may be told, and of both how one follows from the other."""
    hidden = tuple({"yours", "expected"} - {*told})
    if hidden:
        return [text for text in difference if told and not text.startswith(hidden)]
    known = relation(value, expected[fact]) or expected_elsewhere(fact, value, expected)
    return apart(difference, value, expected[fact]) + ([known] if known else [])


def _shown(answer):
    try:
        return repr(answer)[:60]
    except Exception:  # the learner's own __repr__
        return f"an object of type {type(answer).__name__}"


def is_same_object(answer, reference):
    """True if `answer` is `reference`, also under another name."""
    code = getattr(reference, "__code__", None)
    return answer is reference or (code is not None and getattr(answer, "__code__", None) is code)


def unchanged_inputs(answer):
    """`answer`, except that a call raises NoReturn if it gives None and InputChanged if it writes into an argument."""

    @functools.wraps(answer)
    def watched(*args, **kwargs):
        labelled = itertools.chain(((f"argument {i + 1}", a) for i, a in enumerate(args)), kwargs.items())
        given = [(label, t, t.detach().clone()) for label, a in labelled for t in all_tensors(a)]
        result = answer(*args, **kwargs)
        for label, tensor, before in given:
            if not same_values(tensor.detach(), before):
                raise InputChanged(f"your code changed {label}, a tensor that belongs to its caller. Copy it first.")
        if result is None:
            raise NoReturn("your function returned None. Is there a return at its end, on every path?")
        return result

    return watched


def all_tensors(value):
    """Yields every tensor in `value`, lists, tuples and dicts in it included, in order."""
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from all_tensors(item)
    elif isinstance(value, dict):
        yield from all_tensors(list(value.values()))


def _wrap(text, indent=""):
    return "\n".join(
        textwrap.fill(line, WIDTH, initial_indent=indent, subsequent_indent=indent, break_on_hyphens=False)
        for line in text.splitlines()
    )


def _item(mark, fact):
    return textwrap.fill(fact, WIDTH, initial_indent=mark, subsequent_indent="     ").splitlines()


def _printed(outcome):
    lines = re.sub(r"\x1b\[[\d;]*m", "", outcome.printed).expandtabs().splitlines()
    if not lines:
        return []
    shown = [f"  | {line[: WIDTH - 4]}" for line in lines[:8]]
    return ["Your code printed:", *shown] + ([f"  | ... {len(lines) - 8} more lines"] if len(lines) > 8 else [])
