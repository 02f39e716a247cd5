"""Profile a training by phases: labels around each -> *events of torch.profiler, step by step*.

What the events mean, the notebook's reader computes. Nothing is drawn here.
"""

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence

import torch
from torch.profiler import ProfilerActivity, profile, record_function

from course.measure.comparison import signed_rank_interval

Event = tuple[str, float, float]  # name, start and end in µs


@contextlib.contextmanager
def phase(name: str, device: torch.device) -> Iterator[None]:
    """A labelled part of a profile, which ends when the device has done its work."""
    with record_function(name):
        yield
        if device.type == "cuda":
            torch.cuda.synchronize()


def profiled(train: Callable[[], object], device: torch.device) -> profile:
    """The profile of `train()`, after one call that warms up."""
    train()
    kinds = [ProfilerActivity.CPU]
    if device.type == "cuda":
        kinds.append(ProfilerActivity.CUDA)
    with profile(activities=kinds) as found:
        train()
    return found


def events_of(found: profile) -> list[Event]:
    """The events of the processor, in the order of their starts."""
    events = []
    for event in found.events():
        if event.device_type == torch.autograd.DeviceType.CPU:
            events.append((event.name, event.time_range.start, event.time_range.end))
    return sorted(events, key=lambda event: event[1])


def per_step(events: Sequence[Event], first: str) -> list[list[Event]]:
    """The events of each step; a step begins with the phase `first`."""
    steps: list[list[Event]] = []
    for event in events:
        if event[0] == first:
            steps.append([])
        if steps:
            steps[-1].append(event)
    return steps


def typical_shares(steps: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """{phase: the centre of its shares in all steps}, so that one disturbed step counts little.

    It is the estimate of `signed_rank_interval`, whose interval goes with it.

    Args:
        steps: {phase: share} of each step.
    """
    shares = {}
    for name in steps[0]:
        shares[name] = signed_rank_interval([step[name] for step in steps]).estimate
    return shares


def slowest_operations(found: profile, n: int) -> dict[str, float]:
    """{operation: its share of the time of all} of the `n` that take longest themselves."""
    own = {}
    for event in found.key_averages():
        if event.key.startswith("aten::"):
            own[event.key.removeprefix("aten::")] = event.self_cpu_time_total
    whole = sum(own.values())
    ranked = sorted(own, key=lambda name: -own[name])
    return {name: own[name] / whole for name in ranked[:n]}
