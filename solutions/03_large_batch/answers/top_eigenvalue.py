"""Known mistakes of exercise top_eigenvalue, and right answers in other styles."""

import torch

from course.checks.engine import alternative, mistake


def dot(one, two):
    """The inner product of two lists of tensors."""
    return sum((a * b).sum() for a, b in zip(one, two, strict=True))


def scaled(tensors):
    """The tensors, divided by their joint norm."""
    norm = dot(tensors, tensors).sqrt()
    return [t / norm for t in tensors]


@mistake("top_eigenvalue", "Each tensor is scaled by its own norm. The direction is one vector: use their joint norm.")
def tensor_by_tensor(loss, params, start, products=20):
    gradient = torch.autograd.grad(loss, params, create_graph=True)
    direction = start
    for _ in range(products):
        v = [d / d.norm() for d in direction]
        direction = torch.autograd.grad(gradient, params, v, retain_graph=True)
    return dot(v, direction).item(), v


@mistake("top_eigenvalue", "The norm of Hv is never negative. The eigenvalue is v·Hv, which keeps the sign.")
def norm_of_the_product(loss, params, start, products=20):
    gradient = torch.autograd.grad(loss, params, create_graph=True)
    direction = start
    for _ in range(products):
        v = scaled(direction)
        direction = torch.autograd.grad(gradient, params, v, retain_graph=True)
    return dot(direction, direction).sqrt().item(), v


@mistake("top_eigenvalue", "The direction never changes. The product Hv, scaled, is the direction of the next one.")
def direction_stays(loss, params, start, products=20):
    gradient = torch.autograd.grad(loss, params, create_graph=True)
    v = scaled(start)
    for _ in range(products):
        product = torch.autograd.grad(gradient, params, v, retain_graph=True)
    return dot(v, product).item(), v


@mistake("top_eigenvalue", "The direction is never scaled to norm 1 after the start, so v·Hv grows with every product.")
def scaled_once(loss, params, start, products=20):
    gradient = torch.autograd.grad(loss, params, create_graph=True)
    direction = scaled(start)
    for _ in range(products):
        v = direction
        direction = torch.autograd.grad(gradient, params, v, retain_graph=True)
    return dot(v, direction).item(), v


@mistake("top_eigenvalue", "The start is not scaled to norm 1, so v·Hv is too large by its squared length.")
def start_not_scaled(loss, params, start, products=20):
    gradient = torch.autograd.grad(loss, params, create_graph=True)
    v, product = start, None
    for _ in range(products):
        v = scaled(product) if product else v
        product = torch.autograd.grad(gradient, params, v, retain_graph=True)
    return dot(v, product).item(), list(v)


@mistake(
    "top_eigenvalue",
    "Each tensor is multiplied by its own block of the Hessian only. Differentiate the sum of all inner products.",
)
def blocks_only(loss, params, start, products=20):
    gradient = torch.autograd.grad(loss, params, create_graph=True)
    direction = start
    for _ in range(products):
        v = scaled(direction)
        direction = [
            torch.autograd.grad(g, p, d, retain_graph=True)[0] for g, p, d in zip(gradient, params, v, strict=True)
        ]
    return dot(v, direction).item(), v


@mistake("top_eigenvalue", "The direction after the last product comes back. Return the one that was multiplied last.")
def one_step_ahead(loss, params, start, products=20):
    gradient = torch.autograd.grad(loss, params, create_graph=True)
    direction = scaled(start)
    for _ in range(products):
        product = torch.autograd.grad(gradient, params, direction, retain_graph=True)
        eigenvalue, direction = dot(direction, product).item(), scaled(product)
    return eigenvalue, direction


@alternative("top_eigenvalue")
def one_flat_vector(loss, params, start, products=20):
    def flat(tensors):
        return torch.cat([t.reshape(-1) for t in tensors])

    gradient = flat(torch.autograd.grad(loss, params, create_graph=True))
    product = flat(start)
    for _ in range(products):
        v = product / product.norm()
        product = flat(torch.autograd.grad(gradient @ v, params, retain_graph=True))
    pieces = v.split([p.numel() for p in params])
    return float(v @ product), [piece.view_as(p) for piece, p in zip(pieces, params, strict=True)]


@alternative("top_eigenvalue")
def gradient_of_an_inner_product(loss, params, start, products=20):
    gradient = torch.autograd.grad(loss, params, create_graph=True)
    v = scaled(start)
    for left in reversed(range(products)):
        product = torch.autograd.grad(dot(gradient, v), params, retain_graph=True)
        if left:
            v = scaled(product)
    return dot(v, product).item(), v
