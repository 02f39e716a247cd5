"""Known mistakes of exercise ShardedOptimizer, and right answers in other styles."""

import torch
import torch.distributed as dist
from torch import nn

from course.checks.engine import alternative, mistake


class _Sharded:
    """A right answer in pieces, so that each mistake can spoil one of them."""

    def __init__(self, weights, grads, make_optimizer, reduce_scatter, all_gather):
        self.weights, self.grads = weights, grads
        self.reduce_scatter, self.all_gather = reduce_scatter, all_gather
        self.shard = nn.Parameter(self.own(weights))
        self.optimizer = make_optimizer([self.shard])

    def own(self, vector):
        return vector.chunk(dist.get_world_size())[dist.get_rank()]

    def gradient(self):
        return self.reduce_scatter(self.grads) / dist.get_world_size()

    def step(self):
        self.shard.grad = self.gradient()
        self.optimizer.step()
        self.weights.copy_(self.all_gather(self.shard.detach()))


@mistake("ShardedOptimizer", "Gradients are summed, not averaged. Divide by the world size.")
class SumOfRanks(_Sharded):
    def gradient(self):
        return self.reduce_scatter(self.grads)


@mistake("ShardedOptimizer", "The shard has the gradient of this rank alone. Reduce-scatter the gradients.")
class OwnGradient(_Sharded):
    def gradient(self):
        return self.own(self.grads).clone()


@mistake("ShardedOptimizer", "The other shards keep their old values on this rank. Gather the shards after the step.")
class NothingGathered(_Sharded):
    def step(self):
        self.shard.grad = self.gradient()
        self.optimizer.step()


@mistake("ShardedOptimizer", "The gathered weights are lost: a name is given to them. Copy them into self.weights.")
class GatheredIntoAName(_Sharded):
    def step(self):
        self.shard.grad = self.gradient()
        self.optimizer.step()
        self.weights = self.all_gather(self.shard.detach())


@mistake("ShardedOptimizer", "Weights are gathered before the step, so they lag one step behind. Gather them after it.")
class GatheredBefore(_Sharded):
    def step(self):
        self.shard.grad = self.gradient()
        whole = self.all_gather(self.shard.detach())
        self.optimizer.step()
        self.weights.copy_(whole)


@mistake("ShardedOptimizer", "Weights are copied before the step, so those of other ranks lag behind. Step, then copy.")
class CopiedBefore(_Sharded):
    def step(self):
        self.shard.grad = self.gradient()
        self.weights.copy_(self.all_gather(self.shard.detach()))
        self.optimizer.step()


@alternative("ShardedOptimizer")
class WithACopyOfTheShard(_Sharded):
    def own(self, vector):
        return super().own(vector).clone()

    def step(self):
        self.optimizer.zero_grad()
        mean = self.reduce_scatter(self.grads / dist.get_world_size())
        self.shard.grad = mean
        self.optimizer.step()
        with torch.no_grad():
            self.weights[:] = self.all_gather(self.shard.data)


@alternative("ShardedOptimizer")
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
