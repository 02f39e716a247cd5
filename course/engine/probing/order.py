"""Questions in an order that the seed decides: answers kept from another seed do not fit."""

import random
from collections.abc import Callable, Iterator
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
    shuffled = list(questions)
    random.Random(seed).shuffle(shuffled)
    found = {fact: questions[fact]() for fact in shuffled}
    for fact in questions:
        yield fact, found[fact]
