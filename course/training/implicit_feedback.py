"""How experiments of unit 03 split ratings, draw negatives and judge a ranking.

Three exercises of its part 1 ask for the same functions. They are extra, so the experiments run
with these.
"""

import torch
from torch import Tensor


def leave_one_out(users: Tensor, timestamps: Tensor) -> tuple[Tensor, Tensor]:
    """(rest, latest), two bool masks over the rows.

    `latest` has the latest row of each user, the last of equal times.
    """
    by_time = timestamps.argsort(stable=True)
    rows = by_time[users[by_time].argsort(stable=True)]  # user by user, each in the order of time
    ends = torch.ones(len(rows), dtype=torch.bool, device=users.device)
    ends[:-1] = users[rows].diff() != 0
    latest = torch.zeros_like(ends)
    latest[rows[ends]] = True
    return ~latest, latest


def sample_negatives(
    users: Tensor, seen: Tensor, generator: torch.Generator | None = None
) -> Tensor:
    """An item for each of `users`, uniform over those that the user has not seen.

    Args:
        users: int64 (n,).
        seen: bool (n_users, n_items).
    """
    items = torch.zeros_like(users)
    wrong = torch.arange(len(users), device=users.device)
    while len(wrong):
        drawn = torch.randint(seen.shape[1], wrong.shape, generator=generator, device=users.device)
        items[wrong] = drawn
        wrong = wrong[seen[users[wrong], drawn]]
    return items


def rank_metrics(scores: Tensor, duplicate: Tensor, k: int = 10) -> tuple[float, float]:
    """(HR@k, NDCG@k) of the item in column 0.

    Equal scores and NaN count against it, candidates marked as `duplicate` do not. Both tensors are
    (n_users, candidates).
    """
    harmless = (scores < scores[:, :1]) | duplicate
    rank = len(scores[0]) - 1 - harmless[:, 1:].sum(1)
    gains = torch.where(rank < k, 1 / torch.log2(rank + 2.0), 0.0)
    return (rank < k).float().mean().item(), gains.mean().item()
