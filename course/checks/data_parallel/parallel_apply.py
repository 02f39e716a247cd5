"""Probe of exercise parallel_apply."""

import copy
import threading
import time

import torch

from course.checks.data_parallel.devices import READY_MADE, Meeting, nearly_equal, odd_module
from course.checks.engine import exercise
from course.checks.probing.errors import raised
from course.checks.probing.threads import new_threads


@exercise(forbids=READY_MADE)
def parallel_apply(answer, device, seed):
    """Replicas that watch each other, look at their thread's modes, and fail."""
    n = 3 + seed % 2
    rng = torch.Generator().manual_seed(seed)
    parts = [torch.randn(k + 1, 4, generator=rng).to(device) for k in range(n)]
    modules = [copy.deepcopy(odd_module(device, seed + k)).float() for k in range(n)]
    threads = set(threading.enumerate())

    outputs = answer(modules, parts)
    yield "returns a list", type(outputs).__name__
    yield "one output a replica", len(outputs)
    yield "the outputs", outputs
    alone = [module(part) for module, part in zip(modules, parts, strict=True)]
    yield "equal to those of the replicas one by one", all(map(nearly_equal, outputs, alone))
    yield "each replica is called once", [int(module[0].calls) for module in modules] == [2] * n
    meeting = Meeting(n)
    outputs = answer(meeting.replicas, list(range(n)))
    yield "all replicas run at the same time", all(meeting.met)
    yield "outputs are in the order of the replicas, whoever ends first", outputs
    yield "no thread is left", new_threads(threads)
    pair = (parts[0], {"mask": None})
    yield "a part that is a tuple is one argument", answer([lambda part: part is pair] * 2, [pair, pair])
    yield "a single replica", answer([lambda part: part + 1], [seed])

    yield from _modes_of_threads(answer, modules, parts, device)
    yield from _exceptions(answer)
    yield "no thread is left after an exception", new_threads(threads)
    yield "fewer parts than replicas raise ValueError", type(raised(lambda: answer(modules, parts[:-1]))).__name__


def _modes_of_threads(answer, modules, parts, device):
    """Gradients, and the caller's grad mode and autocast in the threads."""
    sum((k + 1) * output.sum() for k, output in enumerate(answer(modules, parts))).backward()
    yield "gradients flow back to the replicas", [module[2].weight.grad for module in modules]
    with torch.no_grad():
        outputs = answer(modules, parts)
    yield "under torch.no_grad no output needs a gradient", [output.requires_grad for output in outputs]
    for dtype in (torch.bfloat16, torch.float16):
        with torch.autocast(device.type, dtype=dtype):
            outputs = answer(modules, parts)
        yield f"under autocast with {dtype}", [output.dtype for output in outputs]
    with torch.no_grad(), torch.autocast(device.type, dtype=torch.bfloat16):
        outputs = answer(modules, parts)
    yield "under both", [f"{output.dtype}, needs a gradient: {output.requires_grad}" for output in outputs]
    if device.type == "cuda":
        with torch.autocast("cpu", dtype=torch.bfloat16):
            outputs = answer([copy.deepcopy(module).cpu() for module in modules], [part.cpu() for part in parts])
        yield "under autocast of the CPU", [output.dtype for output in outputs]
    yield "the caller's own modes stay", torch.is_grad_enabled() and not torch.is_autocast_enabled(device.type)


def _exceptions(answer):
    """What comes out where replicas raise."""
    ended = []

    def fails(part):
        raise KeyError(f"no column {part}")

    def lasts(part):
        time.sleep(0.1)
        ended.append(part)
        return part

    def fails_late(part):
        time.sleep(0.1)
        raise ValueError("late")

    error = raised(lambda: answer([str, fails, lasts], [0, "a", 2]))
    left = len(ended)
    yield "an exception of a replica comes out, with its type", type(error).__name__
    yield "it still has its own message", "no column a" in str(error)
    said = " ".join([str(error), *getattr(error, "__notes__", [])])
    yield "its message or a note says: place 1", "place 1" in said
    yield "when it comes out, the other replicas have ended", left
    error = raised(lambda: answer([lambda part: part, fails_late, fails], [0, 1, 2]))
    yield "of several exceptions, that of the lowest place comes out", type(error).__name__
