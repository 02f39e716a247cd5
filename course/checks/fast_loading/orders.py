"""What the orders of rows of several ranks, seeds and epochs are, together: of three exercises."""

import collections
import functools
import itertools

import torch

# seeds and epochs that careless sums and products of them mix up
NUMBERS = (0, 1, 2, 3, 10, 31, 100, 999, 1000, 2**12, 10_000, 2**16, 100_000, 2**17, 2**18, 2**19, 999_999, 10**6)
# by which careless seeds are multiplied: primes near a million, FFCV's, and the largest number of epochs
FACTORS = (1_000_003, 1_000_001, 999_983, 912_300, 10**6, 1_000_007, 100_003)
LINKED = 0.45  # a correlation that chance does not reach: six deviations for 180 values


def form(order):
    """What an order is, without its numbers."""
    if not isinstance(order, torch.Tensor):
        return type(order).__name__
    return {"dtype": order.dtype, "axes": order.dim(), "device": order.device.type}


def account(rows, *orders):
    """Three counts of what keeps the orders together from holding each row number once; all 0 if right."""
    counts = collections.Counter(itertools.chain(*(order.tolist() for order in orders)))
    return {
        "numbers that are no rows": sum(not 0 <= row < rows for row in counts),
        "rows that are missing": sum(row not in counts for row in range(rows)),
        "rows that come several times": sum(n > 1 for n in counts.values()),
    }


def first_bad_size(answer, seed):
    """The first sizes (rows, rows per page, pages) for which not each row comes once, in words, or "none"."""
    for rows, page_rows, pages in itertools.product((1, 7, 12), (1, 4, 20), (1, 2, 9)):
        if any(account(rows, answer(rows, page_rows, pages, seed, 1)).values()):
            return f"{rows=}, {page_rows=}, {pages=}"
    return "none"


def pairs_with_one_order(answer, *sizes):
    """Two pairs (seed, epoch) for which `answer(*sizes, seed, epoch)` is the same, in words, or "none"."""
    seen = {}
    for pair in itertools.product(NUMBERS, NUMBERS):
        other = seen.setdefault(tuple(answer(*sizes, *pair).tolist()), pair)
        if other != pair:
            return f"(seed, epoch) = {other} and {pair}"
    return "none"


def collisions(answer, *sizes):
    """Two pairs (seed, epoch) with one order, among those that `factor * seed + epoch` mixes up in 32 bits, or "none".

    `answer(*sizes, seed, epoch)` is an order.  Generators of torch and NumPy's old ones keep 32 bits of their seed.
    """
    for one, other in _mixed_up():
        if torch.equal(answer(*sizes, *one), answer(*sizes, *other)):
            return f"(seed, epoch) = {one} and {other}"
    return "none"


@functools.cache
def _mixed_up():
    """For each of FACTORS two pairs (seed, epoch) whose `factor * seed + epoch` agree in 32 bits."""
    pairs = []
    for factor in FACTORS:
        seed = next(k for k in range(1, 10**6) if min(k * factor % 2**32, -k * factor % 2**32) <= 10**6)
        over = seed * factor % 2**32
        pairs.append(((seed, 0), (0, over)) if over <= 10**6 else ((seed, 2**32 - over), (0, 0)))
    return pairs


def follows_the_file(numbers):
    """True if a list of row or page numbers follows the file, in either direction, or keeps its neighbours together."""
    place = torch.tensor([range(len(numbers)), numbers], dtype=torch.float64)
    close = sum(abs(a - b) == 1 for a, b in itertools.pairwise(numbers))
    return abs(torch.corrcoef(place)[0, 1].item()) > LINKED or close > len(numbers) / 10


def related(one, other):
    """True if many neighbours in one list are neighbours in the other, or many items have the same place in both."""
    pairs = [{frozenset(pair) for pair in itertools.pairwise(numbers)} for numbers in (one, other)]
    same = sum(a == b for a, b in zip(one, other, strict=False))
    return max(len(pairs[0] & pairs[1]), same) > len(one) / 10
