"""Known mistakes of exercise top_eigenvalue, and right answers in other styles."""

import torch

from course.checks.known_answers import alternative

MISTAKES = {
    "tensor_by_tensor": (
        "Each tensor is scaled by its own norm. The direction is one vector: use their joint norm.",
        ("part / norm", "part / part.norm()"),
    ),
    "norm_of_the_product": (
        "The norm of Hv is never negative. The eigenvalue is v·Hv, which keeps the sign.",
        ("(v * hv)", "(hv * hv)"),
        ("eigenvalue.item()", "eigenvalue.sqrt().item()"),
    ),
    "direction_stays": (
        "The direction never changes. The product Hv, scaled, is the direction of the next one.",
        ("        norm =", "        product = start\n        norm ="),
    ),
    "scaled_once": (
        "The direction is never scaled to norm 1 after the start, so v·Hv grows with every product.",
        ("norm = torch", "norm = 1.0 if _ else torch"),
    ),
    "start_not_scaled": (
        "The start is not scaled to norm 1, so v·Hv is too large by its squared length.",
        ("for part in product]).norm()", "for part in product]).norm() if _ else 1.0"),
    ),
    "blocks_only": (
        "Each tensor is multiplied by its own block of the Hessian only. Differentiate the sum of all inner products.",
        (
            "torch.autograd.grad(gradient, params, direction, retain_graph=True)",
            "[torch.autograd.grad(*block, retain_graph=True)[0] for block in zip(gradient, params, direction)]",
        ),
    ),
    "one_step_ahead": (
        "The direction after the last product comes back. Return the one that was multiplied last.",
        ("item(), direction", "item(), [part / torch.stack([p.norm() for p in product]).norm() for part in product]"),
    ),
}


@alternative
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


@alternative
def gradient_of_an_inner_product(loss, params, start, products=20):
    def dot(one, two):
        return sum((a * b).sum() for a, b in zip(one, two, strict=True))

    gradient = torch.autograd.grad(loss, params, create_graph=True)
    product = start
    for _ in range(products):
        norm = dot(product, product).sqrt()
        v = [part / norm for part in product]
        product = torch.autograd.grad(dot(gradient, v), params, retain_graph=True)
    return dot(v, product).item(), v
