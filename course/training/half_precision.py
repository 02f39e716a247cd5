"""Training in 16 bits, for the core of part 4 of unit 03.

Two of its extra exercises ask for more of the same.
"""

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F


def lost_in_fp16(tensors: Sequence[Tensor]) -> float:
    """Percent of the non-zero values of `tensors` that a cast to fp16 makes zero."""
    before = 0
    after = 0
    for tensor in tensors:
        before += int(tensor.count_nonzero())
        after += int(tensor.half().count_nonzero())
    return 100 * (before - after) / max(before, 1)


def bf16_step(
    model: nn.Module,
    users: Tensor,
    items: Tensor,
    labels: Tensor,
    optimizer: torch.optim.Optimizer,
) -> Tensor:
    """The training step of `recommender_loop`, with the model under autocast to bfloat16."""
    optimizer.zero_grad()
    with torch.autocast(users.device.type, torch.bfloat16):
        outputs = model(users, items)
    mean_loss = F.binary_cross_entropy_with_logits(outputs.float(), labels)
    mean_loss.backward()
    optimizer.step()
    return mean_loss.detach()
