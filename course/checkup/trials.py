"""Try what can be tried without touching the script: Facts -> *trials* -> Trials.

It is tried on the script's own loader and its own last batch, in the same process, by the one
comparison of the course: measure/comparison.py. Ways to compute the step are in step_ways.py, other
loaders in loaders.py.
"""

import contextlib
import dataclasses
import functools
import math
import random
import time
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
from torch.utils.data import DataLoader

from course.checkup import limits, loaders
from course.checkup.arithmetic import arithmetic_of
from course.checkup.facts import (
    BATCH_TIMES,
    BF16,
    INFERENCE_MODE,
    LARGER_BATCH,
    NOT_TRUSTED,
    Arithmetic,
    Costs,
    Facts,
    Items,
    Trial,
    Trials,
    not_measured,
)
from course.checkup.failures import in_words
from course.checkup.formats import FAR, duration
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
from course.checkup.predict import (
    bound,
    bound_of_data,
    bound_of_way,
    share_per_sample,
    times_slower,
)
from course.checkup.replay import NO_CALLS, Replay, put_back, replay_of
from course.checkup.step_ways import NoWay, Way, bf16_mode, makers, tried_once
from course.checkup.watch import Watch
from course.device import cores
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
from course.system.fit import free_memory

CONTROL = "as it is"
STEP_ALONE = "the step alone"
ARITHMETIC = "arithmetic"
LEAST_SECONDS = 20.0  # that a part of the trials may take in any case
MEMORY_TIMES = 2  # times what autograd saves: what a step needs besides
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
NOT_COMPARED = "the trials ended before it was compared"
MEMCPY_BYTES_MIN = 1000  # a copy of less takes no time that can be measured


def try_all(
    watch: Watch,
    facts: Facts,
    compile: bool = False,
    minutes: float = 3.0,
    last_resort: Callable[[Trials], None] | None = None,
) -> Trials:
    """Everything that can be tried on what a Watch has kept.

    What fails has its reason instead of a result, and Ctrl-C ends the trials that are left.

    Args:
        compile: try torch.compile as well, which takes a minute.
        minutes: that trials of the step take at most, about, and trials of loaders again.
        last_resort: called with what is known if a trial cannot be ended; see `Watchdog`.
    """
    attempt = _Attempt(watch, facts, compile, 60 * minutes)
    interrupted = False
    resort = None if last_resort is None else lambda: last_resort(attempt.trials())
    with as_if_outside(), limits.Watchdog(TooLong, attempt.limit, resort):
        try:
            attempt.run()
        except KeyboardInterrupt:
            interrupted = True
            attempt.tried["the rest"] = _not_measured("Ctrl-C ended the trials")
        except Exception as error:  # TooLong between two trials, or a script's thread or worker
            attempt.tried["the rest"] = _not_measured(in_words(error))
    return attempt.trials(interrupted)


class TooLong(Exception):
    """A trial takes too long."""

    def __str__(self) -> str:
        return "it took too long; give it more --minutes"


class _Attempt:
    """Trials one after the other; what is known so far stands in its fields."""

    def __init__(self, watch: Watch, facts: Facts, compile: bool, seconds_max: float) -> None:
        self.tried: dict[str, Trial] = {}
        self.items: Items | None = None
        self.costs: Costs | None = None
        self._watch = watch
        self._facts = facts
        self.arithmetic: Arithmetic | None = None
        self._compile = compile
        self._seconds_max = seconds_max
        self._part_began = time.monotonic()

    def limit(self) -> float:
        """When the part that runs now has to end."""
        return self._part_began + LEAST_SECONDS + limits.TIMES * self._seconds_max

    def trials(self, interrupted: bool = False) -> Trials:
        """What is known so far."""
        return Trials(dict(self.tried), self.items, self.costs, self.arithmetic, interrupted)

    def run(self) -> None:
        """Try the parts, one after the other."""
        loader = self._watch.seen.train_loader()
        if loader is not None:
            self._part("items", lambda: self._look_at_items(loader))
        if self._facts.ranks > 1:
            reason = "several ranks train, and each would wait for others"
            self.tried["all trials"] = _not_measured(reason)
            return
        replay: Replay | None = self._part(STEP_ALONE, lambda: replay_of(self._watch))
        if replay is None:
            replay = Replay([], [], "cpu")
        with contextlib.ExitStack() as stack:
            if replay.calls:
                self._part(STEP_ALONE, lambda: stack.enter_context(put_back(replay)))
            step: Way | None = self._part(STEP_ALONE, lambda: _control(replay))
            if step:
                self._part(ARITHMETIC, lambda: self._count(replay))
                self._part("other ways to compute the step", lambda: self._try_steps(replay))
            if loader is not None:
                self._part("other loaders", lambda: self._try_loaders(loader, step))

    def _part(self, name: str, function: Callable[[], Any]) -> Any:
        """What a part returns; None if it fails, and then the reason stands in `tried`."""
        self._part_began = time.monotonic()
        if name in self.tried:
            return None
        try:
            return function()
        except NoWay as reason:
            self.tried[name] = _not_measured(str(reason))
        except Exception as error:  # a stranger's objects may fail in any way; the report says so
            self.tried[name] = _not_measured(in_words(error))
        return None

    def _look_at_items(self, loader: DataLoader) -> None:
        self.items = items_of(loader)

    def _count(self, replay: Replay) -> None:
        facts = self._facts
        self.arithmetic = arithmetic_of(replay, facts.backwards, facts.compiled)

    def _try_steps(self, replay: Replay) -> None:
        try_steps(replay, self._facts, self._compile, self._seconds_max, self.tried)

    def _try_loaders(self, loader: DataLoader, step: Way | None) -> None:
        if step is None:  # it stands for one that cannot be taken again
            step = loaders.computing_for(_step_seconds(self._facts))
        device = "cuda" if self._watch.clock.cuda else "cpu"
        self.costs = costs_of(loader, step, self._facts)
        facts, costs = self._facts, self.costs
        try_loaders(loader, step, device, facts, costs, self._seconds_max, self.tried)


