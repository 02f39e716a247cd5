"""Probe of exercise ShardedOptimizer."""

from functools import partial

import torch

from course.checks.data_parallel.ranks import FREE, HANG_SECONDS, import_compiler, together
from course.checks.data_parallel.shards import logged_halves
from course.engine.exercise import Answer, Facts, exercise
from course.parallel.network import simulate

STEPS = 3


@exercise(returns_no_number=True)
def ShardedOptimizer(answer: Answer, device: torch.device, seed: int) -> Facts:
    """Weights after steps with a sharded optimizer, what is sent, what the optimizer keeps."""
    import_compiler()
    for n in (2, 4):
        simulation = simulate(_facts, n, FREE, answer, seed, timeout=HANG_SECONDS)
        for fact, values in together(simulation.results):
            yield f"{n} ranks: {fact}", values


def _facts(rank: int, world_size: int, answer: Answer, seed: int) -> dict[str, object]:
    """Return the facts of a rank, compared with one process that uses the mean gradient."""
    rng = torch.Generator().manual_seed(seed)
    log = []
    length = world_size * (2 + seed % 3)
    weights = torch.randn(length, generator=rng)
    grads = torch.zeros(length)
    gradients = torch.randn(STEPS, world_size, length, generator=rng)  # of each step and rank
    alone = torch.nn.Parameter(weights.clone())
    make = partial(torch.optim.SGD, lr=0.1, momentum=0.9)
    optimizer = answer(weights, grads, make, *logged_halves(log))
    of_one = make([alone])
    facts = {}
    for step, of_ranks in enumerate(gradients):
        grads.copy_(of_ranks[rank])
        alone.grad = of_ranks.mean(0)
        optimizer.step()
        of_one.step()
        if step in (0, STEPS - 1):
            facts[f"the weights after {step + 1} step(s)"] = weights.clone()
            facts[f"collectives of {step + 1} step(s)"] = list(log)
    same = torch.allclose(weights, alone, atol=1e-5)
    facts["one process with the mean gradient gets the same"] = same
    kept = 0
    for state in optimizer.optimizer.state.values():
        for value in state.values():
            kept += value.numel()
    facts["numbers that its optimizer keeps"] = kept
    return facts
