"""Probe of exercise rank_metrics."""

from collections.abc import Callable

import torch

from course.engine.exercise import Answer, Facts, exercise
from course.engine.probing.values import number_kind

NAN = float("nan")


@exercise()
def rank_metrics(answer: Answer, device: torch.device, seed: int) -> Facts:
    """Hit rate and NDCG with duplicates and ties."""
    rng = torch.Generator().manual_seed(seed)
    n_users = 40 + seed % 7
    n_candidates = 30
    scores = torch.randn(n_users, n_candidates, generator=rng).to(device)
    none = torch.zeros_like(scores, dtype=torch.bool)

    def metrics(*args: torch.Tensor | int) -> dict[str, float]:
        return dict(zip(("hit rate", "NDCG"), answer(*args), strict=False))

    both = answer(scores, none, 10)
    yield "returns two numbers, no tensors", [number_kind(x) for x in both]
    yield "hit rate without duplicates or ties", both[0]
    yield "NDCG without duplicates or ties", both[1]
    yield "k = 1: the hit rate and the NDCG are the same", metrics(scores, none, 1)
    yield "k = 5", metrics(scores, none, 5)
    yield from _single_users(metrics, device)
    duplicate = torch.rand(n_users, n_candidates, generator=rng).to(device) < 0.6
    duplicate[:, 0] = False
    yield "duplicates do not count", metrics(scores, duplicate, 5)
    hole = torch.zeros_like(scores, dtype=torch.bool)
    hole[::2, 0] = True
    positive_is_nan = metrics(scores.where(~hole, NAN), duplicate, 20)
    fact = "NaN of the positive alone: every candidate but duplicates stands before it"
    yield fact, positive_is_nan
    hole = torch.rand(n_users, n_candidates, generator=rng).to(device) < 0.1
    hole[:, 0] = False
    candidate_is_nan = metrics(scores.where(~hole, NAN), none, 5)
    yield "NaN of a candidate alone stands before the positive", candidate_is_nan
    yield "a list longer than the candidates", metrics(scores, duplicate, 2 * n_candidates)
    yield "a constant model earns nothing", metrics(torch.zeros_like(scores), none, 10)
    yield "ties go against the positive", metrics((scores * 2).round(), none, 10)
    yield "a diverged model, all NaN, earns nothing", metrics(scores * NAN, none, 10)
    yield "the default of k is 10", metrics(scores, duplicate)


def _single_users(metrics: Callable[..., dict[str, float]], device: torch.device) -> Facts:
    """One user, whose positive scores 0.5 against six candidates."""
    # row r: 6 - r candidates score 1, the others 0, so that the positive's rank is 6 - r
    candidates = torch.eye(7, device=device).cumsum(0).flip(0)[:, :6]
    positives = torch.full((7, 1), 0.5, device=device)
    ladder = torch.cat([positives, candidates], 1)
    none = torch.zeros(1, 7, dtype=torch.bool, device=device)
    for rank in (0, 1, 3):
        of_rank = metrics(ladder[6 - rank, None], none, 3)
        yield f"a single user whose positive has rank {rank}", of_rank
