"""Probe of exercise parallel_apply."""

import copy
import time

import torch

from course.checks.data_parallel.devices import READY_MADE, Meeting, odd_module
from course.checks.engine import exercise
from course.checks.probing.errors import raised
from course.checks.probing.threads import new_since, running


@exercise(forbids=READY_MADE)
def parallel_apply(answer, device, seed):
    """Replicas that watch each other, look at their thread's modes, and fail."""
    n = 3 + seed % 2
    rng = torch.Generator().manual_seed(seed)
    parts = [torch.randn(k + 1, 4, generator=rng).to(device) for k in range(n)]
    modules = [copy.deepcopy(odd_module(device, seed + k)).float() for k in range(n)]
    threads = running()

    outputs = answer(modules, parts)
    yield "returns a list", type(outputs).__name__
    yield "one output a replica", len(outputs)
    yield "the outputs", outputs
    yield "each replica is called once", [int(module[0].calls) for module in modules]
    meeting = Meeting(n)
    outputs = answer(meeting.replicas, list(range(n)))
    yield "all replicas run at the same time", all(meeting.met)
    yield "outputs are in the order of the replicas, whichever ends first", outputs
    yield "no thread is left", new_since(threads)
    pair = (parts[0], {"mask": None})
    yield "a part that is a tuple is one argument", answer([lambda part: part is pair] * 2, [pair, pair])
    yield "a single replica", answer([lambda part: part + 1], [seed])

    yield from _modes_of_threads(answer, modules, parts, device)
    yield from _exceptions(answer)
    yield "no thread is left after an exception", new_since(threads)
    yield "fewer parts than replicas raise ValueError", type(raised(lambda: answer(modules, parts[:-1]))).__name__


def _under(answer, modules, parts, kind, dtype, grad=True):
    """[dtype, whether it needs a gradient] of each output under autocast."""
    with torch.set_grad_enabled(grad), torch.autocast(kind, dtype=dtype):
        return [[output.dtype, output.requires_grad] for output in answer(modules, parts)]


def _modes_of_threads(answer, modules, parts, device):
    """Gradients, and the caller's grad mode and autocast in the threads."""
    sum((k + 1) * output.sum() for k, output in enumerate(answer(modules, parts))).backward()
    yield "gradients flow back to the replicas", [module[2].weight.grad for module in modules]
    with torch.no_grad():
        outputs = answer(modules, parts)
    yield "under torch.no_grad no output needs a gradient", [output.requires_grad for output in outputs]
    for dtype in (torch.bfloat16, torch.float16):
        seen = _under(answer, modules, parts, device.type, dtype)
        yield f"under autocast with {dtype}", [dtype for dtype, _ in seen]
    seen = _under(answer, modules, parts, device.type, torch.bfloat16, False)
    yield "under both", [f"{dtype}, needs a gradient: {needs}" for dtype, needs in seen]
    answer(modules, parts)
    yield "the caller's own modes stay", [torch.is_grad_enabled(), torch.is_autocast_enabled(device.type)]


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
    yield "its message or a note says: place 1", "place 1" in " ".join([str(error), *getattr(error, "__notes__", [])])
    yield "when it comes out, the other replicas have ended", left
    error = raised(lambda: answer([lambda part: part, fails_late, fails], [0, 1, 2]))
    yield "of several exceptions, that of the lowest place comes out", type(error).__name__
