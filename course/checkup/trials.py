"""Try what can be tried without touching the script: on its own loader, its own last batch, in the same process.

A step is run again from what was kept of the last one: the arguments of the models, and the gradients that their
outputs got, so the loss itself is not needed.  All ways take turns with a control, twice: the noise.  Weights, buffers
and optimizer state are put back.
"""

import contextlib
import copy
import inspect
import math
import multiprocessing
import os
import time
import warnings
from collections.abc import Callable

import torch
from torch.utils.data import DataLoader, IterableDataset

from course.checkup.facts import train_loader
from course.checkup.watch import BACKWARD, DATA, FORWARD, OPTIMIZER, tensors_in
from course.measure.timing import HELPED, NOT_MEASURED, Comparison, now
from course.measure.yardsticks import memcpy_of, seconds_in_turn

CONTROL, AGAIN = "control", "control again"
ROUNDS, CALL = 7, 0.1  # of each trial; seconds of one call, about
WAITS = 0.02  # share of a step that waits for data, below which no other loader is tried
LONGER = 4  # times the samples of the larger batch


# ---- a step again


class Replay:
    """The step that was seen last: forward and backward of each model that the script called, then the optimizers."""

    def __init__(self, calls, optimizers, device):
        self.calls = [call for call in calls if call and call.gradients]
        self.optimizers, self.device = optimizers, device

    def __call__(self, change=contextlib.nullcontext) -> None:
        for call in self.calls:
            with _as_it_was(call, self.device), change():
                outputs = list(tensors_in(call.module(*call.args, **call.kwargs)))
            wanted = [(outputs[i], g) for i, g in call.gradients.items() if outputs[i].requires_grad]
            torch.autograd.backward([t for t, _ in wanted], [g.to(t.dtype) for t, g in wanted])
        for optimizer in self.optimizers:
            optimizer.step()
        for optimizer in self.optimizers:
            optimizer.zero_grad()

    def outputs(self, change=contextlib.nullcontext) -> list:
        """The models' outputs, with the same random numbers each time."""
        tensors = []
        with torch.random.fork_rng(devices=[]), torch.no_grad():
            torch.manual_seed(0)
            for call in self.calls:
                with _as_it_was(call, self.device), change():
                    tensors += [t.float() for t in tensors_in(call.module(*call.args, **call.kwargs))]
        return tensors


def _as_it_was(call, device):
    """The autocast in which the script called a model, or none."""
    return torch.autocast(device, call.autocast) if call.autocast else contextlib.nullcontext()


def _detached(value):
    """A copy of nested arguments whose tensors belong to no graph."""
    if isinstance(value, torch.Tensor):
        return value.detach()
    if isinstance(value, dict):
        return {key: _detached(part) for key, part in value.items()}
    return type(value)(map(_detached, value)) if type(value) in (list, tuple) else value


def replay_of(watch) -> Replay:
    """The Replay of what a Watch has kept."""
    calls = [call for call in watch.calls.values() if call]
    for call in calls:
        call.args, call.kwargs = _detached(call.args), _detached(call.kwargs)
    return Replay(calls, [optimizer for _, optimizer in watch.all_optimizers()], "cuda" if watch.cuda else "cpu")


@contextlib.contextmanager
def put_back(replay: Replay):
    """After the block weights, buffers, gradients and optimizer state are what they were."""
    tensors = [t for call in replay.calls for t in (*call.module.parameters(), *call.module.buffers())]
    values, grads = [t.detach().clone() for t in tensors], [t.grad for t in tensors]
    states = [(optimizer, copy.deepcopy(optimizer.state_dict())) for optimizer in replay.optimizers]
    try:
        yield
    finally:
        with torch.no_grad():
            for t, value, grad in zip(tensors, values, grads, strict=True):
                t.copy_(value)
                t.grad = grad
        for optimizer, state in states:
            optimizer.load_state_dict(state)


def rebuilt(optimizer, **changes):
    """A new optimizer of the same class, groups and settings, with changes."""
    known = inspect.signature(type(optimizer).__init__).parameters
    groups = [{**group, **changes} for group in optimizer.param_groups]
    return type(optimizer)(groups, **{k: v for k, v in (optimizer.defaults | changes).items() if k in known})


