"""Known mistakes of exercise sgd_step, and right answers in other styles."""

import torch

from course.checks.engine import alternative, mistake


@mistake("sgd_step", "p = p - ... makes a new tensor and leaves the caller's as it was. Write into it: p.sub_(...).")
def names_rebound(params, grads, velocities, lr, momentum=0.9, weight_decay=0.0):
    for p, g, v in zip(params, grads, velocities, strict=True):
        v = momentum * v + g + weight_decay * p
        p = p - lr * v


@mistake(
    "sgd_step",
    "The velocity changes, but p = p - ... makes a new tensor and leaves the parameter. Write into it: p.sub_(...).",
)
@torch.no_grad()
def parameter_rebound(params, grads, velocities, lr, momentum=0.9, weight_decay=0.0):
    for p, g, v in zip(params, grads, velocities, strict=True):
        v.mul_(momentum).add_(g + weight_decay * p)
        p = p - lr * v


@mistake(
    "sgd_step",
    "Autograd records the change of the parameters, and refuses it. Put the whole loop under torch.no_grad().",
)
def recorded_by_autograd(params, grads, velocities, lr, momentum=0.9, weight_decay=0.0):
    for p, g, v in zip(params, grads, velocities, strict=True):
        v.mul_(momentum).add_(g + weight_decay * p)
        p.sub_(lr * v)


@mistake(
    "sgd_step",
    "p = p - ... makes a new tensor, and autograd records it all. Write p.sub_(...), under torch.no_grad().",
)
def rebound_and_recorded(params, grads, velocities, lr, momentum=0.9, weight_decay=0.0):
    for p, g, v in zip(params, grads, velocities, strict=True):
        v.mul_(momentum).add_(g + weight_decay * p)
        p = p - lr * v


@mistake(
    "sgd_step",
    "The weight decay makes the velocity part of autograd's graph, which grows at every step. Use torch.no_grad().",
)
def velocity_recorded(params, grads, velocities, lr, momentum=0.9, weight_decay=0.0):
    for p, g, v in zip(params, grads, velocities, strict=True):
        v.mul_(momentum).add_(g + weight_decay * p)
        p.data.sub_(lr * v.detach())


@mistake(
    "sgd_step",
    "The learning rate is inside the velocity, so a new one changes only later gradients. PyTorch: p <- p - lr * v.",
)
@torch.no_grad()
def rate_inside_velocity(params, grads, velocities, lr, momentum=0.9, weight_decay=0.0):
    for p, g, v in zip(params, grads, velocities, strict=True):
        v.mul_(momentum).add_(lr * (g + weight_decay * p))
        p.sub_(v)


@mistake(
    "sgd_step", "The new gradient is damped by 1 - momentum, as in Adam's averages. Here the velocity is a plain sum."
)
@torch.no_grad()
def running_average(params, grads, velocities, lr, momentum=0.9, weight_decay=0.0):
    for p, g, v in zip(params, grads, velocities, strict=True):
        v.mul_(momentum).add_((1 - momentum) * (g + weight_decay * p))
        p.sub_(lr * v)


@mistake(
    "sgd_step", "Weight decay bypasses the velocity, as in AdamW. In SGD, add it to the gradient before the momentum."
)
@torch.no_grad()
def decoupled_decay(params, grads, velocities, lr, momentum=0.9, weight_decay=0.0):
    for p, g, v in zip(params, grads, velocities, strict=True):
        v.mul_(momentum).add_(g)
        p.sub_(lr * (v + weight_decay * p))


@mistake(
    "sgd_step", "The step uses the old velocity, one step late. First update the velocity, then move along the new one."
)
@torch.no_grad()
def old_velocity(params, grads, velocities, lr, momentum=0.9, weight_decay=0.0):
    for p, g, v in zip(params, grads, velocities, strict=True):
        decayed = g + weight_decay * p
        p.sub_(lr * v)
        v.mul_(momentum).add_(decayed)


@mistake(
    "sgd_step",
    "This is Nesterov's step, along the gradient plus momentum times the velocity. Here the step is along v itself.",
)
@torch.no_grad()
def nesterov(params, grads, velocities, lr, momentum=0.9, weight_decay=0.0):
    for p, g, v in zip(params, grads, velocities, strict=True):
        decayed = g + weight_decay * p
        v.mul_(momentum).add_(decayed)
        p.sub_(lr * (decayed + momentum * v))


@mistake(
    "sgd_step",
    "Weight decay is written into the gradients, which belong to the caller. Make a new tensor: g + decay * p.",
)
@torch.no_grad()
def gradient_overwritten(params, grads, velocities, lr, momentum=0.9, weight_decay=0.0):
    for p, g, v in zip(params, grads, velocities, strict=True):
        v.mul_(momentum).add_(g.add_(weight_decay * p))
        p.sub_(lr * v)


@mistake(
    "sgd_step",
    "zip ends with its shortest list: the rest is silently never trained. zip(..., strict=True) raises.",
)
@torch.no_grad()
def zip_ends_early(params, grads, velocities, lr, momentum=0.9, weight_decay=0.0):
    for p, g, v in zip(params, grads, velocities, strict=False):
        v.mul_(momentum).add_(g + weight_decay * p)
        p.sub_(lr * v)


@mistake(
    "sgd_step",
    "The caller's velocities never change; velocities[i] = ... only changes the list. Use velocity.mul_().add_().",
)
@torch.no_grad()
def velocity_replaced(params, grads, velocities, lr, momentum=0.9, weight_decay=0.0):
    for i, (p, g, v) in enumerate(zip(params, grads, velocities, strict=True)):
        velocities[i] = momentum * v + g + weight_decay * p
        p.sub_(lr * velocities[i])


@alternative("sgd_step")
def optimizer_inside(params, grads, velocities, lr, momentum=0.9, weight_decay=0.0):
    copies = [p.detach().clone().requires_grad_() for p in params]
    optimizer = torch.optim.SGD(copies, lr=lr, momentum=momentum, weight_decay=weight_decay)
    for copy, g, v in zip(copies, grads, velocities, strict=True):
        copy.grad = g.clone()
        optimizer.state[copy]["momentum_buffer"] = v.clone()
    optimizer.step()
    for p, copy, g, v in zip(params, copies, grads, velocities, strict=True):
        v.copy_(optimizer.state[copy]["momentum_buffer"] if momentum else g + weight_decay * p.detach())
        p.data.copy_(copy.data)


@alternative("sgd_step")
def through_data(params, grads, velocities, lr, momentum=0.9, weight_decay=0.0):
    for i in range(max(map(len, (params, grads, velocities)))):
        w, g = params[i].data, grads[i].data
        if weight_decay != 0:
            g = g.add(w, alpha=weight_decay)
        velocities[i][...] = momentum * velocities[i] + g
        w -= lr * velocities[i]


@alternative("sgd_step")
@torch.no_grad()
def many_tensors_at_once(params, grads, velocities, lr, momentum=0.9, weight_decay=0.0):
    torch._foreach_mul_(velocities, momentum)
    torch._foreach_add_(velocities, torch._foreach_add(grads, params, alpha=weight_decay))
    torch._foreach_add_(params, velocities, alpha=-lr)
