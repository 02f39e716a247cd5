"""What the orders of rows of several ranks, seeds and epochs are, together: of three exercises."""

import collections
import itertools
from collections.abc import Sequence
from typing import Any

import torch

from course.engine.exercise import Answer

# seeds and epochs that careless sums and products of them mix up; 1_000_003 * 4295 is 45589 in the
# 32 bits that torch's generator keeps of its seed
SMALL_NUMBERS = (0, 1, 2, 10, 31, 100, 999, 1000, 2**12, 4295, 10**4, 45589)
LARGE_NUMBERS = (2**16, 10**5, 2**17, 2**18, 2**19, 999999, 10**6)
NUMBERS = SMALL_NUMBERS + LARGE_NUMBERS
CORRELATION_MAX = 0.45  # that chance does not reach: six deviations for 180 values


def form(order: Any) -> dict[str, Any] | str:
    """What an order is, without its numbers."""
    if not isinstance(order, torch.Tensor):
        return type(order).__name__
    return {"dtype": order.dtype, "axes": order.dim(), "device": order.device.type}


def account(rows: int, *orders: torch.Tensor) -> dict[str, int]:
    """Three counts of what keeps the orders from holding each row number once; all 0 if right."""
    numbers = itertools.chain.from_iterable(order.tolist() for order in orders)
    counts = collections.Counter(numbers)
    return {
        "numbers outside the rows": sum(not 0 <= row < rows for row in counts),
        "rows that are missing": sum(row not in counts for row in range(rows)),
        "rows that come several times": sum(n > 1 for n in counts.values()),
    }


def first_bad_size(answer: Answer, seed: int) -> str:
    """The first rows, page_rows, pages for which not each row comes once, in words, or "none"."""
    for rows, page_rows, pages in itertools.product((1, 7, 12), (1, 4, 20), (1, 2, 9)):
        order = answer(rows, page_rows, pages, seed, 1)
        if any(account(rows, order).values()):
            return f"{rows=}, {page_rows=}, {pages=}"
    return "none"


def pairs_with_one_order(answer: Answer, *sizes: int) -> str:
    """Two pairs (seed, epoch) with the same `answer(*sizes, seed, epoch)`, in words, or "none"."""
    seen = {}
    for pair in itertools.product(NUMBERS, NUMBERS):
        order = tuple(answer(*sizes, *pair).tolist())
        other = seen.setdefault(order, pair)
        if other != pair:
            return f"(seed, epoch) = {other} and {pair}"
    return "none"


def follows_the_file(numbers: Sequence[int]) -> bool:
    """True if row or page numbers follow the file, either way, or keep neighbours together."""
    place = torch.tensor([range(len(numbers)), numbers], dtype=torch.float64)
    correlation = torch.corrcoef(place)[0, 1].item()
    neighbours = sum(abs(a - b) == 1 for a, b in itertools.pairwise(numbers))
    return abs(correlation) > CORRELATION_MAX or neighbours > len(numbers) / 10


def related(one: Sequence[int], other: Sequence[int]) -> bool:
    """True if many neighbours, or many items in their places, are the same in both lists."""
    same_neighbours = len(_neighbours(one) & _neighbours(other))
    same_places = sum(a == b for a, b in zip(one, other, strict=False))
    return max(same_neighbours, same_places) > len(one) / 10


def _neighbours(numbers: Sequence[int]) -> set[frozenset[int]]:
    return set(map(frozenset, itertools.pairwise(numbers)))
