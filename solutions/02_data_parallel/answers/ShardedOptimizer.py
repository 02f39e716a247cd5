"""Known mistakes of exercise ShardedOptimizer, and right answers in other styles."""

import torch
import torch.distributed as dist
from torch import nn

from course.engine.known_answers import alternative

MISTAKES = {
    "SumOfRanks": (
        "Gradients are summed, not averaged. Divide by the world size.",
        (" / dist.get_world_size()", ""),
    ),
    "OwnGradient": (
        "The shard has the gradient of this rank alone. Reduce-scatter the gradients.",
        (
            "self.reduce_scatter(self.grads) / dist.get_world_size()",
            "self.grads.chunk(dist.get_world_size())[dist.get_rank()].clone()",
        ),
    ),
    "GradientsPileUp": (
        "Each step adds to the gradient of the step before. Set the shard's grad, do not add to it.",
        (
            "self.shard.grad = self.reduce_scatter(self.grads) / dist.get_world_size()",
            "grad = self.reduce_scatter(self.grads) / dist.get_world_size()\n"
            "        self.shard.grad = grad if self.shard.grad is None else self.shard.grad + grad",
        ),
    ),
    "NothingGathered": (
        "The other shards keep their old values on this rank. Gather the shards after the step.",
        ("self.weights.copy_(self.all_gather(self.shard.detach()))", "pass"),
    ),
    "GatheredIntoAName": (
        "The gathered weights get a name, but self.weights keeps its values. Copy them into self.weights.",
        (
            "weights.copy_(self.all_gather(self.shard.detach()))",
            "weights = self.all_gather(self.shard.detach())",
        ),
    ),
    "GatheredBefore": (
        "Weights are gathered before the step, so copying them back undoes the step. Gather them after it.",
        ("copy_(self.all_gather(self.shard.detach()))", "copy_(whole)"),
        (
            "self.optimizer.step()",
            "whole = self.all_gather(self.shard.detach())\n        self.optimizer.step()",
        ),
    ),
    "CopiedBefore": (
        "Weights are copied before the step, so those of other ranks lag behind. Step, then copy.",
        ("        self.optimizer.step()\n", ""),
        ("self.shard.detach()))", "self.shard.detach()))\n        self.optimizer.step()"),
    ),
}


@alternative
class WithACopyOfTheShard:
    def __init__(self, weights, grads, make_optimizer, reduce_scatter, all_gather):
        self.weights, self.grads = weights, grads
        self.reduce_scatter, self.all_gather = reduce_scatter, all_gather
        self.shard = nn.Parameter(
            weights.tensor_split(dist.get_world_size())[dist.get_rank()].clone()
        )
        self.optimizer = make_optimizer([self.shard])

    def step(self):
        self.optimizer.zero_grad()
        self.shard.grad = self.reduce_scatter(self.grads / dist.get_world_size())
        self.optimizer.step()
        with torch.no_grad():
            self.weights[:] = self.all_gather(self.shard.data)


@alternative
class ByAddingTheDifference:
    def __init__(self, weights, grads, make_optimizer, reduce_scatter, all_gather):
        self.vectors, self.halves = (weights, grads), (reduce_scatter, all_gather)
        size = len(weights) // dist.get_world_size()
        start = size * dist.get_rank()
        self.shard = weights[start : start + size].clone().requires_grad_()
        self.optimizer = make_optimizer([self.shard])

    @torch.no_grad()
    def step(self):
        (weights, grads), (scatter, gather) = self.vectors, self.halves
        self.shard.grad = scatter(grads).div(dist.get_world_size())
        self.optimizer.step()
        weights += gather(self.shard) - weights
