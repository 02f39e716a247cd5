"""Known mistakes of exercise average_hook, and right answers in other styles."""

import torch.distributed as dist
from torch import distributed
from torch.distributed import ReduceOp, all_reduce, get_world_size

from course.checks.engine import alternative, mistake


@mistake(
    "average_hook",
    "This is the published fault: the hook is given the parameter, so the weights are averaged. Take parameter.grad.",
)
def averages_the_weights(parameter):
    dist.all_reduce(parameter.detach())
    parameter.detach().div_(dist.get_world_size())


@mistake(
    "average_hook",
    "The gradients are summed and not divided. Divide parameter.grad in place: `g = g / n` only names a new tensor.",
)
def sum_of_gradients(parameter):
    dist.all_reduce(parameter.grad)


@mistake("average_hook", "The gradient is summed, but the parameter is divided. Divide parameter.grad.")
def divides_the_weights(parameter):
    dist.all_reduce(parameter.grad)
    parameter.detach().div_(dist.get_world_size())


@mistake("average_hook", "The mean is computed in a copy and thrown away. Work on parameter.grad in place.")
def mean_thrown_away(parameter):
    gradient = parameter.grad.clone()
    dist.all_reduce(gradient)
    gradient /= dist.get_world_size()


@mistake("average_hook", "The gradient is divided, but never summed over the ranks. Call dist.all_reduce on it.")
def divided_only(parameter):
    parameter.grad /= dist.get_world_size()


@mistake(
    "average_hook",
    "The all-reduce is started and never waited for, so what it brings comes after the division, or too late. Call "
    "wait() on what it returns, or leave async_op out.",
)
def never_waited_for(parameter):
    dist.all_reduce(parameter.grad, async_op=True)
    parameter.grad /= dist.get_world_size()


@mistake("average_hook", "Every rank gets the gradient of rank 0, which is not the mean. Use all_reduce.")
def gradient_of_rank_0(parameter):
    dist.broadcast(parameter.grad, src=0)


@alternative("average_hook")
def divides_first(parameter):
    parameter.grad.div_(get_world_size())
    all_reduce(parameter.grad, async_op=True).wait()


@alternative("average_hook")
def a_new_gradient(parameter):
    total = parameter.grad.clone()
    distributed.all_reduce(total, op=ReduceOp.SUM)
    parameter.grad = total * (1.0 / distributed.get_world_size())


@alternative("average_hook")
def asks_for_the_mean(parameter):
    all_reduce(parameter.grad, op=ReduceOp.AVG)
