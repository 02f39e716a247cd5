"""Probe of exercise neumf_forward."""

import torch
from torch.nn import functional as F

from course.engine.exercise import Answer, Facts, exercise
from course.engine.probing.tensors import form


@exercise(forbids=("course.training.models.NeuMF",))
def neumf_forward(answer: Answer, device: torch.device, seed: int) -> Facts:
    """The logits of NeuMF, and their gradients."""
    rng = torch.Generator().manual_seed(seed)
    n_users, n_items, n = 11 + seed % 4, 13 + seed % 3, 20 + seed % 6
    factors = 3 + seed % 3
    # the last user and item never occur
    users = torch.randint(n_users - 1, (n,), generator=rng).to(device)
    items = torch.randint(n_items - 1, (n,), generator=rng).to(device)

    def make(layers, dtype=torch.float32):
        def normal(*shape):
            return torch.randn(shape, generator=rng, dtype=torch.float64).to(device, dtype)

        outputs = layers[1:]
        half = layers[0] // 2
        return {
            "gmf_user": normal(n_users, factors),
            "gmf_item": normal(n_items, factors),
            "mlp_user": normal(n_users, half),
            "mlp_item": normal(n_items, half),
            "mlp": [
                (normal(o, i) / i**0.5, normal(o)) for i, o in zip(layers, outputs, strict=False)
            ],
            "output": (normal(1, factors + layers[-1]), normal(1)),
        }

    weights = make([8, 6, 4])
    weight, bias = weights["output"]
    logits = answer(weights, users, items)
    yield "returns one number for each pair, in the dtype of the weights", form(logits)
    silent = torch.ones_like(weight)
    silent[:, factors:] = 0
    for half, other, kept in (("GMF", "MLP", silent), ("MLP", "GMF", 1 - silent)):
        found = answer(weights | {"output": (weight * kept, bias)}, users, items)
        yield f"the {half} half, with the output weights of the {other} half set to 0", found
    yield "both halves together", logits
    yield "an MLP of a single layer", answer(make([10, 5]), users, items)
    yield "an MLP of four layers", answer(make([12, 9, 7, 6, 5]), users, items)
    yield (
        "float64 weights give float64 logits",
        answer(make([8, 6, 4], torch.float64), users, items),
    )
    yield "a batch of one pair gives shape (1,)", answer(weights, users[:1], items[:1]).shape
    names = ("gmf_user", "gmf_item", "mlp_user", "mlp_item")
    tables = [weights[name].requires_grad_() for name in names]
    layers = [t.requires_grad_() for layer in (*weights["mlp"], weights["output"]) for t in layer]
    labels = torch.randint(2, (n,), generator=rng).to(device, torch.float32)
    logits = answer(weights, users, items).reshape(-1)
    yield "autograd can follow the logits back to the weights", logits.requires_grad
    if logits.requires_grad:
        loss = F.binary_cross_entropy_with_logits(logits, labels)
        grads = torch.autograd.grad(loss, tables + layers, materialize_grads=True)
    else:
        grads = [torch.zeros_like(t) for t in tables + layers]
    yield "the gradients of the four embedding tables", dict(zip(names, grads[:4], strict=True))
    names = [
        f"{t} of {layer}"
        for layer in ("MLP layer 1", "MLP layer 2", "the output layer")
        for t in "Wb"
    ]
    yield "the gradients of the layers", dict(zip(names, grads[4:], strict=True))
