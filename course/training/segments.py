"""A stack of equal blocks, cut into segments that a checkpoint may run twice.

Used by unit 06, part 4. The checkpoint and the counter of bytes come from outside: a learner wrote
them.
"""

from collections.abc import Callable

import torch
from torch import Tensor, nn

Checkpoint = Callable[..., Tensor]  # (block, *inputs) -> what block(*inputs) returns
SavedBytes = Callable[[Callable[[], object], nn.Module], int]


class Segment(nn.Sequential):
    """Blocks in a row.

    While `count`, a SavedBytes, is set, `kept` gets what each run with a graph keeps for backward.
    """

    def __init__(self, *blocks: nn.Module):
        super().__init__(*blocks)
        self.count = None
        self.kept = []

    def forward(self, x: Tensor) -> Tensor:
        if self.count is None or not torch.is_grad_enabled():
            return super().forward(x)
        out = []
        call = super().forward
        self.kept.append(self.count(lambda: out.append(call(x)), self))
        return out[0]


class Stack(nn.Module):
    """`n_blocks` blocks of a linear map, LayerNorm, GELU and dropout, in so many `segments`.

    model(x, checkpoint), float32 (n, width) -> their mean, a scalar in place of a loss, which keeps
    nothing itself. Each Stack of the same sizes has the same weights.
    """

    def __init__(self, n_blocks: int, width: int, segments: int, dropout: float = 0.1):
        super().__init__()
        torch.manual_seed(0)
        blocks = []
        for _ in range(n_blocks):
            layers = nn.Linear(width, width), nn.LayerNorm(width), nn.GELU(), nn.Dropout(dropout)
            blocks.append(nn.Sequential(*layers))
        self.segments = nn.ModuleList()
        for piece in torch.arange(n_blocks).tensor_split(segments):
            self.segments.append(Segment(*(blocks[i] for i in piece)))

    def forward(self, x: Tensor, checkpoint: Checkpoint | None = None) -> Tensor:
        for segment in self.segments:
            x = checkpoint(segment, x) if checkpoint else segment(x)
        return x.mean()

    def step(self, x: Tensor, checkpoint: Checkpoint | None = None) -> None:
        """A training step without the optimizer."""
        self.zero_grad()
        self(x, checkpoint).backward()


def first_run(model: Stack, x: Tensor) -> Tensor:
    """The forward pass that checkpointing adds to a step: no graph is kept."""
    with torch.no_grad():
        return model(x)


def gradients(
    model: Stack,
    x: Tensor,
    checkpoint: Checkpoint | None = None,
    seed: int = 0,
    half: bool = False,
) -> Tensor:
    """All gradients of one step as one vector.

    Args:
        seed: draws the masks of dropout.
        half: whether the forward pass runs under autocast to bfloat16; backward runs outside.
    """
    model.zero_grad()
    torch.manual_seed(seed)
    with torch.autocast(x.device.type, torch.bfloat16, enabled=half):
        loss = model(x, checkpoint)
    loss.backward()
    return torch.cat([parameter.grad.flatten() for parameter in model.parameters()])


def relative_difference(gradient: Tensor, truth: Tensor) -> float:
    """The norm of the difference of two vectors over the norm of the second."""
    return float((gradient - truth).norm() / truth.norm())


def peak_bytes(model: Stack, x: Tensor, checkpoint: Checkpoint, saved_bytes: SavedBytes) -> int:
    """Most bytes kept simultaneously in a checkpointed step.

    That is what the forward pass leaves, and what the segment adds that backward runs first.
    """
    left = []
    after_forward = saved_bytes(lambda: left.append(model(x, checkpoint)), model)
    last = model.segments[-1]
    last.count = saved_bytes
    left[0].backward()
    last.count = None
    input_bytes = x.numel() * x.element_size()  # was among what forward left
    return after_forward + last.kept.pop() - input_bytes
