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
            n_bytes = {f"{ranks} ranks": answer(n, ranks, stage)[what] for ranks in (2, 4, 8)}
            yield f"{name}: {what}", n_bytes
    yield "1 rank", _in_all_stages(answer, n, 1)
    large = _in_all_stages(answer, 64 * 10**8, 64)
    yield "a model of 7 billion parameters on 64 ranks", large


def _in_all_stages(answer: Answer, n: int, ranks: int) -> list[object]:
    return [answer(n, ranks, stage) for stage in range(len(STAGES))]
