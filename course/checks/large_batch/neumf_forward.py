"""Probe of exercise neumf_forward."""

from typing import Any

import torch
from torch.nn import functional as F

from course.engine.exercise import Answer, Facts, exercise
from course.engine.probing.laws import tried
from course.engine.probing.tensors import form

TABLES = ("gmf_user", "gmf_item", "mlp_user", "mlp_item")


@exercise(forbids=("course.training.models.NeuMF",))
def neumf_forward(answer: Answer, device: torch.device, seed: int) -> Facts:
    """The logits of NeuMF, and their gradients."""
    rng = torch.Generator().manual_seed(seed)
    n_users = 11 + seed % 4
    n_items = 13 + seed % 3
    n = 20 + seed % 6
    factors = 3 + seed % 3
    # the last user and item never occur
    users = torch.randint(n_users - 1, (n,), generator=rng).to(device)
    items = torch.randint(n_items - 1, (n,), generator=rng).to(device)

    def make(sizes: list[int], dtype: torch.dtype = torch.float32) -> dict[str, Any]:
        """Drawn weights of a NeuMF whose MLP has layers of these sizes."""

        def normal(*shape: int) -> torch.Tensor:
            return torch.randn(shape, generator=rng, dtype=torch.float64).to(device, dtype)

        half = sizes[0] // 2
        weights = {
            "gmf_user": normal(n_users, factors),
            "gmf_item": normal(n_items, factors),
            "mlp_user": normal(n_users, half),
            "mlp_item": normal(n_items, half),
            "mlp": [],
        }
        for inputs, outputs in zip(sizes, sizes[1:], strict=False):
            weights["mlp"].append((normal(outputs, inputs) / inputs**0.5, normal(outputs)))
        weights["output"] = (normal(1, factors + sizes[-1]), normal(1))
        return weights

    weights = make([8, 6, 4])
    logits = answer(weights, users, items)
    yield "returns one number for each pair, in the dtype of the weights", form(logits)
    yield from _halves(answer, weights, users, items, factors)
    yield "both halves together", logits
    yield "an MLP of a single layer", answer(make([10, 5]), users, items)
    yield "an MLP of four layers", answer(make([12, 9, 7, 6, 5]), users, items)
    double = answer(make([8, 6, 4], torch.float64), users, items)
    yield "float64 weights give float64 logits", double
    of_one = answer(weights, users[:1], items[:1])
    yield "a batch of one pair gives shape (1,)", tried(of_one.shape, n)
    labels = torch.randint(2, (n,), generator=rng).to(device, torch.float32)
    yield from _gradients(answer, weights, users, items, labels)


def _halves(
    answer: Answer,
    weights: dict[str, Any],
    users: torch.Tensor,
    items: torch.Tensor,
    factors: int,
) -> Facts:
    """GMF and MLP, each with the output weights of the other set to 0."""
    weight, bias = weights["output"]
    keeps_gmf = torch.ones_like(weight)
    keeps_gmf[:, factors:] = 0
    for half, other, kept in (("GMF", "MLP", keeps_gmf), ("MLP", "GMF", 1 - keeps_gmf)):
        found = answer(weights | {"output": (weight * kept, bias)}, users, items)
        yield f"the {half} half, with the output weights of the {other} half set to 0", found


def _gradients(
    answer: Answer,
    weights: dict[str, Any],
    users: torch.Tensor,
    items: torch.Tensor,
    labels: torch.Tensor,
) -> Facts:
    """Gradients of the loss; zeros for an answer whose logits have none."""
    tables = [weights[name].requires_grad_() for name in TABLES]
    layers = []
    for weight, bias in (*weights["mlp"], weights["output"]):
        layers += [weight.requires_grad_(), bias.requires_grad_()]
    logits = answer(weights, users, items).reshape(-1)
    yield "autograd can follow the logits back to the weights", logits.requires_grad
    if logits.requires_grad:
        loss = F.binary_cross_entropy_with_logits(logits, labels)
        grads = torch.autograd.grad(loss, tables + layers, materialize_grads=True)
    else:
        grads = [torch.zeros_like(tensor) for tensor in tables + layers]
    yield "the gradients of the four embedding tables", dict(zip(TABLES, grads[:4], strict=True))
    names = []
    for layer in ("MLP layer 1", "MLP layer 2", "the output layer"):
        names += [f"W of {layer}", f"b of {layer}"]
    yield "the gradients of the layers", dict(zip(names, grads[4:], strict=True))
