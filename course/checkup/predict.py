"""What the formulas of the units say of a training, from its own numbers.

The formulas are answers to exercises: the reference's where there is one, else those that your
class is given or that you have solved. Each sentence names the part that derives its formula.
"""

import functools
import importlib
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from course import checks
from course.checkup.facts import (
    BATCH_TIMES,
    BF16,
    CHANNELS_LAST,
    COMPILE,
    FLOAT32,
    FUSED,
    LARGER_BATCH,
    ONE_OPTIMIZER,
    TF32,
    THREADS,
    WITHOUT_ANOMALY,
    Costs,
    Facts,
)
from course.checkup.failures import Failures
from course.checkup.formats import at_most, duration
from course.checkup.phases import BACKWARD, CODE, DATA, FORWARD, OPTIMIZER
from course.device import cores
from course.learner import answers
from course.learner.given import load_given
from course.notebook.registry import has_solutions
from course.notebook.solutions import load_reference
from course.text import counted
from course.training.grouping import greedy_thresholds

WORKERS = (1, 2, 4, 8)
RANKS = (2, 4, 8, 16, 32, 64)
RANKS_SHOWN = (2, 8, 64)
CARDS = (1e9, 10e9, 25e9, 100e9)  # bytes per second of a network card
LATENCY = 20e-6  # seconds per message between two ranks
# Of gradients in DDP's first message, and in each of the others: torch's defaults of
# DistributedDataParallel; Li et al. 2020, arXiv:2006.15704, section 3.2.3.
FIRST_BUCKET_BYTES = 2**20
BUCKET_BYTES = 25 * 2**20
GROUPS = 4  # that each batch is split into for padding
GROUPS_OF_STEPS_MIN = 3  # that the noise scale is estimated from
PHASES_OF_WAYS = {  # the phases of a step that another way to compute it concerns
    BF16: (FORWARD, BACKWARD),
    CHANNELS_LAST: (FORWARD, BACKWARD),
    COMPILE: (FORWARD, BACKWARD),
    TF32: (FORWARD, BACKWARD),
    FLOAT32: (FORWARD, BACKWARD, OPTIMIZER),
    WITHOUT_ANOMALY: (FORWARD, BACKWARD),
    THREADS: (FORWARD, BACKWARD, OPTIMIZER),
    FUSED: (OPTIMIZER,),
    ONE_OPTIMIZER: (OPTIMIZER,),
}
WORKERS_GAIN_MIN = 1.05  # times as fast; less is told in words
BOUND_MIN = 1.01  # times as fast; less is not worth a word


@dataclass(frozen=True)
class Prediction:
    """Numbers for `--json`, and the sentence of the report."""

    values: Any
    sentence: str


def bound(share: float) -> float:
    """How many times as fast a whole gets if a share of it takes no time (Amdahl 1967)."""
    return 1 / max(1e-3, 1 - share)


def share_per_sample(facts: Facts) -> float:
    """The share of a step that grows with its samples: loading, or the code before forward.

    That makes the data where there is no DataLoader: a game, a simulation, reading a file.
    """
    waits = facts.phases.share(DATA)
    if facts.loader is not None or not facts.gaps:
        return waits
    before_forward = facts.gaps.get(FORWARD, 0.0) / max(1e-12, sum(facts.gaps.values()))
    return waits + facts.phases.share(CODE) * before_forward


def bound_of_way(name: str, facts: Facts) -> float:
    """How many times as fast the training gets at most by another way to compute its step."""
    if name == LARGER_BATCH:
        return BATCH_TIMES / (1 + (BATCH_TIMES - 1) * share_per_sample(facts))
    return bound(facts.phases.share(*PHASES_OF_WAYS[name]))


def bound_of_data(facts: Facts, part: float = 1.0, costs: Costs | None = None) -> float:
    """How many times as fast the training gets at most if `part` of loading took no time.

    A step that need not wait also computes faster: its caches and threads stay warm, and no worker
    takes its cores. So all but loading counts with the time that it takes alone, where the time of
    the step alone was measured.

    Args:
        costs: of the step alone (default: those of the trials).
    """
    saved = facts.phases.share(DATA) * part
    costs = costs or facts.trials.costs
    if costs is not None:
        others = facts.phases.share(FORWARD, BACKWARD, OPTIMIZER, CODE)
        saved += others * (1 - 1 / times_slower(facts, costs))
    return bound(saved)


