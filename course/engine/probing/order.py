"""Questions in an order that the seed decides: answers kept from another seed do not fit."""

import random
from collections.abc import Callable, Iterable, Iterator
from typing import Any


def asked_in_any_order(
    seed: int, questions: dict[str, Callable[[], Any]]
) -> Iterator[tuple[str, Any]]:
    """Yield (fact, what its question gave) in the order of `questions`.

    Args:
        seed: 0 asks one after the other, as the facts are shown; any other asks all questions
            first, in an order drawn with the seed.
    """
    if not seed:
        for fact, question in questions.items():
            yield fact, question()
        return
    found = {fact: questions[fact]() for fact in order_of(seed, questions)}
    for fact in questions:
        yield fact, found[fact]


def order_of(seed: int, questions: Iterable[str]) -> list[str]:
    """The facts in the order in which `asked_in_any_order` asks them."""
    facts = list(questions)
    if seed:
        random.Random(seed).shuffle(facts)
    return facts
