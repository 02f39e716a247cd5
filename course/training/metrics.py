"""Evaluate a recommender's ranking by HR@k and NDCG@k.

The protocol of He et al. 2017, section 4.1: each user's held-out item is ranked among candidates
that the user has never seen. How hits are counted is the argument `rank_metrics`, an exercise of
unit 03_large_batch.
"""

import math
from collections.abc import Callable

import torch
from torch import Tensor, nn

from course.measure.comparison import Interval

# (scores, duplicate, k) -> (hit_rate, ndcg), with the positive in column 0
RankMetrics = Callable[[Tensor, Tensor, int], tuple[float, float]]


def candidates(test_items: Tensor, negatives: Tensor) -> tuple[Tensor, Tensor]:
    """(items, duplicate), both (n_users, 1 + n_negatives): the held-out item, then the negatives.

    Args:
        test_items: int64 tensor (n_users,).
        negatives: int64 tensor (n_users, n_negatives), drawn with or without repetition.

    Returns: int64 items, and bool: True where a candidate repeats an earlier one of its row (so
    never in column 0).
    """
    items = torch.cat((test_items[:, None], negatives), dim=1)
    # equal items are neighbours, the earliest first
    ordered, order = items.sort(dim=1, stable=True)
    repeats = torch.zeros_like(items, dtype=torch.bool)
    repeats[:, 1:] = ordered[:, 1:] == ordered[:, :-1]
    return items, torch.empty_like(repeats).scatter_(1, order, repeats)


@torch.inference_mode()
def evaluate(
    model: nn.Module,
    items: Tensor,
    duplicate: Tensor,
    rank_metrics: RankMetrics,
    k: int = 10,
    batch_size: int = 2**17,
) -> tuple[float, float]:
    """Score all users' candidates with `model(users, items)` and return (hit_rate, ndcg) at `k`.

    Args:
        items, duplicate: what `candidates` returns; row u holds the candidates of user u.
        rank_metrics: (scores, duplicate, k) -> (hit_rate, ndcg), with the positive in column 0.
        batch_size: pairs scored per call; changes speed and memory, not the result.

    The model is in eval mode during the call and in its previous mode afterwards.
    """
    users = torch.arange(len(items), device=items.device)[:, None].expand_as(items)
    user_batches = users.reshape(-1).split(batch_size)
    item_batches = items.reshape(-1).split(batch_size)
    was_training = model.training
    model.eval()
    try:
        pairs = zip(user_batches, item_batches, strict=True)
        scores = torch.cat([model(*pair) for pair in pairs])
    finally:
        model.train(was_training)
    return rank_metrics(scores.view(items.shape), duplicate, k)


def hit_rate_interval(hit_rate: float, n_users: int) -> Interval:
    """The Interval of 95 % of a hit rate: how it would vary with other users of the same kind.

    Source: Wilson 1927, the score interval of a proportion.
    """
    z = 1.96
    middle = (hit_rate + z * z / (2 * n_users)) / (1 + z * z / n_users)
    variance = hit_rate * (1 - hit_rate) / n_users + z * z / (4 * n_users**2)
    reach = z * math.sqrt(variance) / (1 + z * z / n_users)
    return Interval(hit_rate, middle - reach, middle + reach)
