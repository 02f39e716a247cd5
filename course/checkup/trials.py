"""Try what can be tried without touching the script: Facts -> *trials* -> Trials.

It is tried on the script's own loader and its own last batch, in the same process. All ways are
interleaved with a control that runs twice: their difference is the noise. Ways to compute the step
are in step_ways.py, other loaders in loaders.py.
"""

import dataclasses
import functools
import math
import os
import time
import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch.utils.data import DataLoader

from course.checkup.facts import (
    BATCH_TIMES,
    BF16,
    INFERENCE_MODE,
    LARGER_BATCH,
    Costs,
    Facts,
    Trial,
    Trials,
    not_measured,
)
from course.checkup.formats import duration
from course.checkup.items import items_of
from course.checkup.loaders import endless, loader_ways, loops, other_loader
from course.checkup.phases import BACKWARD, DATA, FORWARD, OPTIMIZER
from course.checkup.replay import Replay, put_back, replay_of
from course.checkup.step_ways import NoWay, Way, bf16_mode, makers, tried_once
from course.checkup.watch import Watch
from course.measure.timing import NOT_MEASURED, Comparison, now
from course.measure.yardsticks import memcpy_of, seconds_in_turn

CONTROL = "control"
CONTROL_AGAIN = "control again"
WITH_GRAPHS = "with graphs"
ROUNDS = 7  # of each trial of the step
ROUNDS_LOADERS = 5
ROUNDS_MIN = 3  # where time is short
ROUNDS_MEMCPY = 5
CALL_SECONDS = 0.1  # that one call takes, about, by repeating a step
REPEATS_MAX = 50  # of a step in a call
BATCHES_MIN = 12  # of a loader in a call
BATCHES_MAX = 32
COST_BATCHES_MAX = 16
STEP_SECONDS_MIN = 1e-4  # that a step is taken to last at least
DATA_WAITS_MIN = 0.02  # share of a step that waits for data, below which no other loader is tried
MEMCPY_BYTES_MIN = 1000  # a copy of less takes no time that can be measured


def try_all(watch: Watch, facts: Facts, compile: bool = False, minutes: float = 3.0) -> Trials:
    """Everything that can be tried on what a Watch has kept.

    Args:
        compile: try torch.compile as well, which takes a minute.
        minutes: that trials of the step take at most, about, and trials of loaders again.
    """
    replay = replay_of(watch)
    loader = watch.seen.train_loader()
    items = items_of(loader) if loader else None
    if facts.ranks > 1:
        reason = "several ranks train, and each would wait for others"
        return Trials({"all trials": _not_measured(reason)}, items)
    if not replay.calls:
        return Trials({"the step alone": _not_measured("no forward pass was kept")}, items)
    with put_back(replay), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of more workers than cores, which is what is tried
        tried = try_steps(replay, facts, compile, 60 * minutes)
        costs = None
        if loader:
            costs = costs_of(loader, replay, facts)
            tried |= try_loaders(loader, replay, facts, 60 * minutes)
    return Trials(tried, items, costs)


# ---- other ways to compute the step


