"""Probe of exercise pipeline_seconds."""

import numpy as np
import torch

from course.engine.exercise import Answer, Facts, exercise


@exercise()
def pipeline_seconds(answer: Answer, device: torch.device, seed: int) -> Facts:
    """Fills and steps of round numbers, then of random ones."""
    yield "one fill of 2 s and one step of 3 s: a number", float(answer([2.0], [3.0], 2))
    yield "3 fills of 2 s, steps of 3 s, one buffer", answer([2.0] * 3, [3.0] * 3, 1)
    yield "3 fills of 2 s, steps of 3 s, two buffers", answer([2.0] * 3, [3.0] * 3, 2)
    yield "3 fills of 3 s, steps of 2 s, two buffers", answer([3.0] * 3, [2.0] * 3, 2)
    uneven = [1.0, 1.0, 1.0, 9.0, 1.0, 1.0]
    yield "the fourth of 6 fills takes long, two buffers", answer(uneven, [3.0] * 6, 2)
    yield "the fourth of 6 fills takes long, three buffers", answer(uneven, [3.0] * 6, 3)
    seconds = answer([2.0] * 5, [1.0, 9.0, 1.0, 1.0, 1.0], 2)
    yield "the second of 5 steps takes long, two buffers", seconds
    rng = np.random.default_rng(seed)
    n = 40 + seed % 5
    fills = rng.uniform(0.5, 4, n).tolist()
    steps = rng.uniform(0.5, 4, n).tolist()
    for buffers in (1, 2, 3, 4):
        text = "1 buffer" if buffers == 1 else f"{buffers} buffers"
        yield f"{n} random fills and steps, {text}", answer(fills, steps, buffers)
    yield "more buffers than fills", answer(fills[:3], steps[:3], 7)
