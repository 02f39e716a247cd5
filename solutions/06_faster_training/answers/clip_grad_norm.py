"""Known mistakes of exercise clip_grad_norm, and right answers in other styles."""

import torch

from course.checks.engine import alternative, mistake


def _grads(params):
    return [p.grad for p in params if p.grad is not None]


def _norm(grads):
    return torch.stack([g.norm() for g in grads]).norm()


@mistake("clip_grad_norm", "Each gradient is clipped by its own norm, which turns the step. Use one norm of them all.")
def each_by_itself(params, max_norm):
    norm = _norm(_grads(params))
    for g in _grads(params):
        g.mul_((max_norm / g.norm()).clamp(max=1))
    return norm


@mistake("clip_grad_norm", "The joint norm is not the sum of the norms. Take the root of the sum of their squares.")
def sum_of_norms(params, max_norm):
    norm = sum(g.norm() for g in _grads(params))
    for g in _grads(params):
        g.mul_((max_norm / norm).clamp(max=1))
    return norm


@mistake("clip_grad_norm", "The root is missing: this is the squared norm. Take its square root.")
def squared_norm(params, max_norm):
    norm = sum(g.square().sum() for g in _grads(params))
    for g in _grads(params):
        g.mul_((max_norm / norm).clamp(max=1))
    return norm


@mistake("clip_grad_norm", "Short gradients are stretched to max_norm. The factor must not be above 1.")
def stretches(params, max_norm):
    norm = _norm(_grads(params))
    for g in _grads(params):
        g.mul_(torch.where(norm > 0, max_norm / norm, 1.0))
    return norm


@mistake("clip_grad_norm", "The norm after clipping is returned. Return the one before, which tells of a spike.")
def norm_afterwards(params, max_norm):
    factor = (max_norm / _norm(_grads(params))).clamp(max=1)
    for g in _grads(params):
        g.mul_(factor)
    return _norm(_grads(params))


@mistake("clip_grad_norm", "Single values are cut off, which turns the step. Multiply all by one factor.")
def cuts_values(params, max_norm):
    norm = _norm(_grads(params))
    for g in _grads(params):
        g.clamp_(-max_norm, max_norm)
    return norm


@mistake("clip_grad_norm", "A parameter without a gradient stops it. Skip those whose grad is None.")
def needs_all(params, max_norm):
    norm = torch.stack([p.grad.norm() for p in params]).norm()
    for p in params:
        p.grad.mul_((max_norm / norm).clamp(max=1))
    return norm


@mistake("clip_grad_norm", "New tensors take the place of the gradients. Write into those there: grad.mul_(factor).")
def replaces(params, max_norm):
    norm = _norm(_grads(params))
    for p in params:
        if p.grad is not None:
            p.grad = p.grad * (max_norm / norm).clamp(max=1)
    return norm


WAITS = (
    ".item(), float() and `if` on a tensor wait for the device. Compute a factor, clamp it to 1 and multiply: all as "
    "tensors."
)


@mistake("clip_grad_norm", WAITS)
def asks_the_norm(params, max_norm):
    norm = _norm(_grads(params))
    if norm > max_norm:
        for g in _grads(params):
            g.mul_(max_norm / norm)
    return norm


@mistake("clip_grad_norm", WAITS)
def to_the_host(params, max_norm):
    norm = _norm(_grads(params))
    factor = min(1.0, max_norm / max(norm.item(), 1e-12))
    for g in _grads(params):
        g.mul_(factor)
    return norm


@mistake("clip_grad_norm", "Gradients of zero become NaN: 0 / 0, or 0 times infinity. Clamp the factor to at most 1.")
def nan_at_zero(params, max_norm):
    norm = _norm(_grads(params))
    for g in _grads(params):
        g.mul_(torch.where(norm <= max_norm, norm, max_norm)).div_(norm)
    return norm


@alternative("clip_grad_norm")
def flat_vector(params, max_norm):
    grads = [p.grad for p in params if p.grad is not None]
    norm = torch.cat([g.flatten() for g in grads]).norm()
    factor = torch.clamp(max_norm / norm, max=1)
    for g in grads:
        g *= factor
    return norm


@alternative("clip_grad_norm")
@torch.no_grad()
def all_at_once(params, max_norm):
    grads = [p.grad for p in params if p.grad is not None]
    norm = torch.linalg.vector_norm(torch.stack(torch._foreach_norm(grads)))
    torch._foreach_mul_(grads, torch.clamp(max_norm / (norm + 1e-12), max=1.0))
    return norm
