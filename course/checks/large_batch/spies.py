"""Spies on a training step: a model, an optimizer and batches for them.

The model and the optimizer write down what a step does with them.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch.nn import functional as F

from course.engine.probing.tensors import form


class CountingSGD(torch.optim.SGD):
    """SGD that counts its steps."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.steps = 0

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Count the step and make it."""
        self.steps += 1
        return super().step(closure)


class SpyModel(torch.nn.Module):
    """A small recommender that writes down how it was called.

    Per forward pass: `rows`, `batches` (users, items), `autocast`, its `dtypes`, and `fed`: had
    each earlier pass its backward pass? Per backward pass: `backward_autocast`, `slopes` (of the
    logits). With `inf`, gradients overflow. One parameter, `unused`, has no part in the logits.
    """

    def __init__(
        self,
        rng: torch.Generator,
        device: torch.device,
        n_users: int = 9,
        n_items: int = 8,
        inf: bool = False,
    ) -> None:
        super().__init__()

        def random(*shape: int) -> torch.nn.Parameter:
            return torch.nn.Parameter(torch.randn(shape, generator=rng).to(device))

        self.user = random(n_users, 4)
        self.item = random(n_items, 4)
        self.mix = random(5, 8)
        self.unused = random(3)
        self.kind = device.type
        self.inf = inf
        self.rows = []
        self.batches = []
        self.autocast = []
        self.dtypes = []
        self.fed = []
        self.backward_autocast = []
        self.slopes = []

    def forward(self, users: torch.Tensor, items: torch.Tensor) -> torch.Tensor:
        """The logits (n,) of pairs of users and items (n,), while notes are taken."""
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

    def _note_backward(self, slope: torch.Tensor) -> torch.Tensor | None:
        self.backward_autocast.append(torch.is_autocast_enabled(self.kind))
        self.slopes.append(slope.detach().float())
        return slope * float("inf") if self.inf else None

    def used_parameters(self) -> dict[str, torch.Tensor]:
        """The parameters that have a part in the logits, under names."""
        return {f"model.{name}": getattr(self, name).detach() for name in ("user", "item", "mix")}

    def leave_stale_gradients(self) -> None:
        """Set the gradient of every parameter, as an earlier batch might have left it."""
        for parameter in self.parameters():
            parameter.grad = torch.full_like(parameter, 3.0)


def random_batch(
    rng: torch.Generator, device: torch.device, n: int
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """(users, items, labels) of n rows for a SpyModel."""
    users = torch.randint(9, (n,), generator=rng)
    items = torch.randint(8, (n,), generator=rng)
    labels = torch.rand(n, generator=rng).round()
    return users.to(device), items.to(device), labels.to(device)


def loss_kind(result: Any) -> dict[str, Any]:
    """What a returned loss is, without its value."""
    if not isinstance(result, torch.Tensor):
        names = ("type", "dtype", "shape", "device", "requires_grad")
        return dict.fromkeys(names, type(result).__name__)
    return {"type": "Tensor"} | form(result) | {"requires_grad": result.requires_grad}