def _control(replay: Replay) -> Way:
    """The step as it is, after it was taken once.  Raises: NoWay."""
    if not replay.calls:
        raise NoWay(NO_CALLS)
    return tried_once(lambda same: same, replay)


@contextlib.contextmanager
def as_if_outside() -> Iterator[None]:
    """In the block no mode of the script holds; after it random numbers are as before."""
    python_state = random.getstate()
    numpy_state = np.random.get_state()
    devices = range(torch.cuda.device_count()) if torch.cuda.is_initialized() else []
    autocasts = contextlib.ExitStack()
    for device in ("cpu", "cuda"):
        autocasts.enter_context(torch.autocast(device, enabled=False))
    try:
        with (
            autocasts,
            warnings.catch_warnings(),
            torch.random.fork_rng(devices),
            torch.inference_mode(False),
            torch.enable_grad(),
        ):
            warnings.simplefilter("ignore")  # of more workers than cores, which is what is tried
            yield
    finally:
        random.setstate(python_state)
        np.random.set_state(numpy_state)


# ---- other ways to compute the step


def _step_seconds(facts: Facts) -> float:
    """Seconds of forward, backward and the optimizer in a step."""
    share = facts.phases.share(FORWARD, BACKWARD, OPTIMIZER)
    return max(STEP_SECONDS_MIN, facts.seconds.median * share)


def try_steps(
    replay: Replay, facts: Facts, compile: bool, seconds_max: float, tried: dict[str, Trial]
) -> None:
    """Write into `tried` what other ways to compute the step gave, within about `seconds_max`."""
    step_seconds = _step_seconds(facts)
    functions: dict[str, Way] = {CONTROL: replay}
    names = []
    for name, way in _ways(replay, facts, compile, step_seconds, seconds_max):
        if isinstance(way, NoWay):
            tried[name] = _not_measured(str(way))
        else:
            names.append(name)
            functions[name] = way
            tried[name] = _not_measured(NOT_COMPARED)  # until it is
    if facts.evaluation.graphs:
        functions[WITH_GRAPHS] = replay.forward
        functions[INFERENCE_MODE] = functools.partial(replay.forward, torch.inference_mode)
    if len(functions) < 2:
        return
    # before the trials, which train on one gradient again and again
    change = _change_by_bf16(replay) if BF16 in functions else 0.0
    compared = _compared(functions, replay.device, step_seconds, seconds_max)
    for name in names:
        tried[name] = _trial_of_step(name, compared, facts)
    if INFERENCE_MODE in functions:
        ratio = compared.ratio(INFERENCE_MODE, to=WITH_GRAPHS)
        share = facts.evaluation.share
        tried[INFERENCE_MODE] = _trial(ratio, compared.control, share, bound(share))
    if BF16 in functions and tried[BF16].helped:
        text = f"{tried[BF16].text}, outputs change by {change:.2%}"
        tried[BF16] = dataclasses.replace(tried[BF16], text=text)


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
    replay: Replay, facts: Facts, compile: bool, step_seconds: float, seconds_max: float
) -> Iterator[tuple[str, Way | NoWay]]:
    """Yields: (name, a way that was taken once or why there is none)."""
    makers_by_name = makers(replay, compile)
    n_steps = (ROUNDS_MIN + 1) * (len(makers_by_name) + 1 + BATCH_TIMES)
    for name, make in makers_by_name.items():
        if name == LARGER_BATCH and n_steps * step_seconds > seconds_max:
            yield name, NoWay(f"a step of {duration(step_seconds)} is too slow for it")
            continue
        if name == LARGER_BATCH and not _fits_in_memory(facts, replay.device):
            yield name, NoWay("it may need more memory than is free")
            continue
        way: Way | NoWay
        try:
            way = tried_once(make, replay)
        except NoWay as reason:
            way = reason
        yield name, way


