"""Training in 16 bits, for the core of part 4 of unit 03; two of its extra exercises ask for more
of the same.
"""

import torch
from torch.nn import functional as F


def lost_in_fp16(tensors):
    """Percent of the non-zero values of `tensors` that a cast to fp16 makes zero."""
    before, after = (
        sum(int(t.count_nonzero()) for t in of) for of in (tensors, [t.half() for t in tensors])
    )
    return 100 * (before - after) / max(before, 1)


def bf16_step(model, users, items, labels, optimizer):
    """The training step of `recommender_loop`, with the model under autocast to bfloat16."""
    optimizer.zero_grad()
    with torch.autocast(users.device.type, torch.bfloat16):
        outputs = model(users, items)
    mean_loss = F.binary_cross_entropy_with_logits(outputs.float(), labels)
    mean_loss.backward()
    optimizer.step()
    return mean_loss.detach()