def times_slower(facts: Facts, costs: Costs) -> float:
    """How many times as long a step computes while its loader works as it does alone."""
    while_loading = facts.seconds.median * facts.phases.share(FORWARD, BACKWARD, OPTIMIZER)
    return max(1.0, while_loading / max(1e-12, costs.step))


@functools.cache
def formula(unit: str, exercise: str) -> Callable[..., Any] | None:
    """The answer to an exercise, the reference's, the given one or the learner's, or None."""
    if has_solutions():
        return load_reference(unit, exercise)
    asked = checks.exercise(unit, exercise)
    solved = importlib.import_module("course.learner.solved").solved
    given = load_given(asked, solved)
    if given is not None:  # this class is not asked it
        return given
    record = answers.read(unit, exercise)
    if not (record and record.passed and record.script):
        return None
    return solved(asked)


def predictions(facts: Facts, failures: Failures | None = None) -> dict[str, Prediction]:
    """What each formula says, by its name; none if no step was timed.

    Args:
        failures: notes the formulas that fail (default: nobody reads them).
    """
    look = (failures if failures is not None else Failures()).look
    found = {}
    if facts.phases:
        for name, predict in PREDICTIONS.items():
            prediction = look(f"the prediction of {name}", predict, facts)
            if prediction:
                found[name] = prediction
    return found


def workers(facts: Facts) -> Prediction | None:
    """Seconds per batch with other numbers of workers, from a batch and a step (01/4)."""
    if facts.trials.costs is None:
        return None
    seconds = seconds_of_workers(facts)
    if not seconds:
        return Prediction(
            {}, "Workers: solve predict_seconds (01/4), and its prediction appears here."
        )
    alone = seconds[0]
    if alone <= WORKERS_GAIN_MIN * min(seconds[n] for n in WORKERS):
        words = f"no number of them gains 5 % on {duration(alone)}, a batch and a step timed alone"
        return Prediction(seconds, f"Workers, predicted (01/4): {words}.")
    words = ", ".join(f"{n}: {duration(s)}" for n, s in seconds.items())
    return Prediction(seconds, f"Workers, predicted per batch (01/4): {words}.")


def seconds_of_workers(facts: Facts) -> dict[int, float]:
    """{number of workers: predicted seconds per batch}, with 0; {} if it cannot be predicted."""
    costs = facts.trials.costs
    predict = formula("01_parallel_loading", "predict_seconds")
    if costs is None or predict is None:
        return {}
    alone = costs.batch + costs.step
    busy_cores = max(1e-9, (costs.batch_cpu + costs.step_cpu) / alone)
    in_parallel = max(1.0, cores() / busy_cores)
    predicted = predict(list(WORKERS), costs.batch, costs.step, in_parallel).tolist()
    return {0: alone, **dict(zip(WORKERS, predicted, strict=True))}


def memcpy(facts: Facts) -> Prediction | None:
    """How many times a copy of its bytes a batch takes (04/1)."""
    costs = facts.trials.costs
    if costs is None or costs.memcpy is None:
        return None
    times = costs.batch / costs.memcpy
    return Prediction(
        times,
        f"One batch takes {times:,.0f} times as long to load as memcpy of its bytes (04/1).",
    )


def bounds(facts: Facts) -> Prediction:
    """At most how many times as fast the training gets if one phase takes no time (06/1)."""
    speedup = {name: bound(phase.share) for name, phase in facts.phases.items()}
    words = ", ".join(f"{name} {at_most(x)}" for name, x in speedup.items() if x >= BOUND_MIN)
    sentence = f"At most so many times as fast if this took no time (06/1): {words}."
    return Prediction(speedup, sentence)


