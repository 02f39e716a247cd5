"""Known mistakes of exercise sum_over_ranks, and right answers in other styles."""

import torch
import torch.distributed as dist

from course.engine.known_answers import alternative, mistake

MISTAKES = {
    "nothing_summed": (
        "Nothing is summed: each rank returns its own part. Call dist.all_reduce on a copy.",
        ("            dist.all_reduce(total)\n", ""),
    ),
    "summed_in_place": (
        "The sum is written into the caller's part. Clone the part, and sum the clone.",
        ("part.clone()", "part.view_as(part)"),
    ),
    "loss_counted_n_times": (
        "Backward sums the gradient over the ranks, so the loss counts N times. Return the gradient as it is.",
        (
            "            return grad\n",
            "            grad = grad.clone()\n            dist.all_reduce(grad)\n            return grad\n",
        ),
    ),
    "mean_of_parts": (
        "This is the mean of the parts. Each rank has different terms of one sum, so do not divide.",
        ("            return total\n", "            return total / dist.get_world_size()\n"),
    ),
    "gradient_divided": (
        "Backward divides the gradient by the world size. The derivative of a sum by each of its terms is 1.",
        ("            return grad\n", "            return grad / dist.get_world_size()\n"),
    ),
    "without_a_graph": (
        "The result has no graph, so no gradient reaches the part. Return what Sum.apply gives.",
        ("return Sum.apply(part)", "return Sum.forward(None, part.detach())"),
    ),
    "summed_twice": (
        "The parts are summed twice. One all_reduce gives every rank the sum.",
        (
            "            dist.all_reduce(total)\n",
            "            dist.all_reduce(total)\n            dist.all_reduce(total)\n",
        ),
    ),
}


@mistake("Only rank 0 gets the sum. All ranks need it: take all_reduce.")
def reduced_to_rank_zero(part):
    class Sum(torch.autograd.Function):
        @staticmethod
        def forward(ctx, part):
            total = part.clone()
            dist.reduce(total, 0)
            return total if dist.get_rank() == 0 else part.clone()

        @staticmethod
        def backward(ctx, grad):
            return grad

    return Sum.apply(part)


@alternative
def by_a_constant(part):
    total = part.detach().clone()
    dist.all_reduce(total)
    return part + (total - part.detach())


@alternative
def asynchronously(part):
    class AddedUp(torch.autograd.Function):
        @staticmethod
        def forward(ctx, mine):
            ctx.shape = mine.shape
            total = mine.detach() * 1
            dist.all_reduce(total, op=dist.ReduceOp.SUM, async_op=True).wait()
            return total

        @staticmethod
        def backward(ctx, *grads):
            return grads[0].reshape(ctx.shape)

    return AddedUp.apply(part)