def _fits_in_memory(facts: Facts, device: str) -> bool:
    """Whether activations of BATCH_TIMES the samples fit; a GPU says so itself."""
    if device != "cpu":
        return True
    needed = BATCH_TIMES * MEMORY_TIMES * (facts.memory.activations or 0)
    free = free_memory()
    return free is None or needed < free


def _trial_of_step(name: str, compared: Comparison, facts: Facts) -> Trial:
    share = facts.phases.share(FORWARD, BACKWARD, OPTIMIZER)
    rest = 1 - share
    ratio = compared.ratio(name)
    if name == LARGER_BATCH:  # per sample; what else a step costs is spread, only data are not
        ratio = ratio.scaled(BATCH_TIMES)
        waits = share_per_sample(facts)
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
    loader: DataLoader,
    step: Way,
    device: str,
    facts: Facts,
    costs: Costs,
    seconds_max: float,
    tried: dict[str, Trial],
) -> None:
    """Write into `tried` what other loaders gave, each in a loop with the step.

    It takes about `seconds_max`.
    """
    if facts.phases.share(DATA) <= DATA_WAITS_MIN and not loader.num_workers:
        return
    n_cores = cores()
    loaders.check_sharding(loader)
    ways = loader_ways(loader, n_cores)
    fitting = _batches_per_round(facts, seconds_max) // loaders.BATCHES_MIN - AS_BEFORE
    if fitting < 1:
        takes = f"{loaders.BATCHES_MIN} batches of {duration(facts.seconds.median)} take too long"
        reason = f"{takes}, again and again; give it more --minutes"
        tried["other loaders"] = _not_measured(reason)
        return
    like_cores = sorted(ways, key=lambda name: abs(ways[name].num_workers - n_cores))
    chosen = {CONTROL: other_loader(loader)}
    for name in like_cores[:fitting]:
        chosen[name] = ways[name]
        tried[name] = _not_measured(NOT_COMPARED)  # until it is
    compared = compare_measured(
        list(chosen),
        _measure_of_loaders(chosen, step, device, _batches_per_round(facts, seconds_max)),
        rounds=(ROUNDS_MIN, ROUNDS_MAX),
        seconds=seconds_max,
    )
    share = facts.phases.share(DATA, FORWARD, BACKWARD, OPTIMIZER)
    most = bound_of_data(facts, costs=costs)
    for name in like_cores[:fitting]:
        rest = 1 - share
        if ways[name].num_workers < loader.num_workers:  # which leave the cores to the script
            rest /= times_slower(facts, costs)
        tried[name] = _trial(compared.ratio(name), compared.control, share, most, rest)


def _batches_per_round(facts: Facts, seconds: float) -> int:
    """The batches for which each round has time, if there are as few rounds as possible."""
    return int(seconds / (ROUNDS_MIN + 1) / max(STEP_SECONDS_MIN, facts.seconds.median))


def _measure_of_loaders(
    chosen: dict[str, DataLoader], step: Way, device: str, batches_per_round: int
) -> Callable[[str], float]:
    """A function of a loader's name: its seconds per batch in the steady state."""
    each = batches_per_round // (len(chosen) - 1 + AS_BEFORE)
    iterators = {name: endless(one) for name, one in chosen.items()}

    def measure(name: str) -> float:
        ready = ready_batches(chosen[name])
        n_batches = batches_that_fit(chosen[name], each - ready)
        return seconds_per_batch(iterators[name], step, ready, n_batches, device)

    return measure


def costs_of(loader: DataLoader, step_alone: Way, facts: Facts) -> Costs:
    """What one batch without workers costs, one step, and a copy of the batch."""
    alone = endless(other_loader(loader, num_workers=0))
    next(alone)
    repeats = math.ceil(CALL_SECONDS / max(STEP_SECONDS_MIN, facts.seconds.median))
    repeats = max(2, min(COST_BATCHES_MAX, repeats))
    batch, batch_cpu = _seconds_and_cpu_seconds(lambda: next(alone), repeats)
    step, step_cpu = _seconds_and_cpu_seconds(step_alone, repeats)
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
    elif most < FAR and printed.low > round(most, 2):
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
