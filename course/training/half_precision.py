"""Training in 16 bits, for the core of part 4 of unit 03.

Two of its extra exercises ask for more of the same.
"""

from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional as F

# the flags of /proc/cpuinfo: x86 of 2020 and of 2023, and Arm
BF16_FLAGS = ("avx512_bf16", "amx_bf16", "bf16")


def bf16_instructions() -> list[str]:
    """The names of this CPU's instructions that multiply bfloat16, as Linux lists them."""
    try:
        words = set(Path("/proc/cpuinfo").read_text().split())
    except OSError:  # not Linux
        return []
    return [flag for flag in BF16_FLAGS if flag in words]


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
