"""Known mistakes of exercise weighted_mean, and right answers in other styles."""

import math

import torch
import torch.distributed as dist

from course.checks.known_answers import alternative

MISTAKES = {
    "plain_mean": (
        "This is the plain mean of the ranks' values: a rank with few samples counts as much as one with many. Send "
        "value times weight, and the weight.",
        ("weight > 0", "True"),
        ("value.double() * weight, weight", "value.double(), 1"),
    ),
    "divided_by_ranks": (
        "The sum of value times weight is divided by the number of ranks. Divide it by the sum of the weights.",
        ("total / weights if weights else math.nan", "total / dist.get_world_size()"),
    ),
    "own_value": (
        "This is the value of the rank itself. Nothing was asked of the others: use dist.all_reduce.",
        ("dist.all_reduce(sums)", "return value.item()"),
    ),
    "only_on_rank_0": (
        "Only rank 0 has the result: dist.reduce gives it to one rank. dist.all_reduce gives it to all.",
        (
            "dist.all_reduce(sums)",
            "mine = sums.clone()\n    dist.reduce(sums, dst=0)\n    sums = mine if dist.get_rank() else sums",
        ),
    ),
    "nan_times_zero": (
        "A rank without samples makes the result nan everywhere, because nan times 0 is nan. Send "
        "0 where the weight is 0.",
        ("weight > 0", "True"),
    ),
    "rounded_counts": (
        "The sums are float32, in which 16,777,216 + 1 is 16,777,216: large counts are rounded. Send float64.",
        (", dtype=torch.float64", ""),
    ),
    "zero_by_zero": (
        "If all weights are 0, Python raises an error for 0.0 / 0.0. Return math.nan.",
        (" if weights else math.nan", ""),
    ),
}


@alternative
def by_gathered_objects(value, weight):
    pairs = [None] * dist.get_world_size()
    dist.all_gather_object(pairs, (float(value), weight))
    pairs = [(v, w) for v, w in pairs if w]
    return sum(v * w for v, w in pairs) / sum(w for _, w in pairs) if pairs else float("nan")


@alternative
def tensors_to_the_end(value, weight):
    counted = torch.as_tensor(weight, dtype=torch.float64, device=value.device)
    sums = torch.stack([torch.where(counted > 0, value * counted, 0), counted])
    dist.all_reduce(sums, op=dist.ReduceOp.SUM)
    return (sums[0] / sums[1]).item()


@alternative
def two_operations(value, weight):
    weights = torch.tensor(float(weight), dtype=torch.float64)
    dist.all_reduce(weights)
    if weights == 0:
        return math.nan
    part = value.double().nan_to_num() * (weight / weights)
    dist.all_reduce(part)
    return part.item()