def try_steps(replay: Replay, facts: Facts, compile: bool, seconds_max: float) -> dict[str, Trial]:
    """What other ways to compute the step gave, within about `seconds_max`."""
    share = facts.phases.share(FORWARD, BACKWARD, OPTIMIZER)
    step_seconds = max(STEP_SECONDS_MIN, facts.seconds.median * share)
    ways = _ways(replay, compile, step_seconds, seconds_max)
    functions: dict[str, Way] = {CONTROL: replay, CONTROL_AGAIN: replay}
    for name, way in ways.items():
        if not isinstance(way, NoWay):
            functions[name] = way
    if facts.evaluation.graphs:
        functions[WITH_GRAPHS] = replay.forward
        functions[INFERENCE_MODE] = functools.partial(replay.forward, torch.inference_mode)
    repeats = max(1, min(REPEATS_MAX, math.ceil(CALL_SECONDS / step_seconds)))
    calls = {name: _several(way, repeats, replay.device) for name, way in functions.items()}
    round_seconds = repeats * step_seconds * (len(functions) + BATCH_TIMES - 1)
    seconds = seconds_in_turn(calls, _rounds_that_fit(seconds_max, round_seconds, ROUNDS))
    noise = _noise(seconds)
    tried = {}
    for name, way in ways.items():
        if isinstance(way, NoWay):
            tried[name] = _not_measured(str(way))
        else:
            tried[name] = _trial_of_step(name, seconds, noise, facts)
    if INFERENCE_MODE in functions:
        pair = torch.stack([seconds[WITH_GRAPHS], seconds[INFERENCE_MODE]], 1)
        comparison = Comparison(pair, noise=noise)
        tried[INFERENCE_MODE] = _trial(comparison, facts.evaluation.share)
    if tried[BF16].helped:
        text = f"{tried[BF16].text}, outputs change by {_change_by_bf16(replay):.2%}"
        tried[BF16] = dataclasses.replace(tried[BF16], text=text)
    return tried


def _ways(
    replay: Replay, compile: bool, step_seconds: float, seconds_max: float
) -> dict[str, Way | NoWay]:
    """{name: a way that was taken once, or why there is none}."""
    makers_by_name = makers(replay, compile)
    ways: dict[str, Way | NoWay] = {}
    n_steps = 2 * ROUNDS_MIN * (len(makers_by_name) + 1 + BATCH_TIMES)
    for name, make in makers_by_name.items():
        if name == LARGER_BATCH and n_steps * step_seconds > seconds_max:
            ways[name] = NoWay(f"a step of {duration(step_seconds)} is too slow for it")
            continue
        try:
            ways[name] = tried_once(make, replay)
        except NoWay as reason:
            ways[name] = reason
    return ways


def _trial_of_step(
    name: str, seconds: dict[str, torch.Tensor], noise: float, facts: Facts
) -> Trial:
    share = facts.phases.share(FORWARD, BACKWARD, OPTIMIZER)
    rest = 1 - share
    own = seconds[name]
    if name == LARGER_BATCH:  # per sample; what else a step costs is spread, only loading is not
        own = own / BATCH_TIMES
        waits = facts.phases.share(DATA)
        rest = waits + (1 - waits - share) / BATCH_TIMES
    comparison = Comparison(torch.stack([seconds[CONTROL], own], 1), noise=noise)
    return _trial(comparison, share, rest)


def _several(function: Way, repeats: int, device: str) -> Callable[[], None]:
    def several() -> None:
        for _ in range(repeats):
            function()
        now(device)  # waits for the GPU

    return several


def _change_by_bf16(replay: Replay) -> float:
    """How far bfloat16 moves the outputs, as a share of their size."""
    outputs = replay.outputs()
    moved = replay.outputs(bf16_mode(replay))
    squares = sum(t.square().sum().item() for t in outputs)
    distances = 0.0
    for before, after in zip(outputs, moved, strict=True):
        distances += (before - after).square().sum().item()
    return math.sqrt(distances) / max(1e-12, math.sqrt(squares))


# ---- other loaders