def ranks(facts: Facts) -> Prediction | None:
    """Efficiency of DDP with more ranks, from the bytes of the gradients and the step (02/1)."""
    n_bytes = facts.memory.gradients
    if not n_bytes:
        return None
    predict = formula("02_data_parallel", "all_reduce_seconds")
    if predict is None:
        return Prediction(
            {}, "Ranks: solve all_reduce_seconds (02/1), and its prediction appears here."
        )
    step = facts.seconds.median
    hidden = facts.phases.share(BACKWARD) * step  # seconds that all-reduces can hide behind
    first = min(n_bytes, FIRST_BUCKET_BYTES)
    others = math.ceil((n_bytes - first) / BUCKET_BYTES)
    efficiency = {}
    rows = []
    for n in RANKS:
        percents = []
        for card in CARDS:
            last = total = predict(first, n, LATENCY, card)["ring"]
            if others:
                last = predict((n_bytes - first) / others, n, LATENCY, card)["ring"]
                total += others * last
            exposed = max(last, total - hidden)  # the last one has nothing to hide behind
            efficiency[f"{n} ranks, {card / 1e9:g} GB/s"] = step / (step + exposed)
            percents.append(f"{step / (step + exposed):.0%}")
        if n in RANKS_SHOWN:
            rows.append(f"{n} ranks {', '.join(percents)}")
    sentence = (
        "DDP, efficiency at 1, 10, 25, 100 GB/s between ranks (02/1; a ring, "
        f"{LATENCY * 1e6:.0f} µs per message, buckets of 1 and then 25 MiB): "
    )
    return Prediction(efficiency, sentence + "; ".join(rows) + ".")


def noise(facts: Facts) -> Prediction | None:
    """The gradient noise scale with its jackknife interval, from consecutive steps (03/5)."""
    norms = facts.gradient_norms
    n = len(norms.large)
    if n < GROUPS_OF_STEPS_MIN or facts.batch is None:
        return None
    noise_scale = formula("03_large_batch", "noise_scale")
    if noise_scale is None:
        return Prediction(
            {}, "Noise scale: solve noise_scale (03/5), and its estimate appears here."
        )
    size = facts.batch.samples * max(1, round(facts.backwards))
    group = len(norms.small) // n
    small = torch.stack(norms.small[: group * n]).sqrt().view(n, group).cpu()
    large = torch.stack(norms.large).sqrt().cpu()

    def estimate(rows: list[int]) -> float:
        return noise_scale(small[rows].flatten(), large[rows], size, group * size)

    rows = list(range(n))
    scale = estimate(rows)
    without_one = [estimate(rows[:i] + rows[i + 1 :]) for i in rows]
    variance = torch.tensor(without_one, dtype=torch.float64).var(unbiased=False).item()
    error = math.sqrt((n - 1) * variance)
    low = max(0.0, scale - 2 * error)
    high = scale + 2 * error
    values = {"scale": scale, "low": low, "high": high, "batch": size}
    if not math.isfinite(scale + error) or scale <= 0:
        return Prediction(values, "Gradient noise scale (03/5): too few steps to tell.")
    return Prediction(
        values,
        f"Gradient noise scale (03/5): {scale:,.0f} samples ({low:,.0f} to {high:,.0f}), "
        f"and {size:,} in a batch. Far beyond it, more samples per step buy little.",
    )


def groups(facts: Facts) -> Prediction | None:
    """Cells per token if each batch were padded in few groups (05/2)."""
    padding = facts.padding
    if padding is None:
        return None
    lengths = padding.lengths
    ends = torch.tensor(greedy_thresholds(lengths, GROUPS))
    cells = ends[torch.searchsorted(ends, lengths)].sum().item()
    waste = cells / lengths.sum().item()
    return Prediction(
        {"groups": waste, "buckets": padding.bucketed},
        f"Padding, cells per token: now {padding.waste:.2f}, in {GROUPS} groups {waste:.2f} "
        f"(05/2), if the {counted(padding.sequences, 'sequence')} seen were sorted "
        f"{padding.bucketed:.2f}; a wider window leaves less (05/3).",
    )


PREDICTIONS: dict[str, Callable[[Facts], Prediction | None]] = {
    "workers": workers,
    "memcpy": memcpy,
    "bounds": bounds,
    "ranks": ranks,
    "noise": noise,
    "groups": groups,
}
