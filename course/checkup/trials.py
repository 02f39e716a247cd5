"""Try what can be tried without touching the script: on its own loader, its own last batch, in the
same process.

All ways are interleaved with a control that runs twice: the noise. The step: replay.py; other
loaders: loaders.py.
"""

import contextlib
import copy
import math
import os
import time
import warnings

import torch
from torch.utils.data import DataLoader

from course.checkup.facts import train_loader
from course.checkup.loaders import endless, items, loader_ways, loops, other_loader
from course.checkup.phases import BACKWARD, DATA, FORWARD, OPTIMIZER
from course.checkup.predict import duration
from course.checkup.replay import Replay, as_it_was, merged, put_back, rebuilt, replay_of
from course.checkup.tensors import tensors_in
from course.measure.timing import HELPED, NOT_MEASURED, Comparison, now
from course.measure.yardsticks import memcpy_of, seconds_in_turn

CONTROL, AGAIN = "control", "control again"
# of each trial; rounds where time is short; seconds of one call, about
ROUNDS, FEWEST, CALL = (
    7,
    3,
    0.1,
)
WAITS = 0.02  # share of a step that waits for data, below which no other loader is tried
LONGER = 4  # times the samples of the larger batch


def step_ways(replay: Replay, data: dict, compile: bool) -> dict:
    """{name: function, or the reason why it cannot be tried} of what may make the step cheaper."""
    ways = {
        "bf16 autocast": _bf16(replay),
        "channels_last": _channels_last(replay),
        "fused optimizer": _fused(replay),
    }
    ways[f"batch x{LONGER}"] = _longer(replay)
    if len(replay.optimizers) >= 4:
        ways["one optimizer"] = Replay(replay.calls, [merged(replay.optimizers)], replay.device)
    if compile:
        calls = [copy.copy(call) for call in replay.calls]
        for call in calls:
            call.module = torch.compile(call.module)
        ways["compile"] = Replay(calls, replay.optimizers, replay.device)
    return ways


def _bf16(replay):
    if any(call.autocast or _dtype(call.module) != torch.float32 for call in replay.calls):
        return "the model does not compute in float32"
    return lambda: replay(lambda: torch.autocast(replay.device, torch.bfloat16))


def _dtype(module):
    return next((p.dtype for p in module.parameters() if p.is_floating_point()), torch.float32)


def _channels_last(replay):
    convolutions = [
        m for call in replay.calls for m in call.module.modules() if isinstance(m, torch.nn.Conv2d)
    ]
    if not convolutions:
        return "there is no convolution"
    if all(
        m.weight.is_contiguous(memory_format=torch.channels_last)
        for m in convolutions
        if m.weight.shape[-1] > 1
    ):
        return "the weights are in channels_last already"
    calls = [copy.copy(call) for call in replay.calls]
    for call in calls:
        call.module = copy.deepcopy(call.module).to(memory_format=torch.channels_last)
        call.args = tuple(
            a.contiguous(memory_format=torch.channels_last)
            if isinstance(a, torch.Tensor) and a.dim() == 4
            else a
            for a in call.args
        )
    return Replay(calls, replay.optimizers, replay.device)


def _fused(replay):
    groups = [group for optimizer in replay.optimizers for group in optimizer.param_groups]
    if not all("fused" in group for group in groups):
        return "the optimizer has no fused form"
    if all(group["fused"] for group in groups):
        return "the optimizer is fused already"
    return Replay(
        replay.calls,
        [rebuilt(o, fused=True, foreach=None) for o in replay.optimizers],
        replay.device,
    )


def _longer(replay):
    """The step on a batch LONGER times as large; what has no batch dimension stays."""
    calls = [copy.copy(call) for call in replay.calls]
    for call in calls:
        first = next(tensors_in((call.args, call.kwargs)), None)
        if first is None or not first.dim():
            return "no batch is seen in the arguments of the model"
        size = first.shape[0]

        def more(value, size=size):
            if isinstance(value, torch.Tensor):
                return (
                    torch.cat([value] * LONGER) if value.dim() and value.shape[0] == size else value
                )
            if isinstance(value, dict):
                return {key: more(part) for key, part in value.items()}
            return type(value)(map(more, value)) if type(value) in (list, tuple) else value

        call.args, call.kwargs, call.gradients = (
            more(call.args),
            more(call.kwargs),
            more(call.gradients),
        )
    return Replay(calls, replay.optimizers, replay.device)


