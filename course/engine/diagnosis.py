"""Which known mistake an answer makes: its Outcome, those of the known mistakes -> *the one it is*.

A mistake that gives all of the learner's facts is named. So is one that gives the same facts up to
and including the first wrong one and differs later: a variant of it, or a second fault on top. That
needs a fact that only this mistake gives, with a wrong value that two ideas hardly have in common:
no bare False, small count or name.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

from course.engine.outcome import Comparison, Outcome
from course.engine.relations import digits, numbers_in

WEIGHT_MIN = 1.0  # the wrong values that only one mistake gives must weigh so much, see `_weight`
SHARED_MANY = 4  # so many wrong facts in common are enough, whatever follows


class KnownOutcome(NamedTuple):
    """A known mistake: the name of its answer, what to say about it, what the probe finds of it."""

    name: str
    advice: str
    outcome: Outcome


@dataclass
class _Candidate:
    """A known mistake that has the first wrong facts in common with an answer."""

    known: KnownOutcome
    pair: Comparison  # of the mistake with the answer
    shared: list[str]  # the wrong facts that they have in common


def find_mistake(seen: Comparison, known: Iterable[KnownOutcome]) -> KnownOutcome | None:
    """The known mistake that an answer makes, or None.

    Args:
        seen: the Outcome of the answer against that of the reference.
        known: asked for one by one; an Outcome that shares no fault with the answer may end at its
            first fact that differs.
    """
    candidates = []
    for mistake in known:
        pair = Comparison(mistake.outcome, seen.seen)
        if pair.is_same():
            return mistake
        shared = _shared_faults(pair, seen)
        if shared:
            candidates.append(_Candidate(mistake, pair, shared))
    for candidate in candidates:
        if _is_variant(candidate, candidates, seen):
            return candidate.known
    return None


def shared_faults(mistake: Outcome, seen: Comparison) -> list[str]:
    """The wrong facts that a mistake and an answer have in common before they differ.

    The first wrong fact of the answer is among them, or there is none.
    """
    return _shared_faults(Comparison(mistake, seen.seen), seen)


def _shared_faults(pair: Comparison, seen: Comparison) -> list[str]:
    shared = []
    for fact in seen.seen.facts:
        if fact not in pair.seen.facts or pair.difference(fact):
            break
        if fact in seen.expected.facts and seen.difference(fact):
            shared.append(fact)
    return shared


def _is_variant(candidate: _Candidate, candidates: list[_Candidate], seen: Comparison) -> bool:
    """Whether the answer is a variant of this mistake and of no other candidate."""
    facts_of_others: set[str] = set()
    for other in candidates:
        if other.known.name != candidate.known.name:
            facts_of_others.update(other.shared)
    weight = 0.0
    for fact in candidate.shared:
        if fact not in facts_of_others:
            weight += _weight(seen.seen.facts[fact], seen.expected.facts[fact])
    if weight < WEIGHT_MIN:
        return False
    return len(candidate.shared) >= SHARED_MANY or _one_holds_the_other(candidate.pair, seen)


def _one_holds_the_other(pair: Comparison, seen: Comparison) -> bool:
    """Whether one set of wrong facts contains the other, and most of the answer's are shared."""
    faults_of_mistake = set(Comparison(pair.seen, seen.expected).wrong_facts())
    faults = set(seen.wrong_facts())
    same = {fact for fact in faults_of_mistake & faults if not pair.difference(fact)}
    return same in (faults_of_mistake, faults) and 2 * len(same) > len(faults)


def _weight(value: Any, right: Any) -> float:
    """How much a wrong value tells: each number counts 0.1 for one digit, up to 1 for four."""
    yours = numbers_in(value) or []
    expected = numbers_in(right) or []
    if len(yours) != len(expected):
        return 0.0
    wrong = {number for number, other in zip(yours, expected, strict=True) if number != other}
    wrong.discard(0)
    return sum(0.1 + 0.3 * (min(digits(number), 4) - 1) for number in wrong)


def first_wrong(comparison: Comparison) -> Outcome:
    """The part of the Outcome `seen` up to its first fact that is not as expected, included."""
    kept = Outcome()
    for fact, value in comparison.seen.facts.items():
        kept.facts[fact] = value
        if fact not in comparison.expected.facts or comparison.difference(fact):
            return kept
    kept.raised = comparison.seen.raised
    return kept
