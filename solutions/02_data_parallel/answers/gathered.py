"""Known mistakes of exercise gathered, and right answers in other styles."""

import torch
import torch.distributed as dist

from course.engine.known_answers import alternative

MISTAKES = {
    "sum_of_gradients": (
        "Gradients are summed over the ranks. Divide by the world size: DDP gives the mean.",
        (" / dist.get_world_size()", ""),
    ),
    "own_gradient_only": (
        "Each rank keeps its part of its own gradient only. Reduce-scatter: the other ranks' count too.",
        (
            "reduce_scatter(grad) / dist.get_world_size()",
            "grad.chunk(dist.get_world_size())[dist.get_rank()].clone()",
        ),
    ),
    "divided_twice": (
        "The gradient is divided by the world size twice. Once is enough.",
        ("reduce_scatter(grad)", "reduce_scatter(grad / dist.get_world_size())"),
    ),
    "divided_in_place": (
        "The gradient that backward is given is divided in place, but it belongs to the caller. Make a new tensor.",
        (
            "reduce_scatter(grad) / dist.get_world_size()",
            "reduce_scatter(grad.div_(dist.get_world_size()))",
        ),
    ),
    "without_a_graph": (
        "The result has no graph, so the shard gets no gradient. Return what Gather.apply gives.",
        ("Gather.apply(shard)", "all_gather(shard.detach())"),
    ),
}


@alternative
def mean_before_the_messages(shard, reduce_scatter, all_gather):
    class Mean(torch.autograd.Function):
        @staticmethod
        def forward(ctx, shard):
            return all_gather(shard)

        @staticmethod
        def backward(ctx, grad):
            return reduce_scatter(grad / dist.get_world_size())

    return Mean.apply(shard)


@alternative
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
