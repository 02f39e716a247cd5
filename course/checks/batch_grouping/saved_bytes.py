"""Probe of exercise saved_bytes."""

import torch

from course.checks.engine import exercise


@exercise()
def saved_bytes(answer, device, seed):
    """Bytes that autograd keeps for backward."""
    n = 16 + seed % 7
    a = torch.randn(n, n).to(device).requires_grad_()
    b = torch.randn(n, n).to(device).requires_grad_()
    yield "returns a whole number", type(answer(lambda: a * b)).__name__
    yield "a product keeps both factors", answer(lambda: a * b)
    yield "a sum keeps nothing", answer(lambda: a + b)
    yield "what is saved twice counts once", answer(lambda: a.exp() + a * a)
    yield "views of one storage count once, and whole", answer(lambda: a[:, :3] * a[:, 3:6])
    yield "tensors in `known` do not count", answer(lambda: a @ b, known=(b,))
    yield "a known tensor that is not saved takes nothing away", answer(lambda: a + b, known=(a,))
    yield "a storage is known by any view of it", answer(lambda: a @ b, known=(b[3:],))
    yield "nor do views of them", answer(lambda: a @ b.T, known=(b,))
    # malloc puts the first few that are freed aside: of 99, some address comes again
    freed = answer(lambda: [(a * 2).sin().sum().item() for _ in range(99)])
    yield "what is freed before the call ends counts, too", freed >= 99 * a.nbytes
    yield "float64 takes twice the bytes", answer(lambda: (a.double() * 1.5).sin())
    yield "without gradients nothing is kept", answer(lambda: a.detach() * b.detach())
    seen = []
    answer(lambda: seen.append(1) or a * b)
    yield "the call is made once", len(seen)
    products = []

    def keep(product):
        products.append(product)

    answer(lambda: keep(product := (a * b).sum()) or product, known=(a,))
    products[0].backward()
    yield "backward still works afterwards", a.grad
