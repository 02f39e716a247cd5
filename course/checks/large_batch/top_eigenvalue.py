"""Probe of exercise top_eigenvalue."""

import torch

from course.checks.engine import exercise
from course.checks.probing.tensors import form


@exercise()
def top_eigenvalue(answer, device, seed):
    """The largest eigenvalue of a loss's Hessian, by power iteration."""
    rng = torch.Generator().manual_seed(seed)
    rows, columns = 2 + seed % 2, 3
    n = rows * columns + 4

    def random(*shape):
        return torch.randn(shape, generator=rng, dtype=torch.float64).to(device)

    def two(vector):
        """The vector as two tensors of different shapes."""
        return [vector[: n - 4].clone().view(rows, columns), vector[n - 4 :].clone()]

    def quadratic(eigenvalues, dtype=torch.float64):
        """(loss, params, eigenvectors) of w'Aw / 2 + b'w with these eigenvalues of A."""
        vectors = torch.linalg.qr(random(n, n))[0].to(dtype)
        matrix = (vectors * torch.tensor(eigenvalues, dtype=dtype, device=device)) @ vectors.T
        params = [part.to(dtype).requires_grad_() for part in two(random(n))]
        w = torch.cat([p.flatten() for p in params])
        return w @ matrix @ w / 2 + (random(n).to(dtype) * w).sum(), params, vectors

    spread = [4.0 + seed % 3, -2.0, 1.5, *(0.1 * i for i in range(n - 3))]
    loss, params, vectors = quadratic(spread)
    start = two(random(n))
    kept = [s.clone() for s in start]
    eigenvalue, direction = answer(loss, params, start, 1)
    kind = type(eigenvalue).__name__
    yield "returns a float and a list of tensors like the parameters", (kind, [form(d) for d in direction])
    yield "with one product: v·Hv of the start, scaled to norm 1", eigenvalue
    yield "the direction has norm 1 over all its tensors together", sum((d * d).sum() for d in direction).sqrt()
    yield "with one product, the direction is the start, scaled", direction
    yield "start stays as it was", all(map(torch.equal, start, kept))
    for products in (2, 3):
        loss, params, vectors = quadratic(spread)
        yield f"with {products} products", answer(loss, params, start, products)
    loss, params, vectors = quadratic(spread)
    eigenvalue, direction = answer(loss, params, start, 60)
    yield f"after 60 products, the eigenvalue {spread[0]:g} of a known matrix", round(eigenvalue, 4)
    along = (torch.cat([d.flatten() for d in direction]) @ vectors[:, 0]).abs().item()
    yield "and its eigenvector, up to the sign", round(along, 4)
    yield "the gradients of the parameters stay unset", [p.grad is None for p in params]
    loss, params, _ = quadratic([1.0, -3.0, *(0.1 * i for i in range(n - 2))])
    yield (
        "a negative eigenvalue that is largest in magnitude keeps its sign",
        round(answer(loss, params, start, 80)[0], 4),
    )
    params = [part.abs().add(0.5).requires_grad_() for part in two(random(n))]
    loss = sum((p**3).sum() for p in params) / 6 + params[0].sum() * params[1].sum()
    yield "a loss that is not quadratic: the Hessian at these weights", answer(loss, params, start, 4)
    long = [1e3 * s for s in start]
    loss, params, _ = quadratic(spread)
    yield "how long the start is makes no difference", answer(loss, params, long, 2)
    loss, params, _ = quadratic(spread, torch.float32)
    yield "float32 parameters", answer(loss, params, [s.float() for s in start], 3)
    loss, params, _ = quadratic([4.0, 3.9, *(0.1 * i for i in range(n - 2))])
    yield "by default 20 products", answer(loss, params, start)
