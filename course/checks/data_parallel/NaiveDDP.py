"""Probe of exercise NaiveDDP."""

import torch
from torch.nn import functional as F

from course.checks.data_parallel.networks import Net, backward, batches_of, copied, gradients
from course.checks.data_parallel.wrappers import wrapper_facts
from course.engine.exercise import Answer, Facts, exercise
from course.engine.probing.laws import tried


def _frozen_later(rank: int, world_size: int, answer: Answer, seed: int) -> dict[str, object]:
    """Facts of a rank about two backward passes before one average, and a layer frozen later."""
    module = Net(seed + rank)
    mine = batches_of(rank, seed)
    model = answer(module)
    facts = {}
    for inputs, targets in mine[:2]:
        F.mse_loss(model(inputs), targets).backward()
    model.average_gradients()
    facts["two backward passes, then one average"] = copied(gradients(module))
    module.zero_grad()
    module.head.requires_grad_(False)
    backward(model, mine[0])
    without_gradient = [p.grad is None for p in module.head.parameters()]
    facts["what is frozen later has no gradient either"] = tried(
        all(without_gradient), float(mine[0][0][0, 0])
    )
    return facts


@exercise(forbids=("torch.nn.parallel.DistributedDataParallel",))
def NaiveDDP(answer: Answer, device: torch.device, seed: int) -> Facts:
    """Two and three ranks with models that differ until they are wrapped."""
    yield from wrapper_facts(answer, seed, _frozen_later)
