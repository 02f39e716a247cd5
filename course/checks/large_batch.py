"""Probes of unit 03_large_batch: what must hold for an answer to each exercise."""

import torch

from course.checks.engine import exercise

UNIT = "03_large_batch"


@exercise(UNIT)
def rank_metrics(answer, device, seed):
    """Hit rate and NDCG with duplicates and ties."""
    rng = torch.Generator().manual_seed(seed)
    n_users, n_candidates = 40 + seed % 7, 30
    scores = torch.randn(n_users, n_candidates, generator=rng).to(device)
    none = torch.zeros_like(scores, dtype=torch.bool)

    both = answer(scores, none, 10)
    yield "returns two floats", [type(x).__name__ for x in both]
    yield "hit rate without duplicates or ties", both[0]
    yield "NDCG without duplicates or ties", both[1]
    yield "k = 1: the hit rate and the NDCG are the same", list(answer(scores, none, 1))
    yield "k = 5", list(answer(scores, none, 5))
    duplicate = torch.rand(n_users, n_candidates, generator=rng).to(device) < 0.6
    duplicate[:, 0] = False
    yield "duplicates do not count", list(answer(scores, duplicate, 5))
    yield "a constant model earns nothing", list(answer(torch.zeros_like(scores), none, 10))
    coarse = (scores * 2).round()
    yield "ties go against the positive", list(answer(coarse, none, 10))
    yield "the default of k is 10", list(answer(scores, duplicate))
