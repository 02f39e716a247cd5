"""Known mistakes of exercise layer_backward, and right answers in other styles."""

import torch
import torch.distributed as dist

from course.engine.known_answers import alternative

MISTAKES = {
    "sum_of_ranks": (
        "Gradients are summed over the ranks, not averaged. Divide by the world size.",
        (" / dist.get_world_size()", ""),
    ),
    "divided_twice": (
        "The gradient is divided by the square of the world size. Divide once.",
        ("of_whole / dist.get_world_size()", "of_whole / dist.get_world_size() ** 2"),
    ),
    "waits": (
        "The scatter is waited for, so the next layer cannot compute meanwhile. Return its handle.",
        (
            "    return of_x, start_scatter(of_whole / dist.get_world_size())",
            "    handle = start_scatter(of_whole / dist.get_world_size())\n    handle.wait()\n    return of_x, handle",
        ),
    ),
    "piece_for_handle": (
        "The piece itself is returned, so the scatter was waited for. Return the handle, and let the caller wait.",
        (
            "start_scatter(of_whole / dist.get_world_size())",
            "start_scatter(of_whole / dist.get_world_size()).wait()",
        ),
    ),
    "gradient_of_a_sum": (
        "The gradient that comes from the next layer is not used, only the output's sum. Pass grad to autograd.grad.",
        (
            "torch.autograd.grad(output, [whole, x], grad)",
            "torch.autograd.grad(output.sum(), [whole, x])",
        ),
    ),
    "changed_places": (
        "The gradients of whole and x are swapped. autograd.grad returns them in the order of its list.",
        ("of_whole, of_x =", "of_x, of_whole ="),
        ("return of_x, start_scatter(of_whole", "return of_x, start_scatter(of_whole.flatten()"),
    ),
    "input_divided_too": (
        "The gradient of x is divided by the world size, too. It belongs to this rank's own batch: leave it.",
        ("return of_x,", "return of_x / dist.get_world_size(),"),
    ),
    "writes_on_the_inputs": (
        "requires_grad_ is set on the tensors that were given. Detach them first.",
        ("whole.detach().requires_grad_()", "whole.requires_grad_()"),
        ("x.detach().requires_grad_()", "x.requires_grad_()"),
    ),
    "no_graph_inside_no_grad": (
        "Inside no_grad the output has no graph. Compute it under torch.enable_grad().",
        ("torch.enable_grad()", "torch.set_grad_enabled(torch.is_grad_enabled())"),
    ),
    "all_reduced_first": (
        "The gradient is summed by an all-reduce, which is waited for, and then scattered. The scatter sums by itself.",
        (
            "    return of_x, start_scatter(of_whole / dist.get_world_size())",
            "    dist.all_reduce(of_whole)\n    return of_x, start_scatter(of_whole / dist.get_world_size() ** 2)",
        ),
    ),
    "scattered_twice": (
        "The gradient is scattered twice. One reduce-scatter gives each rank its piece.",
        ("    return of_x,", "    start_scatter(of_whole)\n    return of_x,"),
    ),
}


@alternative
def by_backward(compute, whole, x, grad, start_scatter):
    leaves = [tensor.clone().requires_grad_() for tensor in (whole.detach(), x.detach())]
    with torch.enable_grad():
        compute(*leaves).backward(grad)
    gradients = [leaf.grad for leaf in leaves]
    return gradients[1], start_scatter(gradients[0].div(dist.get_world_size()))


@alternative
def by_vjp(compute, whole, x, grad, start_scatter):
    _, (of_whole, of_x) = torch.autograd.functional.vjp(compute, (whole, x), grad)
    handle = start_scatter(of_whole * (1 / dist.get_world_size()))
    return of_x, handle
