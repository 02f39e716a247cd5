"""Known mistakes of exercise Gathered, and right answers in other styles."""

import torch
import torch.distributed as dist

from course.checks.engine import alternative, mistake


class _Right(torch.autograd.Function):
    """A right answer in pieces, so that each mistake can spoil one of them."""

    @staticmethod
    def forward(ctx, shard, reduce_scatter, all_gather):
        ctx.reduce_scatter = reduce_scatter
        return all_gather(shard)


@mistake("Gathered", "Gradients are summed over the ranks. Divide by the world size: DDP gives the mean.")
class SumOfGradients(_Right):
    @staticmethod
    def backward(ctx, grad):
        return ctx.reduce_scatter(grad), None, None


@mistake("Gathered", "Each rank keeps its part of its own gradient only. Reduce-scatter: the other ranks' count too.")
class OwnGradientOnly(_Right):
    @staticmethod
    def backward(ctx, grad):
        return grad.chunk(dist.get_world_size())[dist.get_rank()].clone(), None, None


@mistake("Gathered", "The mean is taken twice: divide once by the world size.")
class DividedTwice(_Right):
    @staticmethod
    def backward(ctx, grad):
        return ctx.reduce_scatter(grad / dist.get_world_size()) / dist.get_world_size(), None, None


@alternative("Gathered")
class MeanBeforeTheMessages(torch.autograd.Function):
    @staticmethod
    def forward(ctx, shard, reduce_scatter, all_gather):
        ctx.scatter, ctx.n = reduce_scatter, dist.get_world_size()
        whole = all_gather(shard.detach())
        return whole

    @staticmethod
    def backward(ctx, *grads):
        (grad,) = grads
        return ctx.scatter(grad.contiguous() / ctx.n), None, None


@alternative("Gathered")
class WithSetupContext(torch.autograd.Function):
    @staticmethod
    def forward(shard, reduce_scatter, all_gather):
        return all_gather(shard)

    @staticmethod
    def setup_context(ctx, inputs, output):
        _, ctx.halve, _ = inputs

    @staticmethod
    def backward(ctx, grad):
        part = ctx.halve(grad)
        return part.div_(torch.distributed.get_world_size()), None, None
