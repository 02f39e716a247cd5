"""The shares of a step by kinds of operations: a function -> *torch's profile* -> {kind: share}.

Kinds are told by the names of torch's operations. What the optimizer runs is its own kind, whatever
its name.
"""

from collections.abc import Callable

import torch
from torch.profiler import ProfilerActivity, profile

CONVOLUTIONS = "convolutions"
PRODUCTS = "matrix products"
ATTENTION = "attention"
NORMS = "norms"
POOLING = "pooling"
OPTIMIZER = "optimizer"
POINTWISE = "other"  # point-wise operations, copies, and what starts operations
# the first kind of which a part is in an operation's name
_PARTS = {
    ATTENTION: ("bmm", "softmax", "masked_fill", "attention"),
    CONVOLUTIONS: ("convolution", "conv2d"),
    PRODUCTS: ("addmm", "::mm", "::linear"),
    NORMS: ("norm",),
    POOLING: ("pool",),
}
# a loss is not attention
_LOSS = ("log_softmax", "nll_loss", "cross_entropy")
STEPS = 3


def shares_of(step: Callable[[], object], device: torch.device) -> dict[str, float]:
    """The share of each kind in the time of STEPS calls of `step`, largest first.

    Times are those of the device: of its kernels on a GPU, else of the operations themselves.
    """
    activities = [ProfilerActivity.CPU]
    is_gpu = device.type == "cuda"
    if is_gpu:
        activities.append(ProfilerActivity.CUDA)
    with profile(activities=activities) as profiled:
        for _ in range(STEPS):
            step()
    times: dict[str, float] = {}
    for event in profiled.events():
        spent = event.self_device_time_total if is_gpu else event.self_cpu_time_total
        kind = OPTIMIZER if _is_in_optimizer(event) else kind_of(event.name)
        times[kind] = times.get(kind, 0.0) + spent
    whole = sum(times.values()) or 1.0
    ranked = sorted(times, key=lambda kind: -times[kind])
    return {kind: times[kind] / whole for kind in ranked}


def kind_of(name: str) -> str:
    """The kind of an operation called `name`."""
    lowered = name.lower()
    if any(part in lowered for part in _LOSS):
        return POINTWISE
    for kind, parts in _PARTS.items():
        if any(part in lowered for part in parts):
            return kind
    return POINTWISE


def _is_in_optimizer(event):
    while event is not None:
        if event.name.startswith("Optimizer."):
            return True
        event = event.cpu_parent
    return False
