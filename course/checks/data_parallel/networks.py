"""Small models for checks of DDP and of training loops: weights, batches, steps, gradients."""

from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

from course.engine.probing.cpus import same_on_every_cpu

STEPS = 5


class Net(nn.Module):
    """A small float64 model with weights, a scalar, frozen parameters and buffers.

    That is all that a wrapper must send.
    """

    def __init__(self, seed: int) -> None:
        super().__init__()
        torch.manual_seed(seed)
        self.conv = nn.Conv1d(1, 3, 3, padding=1)
        self.scale = nn.Parameter(torch.randn(()))
        self.frozen = nn.Linear(18, 18).requires_grad_(False)
        self.head = nn.Linear(18, 2)
        self.register_buffer("shift", torch.randn(18))
        self.register_buffer("version", torch.tensor(seed))
        self.register_buffer("table", torch.randn(2), persistent=False)
        self.double()
        same_on_every_cpu(self)

    def forward(self, inputs: torch.Tensor, gain: float = 1.0) -> torch.Tensor:
        """(n, 6) -> (n, 2)."""
        hidden = torch.tanh(self.conv(inputs.unsqueeze(1)).flatten(1) + self.shift)
        return gain * self.head(torch.tanh(self.frozen(hidden * self.scale))) + self.table


class Tied(nn.Module):
    """Two layers that share their weight."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        torch.manual_seed(seed)
        self.encoder = nn.Linear(6, 6).double()
        self.decoder = nn.Linear(6, 6).double()
        self.decoder.weight = self.encoder.weight
        same_on_every_cpu(self)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        """(n, 6) -> (n, 6)."""
        return self.decoder(torch.tanh(self.encoder(inputs)))


class Branches(nn.Module):
    """Layers a, b, c and d of one size; each call uses those that it names, in that order."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        torch.manual_seed(seed)
        self.layers = nn.ModuleDict({name: nn.Linear(6, 6).double() for name in "abcd"})
        same_on_every_cpu(self)

    def forward(self, inputs: torch.Tensor, names: Iterable[str]) -> torch.Tensor:
        """(n, 6) -> (n, 6)."""
        for name in names:
            inputs = torch.tanh(self.layers[name](inputs))
        return inputs


def batches_of(rank: int, seed: int, outputs: int = 2) -> list[list[torch.Tensor]]:
    """STEPS batches of a rank: inputs (4, 6) and targets (4, outputs), float64."""
    rng = torch.Generator().manual_seed(1000 * seed + rank)
    batches = []
    for _ in range(STEPS):
        inputs = torch.randn(4, 6, generator=rng, dtype=torch.float64)
        targets = torch.randn(4, outputs, generator=rng, dtype=torch.float64)
        batches.append([inputs, targets])
    return batches


def backward(model: nn.Module, batch: Sequence[torch.Tensor], *args: Any) -> None:
    """Run forward and backward on a batch, then `average_gradients` where the wrapper has one.

    Args:
        args: further arguments of the model.
    """
    inputs, targets = batch
    F.mse_loss(model(inputs, *args), targets).backward()
    getattr(model, "average_gradients", lambda: None)()


def trained(
    model: nn.Module,
    module: nn.Module,
    batches: Iterable[Sequence[torch.Tensor]],
    set_to_none: bool = True,
) -> torch.Tensor:
    """The parameters of `module` in one vector after SGD with momentum on `model`.

    Args:
        model: the module itself, or what wraps it.
    """
    optimizer = torch.optim.SGD(module.parameters(), lr=0.1, momentum=0.9)
    for batch in batches:
        optimizer.zero_grad(set_to_none=set_to_none)
        backward(model, batch)
        optimizer.step()
    return as_vector(module.parameters())


def as_vector(tensors: Iterable[torch.Tensor]) -> torch.Tensor:
    """All values of some tensors behind one another, float64."""
    return torch.cat([t.detach().flatten().double() for t in tensors])


def gradients(module: nn.Module) -> dict[str, torch.Tensor | None]:
    """{name: gradient or None} of the trainable parameters."""
    return {name: p.grad for name, p in module.named_parameters() if p.requires_grad}


def copied(gradients: dict[str, torch.Tensor | None]) -> dict[str, torch.Tensor | None]:
    """`gradients` as they are now."""
    copies = {}
    for name, gradient in gradients.items():
        copies[name] = None if gradient is None else gradient.clone()
    return copies


def classifier(seed: int) -> nn.Sequential:
    """A small float32 classifier of vectors (n, 4) in three classes."""
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 3))


def micro_batches(
    rng: torch.Generator, sizes: Iterable[int], device: torch.device | str
) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """Batches (inputs, labels) for `classifier`, of these sizes."""
    batches = []
    for n in sizes:
        inputs = torch.randn(n, 4, generator=rng).to(device)
        labels = torch.randint(3, (n,), generator=rng).to(device)
        batches.append((inputs, labels))
    return batches


def weights_of(model: nn.Module) -> list[torch.Tensor]:
    """Copies of the model's parameters, on the CPU."""
    return [p.detach().cpu().clone() for p in model.parameters()]


def all_close(these: Sequence[torch.Tensor], those: Sequence[torch.Tensor]) -> bool:
    """True if two lists of float32 tensors are the same but for rounding."""
    pairs = zip(these, those, strict=True)
    return all(torch.allclose(a, b, rtol=1e-4, atol=1e-5) for a, b in pairs)