def trials(watch, data: dict, compile: bool = False, rounds: int = ROUNDS) -> dict:
    """{"trials": {name: verdict}, "items", "costs"} of everything that can be tried on what a Watch
    has kept.
    """
    replay, loader = replay_of(watch), train_loader(watch)
    results = {"items": items(loader), "trials": {}, "costs": {}}
    if data["ranks"] > 1:
        return results | {
            "trials": {
                "all trials": _not_measured("several ranks train, and each would wait for others")
            }
        }
    if not replay.calls:
        results["trials"]["the step alone"] = _not_measured("no forward pass was kept")
    with put_back(replay), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of more workers than cores, which is what is tried
        if replay.calls:
            results["trials"] |= _try_steps(replay, data, compile, rounds, 60 * watch.minutes)
        if isinstance(loader, DataLoader) and replay.calls:
            tried, results["costs"] = _try_loaders(loader, replay, data, rounds, 60 * watch.minutes)
            results["trials"] |= tried
    return results


def _fitting(seconds, one_round, rounds):
    """How many rounds, of two calls each, fit into `seconds`: FEWEST to `rounds`."""
    return max(FEWEST, min(rounds, int(seconds / (2 * one_round))))


def _try_steps(replay, data, compile, rounds, most):
    """Verdicts of other ways to compute the step, within about `most` seconds."""
    share = sum(
        data["phases"].get(phase, {}).get("share", 0.0) for phase in (FORWARD, BACKWARD, OPTIMIZER)
    )
    ways, step = step_ways(replay, data, compile), max(1e-4, data["seconds"]["median"] * share)
    if 2 * FEWEST * step * (len(ways) + 1 + LONGER) > most:
        ways[f"batch x{LONGER}"] = f"a step of {duration(step)} is too slow for it"
    functions = {CONTROL: replay, AGAIN: replay}
    for name, way in ways.items():
        if not isinstance(way, str):
            reason = _refusal(way)
            ways[name] = reason or way
            functions |= {} if reason else {name: way}
    if data["evaluation"]["graphs"]:
        functions |= {"with graphs": _forward(replay, contextlib.nullcontext),
                      "inference_mode": _forward(replay, torch.inference_mode)}  # fmt: skip
    n = max(1, min(50, math.ceil(CALL / step)))
    rounds = _fitting(most, n * step * (len(functions) + LONGER - 1), rounds)
    seconds = seconds_in_turn(
        {name: _times(f, n, replay.device) for name, f in functions.items()}, rounds
    )
    noise = Comparison(torch.stack([seconds[CONTROL], seconds[AGAIN]], 1)).wobble
    verdicts = {}
    for name, way in ways.items():
        if isinstance(way, str):
            verdicts[name] = _not_measured(way)
            continue
        longer = name.startswith("batch")
        own = seconds[name] / (LONGER if longer else 1)
        waits, rest = data["phases"].get(DATA, {}).get("share", 0.0), 1 - share
        if longer:  # what else a step costs is spread over more samples, too; only loading is not
            rest = waits + (1 - waits - share) / LONGER
        verdicts[name] = _verdict(
            Comparison(torch.stack([seconds[CONTROL], own], 1), noise=noise), share, rest
        )
    if "inference_mode" in functions:
        pair = torch.stack([seconds["with graphs"], seconds["inference_mode"]], 1)
        verdicts["inference_mode"] = _verdict(
            Comparison(pair, noise=noise), data["evaluation"]["share"]
        )
    if verdicts["bf16 autocast"]["verdict"] == HELPED:
        verdicts["bf16 autocast"]["text"] += f", outputs change by {_change(replay):.2%}"
    return verdicts


def _refusal(way):
    """Why a way cannot be taken, or ""."""
    try:
        way()
    except (
        Exception
    ) as error:  # a trial of a stranger's model may fail in any way; the report says so
        return f"{type(error).__name__}: {str(error).splitlines()[0][:80] if str(error) else ''}"
    return ""


def _forward(replay, mode):
    def forward():
        for call in replay.calls:
            with mode(), as_it_was(call, replay.device):
                call.module(*call.args, **call.kwargs)

    return forward


