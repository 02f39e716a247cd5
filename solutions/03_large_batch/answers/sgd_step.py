"""Known mistakes of exercise sgd_step, and right answers in other styles."""

import torch

from course.engine.known_answers import alternative

MISTAKES = {
    "names_rebound": (
        "p = p - ... makes a new tensor and leaves the caller's as it was. Write into it: p.sub_(...).",
        (
            "velocity.mul_(momentum).add_(grad + weight_decay * param)",
            "velocity = momentum * velocity + grad + weight_decay * param",
        ),
        ("param.sub_(lr * velocity)", "param = param - lr * velocity"),
    ),
    "parameter_rebound": (
        "The velocity changes, but p = p - ... makes a new tensor, not the parameter's. Write into it: p.sub_(...).",
        ("param.sub_(lr * velocity)", "param = param - lr * velocity"),
    ),
    "recorded_by_autograd": (
        "Autograd records the change of the parameters, and refuses it. Put the whole loop under torch.no_grad().",
        ("no_grad", "enable_grad"),
    ),
    "rebound_and_recorded": (
        "p = p - ... makes a new tensor, and autograd records it all. Write p.sub_(...), under torch.no_grad().",
        ("no_grad", "enable_grad"),
        ("param.sub_(lr * velocity)", "param = param - lr * velocity"),
    ),
    "velocity_recorded": (
        "The weight decay makes the velocity part of autograd's graph, which grows at every step. Use torch.no_grad().",
        ("no_grad", "enable_grad"),
        ("param.sub_(lr * velocity)", "param.data.sub_(lr * velocity.detach())"),
    ),
    "rate_inside_velocity": (
        "The learning rate is in the velocity, so a new one changes only later gradients. PyTorch: p <- p - lr * v.",
        ("grad + weight_decay * param", "lr * (grad + weight_decay * param)"),
        ("sub_(lr * ", "sub_("),
    ),
    "running_average": (
        "The new gradient is damped by 1 - momentum, as in Adam's averages. Here the velocity is a plain sum.",
        ("grad + weight_decay * param", "(1 - momentum) * (grad + weight_decay * param)"),
    ),
    "decoupled_decay": (
        "Weight decay bypasses the velocity, as in AdamW. In SGD, add it to the gradient before the momentum.",
        (" + weight_decay * param", ""),
        ("lr * velocity", "lr * (velocity + weight_decay * param)"),
    ),
    "old_velocity": (
        "The step uses the old velocity, one step late. First update the velocity, then move along the new one.",
        ("velocity.mul_", "old = velocity.clone()\n            velocity.mul_"),
        ("lr * velocity", "lr * old"),
    ),
    "nesterov": (
        "This is Nesterov's step, along gradient plus momentum times the velocity. Here the step is along v itself.",
        ("lr * velocity", "lr * (grad + weight_decay * param + momentum * velocity)"),
    ),
    "gradient_overwritten": (
        "Weight decay is written into the gradients, which belong to the caller. Make a new tensor: g + decay * p.",
        ("grad + weight_decay * param", "grad.add_(weight_decay * param)"),
    ),
    "velocity_replaced": (
        "The caller's velocities never change; velocities[i] = ... only changes the list. Use velocity.mul_().add_().",
        ("for param, grad, velocity in zip(", "for i, (param, grad, velocity) in enumerate(zip("),
        ("=True)", "=True))"),
        (
            "velocity.mul_(momentum).add_(grad",
            "velocities[i] = velocity = (momentum * velocity + grad",
        ),
    ),
}


@alternative
def optimizer_inside(params, grads, velocities, lr, momentum=0.9, weight_decay=0.0):
    copies = [p.detach().clone().requires_grad_() for p in params]
    optimizer = torch.optim.SGD(copies, lr=lr, momentum=momentum, weight_decay=weight_decay)
    for copy, g, v in zip(copies, grads, velocities, strict=True):
        copy.grad = g.clone()
        optimizer.state[copy]["momentum_buffer"] = v.clone()
    optimizer.step()
    for p, copy, g, v in zip(params, copies, grads, velocities, strict=True):
        v.copy_(
            optimizer.state[copy]["momentum_buffer"] if momentum else g + weight_decay * p.detach()
        )
        p.data.copy_(copy.data)


@alternative
def through_data(params, grads, velocities, lr, momentum=0.9, weight_decay=0.0):
    for i in range(max(map(len, (params, grads, velocities)))):
        w, g = params[i].data, grads[i].data
        if weight_decay != 0:
            g = g.add(w, alpha=weight_decay)
        velocities[i][...] = momentum * velocities[i] + g
        w -= lr * velocities[i]


@alternative
@torch.no_grad()
def many_tensors_at_once(params, grads, velocities, lr, momentum=0.9, weight_decay=0.0):
    torch._foreach_mul_(velocities, momentum)
    torch._foreach_add_(velocities, torch._foreach_add(grads, params, alpha=weight_decay))
    torch._foreach_add_(params, velocities, alpha=-lr)
