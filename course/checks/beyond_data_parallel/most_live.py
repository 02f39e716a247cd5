"""Probe of exercise most_live."""

import random

import torch

from course.engine.exercise import Answer, Facts, exercise
from course.engine.probing.values import type_names
from course.parallel.pipeline import Order, gpipe_order, timetable

STEADY = [("F", 0), ("F", 1), ("B", 0), ("F", 2), ("F", 3), ("B", 1), ("B", 2), ("B", 3)]


def _random_order(rng: random.Random, micro_batches: int) -> Order:
    """Passes of one rank in any order in which each backward pass follows its forward pass."""
    order: list[tuple[str, int]] = []
    live: list[int] = []
    begun = 0
    while begun < micro_batches or live:
        if begun < micro_batches and (not live or rng.random() < 0.6):
            order.append(("F", begun))
            live.append(begun)
            begun += 1
        else:
            order.append(("B", live.pop(rng.randrange(len(live)))))
    return order


def _with_pauses(rng: random.Random, orders: list[Order]) -> list[tuple[int, int, str, int]]:
    """A schedule of `orders` with pauses; ranks need not wait for each other here."""
    schedule = []
    for rank, order in enumerate(orders):
        time = 0
        for kind, micro_batch in order:
            time += rng.randrange(3)
            schedule.append((rank, time, kind, micro_batch))
            time += 1
    return schedule


@exercise()
def most_live(answer: Answer, device: torch.device, seed: int) -> Facts:
    """Most micro-batches that each rank holds, of passes that are listed in any order."""
    rng = random.Random(seed)
    one = [(0, 0, "F", 0), (0, 1, "B", 0), (0, 2, "F", 1), (0, 3, "B", 1)]
    yield "returns a list of numbers", type_names(answer(one))
    yield "one rank, a forward pass, its backward pass, and again", answer(one)
    two = [(0, 0, "F", 0), (0, 1, "F", 1), (0, 2, "B", 1), (0, 3, "B", 0)]
    yield "one rank, two forward passes first", answer(two)
    steady = [(0, time, *each) for time, each in enumerate(STEADY)]
    yield "one rank, two forward passes, one backward pass, and two more", answer(steady)
    gpipe = timetable([gpipe_order(rank, 3, 4) for rank in range(3)])
    yield "GPipe, 3 ranks, 4 micro-batches", answer([tuple(each) for each in gpipe])
    orders = [_random_order(rng, 6 + seed % 5) for _ in range(3)]
    tight = [
        (rank, time, *each) for rank, order in enumerate(orders) for time, each in enumerate(order)
    ]
    yield "3 ranks in any order of passes, without pauses", answer(tight)
    schedule = sorted(_with_pauses(rng, orders), key=lambda each: each[1])
    yield "3 ranks in any order of passes, listed by time", answer(schedule)
    schedule.sort(key=lambda each: (-each[0], each[1]))
    yield "listed by rank, the last rank first", answer(schedule)
    rng.shuffle(schedule)
    yield "listed in any order", answer(schedule)
    later = [(0, 3 * time, kind, batch) for _, time, kind, batch in two]
    yield "two forward passes first, with pauses", answer(later)
    yield "the schedule that you are given stays as it was", schedule
