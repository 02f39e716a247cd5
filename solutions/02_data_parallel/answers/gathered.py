"""Known mistakes of exercise gathered, and right answers in other styles."""

import torch
import torch.distributed as dist

from course.checks.engine import alternative, mistake


def with_backward(backward):
    """A right forward, and any `backward(grad, reduce_scatter)`."""

    def gather(shard, reduce_scatter, all_gather):
        class Gather(torch.autograd.Function):
            @staticmethod
            def forward(ctx, shard):
                return all_gather(shard)

            @staticmethod
            def backward(ctx, grad):
                return backward(grad, reduce_scatter)

        return Gather.apply(shard)

    return gather


def own(vector):
    return vector.chunk(dist.get_world_size())[dist.get_rank()].clone()


@mistake("gathered", "Gradients are summed over the ranks. Divide by the world size: DDP gives the mean.")
def sum_of_gradients(shard, reduce_scatter, all_gather):
    return with_backward(lambda grad, scatter: scatter(grad))(shard, reduce_scatter, all_gather)


@mistake("gathered", "Each rank keeps its part of its own gradient only. Reduce-scatter: the other ranks' count too.")
def own_gradient_only(shard, reduce_scatter, all_gather):
    return with_backward(lambda grad, scatter: own(grad))(shard, reduce_scatter, all_gather)


@mistake("gathered", "The gradient is divided by the world size twice. Once is enough.")
def divided_twice(shard, reduce_scatter, all_gather):
    n = dist.get_world_size()
    return with_backward(lambda grad, scatter: scatter(grad / n) / n)(shard, reduce_scatter, all_gather)


@mistake("gathered", "The result has no graph, so the shard gets no gradient. Return what Gather.apply gives.")
def without_a_graph(shard, reduce_scatter, all_gather):
    return all_gather(shard.detach())


@alternative("gathered")
def mean_before_the_messages(shard, reduce_scatter, all_gather):
    n = dist.get_world_size()
    return with_backward(lambda grad, scatter: scatter(grad / n))(shard, reduce_scatter, all_gather)


@alternative("gathered")
def with_the_functions_in_the_context(shard, reduce_scatter, all_gather):
    class Gathering(torch.autograd.Function):
        @staticmethod
        def forward(ctx, shard, scatter, gather):
            ctx.scatter = scatter
            return gather(shard.detach())

        @staticmethod
        def backward(ctx, *grads):
            part = ctx.scatter(grads[0].contiguous())
            return part.div_(torch.distributed.get_world_size()), None, None

    return Gathering.apply(shard, reduce_scatter, all_gather)
