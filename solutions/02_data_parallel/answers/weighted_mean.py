"""Known mistakes of exercise weighted_mean, and right answers in other styles."""

import math

import torch
import torch.distributed as dist

from course.checks.engine import alternative, mistake


def summed(tensor):
    """The sum of the ranks' tensors."""
    tensor = tensor.clone()
    dist.all_reduce(tensor)
    return tensor


@mistake(
    "weighted_mean",
    "This is the plain mean of the ranks' values: a rank with few samples counts as much as one with many. Send value "
    "times weight, and the weight.",
)
def plain_mean(value, weight):
    return summed(value).item() / dist.get_world_size()


@mistake(
    "weighted_mean",
    "The sum of value times weight is divided by the number of ranks. Divide it by the sum of the weights.",
)
def divided_by_ranks(value, weight):
    return (summed(value.double() * weight) / dist.get_world_size()).item()


@mistake(
    "weighted_mean",
    "This is the value of the rank itself. Nothing was asked of the others: use dist.all_reduce.",
)
def own_value(value, weight):
    return value.item()


@mistake(
    "weighted_mean",
    "Only rank 0 has the result: dist.reduce gives it to one rank. dist.all_reduce gives it to all.",
)
def only_on_rank_0(value, weight):
    sums = torch.stack([value.double() * weight if weight else value.double().new_zeros(()), 0 * value.double()])
    sums[1] = weight
    mine = sums.clone()
    dist.reduce(sums, dst=0)
    total, weights = (sums if dist.get_rank() == 0 else mine).tolist()
    return total / weights if weights else math.nan


@mistake(
    "weighted_mean",
    "A rank without samples makes the result nan everywhere, because nan times 0 is nan. Send 0 where the weight is 0.",
)
def nan_times_zero(value, weight):
    total, weights = summed(torch.stack([value.double() * weight, torch.full_like(value.double(), weight)])).tolist()
    return total / weights if weights else math.nan


@mistake(
    "weighted_mean",
    "The sums are float32, in which 16,777,216 + 1 is 16,777,216: large counts are rounded. Send float64.",
)
def rounded_counts(value, weight):
    sums = value.new_zeros(2)
    if weight:
        sums[0], sums[1] = value * weight, weight
    total, weights = summed(sums).tolist()
    return total / weights if weights else math.nan


@mistake(
    "weighted_mean",
    "Where all weights are 0 Python stops with an error: 0.0 / 0.0 is no number to it. Return math.nan there.",
)
def zero_by_zero(value, weight):
    sums = value.new_zeros(2, dtype=torch.float64)
    if weight:
        sums[0], sums[1] = value * weight, weight
    total, weights = summed(sums).tolist()
    return total / weights


@alternative("weighted_mean")
def by_gathered_objects(value, weight):
    pairs = [None] * dist.get_world_size()
    dist.all_gather_object(pairs, (float(value), weight))
    pairs = [(v, w) for v, w in pairs if w]
    return sum(v * w for v, w in pairs) / sum(w for _, w in pairs) if pairs else float("nan")


@alternative("weighted_mean")
def tensors_to_the_end(value, weight):
    counted = torch.as_tensor(weight, dtype=torch.float64, device=value.device)
    sums = torch.stack([torch.where(counted > 0, value * counted, 0), counted])
    dist.all_reduce(sums, op=dist.ReduceOp.SUM)
    return (sums[0] / sums[1]).item()


@alternative("weighted_mean")
def two_operations(value, weight):
    weights = torch.tensor(float(weight), dtype=torch.float64)
    dist.all_reduce(weights)
    if weights == 0:
        return math.nan
    part = value.double().nan_to_num() * (weight / weights)
    dist.all_reduce(part)
    return part.item()
