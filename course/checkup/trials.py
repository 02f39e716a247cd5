"""Try what can be tried without touching the script: Facts -> *trials* -> Trials.

It is tried on the script's own loader and its own last batch, in the same process, by the one
comparison of the course: measure/comparison.py. Ways to compute the step are in step_ways.py, other
loaders in loaders.py.
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

from course.checkup import loaders
from course.checkup.facts import (
    BATCH_TIMES,
    BF16,
    INFERENCE_MODE,
    LARGER_BATCH,
    NOT_TRUSTED,
    Costs,
    Facts,
    Trial,
    Trials,
    not_measured,
)
from course.checkup.formats import duration
from course.checkup.items import items_of
from course.checkup.loaders import (
    batches_that_fit,
    endless,
    loader_ways,
    other_loader,
    ready_batches,
    seconds_per_batch,
)
from course.checkup.phases import BACKWARD, DATA, FORWARD, OPTIMIZER
from course.checkup.predict import bound, bound_of_way, bound_of_workers
from course.checkup.replay import Replay, put_back, replay_of
from course.checkup.step_ways import NoWay, Way, bf16_mode, makers, tried_once
from course.checkup.watch import Watch
from course.measure.comparison import (
    FEWEST_ROUNDS,
    NOT_DECIDED,
    NOT_MEASURED,
    Comparison,
    Interval,
    compare,
    compare_measured,
    verdict_on,
)
from course.measure.yardsticks import memcpy_of

CONTROL = "as it is"
WITH_GRAPHS = "with graphs"
AS_BEFORE = 2  # times that a round takes what is there, once as its own control
ROUNDS_MIN = FEWEST_ROUNDS
ROUNDS_MAX = 31
COPIES = 5  # of a batch, for the time of one
CALL_SECONDS = 0.1  # that one call takes, about, by repeating a step
REPEATS_MAX = 50  # of a step in a call
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
            tried |= try_loaders(loader, replay, facts, costs, 60 * minutes)
    return Trials(tried, items, costs)


# ---- other ways to compute the step


def try_steps(replay: Replay, facts: Facts, compile: bool, seconds_max: float) -> dict[str, Trial]:
    """What other ways to compute the step gave, within about `seconds_max`."""
    share = facts.phases.share(FORWARD, BACKWARD, OPTIMIZER)
    step_seconds = max(STEP_SECONDS_MIN, facts.seconds.median * share)
    ways = _ways(replay, compile, step_seconds, seconds_max)
    tried = {name: _not_measured(str(w)) for name, w in ways.items() if isinstance(w, NoWay)}
    functions: dict[str, Way] = {CONTROL: replay}
    functions |= {name: way for name, way in ways.items() if not isinstance(way, NoWay)}
    if facts.evaluation.graphs:
        functions[WITH_GRAPHS] = replay.forward
        functions[INFERENCE_MODE] = functools.partial(replay.forward, torch.inference_mode)
    if len(functions) < 2:
        return tried
    compared = _compared(functions, replay.device, step_seconds, seconds_max)
    for name in ways:
        if name in functions:
            tried[name] = _trial_of_step(name, compared, facts)
    if INFERENCE_MODE in functions:
        ratio = compared.ratio(INFERENCE_MODE, to=WITH_GRAPHS)
        share = facts.evaluation.share
        tried[INFERENCE_MODE] = _trial(ratio, compared.control, share, bound(share))
    if BF16 in functions and tried[BF16].helped:
        text = f"{tried[BF16].text}, outputs change by {_change_by_bf16(replay):.2%}"
        tried[BF16] = dataclasses.replace(tried[BF16], text=text)
    return tried


def _compared(
    functions: dict[str, Way], device: str, step_seconds: float, seconds_max: float
) -> Comparison:
    """The Comparison of ways to take the step, each repeated so that a call takes a while."""
    round_seconds = (len(functions) + BATCH_TIMES) * step_seconds
    repeats = min(REPEATS_MAX, math.ceil(CALL_SECONDS / step_seconds))
    repeats = max(1, min(repeats, int(seconds_max / (ROUNDS_MIN + 1) / round_seconds)))
    return compare(
        {name: _several(way, repeats) for name, way in functions.items()},
        device=device,
        fewest_rounds=ROUNDS_MIN,
        most_rounds=ROUNDS_MAX,
        seconds=seconds_max,
        progress=False,
    )


def _ways(
    replay: Replay, compile: bool, step_seconds: float, seconds_max: float
) -> dict[str, Way | NoWay]:
    """{name: a way that was taken once, or why there is none}."""
    makers_by_name = makers(replay, compile)
    ways: dict[str, Way | NoWay] = {}
    n_steps = (ROUNDS_MIN + 1) * (len(makers_by_name) + 1 + BATCH_TIMES)
    for name, make in makers_by_name.items():
        if name == LARGER_BATCH and n_steps * step_seconds > seconds_max:
            ways[name] = NoWay(f"a step of {duration(step_seconds)} is too slow for it")
            continue
        try:
            ways[name] = tried_once(make, replay)
        except NoWay as reason:
            ways[name] = reason
    return ways


def _trial_of_step(name: str, compared: Comparison, facts: Facts) -> Trial:
    share = facts.phases.share(FORWARD, BACKWARD, OPTIMIZER)
    rest = 1 - share
    ratio = compared.ratio(name)
    if name == LARGER_BATCH:  # per sample; what else a step costs is spread, only loading is not
        ratio = ratio.scaled(BATCH_TIMES)
        waits = facts.phases.share(DATA)
        rest = waits + (1 - waits - share) / BATCH_TIMES
    return _trial(ratio, compared.control, share, bound_of_way(name, facts), rest)


def _several(function: Way, repeats: int) -> Callable[[], None]:
    def several() -> None:
        for _ in range(repeats):
            function()

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
    loader: DataLoader, replay: Replay, facts: Facts, costs: Costs, seconds_max: float
) -> dict[str, Trial]:
    """What other loaders gave, each in a loop with the step, within about `seconds_max`."""
    if facts.phases.share(DATA) <= DATA_WAITS_MIN and not loader.num_workers:
        return {}
    cores = os.cpu_count() or 1
    ways = loader_ways(loader, cores)
    fitting = _batches_per_round(facts, seconds_max) // loaders.BATCHES_MIN - AS_BEFORE
    if fitting < 1:
        takes = f"{loaders.BATCHES_MIN} batches of {duration(facts.seconds.median)} take too long"
        reason = f"{takes}, again and again; give it more --minutes"
        return {"other loaders": _not_measured(reason)}
    like_cores = sorted(ways, key=lambda name: abs(ways[name].num_workers - cores))
    chosen = {CONTROL: other_loader(loader)}
    chosen |= {name: ways[name] for name in like_cores[:fitting]}
    compared = compare_measured(
        list(chosen),
        _measure_of_loaders(chosen, replay, _batches_per_round(facts, seconds_max)),
        rounds=(ROUNDS_MIN, ROUNDS_MAX),
        seconds=seconds_max,
    )
    share = facts.phases.share(DATA, FORWARD, BACKWARD, OPTIMIZER)
    tried = {}
    for name in like_cores[:fitting]:
        workers = chosen[name].num_workers
        most = bound_of_workers(facts, loader.num_workers, workers, costs.step)
        tried[name] = _trial(compared.ratio(name), compared.control, share, most)
    return tried


def _batches_per_round(facts: Facts, seconds: float) -> int:
    """The batches for which each round has time, if there are as few rounds as possible."""
    return int(seconds / (ROUNDS_MIN + 1) / max(STEP_SECONDS_MIN, facts.seconds.median))


def _measure_of_loaders(
    chosen: dict[str, DataLoader], replay: Replay, batches_per_round: int
) -> Callable[[str], float]:
    """A function of a loader's name: its seconds per batch in the steady state."""
    each = batches_per_round // (len(chosen) - 1 + AS_BEFORE)
    iterators = {name: endless(one) for name, one in chosen.items()}

    def measure(name: str) -> float:
        ready = ready_batches(chosen[name])
        n_batches = batches_that_fit(chosen[name], each - ready)
        return seconds_per_batch(iterators[name], replay, ready, n_batches, replay.device)

    return measure


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
        copy = memcpy_of(facts.batch.bytes)
        copy()
        memcpy, _ = _seconds_and_cpu_seconds(copy, COPIES)
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


def _not_measured(reason: str) -> Trial:
    return not_measured(f"{NOT_MEASURED}, because {reason}")


def _trial(
    ratio: Interval, control: Interval, share: float, most: float, rest: float | None = None
) -> Trial:
    """What it means for the whole that a `share` of a step is `ratio` times as fast.

    The verdict follows from the interval as it is printed.

    Args:
        most: the bound of the gain, from what was seen of the steps.
        rest: share of a step that stays as it is (default: all but `share`).
    """
    rest = 1 - share if rest is None else rest
    ends = (ratio.estimate, ratio.low, ratio.high)
    whole, low, high = (1 / (rest + share / end) for end in ends)
    printed = Interval(round(whole, 2), round(low, 2), round(high, 2))
    verdict = verdict_on(printed)
    words = verdict
    if verdict == NOT_DECIDED and control.excludes(1):
        words = f"{verdict}: the same step twice differs, {control}"
    elif printed.low > round(most, 2):
        verdict = NOT_TRUSTED
        words = f"{verdict}: more than its bound of {most:.2f}x"
    return Trial(
        verdict,
        ratio.estimate,
        low,
        high,
        whole,
        f"{whole:.2f}x ({low:.2f} to {high:.2f}), {words}",
        most,
    )
