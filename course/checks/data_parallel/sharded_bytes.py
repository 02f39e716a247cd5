"""Probe of exercise sharded_bytes."""

import torch

from course.engine.exercise import Answer, Facts, exercise

STAGES = "DDP", "stage 1", "stage 2", "stage 3"


@exercise()
def sharded_bytes(answer: Answer, device: torch.device, seed: int) -> Facts:
    """Bytes of a rank in each stage of sharding."""
    n = 120 * (10 + seed % 50)
    yield "is a dict with four keys", sorted(answer(n, 4, 0))
    for what in ("parameters", "gradients", "optimizer", "sent"):
        for stage, name in enumerate(STAGES):
            yield (
                f"{name}: {what}",
                {f"{ranks} ranks": answer(n, ranks, stage)[what] for ranks in (2, 4, 8)},
            )
    yield "1 rank", [answer(n, 1, stage) for stage in range(4)]
    yield (
        "a model of 7 billion parameters on 64 ranks",
        [answer(64 * 10**8, 64, stage) for stage in range(4)],
    )