def _merged(optimizers):
    """One optimizer for the parameters of all."""
    first = optimizers[0]
    known = inspect.signature(type(first).__init__).parameters
    parameters = [p for optimizer in optimizers for group in optimizer.param_groups for p in group["params"]]
    return type(first)(parameters, **{k: v for k, v in first.defaults.items() if k in known})


# ---- ways to take the step


def step_ways(replay: Replay, data: dict, compile: bool) -> dict:
    """{name: function, or the reason why it cannot be tried} of what may make the step cheaper."""
    ways = {"bf16 autocast": _bf16(replay), "channels_last": _channels_last(replay), "fused optimizer": _fused(replay)}
    ways[f"batch x{LONGER}"] = _longer(replay)
    if len(replay.optimizers) >= 4:
        ways["one optimizer"] = Replay(replay.calls, [_merged(replay.optimizers)], replay.device)
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
    convolutions = [m for call in replay.calls for m in call.module.modules() if isinstance(m, torch.nn.Conv2d)]
    if not convolutions:
        return "there is no convolution"
    if all(m.weight.is_contiguous(memory_format=torch.channels_last) for m in convolutions if m.weight.shape[-1] > 1):
        return "the weights are in channels_last already"
    calls = [copy.copy(call) for call in replay.calls]
    for call in calls:
        call.module = copy.deepcopy(call.module).to(memory_format=torch.channels_last)
        call.args = tuple(
            a.contiguous(memory_format=torch.channels_last) if isinstance(a, torch.Tensor) and a.dim() == 4 else a
            for a in call.args
        )
    return Replay(calls, replay.optimizers, replay.device)


def _fused(replay):
    groups = [group for optimizer in replay.optimizers for group in optimizer.param_groups]
    if not all("fused" in group for group in groups):
        return "the optimizer has no fused form"
    if all(group["fused"] for group in groups):
        return "the optimizer is fused already"
    return Replay(replay.calls, [rebuilt(o, fused=True, foreach=None) for o in replay.optimizers], replay.device)


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
                return torch.cat([value] * LONGER) if value.dim() and value.shape[0] == size else value
            if isinstance(value, dict):
                return {key: more(part) for key, part in value.items()}
            return type(value)(map(more, value)) if type(value) in (list, tuple) else value

        call.args, call.kwargs, call.gradients = more(call.args), more(call.kwargs), more(call.gradients)
    return Replay(calls, replay.optimizers, replay.device)


# ---- ways to load


def other_loader(loader, **changes) -> DataLoader:
    """A DataLoader like `loader`, whose workers stay between passes, with changes."""
    options = {name: getattr(loader, name) for name in ("num_workers", "collate_fn", "pin_memory", "worker_init_fn")}
    options |= changes
    if options["num_workers"]:
        forks = "fork" in multiprocessing.get_all_start_methods()
        context = loader.multiprocessing_context or ("fork" if forks else None)
        options |= {"persistent_workers": True, "multiprocessing_context": context}
        options["prefetch_factor"] = loader.prefetch_factor
    if isinstance(loader.dataset, IterableDataset):
        return DataLoader(loader.dataset, batch_size=loader.batch_size, drop_last=loader.drop_last, **options)
    if loader.batch_sampler is not None:
        return DataLoader(loader.dataset, batch_sampler=loader.batch_sampler, **options)
    return DataLoader(loader.dataset, batch_size=None, sampler=loader.sampler, **options)


def endless(loader):
    """Batches of `loader`, pass after pass."""
    while True:
        yield from loader


def loader_ways(loader, cores: int) -> dict:
    """{name: DataLoader} of other numbers of workers; {} if the loader is no DataLoader."""
    if not isinstance(loader, DataLoader):
        return {}
    numbers = sorted({0, 1, 2, 4, min(cores, 8)} - {loader.num_workers})
    return {f"num_workers={n}": other_loader(loader, num_workers=n) for n in numbers}


def loops(loaders: dict, step: Callable, batches: int) -> dict:
    """{name: function that takes `batches` of a loader and calls `step` for each}; their iterators stay open.

    `batches` must be more than workers have ready, which the call that does not count takes away.
    """
    iterators = {name: endless(one) for name, one in loaders.items()}

    def loop(iterator):
        for _ in range(batches):
            next(iterator)
            step()

    return {name: (lambda iterator=iterator: loop(iterator)) for name, iterator in iterators.items()}


