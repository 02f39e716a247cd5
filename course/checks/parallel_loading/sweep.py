"""Probe of exercise sweep."""

import itertools

import torch

from course.checks.engine import exercise
from course.checks.probing.randomness import random_state
from course.checks.probing.tensors import form_or_type


class _Setting:
    """A setting, which equals no other and is no key of a dictionary."""

    __hash__ = None

    def __init__(self, workers):
        self.workers = workers


@exercise()
def sweep(answer, device, seed):
    """Settings measured round by round, in orders that nobody can foresee."""
    n, rounds = 10 + seed % 3, 4 + seed % 3
    settings = [_Setting(i) for i in range(n)]

    def swept(rounds, seed, given=settings):
        """The answer's result, and the places of the settings in the order in which they were measured."""
        places = []

        def measure(setting):
            places.append(next((i for i, known in enumerate(settings) if known is setting), -1))
            return 100.0 * places[-1] + len(places)

        return answer(measure, list(given), rounds, seed), places

    seconds, places = swept(rounds, seed)
    yield "returns a float64 tensor, a row for each setting, a column for each round", form_or_type(seconds)
    yield "measure is called once for each setting and round", len(places)
    yield "it is given the settings themselves", min(places) >= 0
    orders = [places[i : i + n] for i in range(0, len(places), n)]
    yield "each round visits every setting once", {f"round {i}": sorted(order) for i, order in enumerate(orders, 1)}
    yield "rows are in the order of settings", (seconds // 100)
    right = torch.empty(n, rounds, dtype=torch.float64)
    for called, place in enumerate(places):
        right[place, called // n] = 100.0 * place + called + 1
    yield "columns are in the order of the rounds", torch.equal(seconds, right)
    yield "no two rounds have the same order", len(set(map(tuple, orders))) == rounds
    yield "the same seed gives the same orders", swept(rounds, seed)[1] == places
    yield "another seed gives other orders", swept(rounds, seed + 1)[1] != places

    places = swept(60, seed + 2)[1]
    orders = [places[i : i + n] for i in range(0, len(places), n)]
    early = [{order.index(place) < n // 2 for order in orders} for place in range(n)]
    yield "every setting comes early in some rounds and late in others", all(len(halves) == 2 for halves in early)
    # neighbours stay neighbours by chance in 2 (n - 1) / n places a round: 110 in all, with a deviation of about 10
    together = sum(abs(a - b) == 1 for order in orders for a, b in itertools.pairwise(order))
    turned = sum(order == before[::-1] for before, order in itertools.pairwise(orders))
    yield "an order is shuffled, not turned or read backwards", together < 190 and turned < 10
    # by chance a setting has not yet come right after another one in less than a hundredth of all pairs
    followed = {pair for order in orders for pair in itertools.pairwise(order)}
    yield "any setting may come right after any other", len(followed) > 0.9 * n * (n - 1)
    before = random_state()
    swept(rounds, seed)
    stayed = [state == now for state, now in zip(before, random_state(), strict=True)]
    yield "global random numbers stay as they were", dict(zip(("torch", "Python", "NumPy"), stayed, strict=True))
    given = list(settings)
    answer(lambda setting: 1.0, given, 3, seed)
    yield "the list of settings stays as it was", given == settings
    calls = itertools.count()
    twins = answer(lambda setting: float(next(calls) // 4), [2, 2, [], []], 5, seed)
    yield "equal settings have separate rows", twins
    yield "one setting", swept(rounds, seed, given=settings[:1])[0]
    yield "one round", swept(1, seed)[0] // 100
    places = []
    result = answer(lambda setting: float(places.append(setting.workers) or 1), settings)
    yield "by default five rounds", result.shape
    yield "by default seed 0", places == swept(5, 0)[1]
