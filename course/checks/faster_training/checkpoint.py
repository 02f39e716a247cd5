"""Probe of exercise checkpoint."""

from collections.abc import Callable

import torch
from torch import nn
from torch.autograd.graph import saved_tensors_hooks
from torch.nn import functional as F

from course.engine.exercise import Answer, Facts, exercise
from course.engine.probing.laws import tried
from course.engine.probing.tensors import storage


class Block(nn.Module):
    """Two linear maps with tanh and dropout between them.

    Notes whether each call built a graph, and the dtype in which it computed.
    """

    def __init__(
        self, rng: torch.Generator, device: torch.device, width: int, dropout: float = 0.0
    ) -> None:
        super().__init__()
        self.first = nn.Linear(width, width, device=device)
        self.second = nn.Linear(width, width, device=device)
        self.dropout = dropout
        self.graphs = []
        self.dtypes = []
        for parameter in self.parameters():
            parameter.data.copy_(torch.randn(parameter.shape, generator=rng) / width**0.5)

    def forward(self, x: torch.Tensor, *chosen: torch.Tensor) -> torch.Tensor:
        """The outputs of all rows, or of those that `chosen`, one int64 tensor, names."""
        self.graphs.append(torch.is_grad_enabled())
        hidden = F.dropout(self.first(x).tanh(), self.dropout)
        self.dtypes.append(hidden.dtype)
        out = self.second(hidden)
        return out[chosen[0]] if chosen else out

    def grads(self) -> dict[str, torch.Tensor | None]:
        """{parameter: its gradient}."""
        return {name: p.grad for name, p in self.named_parameters()}


Fresh = Callable[..., tuple[Block, torch.Tensor]]  # a new block, and its input


@exercise(forbids=("torch.utils.checkpoint",))
def checkpoint(answer: Answer, device: torch.device, seed: int) -> Facts:
    """A block that keeps its inputs alone and is computed again for its gradients."""
    width = 6 + seed % 4
    rng = torch.Generator().manual_seed(seed)
    values = torch.randn(5, width, generator=rng).to(device)
    # of a loss that is linear in what the block returns
    weights = torch.randn(5, width, generator=rng).to(device)

    def fresh(dropout: float = 0.0, needs: bool = True) -> tuple[Block, torch.Tensor]:
        torch.manual_seed(100 + seed)
        block = Block(torch.Generator().manual_seed(seed), device, width, dropout)
        return block, values.clone().requires_grad_(needs)

    yield from _one_block(answer, *fresh(), weights)
    block, x = fresh()
    (answer(block, x * 2) * weights).sum().backward()
    yield "inside a larger graph: the gradient of what comes before", x.grad
    yield from _dropout(answer, *fresh(dropout=0.5), weights)
    yield from _autocast(answer, fresh, weights)
    yield from _without_gradient(answer, fresh, weights)
    block, x = fresh()
    (answer(block, answer(block, x * 2)) * weights + x).sum().backward()
    yield "two in a row: the gradient of the input", x.grad
    yield "two in a row: the gradients of the parameters add up", block.grads()


def _one_block(answer: Answer, block: Block, x: torch.Tensor, weights: torch.Tensor) -> Facts:
    """What is kept and run in the forward pass and in the backward pass."""
    kept = []

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        kept.append(tensor)
        return tensor

    with saved_tensors_hooks(keep, lambda tensor: tensor):
        out = answer(block, x)
    own = set(map(storage, (x, *block.parameters())))
    yield "returns what the block returns", out.detach()
    yield "the result requires a gradient", out.requires_grad
    yield "forward: the block runs once, without a graph", list(block.graphs)
    only_own = set(map(storage, kept)) <= own
    fact = "of the block, inputs and parameters alone are kept"
    yield fact, tried(only_own, x.detach())
    (out * weights).sum().backward()
    yield "the gradient of the input", x.grad
    yield "the gradients of the parameters", block.grads()
    yield "backward: the block runs once more, with a graph", list(block.graphs)


def _dropout(answer: Answer, block: Block, x: torch.Tensor, weights: torch.Tensor) -> Facts:
    """Facts about the random numbers of a block that drops half of its hidden values."""
    out = answer(block, x)
    torch.rand(7)
    torch.rand(3, device=x.device)
    (out * weights).sum().backward()
    after = torch.rand(4), torch.rand(4, device=x.device)
    yield "dropout: backward uses the mask of forward (gradient of the input)", x.grad
    yield "dropout: backward uses the mask of forward (parameters)", block.grads()
    yield "backward leaves the random numbers of the rest of the program alone", after


def _autocast(answer: Answer, fresh: Fresh, weights: torch.Tensor) -> Facts:
    """Facts about a forward pass under autocast, whose backward runs outside, and the reverse."""
    block, x = fresh()
    with torch.autocast(x.device.type, torch.bfloat16):
        out = answer(block, x)
    (out * weights).sum().backward()
    yield "forward under autocast: dtypes of both runs", list(map(str, block.dtypes))
    yield "forward under autocast: the gradient of the input", x.grad
    yield "forward under autocast: the gradients of the parameters", block.grads()
    block, x = fresh()
    out = answer(block, x)
    with torch.autocast(x.device.type, torch.bfloat16):
        (out * weights).sum().backward()
    yield "backward alone under autocast: dtypes of both runs", list(map(str, block.dtypes))


def _without_gradient(answer: Answer, fresh: Fresh, weights: torch.Tensor) -> Facts:
    """Facts about inputs and parameters that need no gradient."""
    block, x = fresh(needs=False)
    (answer(block, x) * weights).sum().backward()
    yield "an input that needs no gradient: the parameters get theirs", block.grads()
    block, x = fresh()
    rows = torch.tensor([4, 0, 2], device=x.device)
    (answer(block, x, rows) * weights[:3]).sum().backward()
    yield "a second input, of integers: the gradient of the first", x.grad
    block, x = fresh()
    block.first.weight.requires_grad_(False)
    block.unused = nn.Parameter(torch.ones(2, device=x.device))
    (answer(block, x) * weights).sum().backward()
    fact = "a parameter that is frozen or that the block does not use: None, "
    fact += "and the others get theirs"
    yield fact, block.grads()
