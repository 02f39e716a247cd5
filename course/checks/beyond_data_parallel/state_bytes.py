"""Probe of exercise state_bytes."""

import torch

from course.engine.exercise import Answer, Facts, exercise
from course.training.plans import Plan


@exercise()
def state_bytes(answer: Answer, device: torch.device, seed: int) -> Facts:
    """Bytes of weights, gradients and optimizer that a device keeps under several plans."""
    n = 241 + 2 * (seed % 53)  # odd and small: a share that is rounded down is clearly less
    yield "is a dict with three keys", sorted(answer(n, Plan()))
    yield "one device", answer(n, Plan())
    yield "one device, all in float32", answer(n, Plan(), mixed=False)
    for stage in range(4):
        plan = Plan(data=4, stage=stage)
        yield f"{plan.data} data ranks, stage {stage}", answer(n, plan)
    yield "4 tensor ranks", answer(n, Plan(tensor=4))
    yield "3 pipeline ranks", answer(n, Plan(pipeline=3))
    yield "2 data, 4 tensor and 3 pipeline ranks, stage 1", answer(n, Plan(2, 4, 3, 1))
    yield "8 data ranks, stage 2, all in float32", answer(n, Plan(8, stage=2), mixed=False)
    yield "micro-batches and checkpointing change nothing", answer(n, Plan(2, 1, 1, 0, 8, True))
    yield "175 billion on 1,024 devices", answer(175 * 10**9, Plan(128, 8, 1, 3))
