"""A model and an optimizer that write down what a training step does with them, and the batches
they are given.
"""

import torch
from torch.nn import functional as F

from course.engine.probing.tensors import form


class CountingSGD(torch.optim.SGD):
    """SGD that counts its steps."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.steps = 0

    def step(self, closure=None):
        self.steps += 1
        return super().step(closure)


class SpyModel(torch.nn.Module):
    """A small recommender that writes down how it was called; one parameter, `unused`, has no part
    in the logits.

    Per forward pass: `rows`, `batches` (users, items), `autocast`, its `dtypes`, and `fed`: had
    each earlier pass its backward pass? Per backward pass: `backward_autocast`, `slopes` (of the
    logits). With `inf`, gradients overflow.
    """

    def __init__(self, rng, device, n_users=9, n_items=8, inf=False):
        super().__init__()

        def random(*shape):
            return torch.nn.Parameter(torch.randn(shape, generator=rng).to(device))

        self.user, self.item, self.mix, self.unused = (
            random(n_users, 4),
            random(n_items, 4),
            random(5, 8),
            random(3),
        )
        self.kind, self.inf = device.type, inf
        self.rows, self.batches, self.autocast, self.dtypes, self.fed = [], [], [], [], []
        self.backward_autocast, self.slopes = [], []

    def forward(self, users, items):
        self.rows.append(len(users))
        self.batches.append(torch.stack((users, items)))
        self.autocast.append(torch.is_autocast_enabled(self.kind))
        self.dtypes.append(str(torch.get_autocast_dtype(self.kind)))
        self.fed.append(len(self.slopes) == len(self.rows) - 1)
        x = torch.cat((self.user[users], self.item[items]), 1)
        logits = F.linear(x, self.mix).relu().sum(1) - 1.0
        if logits.requires_grad:
            logits.register_hook(self._note_backward)
        return logits

    def _note_backward(self, slope):
        self.backward_autocast.append(torch.is_autocast_enabled(self.kind))
        self.slopes.append(slope.detach().float())
        return slope * float("inf") if self.inf else None

    def used_parameters(self):
        """The parameters that have a part in the logits, under names."""
        return {f"model.{name}": getattr(self, name).detach() for name in ("user", "item", "mix")}

    def leave_stale_gradients(self):
        """Set the gradient of every parameter, as an earlier batch might have left it."""
        for p in self.parameters():
            p.grad = torch.full_like(p, 3.0)


def random_batch(rng, device, n):
    """(users, items, labels) of n rows for a SpyModel."""
    users, items = torch.randint(9, (n,), generator=rng), torch.randint(8, (n,), generator=rng)
    labels = torch.rand(n, generator=rng).round()
    return users.to(device), items.to(device), labels.to(device)


def loss_kind(result):
    """What a returned loss is, without its value."""
    if not isinstance(result, torch.Tensor):
        return dict.fromkeys(
            ("type", "dtype", "shape", "device", "requires_grad"), type(result).__name__
        )
    return {"type": "Tensor"} | form(result) | {"requires_grad": result.requires_grad}
