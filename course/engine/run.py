"""Run a probe on an answer, within limits: what it finds, fact by fact, is an Outcome.

Judges nothing: what differs from the reference is said by report.py, which known mistake it is by
diagnosis.py.
"""

import functools
import itertools
from dataclasses import dataclass, field

import torch

from course.engine.compare import differs, plain, same_values
from course.engine.limits import InputChanged, LeftBehind, NoReturn, Raised, run_answer


@dataclass
class Outcome:
    """What a probe found about one answer: its facts in order, and the exception that ended it, if
    any.
    """

    facts: dict = field(default_factory=dict)
    raised: Raised | None = None
    printed: str = ""
    refused: str | None = None  # why there was nothing to look at: no function, no class
    is_cut: bool = False  # stopped early at the first differing fact

    def same(self, other):
        """True if facts, exception type and message gist match."""
        kinds = [o.raised and o.raised.kind for o in (self, other)]
        gists = {o.raised.gist for o in (self, other) if o.raised and o.raised.gist}
        return (
            kinds[0] == kinds[1]
            and len(gists) < 2
            and len(self.facts) == len(other.facts)
            and self.begins(other)
        )

    def begins(self, other):
        """True if `other` holds all facts of this Outcome, with equal values."""
        facts = self.facts.items()
        return all(
            fact in other.facts and differs(value, other.facts[fact]) is None
            for fact, value in facts
        )


def run_probe(probe, answer, device, seed, limits, changes_inputs=False, like=None):
    """The Outcome of `probe` on `answer`; every random number that it draws is the same at every
    call.

    Args:
        probe: generator function (answer, device, seed) that yields (fact, value).
        limits: Limits of the answer.
        changes_inputs: whether the answer may write into its arguments.
        like: an Outcome; the probe is asked no further than to the first fact that differs from
            this one's.
    """
    outcome = Outcome()
    watched = answer if changes_inputs or isinstance(answer, type) else unchanged_inputs(answer)

    def collect():
        facts = probe(watched, device, seed)
        for fact, value in facts:
            outcome.facts[fact] = plain(value)
            outcome.is_cut = like is not None and not Outcome({fact: outcome.facts[fact]}).begins(
                like
            )
            if outcome.is_cut:
                facts.close()
                break
        if not torch.is_grad_enabled():
            raise LeftBehind(
                "your code switched autograd off and left it off: use `with torch.no_grad():`."
            )
        if device.type == "cuda":
            # an error of a kernel shows up here, not in the comparison
            torch.cuda.synchronize(device)

    outcome.raised, outcome.printed = run_answer(collect, answer, limits)
    return outcome


def is_same_object(answer, reference):
    """True if `answer` is `reference`, also under another name."""
    code = getattr(reference, "__code__", None)
    return answer is reference or (code is not None and getattr(answer, "__code__", None) is code)


def unchanged_inputs(answer):
    """`answer`, except that a call raises NoReturn if it gives None and InputChanged if it writes
    into an argument.
    """

    @functools.wraps(answer)
    def watched(*args, **kwargs):
        labelled = itertools.chain(
            ((f"argument {i + 1}", a) for i, a in enumerate(args)), kwargs.items()
        )
        given = [(label, t, t.detach().clone()) for label, a in labelled for t in all_tensors(a)]
        result = answer(*args, **kwargs)
        for label, tensor, before in given:
            if not same_values(tensor.detach(), before):
                raise InputChanged(
                    f"your code changed {label}, a tensor that belongs to its caller. Copy it first."
                )
        if result is None:
            raise NoReturn(
                "your function returned None. Is there a return at its end, on every path?"
            )
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
