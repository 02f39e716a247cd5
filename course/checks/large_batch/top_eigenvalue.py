"""Probe of exercise top_eigenvalue."""

import torch

from course.checks.engine import exercise
from course.checks.probing.tensors import form


def _of_quadratic(answer, matrix, slope, params, start, *products):
    """What the answer finds for w'Aw / 2 + b'w."""
    params = [p.clone().requires_grad_() for p in params]
    w = torch.cat([p.flatten() for p in params])
    return answer(w @ matrix @ w / 2 + (slope * w).sum(), params, start, *products)


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

    def quadratic(eigenvalues):
        """(A, b, w in two tensors), the eigenvectors of A, whose eigenvalues these are."""
        vectors = torch.linalg.qr(random(n, n))[0]
        matrix = (vectors * torch.tensor(eigenvalues, dtype=torch.float64, device=device)) @ vectors.T
        params = two(random(n))
        return (matrix, random(n), params), vectors

    def found(problem, start, *products):
        return _of_quadratic(answer, *problem, start, *products)

    spread = [4.0 + seed % 3, -2.0, 1.5, *(0.1 * i for i in range(n - 3))]
    problem, vectors = quadratic(spread)
    start = two(random(n))
    kept = [s.clone() for s in start]
    eigenvalue, direction = found(problem, start, 1)
    kind = type(eigenvalue).__name__
    yield "returns a float and a list of tensors like the parameters", (kind, [form(d) for d in direction])
    yield "with one product: v·Hv of the start, scaled to norm 1", eigenvalue
    yield "the direction has norm 1 over all its tensors together", sum((d * d).sum() for d in direction).sqrt()
    yield "with one product, the direction is the start, scaled", direction
    yield "start stays as it was", all(map(torch.equal, start, kept))
    for products in (2, 3):
        yield f"with {products} products", found(quadratic(spread)[0], start, products)
    problem, vectors = quadratic(spread)
    eigenvalue, direction = found(problem, start, 60)
    yield f"after 60 products, the eigenvalue {spread[0]:g} of a known matrix", round(eigenvalue, 4)
    along = (torch.cat([d.flatten() for d in direction]) @ vectors[:, 0]).abs().item()
    yield "and its eigenvector, up to the sign", round(along, 4)
    problem, _ = quadratic([1.0, -3.0, *(0.1 * i for i in range(n - 2))])
    eigenvalue, _ = found(problem, start, 80)
    yield "a negative eigenvalue that is largest in magnitude keeps its sign", round(eigenvalue, 4)
    params = [part.abs().add(0.5).requires_grad_() for part in two(random(n))]
    cubic = sum((p**3).sum() for p in params) / 6 + params[0].sum() * params[1].sum()
    yield "a loss that is not quadratic: the Hessian at these weights", answer(cubic, params, start, 4)
    problem, _ = quadratic([4.0, 3.9, *(0.1 * i for i in range(n - 2))])
    yield "by default 20 products", found(problem, start)
