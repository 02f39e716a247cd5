"""What the formulas of the units say of a training, from its own numbers; each names the part that
derives it.

The formulas are answers to exercises: the reference's where there is one, else those that you have
solved.
"""

import functools
import importlib
import math
import os

import torch

from course import checks
from course.learner import answers
from course.notebook.registry import has_solutions
from course.notebook.solutions import load_reference
from course.training.grouping import thresholds_by_chance

# bytes per second; seconds
RANKS, CARDS, LATENCY = (
    (2, 4, 8, 16, 32, 64),
    (1e9, 10e9, 25e9, 100e9),
    20e-6,
)
BUCKET = 25_000_000  # bytes of gradients that DDP sends in one message
GROUPS = 4


@functools.cache
def formula(unit: str, exercise: str):
    """The answer to an exercise, the reference's or the learner's, or None."""
    if has_solutions():
        return load_reference(unit, exercise)
    record = answers.read(unit, exercise)
    if not (record and record.passed and record.script):
        return None
    return importlib.import_module("course.learner.solved").solved(checks.exercise(unit, exercise))


def duration(seconds: float) -> str:
    """Text "12.3 ms" or "1.60 s"."""
    return f"{1000 * seconds:.3g} ms" if seconds < 1 else f"{seconds:.3g} s"


def predictions(watch, data: dict) -> dict:
    """{"predictions": numbers by name, "predicted": their sentences}."""
    values, sentences = {}, []
    for name, predict in PREDICTIONS.items() if data["phases"] else ():
        result = predict(watch, data)
        if result:
            values[name], sentence = result
            sentences.append(sentence)
    return {"predictions": values, "predicted": sentences}


def workers(watch, data):
    """Seconds per batch with other numbers of workers, from the costs of one batch and one step
    (01/4).
    """
    costs, predict = data.get("costs", {}), formula("01_parallel_loading", "predict_seconds")
    if "step" not in costs:
        return None
    if predict is None:
        return {}, "Workers: solve predict_seconds (01/4), and its prediction appears here."
    a, c = costs["batch"], costs["step"]
    # cores that both keep busy
    busy = max(1e-9, (costs["batch_cpu"] + costs["step_cpu"]) / (a + c))
    cores = max(1.0, os.cpu_count() / busy)
    numbers = [1, 2, 4, 8]
    seconds = {0: a + c} | dict(zip(numbers, predict(numbers, a, c, cores).tolist(), strict=True))
    words = ", ".join(f"{n}: {duration(s)}" for n, s in seconds.items())
    return seconds, f"Workers, predicted per batch (01/4): {words}."


def memcpy(watch, data):
    """How many times a copy of its bytes a batch takes (04/1)."""
    costs = data.get("costs", {})
    if "memcpy" not in costs:
        return None
    times = costs["batch"] / costs["memcpy"]
    return (
        times,
        f"One batch takes {times:,.0f} times as long to load as memcpy of its bytes (04/1).",
    )


def bounds(watch, data):
    """At most how many times as fast the training gets if one phase takes no time (06/1)."""
    speedup = {name: 1 / max(1e-3, 1 - row["share"]) for name, row in data["phases"].items()}
    words = ", ".join(f"{name} {x:.2f}" for name, x in speedup.items() if x >= 1.01)
    return speedup, f"At most so many times as fast if this took no time (06/1): {words}."


def ranks(watch, data):
    """Efficiency of DDP with more ranks, from the bytes of the gradients and the step (02/2)."""
    n_bytes, predict = (
        data["memory"]["gradients"],
        formula("02_data_parallel", "all_reduce_seconds"),
    )
    if not n_bytes:
        return None
    if predict is None:
        return {}, "Ranks: solve all_reduce_seconds (02/2), and its prediction appears here."
    step, share = data["seconds"]["median"], data["phases"].get("backward", {}).get("share", 0.0)
    messages = max(1, math.ceil(n_bytes / BUCKET))
    efficiency = {}
    for n in RANKS:
        for card in CARDS:
            one = predict(n_bytes / messages, n, LATENCY, card)["ring"]
            # the last bucket has nothing to hide behind
            exposed = max(one, one * messages - share * step)
            efficiency[f"{n} ranks, {card / 1e9:g} GB/s"] = step / (step + exposed)
    rows = {
        n: [f"{efficiency[f'{n} ranks, {card / 1e9:g} GB/s']:.0%}" for card in CARDS]
        for n in (2, 8, 64)
    }
    words = "; ".join(f"{n} ranks {', '.join(row)}" for n, row in rows.items())
    return efficiency, f"DDP, efficiency at 1, 10, 25, 100 GB/s between ranks (02/2): {words}."


def noise(watch, data):
    """The gradient noise scale with its jackknife interval, from consecutive steps (03/3)."""
    estimate, n = formula("03_large_batch", "noise_scale"), len(watch.counted.large)
    if n < 3 or "samples" not in data["batch"]:
        return None
    if estimate is None:
        return {}, "Noise scale: solve noise_scale (03/3), and its estimate appears here."
    size = data["batch"]["samples"] * max(1, round(data["backwards"]))
    group = len(watch.counted.small) // n
    small = torch.stack(watch.counted.small[: group * n]).sqrt().view(n, group).cpu()
    large = torch.stack(watch.counted.large).sqrt().cpu()

    def of(rows):
        return estimate(small[rows].flatten(), large[rows], size, group * size)

    every = torch.tensor(
        [of([j for j in range(n) if j != i]) for i in range(n)], dtype=torch.float64
    )
    scale, error = of(list(range(n))), math.sqrt((n - 1) * every.var(unbiased=False).item())
    values = {
        "scale": scale,
        "low": max(0.0, scale - 2 * error),
        "high": scale + 2 * error,
        "batch": size,
    }
    if not math.isfinite(scale + error) or scale <= 0:
        return values, "Gradient noise scale (03/3): too few steps to tell."
    return values, (
        f"Gradient noise scale (03/3): {scale:,.0f} samples ({values['low']:,.0f} to {values['high']:,.0f}), and "
        f"{size:,} in a batch. Far beyond it, more samples per step buy little."
    )


def groups(watch, data):
    """Cells per token if each batch were padded in few groups (05/2)."""
    if not data["padding"]:
        return None
    lengths = data["padding"]["lengths"]
    ends = torch.tensor(thresholds_by_chance(lengths, GROUPS, trials=20))
    waste = ends[torch.searchsorted(ends, lengths)].sum().item() / lengths.sum().item()
    buckets = data["padding"]["bucketed"]
    return {"groups": waste, "buckets": buckets}, (
        f"Padding, cells per token: now {data['padding']['waste']:.2f}, in {GROUPS} groups {waste:.2f} (05/2), "
        f"in buckets {buckets:.2f} (05/3)."
    )


PREDICTIONS = {
    "workers": workers,
    "memcpy": memcpy,
    "bounds": bounds,
    "ranks": ranks,
    "noise": noise,
    "groups": groups,
}
