"""What the orders of rows of several ranks, seeds and epochs are, together: of three exercises."""

import collections
import itertools

import torch

# seeds and epochs that careless sums and products of them mix up; 1_000_003 * 4295 is 45589 in the
# 32 bits that torch's generator keeps of its seed
NUMBERS = (
    0,
    1,
    2,
    10,
    31,
    100,
    999,
    1000,
    2**12,
    4295,
    10**4,
    45589,
    2**16,
    10**5,
    2**17,
    2**18,
    2**19,
    999999,
    10**6,
)
LINKED = 0.45  # a correlation that chance does not reach: six deviations for 180 values


def form(order):
    """What an order is, without its numbers."""
    if not isinstance(order, torch.Tensor):
        return type(order).__name__
    return {"dtype": order.dtype, "axes": order.dim(), "device": order.device.type}


def account(rows, *orders):
    """Three counts of what keeps the orders together from holding each row number once; all 0 if
    right.
    """
    counts = collections.Counter(itertools.chain(*(order.tolist() for order in orders)))
    return {
        "numbers outside the rows": sum(not 0 <= row < rows for row in counts),
        "rows that are missing": sum(row not in counts for row in range(rows)),
        "rows that come several times": sum(n > 1 for n in counts.values()),
    }


def first_bad_size(answer, seed):
    """The first sizes (rows, rows per page, pages) for which not each row comes once, in words, or
    "none".
    """
    for rows, page_rows, pages in itertools.product((1, 7, 12), (1, 4, 20), (1, 2, 9)):
        if any(account(rows, answer(rows, page_rows, pages, seed, 1)).values()):
            return f"{rows=}, {page_rows=}, {pages=}"
    return "none"


def pairs_with_one_order(answer, *sizes):
    """Two pairs (seed, epoch) for which `answer(*sizes, seed, epoch)` is the same, in words, or
    "none".
    """
    seen = {}
    for pair in itertools.product(NUMBERS, NUMBERS):
        other = seen.setdefault(tuple(answer(*sizes, *pair).tolist()), pair)
        if other != pair:
            return f"(seed, epoch) = {other} and {pair}"
    return "none"


def follows_the_file(numbers):
    """True if a list of row or page numbers follows the file, in either direction, or keeps its
    neighbours together.
    """
    place = torch.tensor([range(len(numbers)), numbers], dtype=torch.float64)
    close = sum(abs(a - b) == 1 for a, b in itertools.pairwise(numbers))
    return abs(torch.corrcoef(place)[0, 1].item()) > LINKED or close > len(numbers) / 10


def related(one, other):
    """True if many neighbours in one list are neighbours in the other, or many items have the same
    place in both.
    """
    pairs = [{frozenset(pair) for pair in itertools.pairwise(numbers)} for numbers in (one, other)]
    same = sum(a == b for a, b in zip(one, other, strict=False))
    return max(len(pairs[0] & pairs[1]), same) > len(one) / 10
