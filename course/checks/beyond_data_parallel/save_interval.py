"""Probe of exercise save_interval."""

import random

import torch

from course.engine.exercise import Answer, Facts, exercise
from course.engine.probing.values import number_kind

HOUR = 3600.0


@exercise()
def save_interval(answer: Answer, device: torch.device, seed: int) -> Facts:
    """Seconds of work between two saves, for several jobs."""
    rng = random.Random(seed)
    saving = rng.uniform(20, 200)
    between = rng.uniform(20_000, 60_000) * HOUR
    yield "returns a number", number_kind(answer(saving, between, 8))
    yield "one device that fails every few years", answer(saving, between, 1)
    for devices in (64, 4096):
        yield f"{devices} devices", answer(saving, between, devices * (1 + seed % 3))
    yield "saves are slow, failures frequent", answer(8 * saving, 20 * saving, 1)
    yield "many devices, saves are slow", answer(8 * saving, 2000 * saving, 100)
    yield "a save takes 1.5 times as long as the job lives", answer(30 * saving, 40 * saving, 2)
    exact = 2.0 ** (4 + seed % 5)  # so that every right answer finds the limit without rounding
    yield "a save takes twice as long as the job lives", answer(exact, 2 * exact, 4)
    yield "a save takes longer than that", answer(50 * saving, 32 * saving, 4)
