"""Which known mistake an answer makes: its Outcome, those of the known mistakes -> *the one that it
is*, or none.

A mistake that gives all of the learner's facts is named. So is one that gives the same facts up to
and including the
first wrong one and differs later: a variant of it, or a second fault on top. That needs a fact of
its own, a wrong
value that no other mistake gives there and that two ideas hardly have in common: no bare False,
small count or name.
"""

from course.engine.compare import differs
from course.engine.relations import digits, numbers_in
from course.engine.run import Outcome

TELLING = 1.0  # so much must the wrong values hold that are a mistake's own, see `_weight`
SEVERAL = 4  # so many wrong facts in common are enough, whatever follows


def find_mistake(seen, expected, known):
    """(name, advice) of the known mistake that an answer makes, or (None, None).

    Args:
        seen, expected: Outcomes of the answer and of the reference.
        known: (name, advice, Outcome) of the known mistakes, asked for one by one; an Outcome that
            shares no fault with `seen` may end at its first fact that differs.
    """
    alike = []
    for name, advice, outcome in known:
        if outcome.same(seen):
            return name, advice
        if shared := shared_faults(outcome, seen, expected):
            alike.append((name, advice, outcome, shared))
    for name, advice, outcome, shared in alike:
        others = {fact for other in alike if other[0] != name for fact in other[3]}
        own = sum(
            _weight(seen.facts[fact], expected.facts[fact]) for fact in shared if fact not in others
        )
        if own >= TELLING and (
            len(shared) >= SEVERAL or _one_holds_the_other(outcome, seen, expected)
        ):
            return name, advice
    return None, None


def shared_faults(outcome, seen, expected):
    """The wrong facts that two Outcomes have in common before they differ, the first wrong one of
    `seen` among them.
    """
    shared = []
    for fact, value in seen.facts.items():
        if fact not in outcome.facts or differs(outcome.facts[fact], value):
            break
        if fact in expected.facts and differs(value, expected.facts[fact]):
            shared.append(fact)
    return shared


def _one_holds_the_other(outcome, seen, expected):
    """True if one set of wrong facts contains the other, and they share most of what is wrong with
    `seen`.
    """
    faults = [
        {
            fact
            for fact, value in o.facts.items()
            if fact in expected.facts and differs(value, expected.facts[fact])
        }
        for o in (outcome, seen)
    ]
    same = {
        fact
        for fact in faults[0] & faults[1]
        if differs(outcome.facts[fact], seen.facts[fact]) is None
    }
    return same in faults and 2 * len(same) > len(faults[1])


def _weight(value, right):
    """How much a wrong value tells: each different number counts 0.1 for one digit, up to 1 for
    four.
    """
    yours, expected = numbers_in(value) or [], numbers_in(right) or []
    if len(yours) != len(expected):
        return 0.0
    off = {number for number, other in zip(yours, expected, strict=True) if number != other}
    return sum(0.1 + 0.3 * (min(digits(number), 4) - 1) for number in off if number)


def first_wrong(outcome, expected):
    """The part of `outcome` up to its first fact that is not as expected, that fact included."""
    kept = Outcome()
    for fact, value in outcome.facts.items():
        kept.facts[fact] = value
        if differs(value, expected.facts.get(fact)):
            return kept
    kept.raised = outcome.raised
    return kept