def _times(function, n, device):
    def several():
        for _ in range(n):
            function()
        now(device)

    return several


def _change(replay):
    """How far bfloat16 moves the outputs, as a share of their size."""
    plain, other = (
        replay.outputs(),
        replay.outputs(lambda: torch.autocast(replay.device, torch.bfloat16)),
    )
    distance = math.sqrt(
        sum((a - b).square().sum().item() for a, b in zip(plain, other, strict=True))
    )
    return distance / max(1e-12, math.sqrt(sum(a.square().sum().item() for a in plain)))


def _try_loaders(loader, replay, data, rounds, most):
    """(verdicts of other loaders, each in a loop with the step, within about `most` seconds; costs
    of one batch).
    """
    share = sum(
        data["phases"].get(p, {}).get("share", 0.0) for p in (DATA, FORWARD, BACKWARD, OPTIMIZER)
    )
    now_same = {CONTROL: other_loader(loader), AGAIN: other_loader(loader)}
    waits = data["phases"].get(DATA, {}).get("share", 0.0)
    others = loader_ways(loader, os.cpu_count()) if waits > WAITS or loader.num_workers else {}
    n = max(
        12, 2 * loader.num_workers, min(32, math.ceil(CALL / max(1e-4, data["seconds"]["median"])))
    )
    loop, costs = n * data["seconds"]["median"], _costs(loader, replay, data)
    # how many other loaders there is time for
    fits = int(most / (2 * FEWEST * loop)) - len(now_same)
    if others and fits < 1:
        reason = f"{n} batches of {duration(loop / n)} take too long, again and again; give it more --minutes"
        return {"other loaders": _not_measured(reason)}, costs
    if not others:
        return {}, costs
    others = dict(
        sorted(others.items(), key=lambda way: abs(way[1].num_workers - os.cpu_count()))[:fits]
    )
    rounds = _fitting(most, loop * (len(others) + len(now_same)), rounds - 2)
    seconds = seconds_in_turn(loops(now_same | others, replay, n), rounds)
    noise = Comparison(torch.stack([seconds[CONTROL], seconds[AGAIN]], 1)).wobble
    pairs = {
        name: Comparison(torch.stack([seconds[CONTROL], seconds[name]], 1), noise=noise)
        for name in others
    }
    return {name: _verdict(pair, share) for name, pair in pairs.items()}, costs


def _costs(loader, replay, data):
    """Seconds, and CPU seconds, of one batch without workers and of one step; seconds of a copy of
    the batch.
    """
    alone = endless(other_loader(loader, num_workers=0))
    next(alone)
    n = max(2, min(16, math.ceil(CALL / max(1e-4, data["seconds"]["median"]))))
    costs = dict(zip(("batch", "batch_cpu"), _spent(lambda: next(alone), n), strict=True))
    costs |= dict(zip(("step", "step_cpu"), _spent(replay, n), strict=True))
    if data["batch"] and data["batch"]["bytes"] >= 1000:
        copy_once = memcpy_of(data["batch"]["bytes"])
        costs["memcpy"] = seconds_in_turn({"memcpy": copy_once}, 5)["memcpy"].median().item()
    return costs


def _spent(function, n):
    begin, cpu = time.perf_counter(), time.process_time()
    for _ in range(n):
        function()
    return (time.perf_counter() - begin) / n, (time.process_time() - cpu) / n


def _not_measured(reason):
    return {
        "verdict": NOT_MEASURED,
        "step": 1.0,
        "whole": 1.0,
        "text": f"{NOT_MEASURED}, because {reason}",
    }


def _verdict(comparison, share, rest=None):
    """What a Comparison of a `share` of a step means for the whole, of which `rest`, 1 - share,
    stays as it is.
    """
    rest = 1 - share if rest is None else rest
    whole, low, high = (
        1 / (rest + share / ratio) for ratio in (comparison.ratio, *comparison.spread)
    )
    text = f"{whole:.2f}x ({low:.2f} to {high:.2f}), {comparison.verdict}"
    return {"verdict": comparison.verdict, "step": comparison.ratio, "low": low, "high": high, "whole": whole,
            "text": text}  # fmt: skip