def try_loaders(
    loader: DataLoader, replay: Replay, facts: Facts, seconds_max: float
) -> dict[str, Trial]:
    """What other loaders gave, each in a loop with the step, within about `seconds_max`."""
    waits = facts.phases.share(DATA)
    if waits <= DATA_WAITS_MIN and not loader.num_workers:
        return {}
    cores = os.cpu_count() or 1
    ways = loader_ways(loader, cores)
    step_seconds = facts.seconds.median
    repeats = math.ceil(CALL_SECONDS / max(STEP_SECONDS_MIN, step_seconds))
    batches = max(BATCHES_MIN, 2 * loader.num_workers, min(BATCHES_MAX, repeats))
    controls = {CONTROL: other_loader(loader), CONTROL_AGAIN: other_loader(loader)}
    fitting = int(seconds_max / (2 * ROUNDS_MIN * batches * step_seconds)) - len(controls)
    if fitting < 1:
        takes = f"{batches} batches of {duration(step_seconds)} take too long, again and again"
        return {"other loaders": _not_measured(f"{takes}; give it more --minutes")}
    like_cores = sorted(ways, key=lambda name: abs(ways[name].num_workers - cores))
    chosen = {name: ways[name] for name in like_cores[:fitting]}
    round_seconds = batches * step_seconds * (len(chosen) + len(controls))
    rounds = _rounds_that_fit(seconds_max, round_seconds, ROUNDS_LOADERS)
    seconds = seconds_in_turn(loops(controls | chosen, replay, batches), rounds)
    noise = _noise(seconds)
    share = facts.phases.share(DATA, FORWARD, BACKWARD, OPTIMIZER)
    tried = {}
    for name in chosen:
        comparison = Comparison(torch.stack([seconds[CONTROL], seconds[name]], 1), noise=noise)
        tried[name] = _trial(comparison, share)
    return tried


def costs_of(loader: DataLoader, replay: Replay, facts: Facts) -> Costs:
    """What one batch without workers costs, one step, and a copy of the batch."""
    alone = endless(other_loader(loader, num_workers=0))
    next(alone)
    repeats = math.ceil(CALL_SECONDS / max(STEP_SECONDS_MIN, facts.seconds.median))
    repeats = max(2, min(COST_BATCHES_MAX, repeats))
    batch, batch_cpu = _seconds_and_cpu_seconds(lambda: next(alone), repeats)
    step, step_cpu = _seconds_and_cpu_seconds(replay, repeats)
    memcpy = None
    if facts.batch and facts.batch.bytes >= MEMCPY_BYTES_MIN:
        contestants = {"memcpy": memcpy_of(facts.batch.bytes)}
        memcpy = seconds_in_turn(contestants, ROUNDS_MEMCPY)["memcpy"].median().item()
    return Costs(batch, batch_cpu, step, step_cpu, memcpy)


def _seconds_and_cpu_seconds(function: Callable[[], Any], repeats: int) -> tuple[float, float]:
    """Both per call."""
    begin = time.perf_counter()
    cpu_begin = time.process_time()
    for _ in range(repeats):
        function()
    seconds = time.perf_counter() - begin
    cpu_seconds = time.process_time() - cpu_begin
    return seconds / repeats, cpu_seconds / repeats


# ---- verdicts


def _rounds_that_fit(seconds: float, round_seconds: float, rounds_max: int) -> int:
    """How many rounds, of two calls each, fit into `seconds`: ROUNDS_MIN to `rounds_max`."""
    return max(ROUNDS_MIN, min(rounds_max, int(seconds / (2 * round_seconds))))


def _noise(seconds: dict[str, torch.Tensor]) -> float:
    """What the two controls differ by."""
    return Comparison(torch.stack([seconds[CONTROL], seconds[CONTROL_AGAIN]], 1)).wobble


def _not_measured(reason: str) -> Trial:
    return not_measured(f"{NOT_MEASURED}, because {reason}")


def _trial(comparison: Comparison, share: float, rest: float | None = None) -> Trial:
    """What a Comparison of a `share` of a step means for the whole.

    Args:
        rest: share of a step that stays as it is (default: all but `share`).
    """
    rest = 1 - share if rest is None else rest

    def of_whole(ratio: float) -> float:
        return 1 / (rest + share / ratio)

    whole = of_whole(comparison.ratio)
    low, high = (of_whole(ratio) for ratio in comparison.spread)
    verdict = comparison.verdict
    text = f"{whole:.2f}x ({low:.2f} to {high:.2f}), {verdict}"
    return Trial(verdict, comparison.ratio, low, high, whole, text)
