"""Known mistakes of exercise copy_to_ranks, and right answers in other styles."""

import torch
import torch.distributed as dist

from course.engine.known_answers import alternative

MISTAKES = {
    "no_sum_in_backward": (
        "Backward sums nothing, so each rank has a part of the gradient. Sum it over the ranks.",
        ("            dist.all_reduce(total)\n", ""),
    ),
    "mean_of_gradients": (
        "This is the mean of the gradients. Each rank has different terms of one sum, so do not divide.",
        ("            return total\n", "            return total / dist.get_world_size()\n"),
    ),
    "summed_in_place": (
        "The sum is written into the gradient that backward gets, which belongs to the caller. Sum a clone of it.",
        ("grad.clone()", "grad"),
    ),
    "summed_in_forward": (
        "Forward sums x, which all ranks have already, so it is N times x. Send nothing in forward.",
        (
            "            return x.view_as(x)\n",
            "            whole = x.clone()\n            dist.all_reduce(whole)\n            return whole\n",
        ),
    ),
    "sum_over_ranks": (
        "Forward and backward have changed places: this is sum_over_ranks. Copy in forward, and sum in backward.",
        (
            "            return x.view_as(x)\n",
            "            total = x.clone()\n            dist.all_reduce(total)\n            return total\n",
        ),
        (
            "            total = grad.clone()\n            dist.all_reduce(total)\n            return total\n",
            "            return grad\n",
        ),
    ),
    "without_a_graph": (
        "The result has no graph, so no gradient reaches x. Return what Copy.apply gives.",
        ("return Copy.apply(x)", "return x.detach().clone()"),
    ),
    "sent_from_rank_zero": (
        "Forward sends x from rank 0, but all ranks have it. Send nothing in forward.",
        (
            "            return x.view_as(x)\n",
            "            whole = x.clone()\n            dist.broadcast(whole, 0)\n            return whole\n",
        ),
    ),
    "gradient_of_rank_zero": (
        "Every rank gets the gradient of rank 0. Sum the gradients of all ranks.",
        ("dist.all_reduce(total)", "dist.broadcast(total, 0)"),
    ),
}


@alternative
def with_a_hook(x):
    def summed(grad):
        total = grad.detach().clone()
        dist.all_reduce(total)
        return total

    copied = x.clone()
    if copied.requires_grad:
        copied.register_hook(summed)
    return copied


@alternative
def asynchronously(x):
    class Copied(torch.autograd.Function):
        @staticmethod
        def forward(ctx, whole):
            return whole.clone()

        @staticmethod
        def backward(ctx, *grads):
            total = grads[0] + 0
            dist.all_reduce(total, async_op=True).wait()
            return total

    return Copied.apply(x)
