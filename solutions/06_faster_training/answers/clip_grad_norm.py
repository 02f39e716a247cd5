"""Known mistakes of exercise clip_grad_norm, and right answers in other styles."""

import torch

from course.engine.known_answers import alternative

FACTOR = "(max_norm / norm).clamp(max=1.0)"
WAITS = (
    ".item(), float() and `if` on a tensor wait for the device. Compute a factor, clamp it to 1 and multiply: all as "
    "tensors."
)
MISTAKES = {
    "each_by_itself": (
        "Each gradient is clipped by its own norm, which turns the step. Use one norm of them all.",
        ("mul_(factor)", "mul_((max_norm / grad.norm()).clamp(max=1))"),
    ),
    "sum_of_norms": (
        "The joint norm is not the sum of the norms. Take the root of the sum of their squares.",
        ("]).norm()", "]).sum()"),
    ),
    "squared_norm": (
        "The root is missing: this is the squared norm. Take its square root.",
        ("]).norm()", "]).square().sum()"),
    ),
    "stretches": (
        "Short gradients are stretched to max_norm. The factor must not be above 1.",
        (".clamp(max=1.0)", ".nan_to_num(posinf=1.0)"),
    ),
    "norm_afterwards": (
        "The norm after clipping is returned. Return the norm before clipping, which shows a spike.",
        ("return norm", "return torch.stack([grad.norm() for grad in grads]).norm()"),
    ),
    "cuts_values": (
        "Single values are cut off, which turns the step. Multiply all by one factor.",
        ("mul_(factor)", "clamp_(-max_norm, max_norm)"),
    ),
    "needs_all": (
        "A parameter whose grad is None raises an error. Skip it.",
        (" if p.grad is not None", ""),
    ),
    "replaces": (
        "New tensors replace the gradients. Change the gradients in place: grad.mul_(factor).",
        ("for grad in grads:", "for p in (p for p in params if p.grad is not None):"),
        ("grad.mul_(factor)", "p.grad = p.grad * factor"),
    ),
    "asks_the_norm": (WAITS, (FACTOR, "max_norm / norm if norm > max_norm else 1.0")),
    "to_the_host": (WAITS, (FACTOR, "min(1.0, max_norm / max(norm.item(), 1e-12))")),
    "nan_at_zero": (
        "Gradients of zero become NaN: 0 / 0, or 0 times infinity. Clamp the factor to at most 1.",
        (FACTOR, "norm.clamp(max=max_norm) / norm"),
    ),
    "largest_entry": (
        "This is the largest entry of all gradients. Take the root of the sum of the squares.",
        ("[grad.norm() for grad in grads]).norm()", "[grad.abs().max() for grad in grads]).max()"),
    ),
    "stretches_as_well": (
        "Short gradients are stretched to max_norm. The factor must not be above 1.",
        (FACTOR, "max_norm / (norm + 1e-6)"),
    ),
}


@alternative
def flat_vector(params, max_norm):
    grads = [p.grad for p in params if p.grad is not None]
    norm = torch.cat([g.flatten() for g in grads]).norm()
    factor = torch.clamp(max_norm / norm, max=1)
    for g in grads:
        g *= factor
    return norm


@alternative
def as_in_torch(params, max_norm):
    grads = [p.grad for p in params if p.grad is not None]
    norm = sum(g.square().sum() for g in grads).sqrt()
    for g in grads:
        g.mul_((max_norm / (norm + 1e-6)).clamp(max=1))
    return norm


@alternative
@torch.no_grad()
def all_at_once(params, max_norm):
    grads = [p.grad for p in params if p.grad is not None]
    norm = torch.linalg.vector_norm(torch.stack(torch._foreach_norm(grads)))
    torch._foreach_mul_(grads, torch.clamp(max_norm / (norm + 1e-12), max=1.0))
    return norm
