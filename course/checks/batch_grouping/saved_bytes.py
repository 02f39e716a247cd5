"""Probe of exercise saved_bytes."""

import torch

from course.checks.engine import exercise
from course.checks.probing.travelling import travels


@exercise(isolated=True)
def saved_bytes(answer, device, seed):
    """Bytes that autograd keeps for backward."""
    n = 16 + seed % 7
    a = torch.randn(n, n).to(device).requires_grad_()
    b = torch.randn(n, n).to(device).requires_grad_()
    yield "returns a whole number", type(answer(travels(lambda: a * b))).__name__
    yield "a product keeps both factors", answer(travels(lambda: a * b))
    yield "a sum keeps nothing", answer(travels(lambda: a + b))
    yield "what is saved twice counts once", answer(travels(lambda: a.exp() + a * a))
    yield "views of one storage count once, and whole", answer(travels(lambda: a[:, :3] * a[:, 3:6]))
    yield "tensors in `known` do not count", answer(travels(lambda: a @ b), known=(b,))
    yield "a known tensor that is not saved takes nothing away", answer(travels(lambda: a + b), known=(a,))
    yield "a storage is known by any view of it", answer(travels(lambda: a @ b), known=(b[3:],))
    yield "nor do views of them", answer(travels(lambda: a @ b.T), known=(b,))
    yield "float64 takes twice the bytes", answer(travels(lambda: (a.double() * 1.5).sin()))
    yield "without gradients nothing is kept", answer(travels(lambda: a.detach() * b.detach()))
    seen = []
    answer(lambda: seen.append(1) or a * b)
    yield "the call is made once", len(seen)
    products = []

    def keep(product):
        products.append(product)

    answer(travels(lambda: keep(product := (a * b).sum()) or product), known=(a,))
    products[0].backward()
    yield "backward still works afterwards", a.grad
