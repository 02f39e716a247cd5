"""Probe of exercise split_bytes."""

import torch

from course.engine.exercise import Answer, Facts, exercise


@exercise()
def split_bytes(answer: Answer, device: torch.device, seed: int) -> Facts:
    """Bytes that a rank sends in a step, and where both ways are equal."""
    tokens = 8 * (3 + seed % 9)
    dim = 16 * (1 + seed % 5)
    yield "is a dict with three keys", sorted(answer(tokens, dim, 1, 2))
    yield "the example", answer(tokens=10, dim=4, blocks=1, world_size=2)
    for what in ("tensor", "data", "equal at"):
        for n in (2, 4, 8):
            of_blocks = {f"{k} blocks": answer(tokens, dim, k, n)[what] for k in (1, 3)}
            yield f"{n} ranks: {what}", of_blocks
        longer = answer(5 * tokens, dim, 2, 4)[what]
        wider = answer(tokens, 3 * dim, 2, 4)[what]
        yield f"{what}, more tokens and more dimensions", [longer, wider]
    yield "one rank", answer(tokens, dim, 2, 1)
    yield "a large model", answer(4096 * 8, 12288, 96, 8)
