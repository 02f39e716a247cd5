"""Probe of exercise find_thresholds."""

import itertools
from collections.abc import Callable, Sequence

import torch

from course.engine.exercise import Answer, Facts, exercise
from course.engine.probing.laws import tried
from course.engine.probing.values import type_word
from course.training.grouping import cost_of_groups, neighbours


def _linear(length: int) -> int:
    return length


def _constant(length: int) -> int:
    return 1


def _square(length: int) -> int:
    return length**2


def _generator(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def _moves_left(
    thresholds: Sequence[int], lengths: torch.Tensor, cost_fn: Callable[[int], int]
) -> int:
    """How many moves to the cheapest neighbour still lower the cost of `thresholds`."""
    cost = cost_of_groups(lengths, cost_fn)
    occurring = lengths.unique().tolist()
    moves = 0
    now = list(thresholds)
    while True:
        moved = min(neighbours(now, occurring), key=cost, default=now)
        if cost(moved) >= cost(now):
            return moves
        now = moved
        moves += 1


@exercise()
def find_thresholds(answer: Answer, device: torch.device, seed: int) -> Facts:
    """Thresholds of a low cost; many are right, so the facts are what they share."""
    rng = _generator(seed)
    lengths = torch.randint(1, 400, (60 + seed % 9,), generator=rng)
    lengths[:3] = 400
    thresholds = answer(lengths, 4, 3, _linear, _generator(seed))
    yield "returns a list of whole numbers", [type_word(t) for t in thresholds]
    yield "one threshold per group", len(thresholds)
    yield "the last threshold is the longest length", thresholds[-1]
    yield "thresholds ascend", sorted({*thresholds}) == list(thresholds)
    yield "each is a length that occurs", {*thresholds} <= {*lengths.tolist()}
    yield "one group", list(answer(lengths, 1, 3, _linear, _generator(seed)))
    three = torch.tensor([4, 2, 2, 7])
    yield "more groups than lengths: each length", list(answer(three, 9, 2, _linear, _generator(1)))
    yield "a single length", list(answer(torch.full((4,), 3 + seed % 5), 2))
    for name, cost_fn in (("cells", _linear), ("squares", _square)):
        left = []
        for number in range(6):
            found = answer(lengths, 4, 1, cost_fn, _generator(seed + number))
            left.append(_moves_left(found, lengths, cost_fn))
        yield (
            f"moves to a neighbour that would still save {name}, in six searches",
            tried(left, lengths[:9].tolist()),
        )
    yield from _trials(answer, lengths, seed)


def _starts(answer: Answer, lengths: torch.Tensor) -> Facts:
    """Where trials start: with a cost that no move lowers, a trial ends there."""
    some = lengths[3:11].unique()
    starts = []
    for number in range(60):
        starts.append(tuple(answer(some, 3, 1, _constant, _generator(number))))
    below = {length for start in starts for length in start[:-1]}
    yield "lengths at which some of 60 trials start", sorted(below)
    are_several = len({*starts}) > len(some) + 1
    yield "their pairs differ", tried(are_several, some.tolist())


def _trials(answer: Answer, lengths: torch.Tensor, seed: int) -> Facts:
    """What the generator and the number of trials do."""
    few = lengths[:9].tolist()
    singles = []
    for number in range(24):
        singles.append(list(answer(lengths, 4, 1, _linear, _generator(number))))
    again = [list(answer(lengths, 4, 1, _linear, _generator(number))) for number in range(24)]
    yield from _starts(answer, lengths)
    yield "equal generators give equal thresholds", tried(singles == again, few)
    are_several = len({*map(tuple, singles)}) > 1
    yield "one trial does not always find the same", tried(are_several, few)
    shared = _generator(seed)
    following = [list(answer(lengths, 4, 1, _linear, shared)) for _ in range(24)]
    are_several = len({*map(tuple, following)}) > 1
    yield "a later call draws others from the same generator", tried(are_several, few)
    rng = _generator(seed + 1)
    for name, cost_fn in (("cells", _linear), ("squares", _square)):
        costs = []
        for _ in range(6):
            few = torch.randint(1, 1000, (10,), generator=rng)
            cost = cost_of_groups(few, cost_fn)
            costs.append(cost(answer(few, 3, 200, cost_fn, _generator(seed))))
        yield f"200 trials find the fewest {name} of all thresholds", costs
    few = torch.randint(1, 1000, (10,), generator=rng)
    occurring = few.unique().tolist()
    cost = cost_of_groups(few, _linear)
    choices = itertools.combinations(occurring[:-1], 2)
    least = min(cost([*choice, occurring[-1]]) for choice in choices)
    yield "which is what trying all of them finds", cost(answer(few, 3, 200)) - least
