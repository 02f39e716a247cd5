# %%
import math

import torch
from torch.nn import functional as F


# %% solution="leave_one_out"
def leave_one_out(users, timestamps):
    """Each user's latest interaction for the test, all others for training.

    Args:
        users, timestamps: int64 tensors (n,), one row an interaction, in any order.

    Returns: (train, test), two bool tensors (n,): every row is in exactly one; `test` has one row a user. Of a user's
        rows with the same latest timestamp, the one that stands last is the test row.
    """
    ### BEGIN SOLUTION
    order = torch.argsort(timestamps, stable=True)
    order = order[torch.argsort(users[order], stable=True)]  # by user, then time, then place in the file
    last = torch.ones_like(users, dtype=torch.bool)
    last[:-1] = users[order][1:] != users[order][:-1]
    test = torch.zeros_like(last)
    test[order[last]] = True
    return ~test, test
    ### END SOLUTION


# %% solution="sample_negatives"
def sample_negatives(users, seen, generator=None):
    """One item for each row of `users` that this user has never seen, uniform over all such items.

    Args:
        users: int64 tensor (n,), values 0 <= u < n_users.
        seen: bool tensor (n_users, n_items), True where the user has interacted with the item.
        generator: torch.Generator on the device of `seen`; the same state gives the same items.

    Returns: int64 tensor (n,) of items, on the device of `users`.
    """
    ### BEGIN SOLUTION
    n_items = seen.shape[1]
    known = seen.view(-1)
    items = torch.randint(n_items, users.shape, generator=generator, device=users.device)
    again = known[users * n_items + items].nonzero().squeeze(1)
    while len(again):  # draw again only where it hit a positive: each round leaves a few per cent
        items[again] = torch.randint(n_items, again.shape, generator=generator, device=users.device)
        again = again[known[users[again] * n_items + items[again]]]
    return items
    ### END SOLUTION


# %% solution="rank_metrics"
def rank_metrics(scores, duplicate, k=10):
    """Mean hit rate and NDCG at `k` of the positive in column 0.

    Args:
        scores: float tensor (n_users, n_candidates); column 0 is the user's held-out item, the rest are negatives.
        duplicate: bool tensor of the same shape; True where a candidate repeats an earlier one and must not count.
            Column 0 is never True.

    Returns: (hit_rate, ndcg), two floats. A negative with the same score as the positive ranks before it, so that a
        constant model earns nothing. NDCG of one relevant item at 0-based rank r is 1 / log2(r + 2) if r < k, else 0.
    """
    ### BEGIN SOLUTION
    ahead = (scores[:, 1:] >= scores[:, :1]) & ~duplicate[:, 1:]
    rank = ahead.sum(1)
    hit = rank < k
    gain = torch.where(hit, 1 / torch.log2(rank + 2.0), 0.0)
    return hit.double().mean().item(), gain.double().mean().item()
    ### END SOLUTION
