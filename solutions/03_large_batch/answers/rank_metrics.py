"""Known mistakes of exercise rank_metrics, and right answers in other styles."""

import math

import numpy
import torch

from course.checks.engine import alternative, mistake


def metrics_of(rank, k, discount=None):
    """(hit rate, NDCG) of 0-based ranks."""
    hit = rank < k
    discount = torch.log2(rank + 2) if discount is None else discount
    return hit.float().mean().item(), (hit / discount).mean().item()


def strictly_before(scores, duplicate):
    """0-based ranks as the task defines them."""
    return (~(scores[:, 1:] < scores[:, :1]) & ~duplicate[:, 1:]).sum(1)


@mistake(
    "rank_metrics",
    "A tie is counted for the positive (>), so a model that scores all items alike gets 1. Use ~(<).",
)
def optimistic_ties(scores, duplicate, k=10):
    return metrics_of(((scores[:, 1:] > scores[:, :1]) & ~duplicate[:, 1:]).sum(1), k)


@mistake(
    "rank_metrics",
    "NaN >= NaN is False, so a diverged model ranks every positive first. Count what is not smaller: ~(<).",
)
def nan_wins(scores, duplicate, k=10):
    return metrics_of(((scores[:, 1:] >= scores[:, :1]) & ~duplicate[:, 1:]).sum(1), k)


@mistake(
    "rank_metrics",
    "Duplicates are counted, so an item drawn twice pushes the positive down twice. Mask them with `duplicate`.",
)
def duplicates_counted(scores, duplicate, k=10):
    return metrics_of(strictly_before(scores, torch.zeros_like(duplicate)), k)


@mistake("rank_metrics", "Ranks count from 0, so the top k are the ranks below k. rank <= k shows k + 1 items.")
def one_too_many(scores, duplicate, k=10):
    return metrics_of(strictly_before(scores, duplicate), k + 1)


@mistake(
    "rank_metrics", "The discount uses the natural logarithm. NDCG uses log2, so that the top rank is worth exactly 1."
)
def natural_logarithm(scores, duplicate, k=10):
    rank = strictly_before(scores, duplicate)
    return metrics_of(rank, k, torch.log(rank + 2.0))


@mistake(
    "rank_metrics",
    "The discount is log2(r + 1), which is 0 for the top rank. With ranks from 0 it is log2(r + 2).",
)
def ranks_from_one_in_the_discount(scores, duplicate, k=10):
    rank = strictly_before(scores, duplicate)
    return metrics_of(rank, k, torch.log2(rank + 1.0))


@mistake(
    "rank_metrics",
    "The discount is log2(r + 1), made 1 where it is less, so the first two ranks are worth the same. With ranks from "
    "0 it is log2(r + 2).",
)
def clamped_discount(scores, duplicate, k=10):
    rank = strictly_before(scores, duplicate)
    return metrics_of(rank, k, torch.log2(rank + 1.0).clamp(min=1))


@mistake(
    "rank_metrics",
    "NDCG is averaged over the hits only. It is a mean over all users: one whose item is missed counts with 0.",
)
def mean_over_the_hits(scores, duplicate, k=10):
    rank = strictly_before(scores, duplicate)
    hit = rank < k
    gain = (1 / torch.log2(rank[hit] + 2)).mean().item() if hit.any() else 0.0
    return hit.float().mean().item(), gain


@mistake("rank_metrics", "The sums over users are returned. Divide by the number of users: take the mean.")
def sums_over_users(scores, duplicate, k=10):
    rank = strictly_before(scores, duplicate)
    hit = rank < k
    return float(hit.sum()), (hit / torch.log2(rank + 2)).sum().item()


@mistake(
    "rank_metrics",
    "NDCG counts ranks from k on too. A user whose item is not among the first k gets 0, as in the hit rate.",
)
def gain_without_cut(scores, duplicate, k=10):
    rank = strictly_before(scores, duplicate)
    return metrics_of(rank, k)[0], (1 / torch.log2(rank + 2)).mean().item()


@mistake(
    "rank_metrics",
    "NDCG is averaged over the hits only, and is NaN without any. It is a mean over all users: a miss counts with 0.",
)
def nan_without_hits(scores, duplicate, k=10):
    rank = strictly_before(scores, duplicate)
    hit = rank < k
    return hit.float().mean().item(), (1 / torch.log2(rank[hit] + 2)).mean().item()


@mistake(
    "rank_metrics", "The held-out item is counted among those before it, so all ranks are one too high. Leave it out."
)
def stands_before_itself(scores, duplicate, k=10):
    return metrics_of(strictly_before(scores, duplicate) + 1, k)


@mistake(
    "rank_metrics",
    "Ranks from 1 are compared with < k, so only k - 1 places count. Count from 0, or compare with <= k.",
)
def ranks_from_one(scores, duplicate, k=10):
    rank = strictly_before(scores, duplicate) + 1
    return metrics_of(rank, k, torch.log2(rank + 1))


@alternative("rank_metrics")
def row_by_row(scores, duplicate, k=10):
    hits, gains = [], []
    for row, masked in zip(scores.tolist(), duplicate.tolist(), strict=True):
        rank = sum(not s < row[0] for s, m in zip(row[1:], masked[1:], strict=True) if not m)
        hits.append(rank < k)
        gains.append(1 / math.log2(rank + 2) if rank < k else 0.0)
    return sum(hits) / len(hits), sum(gains) / len(gains)


@alternative("rank_metrics")
def duplicates_at_minus_inf(scores, duplicate, k=10):
    return metrics_of(strictly_before(scores.masked_fill(duplicate, -math.inf), torch.zeros_like(duplicate)), k)


@alternative("rank_metrics")
def sorted_with_the_positive_last(scores, duplicate, k=10):
    clean = torch.where(scores.isnan(), math.inf, scores)
    clean[:, 0] = torch.where(scores[:, 0].isnan(), -1e30, scores[:, 0])
    clean = torch.where(duplicate, -math.inf, clean)
    order = clean.flip(1).argsort(dim=1, descending=True, stable=True)  # flipped: the positive comes last among equals
    rank = (order == scores.shape[1] - 1).int().argmax(1)
    gains = [1 / math.log2(r + 2) if r < k else 0.0 for r in rank.tolist()]
    return float((rank < k).double().mean()), math.fsum(gains) / len(gains)


@alternative("rank_metrics")
def arrays_of_numpy(scores, duplicate, k=10):
    s, d = scores.cpu().double().numpy(), duplicate.cpu().numpy()
    smaller = s[:, 1:] < s[:, :1]
    rank = numpy.where(d[:, 1:] | smaller, 0, 1).sum(axis=1)
    gain = numpy.zeros(len(rank))
    gain[rank < k] = numpy.log(2) / numpy.log(rank[rank < k] + 2)
    return float(numpy.mean(rank < k)), float(gain.mean())
