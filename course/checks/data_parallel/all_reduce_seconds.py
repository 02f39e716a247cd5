"""Probe of exercise all_reduce_seconds."""

import torch

from course.engine.exercise import Answer, Facts, exercise


@exercise()
def all_reduce_seconds(answer: Answer, device: torch.device, seed: int) -> Facts:
    """Predicted seconds of four algorithms."""
    latency = (3 + seed % 41) * 1e-3
    bandwidth = 1e9 * (1 + seed % 3)
    yield "is a dict with the four algorithms", sorted(answer(1000, 4, latency, bandwidth))
    for name in ("naive", "tree", "ring", "doubling"):
        free = answer(1_000_000, 4, 0.0, bandwidth)[name]
        yield f"{name}: seconds that the bytes take, without latency", free
        empty = answer(0, 4, latency, 1e9)[name]
        yield f"{name}: seconds that the latency takes, with an empty tensor", empty
        both = {}
        for n_bytes in (4_000_000, 100_000_000):
            for ranks in (2, 8, 64):
                seconds = answer(n_bytes, ranks, latency, bandwidth)[name]
                both[f"{n_bytes:,} bytes, {ranks} ranks"] = seconds
        yield f"{name}: both together", both
    odd = answer(1003 + 8 * (seed % 50), 8, 0.0, 1000.0)
    yield "bytes that the ranks do not divide count to the last fraction", odd
    yield "1 rank: nothing to wait for", answer(1000, 1, latency, bandwidth)
