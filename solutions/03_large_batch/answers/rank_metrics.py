"""Known mistakes of exercise rank_metrics, and right answers in other styles."""

import math

import torch

from course.engine.known_answers import alternative

MISTAKES = {
    "optimistic_ties": (
        "A tie is counted for the positive (>), so a model that scores all items alike gets 1. Use ~(<).",
        ("~(scores[:, 1:] < scores[:, :1])", "(scores[:, 1:] > scores[:, :1])"),
    ),
    "nan_wins": (
        "NaN >= NaN is False, so a diverged model ranks every positive first. Count what is not smaller: ~(<).",
        ("~(scores[:, 1:] < scores[:, :1])", "(scores[:, 1:] >= scores[:, :1])"),
    ),
    "duplicates_counted": (
        "Duplicates are counted, so an item drawn twice pushes the positive down twice. Mask them with `duplicate`.",
        (" & ~duplicate[:, 1:]", ""),
    ),
    "duplicates_at_minus_infinity": (
        "Duplicates get the score -inf, which is not smaller than a positive of NaN or -inf, so they count there. "
        "Leave them out of the count.",
        (" & ~duplicate[:, 1:]", ""),
        ("    ahead =", '    scores = scores.masked_fill(duplicate, -float("inf"))\n    ahead ='),
    ),
    "one_too_many": (
        "Ranks count from 0, so the top k are the ranks below k. rank <= k shows k + 1 items.",
        ("rank < k", "rank <= k"),
    ),
    "natural_logarithm": (
        "The discount uses the natural logarithm. NDCG uses log2, so that the top rank is worth exactly 1.",
        ("torch.log2", "torch.log"),
    ),
    "ranks_from_one_in_the_discount": (
        "The discount is log2(r + 1), which is 0 for the top rank. With ranks from 0 it is log2(r + 2).",
        ("rank + 2", "rank + 1"),
    ),
    "clamped_discount": (
        "The discount is log2(r + 1), at least 1, so ranks 0 and 1 are worth the same. From 0 it is log2(r + 2).",
        ("log2(rank + 2)", "log2(rank + 1).clamp(min=1)"),
    ),
    "mean_over_the_hits": (
        "NDCG is averaged over the hits only. It is a mean over all users: one whose item is missed counts with 0.",
        ("gain.mean()", "(gain.sum() / hit.sum().clamp(min=1))"),
    ),
    "sums_over_users": (
        "The sums over users are returned. Divide by the number of users: take the mean.",
        ("hit.float().mean()", "hit.float().sum()"),
        ("gain.mean()", "gain.sum()"),
    ),
    "gain_without_cut": (
        "NDCG counts ranks from k on too. A user whose item is not among the first k gets 0, as in the hit rate.",
        ("gain = hit", "gain = 1"),
    ),
    "nan_without_hits": (
        "NDCG is averaged over the hits only: NaN without any. It is a mean over all users: a miss counts with 0.",
        ("gain.mean()", "gain[hit].mean()"),
    ),
    "stands_before_itself": (
        "The held-out item is counted among those before it, so all ranks are one too high. Leave it out.",
        ("ahead.sum(1)", "ahead.sum(1) + 1"),
    ),
    "ranks_from_one": (
        "Ranks from 1 are compared with < k, so only k - 1 places count. Count from 0, or compare with <= k.",
        ("ahead.sum(1)", "ahead.sum(1) + 1"),
        ("rank + 2", "rank + 1"),
    ),
}


@alternative
def row_by_row(scores, duplicate, k=10):
    hits, gains = [], []
    for row, masked in zip(scores.tolist(), duplicate.tolist(), strict=True):
        rank = sum(not s < row[0] for s, m in zip(row[1:], masked[1:], strict=True) if not m)
        hits.append(rank < k)
        gains.append(1 / math.log2(rank + 2) if rank < k else 0.0)
    return sum(hits) / len(hits), sum(gains) / len(gains)


@alternative
def sorted_with_the_positive_last(scores, duplicate, k=10):
    clean = torch.where(scores.isnan(), math.inf, scores)
    clean[:, 0] = torch.where(scores[:, 0].isnan(), -1e30, scores[:, 0])
    clean = torch.where(duplicate, -math.inf, clean)
    order = clean.flip(1).argsort(
        dim=1, descending=True, stable=True
    )  # flipped: the positive comes last among equals
    rank = (order == scores.shape[1] - 1).int().argmax(1)
    gains = [1 / math.log2(r + 2) if r < k else 0.0 for r in rank.tolist()]
    return float((rank < k).double().mean()), math.fsum(gains) / len(gains)