# ---- costs of an item


def items(loader, seconds: float = 0.3) -> dict:
    """{"seconds", "busy", "shares"} of one item: reading, transform, collate; {} if items cannot be asked for.

    `busy` is the share of the time in which this process computed, and did not wait.
    """
    if not isinstance(loader, DataLoader) or isinstance(loader.dataset, IterableDataset):
        return {}
    spent, got, order = {"transform": 0.0}, [], iter(loader.sampler)
    with _timed_transform(loader.dataset, spent) as has_transform:
        begin, busy = time.perf_counter(), _busy_seconds()
        while len(got) < max(2, loader.batch_size or 1) and time.perf_counter() - begin < seconds:
            try:
                got.append(loader.dataset[next(order)])
            except (StopIteration, TypeError):  # a sampler of batches
                break
        total, busy = time.perf_counter() - begin, _busy_seconds() - busy
    if not got:
        return {}
    begin = time.perf_counter()
    loader.collate_fn(got if loader.batch_size else got[0])
    collate = time.perf_counter() - begin
    names = {"read": total - spent["transform"], "transform": spent["transform"], "collate": collate}
    if not has_transform:
        names = {"item": total, "collate": collate}
    whole = total + collate
    return {"seconds": whole / len(got), "busy": min(1.0, busy / max(total, 1e-9)),
            "shares": {name: part / whole for name, part in names.items()}}  # fmt: skip


def _busy_seconds():
    """Seconds in which this thread computed, or would have if it had a core: all but those in which it waited."""
    try:
        with open("/proc/thread-self/schedstat") as file:
            ran, queued, _ = map(int, file.read().split())
        return (ran + queued) / 1e9
    except (OSError, ValueError):  # no such file outside Linux
        return time.thread_time()


@contextlib.contextmanager
def _timed_transform(dataset, spent):
    """In the block calls of the dataset's transform are timed; yields whether it has one that can be seen."""
    while not callable(getattr(dataset, "transform", None)) and hasattr(dataset, "dataset"):
        dataset = dataset.dataset  # of a Subset
    owner = getattr(dataset, "transforms", None)
    owner = owner if callable(getattr(owner, "transform", None)) else dataset  # torchvision's StandardTransform
    original = getattr(owner, "transform", None)
    if not callable(original) or "transform" not in vars(owner):
        yield False
        return

    def timed(*args, **kwargs):
        begin = time.perf_counter()
        try:
            return original(*args, **kwargs)
        finally:
            spent["transform"] += time.perf_counter() - begin

    owner.transform = timed
    try:
        yield True
    finally:
        owner.transform = original


# ---- all of them


def trials(watch, data: dict, compile: bool = False, rounds: int = ROUNDS) -> dict:
    """{"trials": {name: verdict}, "items", "costs"} of everything that can be tried on what a Watch has kept."""
    replay, loader = replay_of(watch), train_loader(watch)
    results = {"items": items(loader), "trials": {}, "costs": {}}
    if data["ranks"] > 1:
        return results | {
            "trials": {"all trials": _not_measured("several ranks train, and each would wait for others")}
        }
    if not replay.calls:
        results["trials"]["the step alone"] = _not_measured("no forward pass was kept")
    with put_back(replay), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of more workers than cores, which is what is tried
        if replay.calls:
            results["trials"] |= _try_steps(replay, data, compile, rounds)
        if isinstance(loader, DataLoader) and replay.calls:
            tried, results["costs"] = _try_loaders(loader, replay, data, rounds)
            results["trials"] |= tried
    return results


