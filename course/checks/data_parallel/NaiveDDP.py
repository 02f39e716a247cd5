"""Probe of exercise NaiveDDP."""

import itertools

from torch.nn import functional as F

from course.checks.data_parallel.shared import _backward, _batches, _close, _Net, _trainable_gradients, _wrapped
from course.checks.engine import exercise


def _frozen_later(rank, world_size, answer, seed):
    """Facts of a rank about several backward passes before one average, and parameters frozen in between."""
    whole, mine = _batches(rank, world_size, seed)
    module, alone = _Net(seed + rank), _Net(seed)
    model = answer(module)
    for batch, both in zip(mine[:2], whole[:2], strict=True):
        F.mse_loss(model(batch[0]), batch[1]).backward()
        _backward(alone, both)
    model.average_gradients()
    facts = {"two backward passes, then one average": _trainable_gradients(module)}
    pairs = zip(_trainable_gradients(module).values(), _trainable_gradients(alone).values(), strict=True)
    facts["one process with the whole batches gets the same"] = all(itertools.starmap(_close, pairs))
    module.zero_grad()
    module.head.requires_grad_(False)
    _backward(model, mine[0])
    facts["what is frozen later has no gradient either"] = [p.grad is None for p in module.head.parameters()]
    return facts


@exercise(forbids=("torch.nn.parallel.DistributedDataParallel",))
def NaiveDDP(answer, device, seed):
    """Two and three ranks with models that differ until they are wrapped."""
    yield from _wrapped(answer, seed, _frozen_later)
