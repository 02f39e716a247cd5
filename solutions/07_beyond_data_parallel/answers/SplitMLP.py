"""Known mistakes of exercise SplitMLP, and right answers in other styles."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional as F

from course.engine.known_answers import alternative

MISTAKES = {
    "BiasAddedNTimes": (
        "Each rank adds the last bias before the sum, so it counts N times. Add it after the sum.",
        (
            "F.linear(hidden, self.narrow_weight)",
            "F.linear(hidden, self.narrow_weight, self.narrow_bias)",
        ),
        ("return self.sum_over_ranks(part) + self.narrow_bias", "return self.sum_over_ranks(part)"),
    ),
    "NoCopyToRanks": (
        "The input does not pass copy_to_ranks, so its gradient is one rank's part. Put it before the first layer.",
        ("self.copy_to_ranks(x)", "x"),
    ),
    "NoSum": (
        "The parts are not summed, so each rank returns the work of its units. Use sum_over_ranks.",
        ("self.sum_over_ranks(part)", "part"),
    ),
    "KeepsTheWhole": (
        "The parameters are views, which keep the whole weights in memory. Clone each part.",
        (
            "self.wide_weight = nn.Parameter(wide.weight.detach().chunk(world_size)[rank].clone())",
            "self.wide_weight = nn.Parameter(wide.weight.detach().chunk(world_size)[rank])",
        ),
        (
            "self.narrow_weight = nn.Parameter(narrow.weight.detach().chunk(world_size, dim=1)[rank].clone())",
            "self.narrow_weight = nn.Parameter(narrow.weight.detach().chunk(world_size, dim=1)[rank])",
        ),
    ),
    "AllAreViews": (
        "All parameters are views, which keep the whole weights in memory. Clone each part.",
        (
            "wide.weight.detach().chunk(world_size)[rank].clone()",
            "wide.weight.chunk(world_size)[rank]",
        ),
        ("wide.bias.detach().chunk(world_size)[rank].clone()", "wide.bias.chunk(world_size)[rank]"),
        (
            "narrow.weight.detach().chunk(world_size, dim=1)[rank].clone()",
            "narrow.weight.chunk(world_size, dim=1)[rank]",
        ),
        ("narrow.bias.detach().clone()", "narrow.bias"),
    ),
    "HoldsTheMLP": (
        "The whole MLP stays in an attribute, and so do its weights in memory. Keep this rank's parts alone.",
        (
            "        self.narrow_bias = nn.Parameter(narrow.bias.detach().clone())",
            "        self.whole = [mlp]\n        self.narrow_bias = nn.Parameter(narrow.bias.detach().clone())",
        ),
    ),
    "BothByColumns": (
        "The second weight is cut along dimension 0, by outputs. Cut it along dimension 1, by inputs.",
        (
            "narrow.weight.detach().chunk(world_size, dim=1)[rank].clone())",
            "narrow.weight.detach().chunk(world_size)[rank].clone())",
        ),
    ),
    "SummedBeforeGelu": (
        "The hidden units are summed over the ranks, but each rank has other units. Sum after the second layer only.",
        (
            "hidden = F.gelu(F.linear(self.copy_to_ranks(x), self.wide_weight, self.wide_bias))",
            "hidden = F.gelu(self.sum_over_ranks(F.linear(self.copy_to_ranks(x), self.wide_weight, self.wide_bias)))",
        ),
    ),
    "LastBiasSplit": (
        "The last bias is cut like the hidden units. It belongs to the outputs, which all ranks have: keep it whole.",
        (
            "narrow.bias.detach().clone())",
            "narrow.bias.detach().tensor_split(world_size)[rank].clone())",
        ),
        (
            "self.sum_over_ranks(part) + self.narrow_bias",
            "self.sum_over_ranks(part) + self.narrow_bias.sum()",
        ),
    ),
    "BiasDividedByN": (
        "Each rank keeps 1/N of the last bias, but this share gets the whole gradient, so a step is N times too large. "
        "Add the whole bias after the sum.",
        ("narrow.bias.detach().clone())", "narrow.bias.detach() / world_size)"),
        (
            "F.linear(hidden, self.narrow_weight)",
            "F.linear(hidden, self.narrow_weight, self.narrow_bias)",
        ),
        ("return self.sum_over_ranks(part) + self.narrow_bias", "return self.sum_over_ranks(part)"),
    ),
    "BiasOnRankZero": (
        "One rank alone adds the last bias, so it has no gradient on the others. Add it after the sum, on every rank.",
        (
            "        part = F.linear(hidden, self.narrow_weight)\n",
            "        part = F.linear(hidden, self.narrow_weight)\n"
            "        if dist.get_rank() == 0:\n"
            "            part = part + self.narrow_bias\n",
        ),
        ("return self.sum_over_ranks(part) + self.narrow_bias", "return self.sum_over_ranks(part)"),
    ),
    "CopiesTheHidden": (
        "copy_to_ranks stands behind the first layer, where each rank has other units. Put it before that layer.",
        (
            "F.gelu(F.linear(self.copy_to_ranks(x), self.wide_weight, self.wide_bias))",
            "self.copy_to_ranks(F.gelu(F.linear(x, self.wide_weight, self.wide_bias)))",
        ),
    ),
    "AnotherGelu": (
        "This is GELU's approximation by tanh. nn.GELU() computes the exact one, as F.gelu does by default.",
        (
            "self.wide_weight, self.wide_bias))",
            'self.wide_weight, self.wide_bias), approximate="tanh")',
        ),
    ),
    "AnotherRanksBias": (
        "Every rank takes the first part of the first bias. Take the part of the rank's own units.",
        ("wide.bias.detach().chunk(world_size)[rank]", "wide.bias.detach().chunk(world_size)[0]"),
    ),
    "EveryNthUnit": (
        "Each rank takes every N-th unit of the first layer, but neighbouring inputs of the second. Cut both alike.",
        (
            "wide.weight.detach().chunk(world_size)[rank].clone()",
            "wide.weight.detach()[rank::world_size].clone()",
        ),
        (
            "wide.bias.detach().chunk(world_size)[rank].clone()",
            "wide.bias.detach()[rank::world_size].clone()",
        ),
    ),
    "NoParameters": (
        "The parts are plain tensors, so an optimizer does not see them. Make each an nn.Parameter.",
        (
            "nn.Parameter(wide.weight.detach().chunk(world_size)[rank].clone())",
            "wide.weight.detach().chunk(world_size)[rank].clone().requires_grad_()",
        ),
    ),
    "EachAddsAShareOfTheBias": (
        "Each rank adds 1/N of the last bias before the sum, so the gradient of the bias is 1/N of the whole one. Add "
        "the whole bias after the sum.",
        (
            "F.linear(hidden, self.narrow_weight)",
            "F.linear(hidden, self.narrow_weight, self.narrow_bias / dist.get_world_size())",
        ),
        ("return self.sum_over_ranks(part) + self.narrow_bias", "return self.sum_over_ranks(part)"),
    ),
    "SummedAfterGelu": (
        "The hidden units are summed over the ranks, but each rank has other units. Sum after the second layer only.",
        (
            "hidden = F.gelu(F.linear(self.copy_to_ranks(x), self.wide_weight, self.wide_bias))",
            "hidden = self.sum_over_ranks(F.gelu(F.linear(self.copy_to_ranks(x), self.wide_weight, self.wide_bias)))",
        ),
    ),
}


@alternative
class ByUnits(nn.Module):
    def __init__(self, mlp, copy_to_ranks, sum_over_ranks):
        super().__init__()
        self.before, self.after = copy_to_ranks, sum_over_ranks
        per_rank = mlp[0].out_features // dist.get_world_size()
        units = torch.arange(per_rank) + dist.get_rank() * per_rank
        self.wide_weight = nn.Parameter(mlp[0].weight.data[units])
        self.wide_bias = nn.Parameter(mlp[0].bias.data[units])
        self.narrow_weight = nn.Parameter(mlp[2].weight.data[:, units])
        self.narrow_bias = nn.Parameter(mlp[2].bias.data.clone())

    def forward(self, x):
        hidden = self.before(x) @ self.wide_weight.T + self.wide_bias
        return self.after(nn.functional.gelu(hidden) @ self.narrow_weight.T) + self.narrow_bias


@alternative
class InTwoFunctions(nn.Module):
    def __init__(self, mlp, copy_to_ranks, sum_over_ranks):
        super().__init__()
        self.seams = copy_to_ranks, sum_over_ranks
        first, _, second = mlp
        cuts = {
            "wide_weight": self.mine(first.weight, 0),
            "wide_bias": self.mine(first.bias, 0),
            "narrow_weight": self.mine(second.weight, 1),
            "narrow_bias": second.bias.detach().clone(),
        }
        for name, cut in cuts.items():
            self.register_parameter(name, nn.Parameter(cut))

    @staticmethod
    def mine(whole, dim):
        return whole.detach().tensor_split(dist.get_world_size(), dim)[dist.get_rank()].clone()

    def forward(self, x):
        start, end = self.seams
        hidden = F.linear(start(x), self.wide_weight, self.wide_bias)
        return self.narrow_bias + end(F.linear(F.gelu(hidden), self.narrow_weight))
