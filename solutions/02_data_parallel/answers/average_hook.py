"""Known mistakes of exercise average_hook, and right answers in other styles."""

from torch import distributed
from torch.distributed import ReduceOp, all_reduce, get_world_size

from course.engine.known_answers import alternative

MISTAKES = {
    "averages_the_weights": (
        "This is the published fault: the hook is given the parameter, so the weights are "
        "averaged. Take parameter.grad.",
        ("parameter.grad)", "parameter.detach())"),
        (
            "parameter.grad /= dist.get_world_size()",
            "parameter.detach().div_(dist.get_world_size())",
        ),
    ),
    "sum_of_gradients": (
        "The gradients are summed and not divided. Divide parameter.grad in place: `g = g / n` "
        "only names a new tensor.",
        ("parameter.grad /= dist.get_world_size()", "pass"),
    ),
    "divides_the_weights": (
        "The gradient is summed, but the parameter is divided. Divide parameter.grad.",
        (
            "parameter.grad /= dist.get_world_size()",
            "parameter.detach().div_(dist.get_world_size())",
        ),
    ),
    "mean_thrown_away": (
        "The mean is computed in a copy and thrown away. Work on parameter.grad in place.",
        ("parameter.grad)", "gradient := parameter.grad.clone())"),
        ("parameter.grad /=", "gradient /="),
    ),
    "result_of_the_call": (
        "The gradient becomes None: dist.all_reduce writes the sum into its argument and returns None. Call it, and "
        "divide parameter.grad afterwards.",
        ("dist.all_reduce(parameter.grad)", "parameter.grad = dist.all_reduce(parameter.grad)"),
        ("parameter.grad /= dist.get_world_size()", "pass"),
    ),
    "result_divided": (
        "None is divided: dist.all_reduce writes the sum into its argument and returns None. Call it, and divide "
        "parameter.grad afterwards.",
        (
            "dist.all_reduce(parameter.grad)",
            "parameter.grad = dist.all_reduce(parameter.grad) / dist.get_world_size()",
        ),
        ("parameter.grad /= dist.get_world_size()", "pass"),
    ),
    "divided_only": (
        "The gradient is divided, but never summed over the ranks. Call dist.all_reduce on it.",
        ("dist.all_reduce(parameter.grad)", "pass"),
    ),
    "sum_never_arrives": (
        "The gradient is divided, but the sum never reaches it: the all-reduce works on a copy, or is started with "
        "async_op=True and never waited for. Give it parameter.grad itself, and wait.",
        ("parameter.grad)", "parameter.grad.clone())"),
    ),
    "gradient_of_rank_0": (
        "Every rank gets the gradient of rank 0, which is not the mean. Use all_reduce.",
        ("all_reduce(parameter.grad)", "broadcast(parameter.grad, src=0)"),
        ("parameter.grad /= dist.get_world_size()", "pass"),
    ),
}


@alternative
def divides_first(parameter):
    parameter.grad.div_(get_world_size())
    all_reduce(parameter.grad, async_op=True).wait()


@alternative
def a_new_gradient(parameter):
    total = parameter.grad.clone()
    distributed.all_reduce(total, op=ReduceOp.SUM)
    parameter.grad = total * (1.0 / distributed.get_world_size())


@alternative
def asks_for_the_mean(parameter):
    all_reduce(parameter.grad, op=ReduceOp.AVG)
