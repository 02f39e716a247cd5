"""Known mistakes of exercise outer_step, and right answers in other styles."""

import torch

from course.engine.known_answers import alternative, mistake

MISTAKES = {
    "sum_for_mean": (
        "The ranks' moves are added up, so N ranks move N times as far. Take their mean.",
        ("start - ends.mean(0)", "(start - ends).sum(0)"),
    ),
    "wrong_sign": (
        "The outer gradient has the wrong sign, so SGD moves away from the ranks' mean. It is start minus that mean.",
        ("start - ends.mean(0)", "ends.mean(0) - start"),
    ),
    "first_rank_alone": (
        "Only the first rank counts. Take the mean of all.",
        ("ends.mean(0)", "ends[0]"),
    ),
    "heavy_ball": (
        "The step is the new velocity, which is gradient + momentum · the old one: that is plain momentum. Nesterov's "
        "step is gradient + momentum · the new velocity.",
        ("start - lr * (gradient + momentum * velocity)", "start - lr * velocity"),
    ),
    "momentum_forgotten": (
        "The step leaves the velocity out. It is gradient + momentum · velocity.",
        ("lr * (gradient + momentum * velocity)", "lr * gradient"),
    ),
    "velocity_stays": (
        "The velocity that you return is the old one. Return the new one.",
        (
            "    velocity = momentum * velocity + gradient\n",
            "    new = momentum * velocity + gradient\n",
        ),
        ("(gradient + momentum * velocity)", "(gradient + momentum * new)"),
    ),
    "from_the_mean": (
        "The step starts at the ranks' mean, and moves twice. Start at `start`.",
        ("return start", "return ends.mean(0)"),
    ),
    "damped": (
        "The gradient is damped by 1 - momentum before it is added. SGD adds it as it is.",
        ("momentum * velocity + gradient\n", "momentum * velocity + (1 - momentum) * gradient\n"),
    ),
    "learning_rate_in_the_velocity": (
        "The velocity contains the learning rate. Multiply the step by it, not the velocity.",
        ("momentum * velocity + gradient\n", "momentum * velocity + lr * gradient\n"),
        ("lr * (gradient + momentum * velocity)", "(lr * gradient + momentum * velocity)"),
    ),
}


@mistake(
    "The mean of the ranks replaces the weights, whatever the learning rate. Take a step of SGD towards it."
)
def plain_mean(start, ends, velocity, lr, momentum):
    return ends.mean(0), momentum * velocity + start - ends.mean(0)


@alternative
def by_torch(start, ends, velocity, lr, momentum):
    weights = start.clone().requires_grad_()
    optimizer = torch.optim.SGD([weights], lr=lr, momentum=momentum, nesterov=momentum > 0)
    weights.grad = (start - ends).mean(0)
    if momentum == 0:
        optimizer.step()
        return weights.detach(), start - ends.mean(0)
    optimizer.state[weights]["momentum_buffer"] = velocity.clone()
    optimizer.step()
    return weights.detach(), optimizer.state[weights]["momentum_buffer"]


@alternative
def rank_by_rank(start, ends, velocity, lr, momentum):
    moved = torch.zeros_like(start)
    for end in ends:
        moved += (end - start) / len(ends)
    faster = velocity * momentum - moved
    return start + lr * moved - lr * momentum * faster, faster