def _try_steps(replay, data, compile, rounds):
    share = sum(data["phases"].get(phase, {}).get("share", 0.0) for phase in (FORWARD, BACKWARD, OPTIMIZER))
    ways = step_ways(replay, data, compile)
    functions = {CONTROL: replay, AGAIN: replay}
    for name, way in ways.items():
        if not isinstance(way, str):
            reason = _refusal(way)
            ways[name] = reason or way
            functions |= {} if reason else {name: way}
    if data["evaluation"]["graphs"]:
        functions |= {"with graphs": _forward(replay, contextlib.nullcontext),
                      "inference_mode": _forward(replay, torch.inference_mode)}  # fmt: skip
    n = max(1, min(50, math.ceil(CALL / max(1e-4, data["seconds"]["median"] * share))))
    seconds = seconds_in_turn({name: _times(f, n, replay.device) for name, f in functions.items()}, rounds)
    noise = Comparison(torch.stack([seconds[CONTROL], seconds[AGAIN]], 1)).wobble
    verdicts = {}
    for name, way in ways.items():
        if isinstance(way, str):
            verdicts[name] = _not_measured(way)
            continue
        longer = name.startswith("batch")
        own = seconds[name] / (LONGER if longer else 1)
        verdicts[name] = _verdict(Comparison(torch.stack([seconds[CONTROL], own], 1), noise=noise), share)
        if longer:  # what else a step costs is spread over more samples, too; only loading is not
            waits = data["phases"].get(DATA, {}).get("share", 0.0)
            verdicts[name]["whole"] = 1 / (waits + share / verdicts[name]["step"] + (1 - waits - share) / LONGER)
    if "inference_mode" in functions:
        pair = torch.stack([seconds["with graphs"], seconds["inference_mode"]], 1)
        verdicts["inference_mode"] = _verdict(Comparison(pair, noise=noise), data["evaluation"]["share"])
    if verdicts["bf16 autocast"]["verdict"] == HELPED:
        verdicts["bf16 autocast"]["text"] += f", outputs change by {_change(replay):.2%}"
    return verdicts


def _refusal(way):
    """Why a way cannot be taken, or ""."""
    try:
        way()
    except Exception as error:  # a trial of a stranger's model may fail in any way; the report says so
        return f"{type(error).__name__}: {str(error).splitlines()[0][:80] if str(error) else ''}"
    return ""


def _forward(replay, mode):
    def forward():
        for call in replay.calls:
            with mode(), _as_it_was(call, replay.device):
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
    plain, other = replay.outputs(), replay.outputs(lambda: torch.autocast(replay.device, torch.bfloat16))
    distance = math.sqrt(sum((a - b).square().sum().item() for a, b in zip(plain, other, strict=True)))
    return distance / max(1e-12, math.sqrt(sum(a.square().sum().item() for a in plain)))


def _try_loaders(loader, replay, data, rounds):
    """(verdicts of other loaders, each in a loop with the step; costs of one batch)."""
    share = sum(data["phases"].get(p, {}).get("share", 0.0) for p in (DATA, FORWARD, BACKWARD, OPTIMIZER))
    now_same = {CONTROL: other_loader(loader), AGAIN: other_loader(loader)}
    waits = data["phases"].get(DATA, {}).get("share", 0.0)
    others = loader_ways(loader, os.cpu_count()) if waits > WAITS or loader.num_workers else {}
    n = max(12, 2 * loader.num_workers, min(32, math.ceil(CALL / max(1e-4, data["seconds"]["median"]))))
    seconds = seconds_in_turn(loops(now_same | others, replay, n), max(3, rounds - 2)) if others else {}
    costs = _costs(loader, replay, data)
    if not others:
        return {}, costs
    noise = Comparison(torch.stack([seconds[CONTROL], seconds[AGAIN]], 1)).wobble
    pairs = {name: Comparison(torch.stack([seconds[CONTROL], seconds[name]], 1), noise=noise) for name in others}
    return {name: _verdict(pair, share) for name, pair in pairs.items()}, costs


def _costs(loader, replay, data):
    """Seconds, and CPU seconds, of one batch without workers and of one step; seconds of a copy of the batch."""
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
    return {"verdict": NOT_MEASURED, "step": 1.0, "whole": 1.0, "text": f"{NOT_MEASURED}, because {reason}"}


def _verdict(comparison, share):
    low, high = comparison.spread
    whole = 1 / (1 - share + share / comparison.ratio)
    text = f"{comparison.ratio:.2f}x ({low:.2f} to {high:.2f}), {comparison.verdict}"
    return {"verdict": comparison.verdict, "step": comparison.ratio, "low": low, "high": high, "whole": whole,
            "text": text}  # fmt: skip
