"""Probe of exercise NaiveDDP."""

from torch.nn import functional as F

from course.checks.data_parallel.networks import Net, backward, batches_of, gradients, same_gradients
from course.checks.data_parallel.wrappers import wrapper_facts
from course.checks.engine import exercise


def _frozen_later(rank, world_size, answer, seed):
    """Facts of a rank about several backward passes before one average, and parameters frozen in between."""
    whole, mine = batches_of(rank, world_size, seed)
    module, alone = Net(seed + rank), Net(seed)
    model = answer(module)
    for batch, both in zip(mine[:2], whole[:2], strict=True):
        F.mse_loss(model(batch[0]), batch[1]).backward()
        backward(alone, both)
    model.average_gradients()
    facts = {"two backward passes, then one average": gradients(module)}
    facts["one process with the whole batches gets the same"] = same_gradients(module, alone)
    module.zero_grad()
    module.head.requires_grad_(False)
    backward(model, mine[0])
    facts["what is frozen later has no gradient either"] = [p.grad is None for p in module.head.parameters()]
    return facts


@exercise(forbids=("torch.nn.parallel.DistributedDataParallel",))
def NaiveDDP(answer, device, seed):
    """Two and three ranks with models that differ until they are wrapped."""
    yield from wrapper_facts(answer, seed, _frozen_later)
