"""Probe of exercise best_plan."""

import random
from collections.abc import Callable
from dataclasses import replace

import torch

from course.engine.exercise import Answer, Facts, exercise
from course.engine.probing.errors import error_name
from course.engine.probing.laws import tried
from course.training.plans import Gpt, Job, Plan

GPT = Gpt(vocabulary=96, width=64, layers=12, heads=4, columns=24)
JOB = Job(GPT, 24, 24, 24, memory=100, flops=1e12, inside=1e9, between=1e8)
Cost = Callable[[Job, Plan], float]


def _from(table: dict[Plan, float]) -> Cost:
    """The cost function of a table."""
    return lambda job, plan: table[plan]


def _drawn(seed: int, plans: list[Plan]) -> tuple[Cost, Cost]:
    """Bytes and seconds of `plans`, drawn with `seed`: about half of the plans fit."""
    rng = random.Random(seed)
    n_bytes = {plan: float(rng.randrange(200)) for plan in plans}
    return _from(n_bytes), _from({plan: rng.random() for plan in plans})


def _against(answer: Answer, wrong: Plan, right: Plan, job: Job = JOB) -> str:
    """The choice between a fast plan that cannot run and a slow one that can."""
    n_bytes = _from({wrong: 1.0, right: 50.0})
    return str(answer(job, [wrong, right], n_bytes, _from({wrong: 1.0, right: 2.0})))


@exercise()
def best_plan(answer: Answer, device: torch.device, seed: int) -> Facts:
    """The fastest plan that runs and fits."""
    data = [Plan(data=each) for each in (1, 2, 3, 4, 6, 8, 12, 24)]
    n_bytes, seconds = _drawn(seed, data)
    costs = [n_bytes(JOB, plan) for plan in data]
    yield "returns a plan", type(answer(JOB, data, n_bytes, seconds)).__name__
    plenty = replace(JOB, memory=1e9)
    yield "everything fits: the fastest", str(answer(plenty, data, n_bytes, seconds))
    for more in range(3):
        n_bytes, seconds = _drawn(seed + more, data)
        yield f"half of the plans fit, draw {more}", str(answer(JOB, data, n_bytes, seconds))
    slow, fast = Plan(data=2), Plan(data=4)
    full = _from({slow: 50.0, fast: 100.0})
    times = _from({slow: 2.0, fast: 1.0})
    yield (
        "a plan that fills the memory to the last byte fits",
        tried(str(answer(JOB, [slow, fast], full, times)), costs),
    )
    even = _from({slow: 1.0, fast: 1.0})
    for first, second in ((slow, fast), (fast, slow)):
        found = answer(JOB, [first, second], full, even)
        yield f"as fast: fewer bytes, data {first.data} first", tried(str(found), costs)
    good = Plan(24)
    yield "4 heads on 3 tensor ranks", tried(_against(answer, Plan(8, tensor=3), good), costs)
    # 8 divides the width
    yield "4 heads on 8 tensor ranks", tried(_against(answer, Plan(3, tensor=8), good), costs)
    yield "12 layers on 8 pipeline ranks", tried(_against(answer, Plan(3, pipeline=8), good), costs)
    yield "24 rows on 16 data ranks", tried(_against(answer, Plan(16), good), costs)
    yield (
        "24 rows, 6 data ranks, 8 micro-batches",
        tried(_against(answer, Plan(6, micro_batches=8), good), costs),
    )
    yield (
        "stage 2 with a pipeline",
        tried(_against(answer, Plan(4, pipeline=2, stage=2), good), costs),
    )
    yield (
        "stage 3 with a pipeline",
        tried(_against(answer, Plan(4, pipeline=2, stage=3), good), costs),
    )
    for able in (Plan(6, 4, stage=3), Plan(4, 1, 6, stage=1), Plan(6, 2, 2, 0, 4, True)):
        yield f"can run: {able}", tried(_against(answer, able, good), costs)
    yield from _none(answer, costs)


def _none(answer: Answer, costs: list[float]) -> Facts:
    """Where no plan is left."""
    small = replace(JOB, memory=0.5)
    one = [Plan()]
    cost = _from({Plan(): 1.0})
    yield "nothing fits: raises", tried(error_name(answer, small, one, cost, cost), costs)
    unable = Plan(8, tensor=3)
    cost = _from({unable: 1.0})
    yield "nothing can run: raises", tried(error_name(answer, JOB, [unable], cost, cost), costs)
