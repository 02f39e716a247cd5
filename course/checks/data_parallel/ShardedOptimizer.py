"""Probe of exercise ShardedOptimizer."""

from functools import partial

import torch

from course.checks.data_parallel.ranks import FREE, HANG, import_compiler, together
from course.checks.data_parallel.shards import halves
from course.engine.exercise import Answer, Facts, exercise
from course.parallel.network import simulate

STEPS = 3


@exercise(returns_no_number=True)
def ShardedOptimizer(answer: Answer, device: torch.device, seed: int) -> Facts:
    """Steps with a part of the optimizer per rank: weights, what is sent, what the optimizer
    keeps.
    """
    import_compiler()
    for n in (2, 4):
        for fact, values in together(simulate(_facts, n, FREE, answer, seed, timeout=HANG).results):
            yield f"{n} ranks: {fact}", values


def _facts(rank, world_size, answer, seed):
    rng, log = torch.Generator().manual_seed(seed), []
    length = world_size * (2 + seed % 3)
    weights, grads = torch.randn(length, generator=rng), torch.zeros(length)
    gradients = torch.randn(STEPS, world_size, length, generator=rng)  # of each step and rank
    alone = torch.nn.Parameter(weights.clone())
    make = partial(torch.optim.SGD, lr=0.1, momentum=0.9)
    optimizer, of_one = answer(weights, grads, make, *halves(log)), make([alone])
    facts = {}
    for step, of_ranks in enumerate(gradients):
        grads.copy_(of_ranks[rank])
        alone.grad = of_ranks.mean(0)
        optimizer.step()
        of_one.step()
        if step in (0, STEPS - 1):
            facts[f"the weights after {step + 1} step(s)"] = weights.clone()
            facts[f"collectives of {step + 1} step(s)"] = list(log)
    facts["one process with the mean gradient gets the same"] = torch.allclose(
        weights, alone, atol=1e-5
    )
    sizes = [
        value.numel() for state in optimizer.optimizer.state.values() for value in state.values()
    ]
    facts["numbers that its optimizer keeps"] = sum(sizes)
    return facts
