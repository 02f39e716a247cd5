"""Probe of exercise forward_seconds."""

import torch

from course.engine.exercise import Answer, Facts, exercise


@exercise()
def forward_seconds(answer: Answer, device: torch.device, seed: int) -> Facts:
    """Seconds with and without gathers one layer ahead."""
    gather = 0.5 + seed % 7
    yield "is a dict with two keys", sorted(answer(8, 1.0, 1.0))
    for what in ("waiting", "ahead"):
        yield f"the example, {what}", answer(n_layers=8, gather=1.0, compute=1.0)[what]
        for name, compute in (("more", gather + 3), ("the same", gather), ("less", gather / 3)):
            times = {f"{n} layers": answer(n, gather, compute)[what] for n in (1, 2, 9)}
            yield f"{what}, the time of computing next to a gather: {name}", times
