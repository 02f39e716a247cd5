"""Probe of exercise all_reduce_seconds."""

import torch

from course.engine.exercise import Answer, Facts, exercise


@exercise()
def all_reduce_seconds(answer: Answer, device: torch.device, seed: int) -> Facts:
    """Predicted seconds of four algorithms."""
    latency, bandwidth = (3 + seed % 41) * 1e-3, 1e9 * (1 + seed % 3)
    yield "is a dict with the four algorithms", sorted(answer(1000, 4, latency, bandwidth))

    def one(name, *cases):
        return {
            f"{n:,} bytes, {ranks} ranks": answer(n, ranks, latency, bandwidth)[name]
            for n, ranks in cases
        }

    for name in ("naive", "tree", "ring", "doubling"):
        free = answer(1_000_000, 4, 0.0, bandwidth)[name]
        yield f"{name}: seconds that the bytes take, without latency", free
        yield (
            f"{name}: seconds that the latency takes, with an empty tensor",
            answer(0, 4, latency, 1e9)[name],
        )
        cases = [(n, ranks) for n in (4_000_000, 100_000_000) for ranks in (2, 8, 64)]
        yield f"{name}: both together", one(name, *cases)
    yield "1 rank: nothing to wait for", answer(1000, 1, latency, bandwidth)
