"""Probe of exercise gathered."""

import torch

from course.checks.data_parallel.ranks import FREE, HANG, together
from course.checks.data_parallel.shards import halves
from course.engine.exercise import Answer, Facts, exercise
from course.parallel.network import simulate


@exercise()
def gathered(answer: Answer, device: torch.device, seed: int) -> Facts:
    """Forward gathers, backward hands each rank its part of the mean gradient."""
    for n in (2, 4):
        for fact, per_fact in together(
            simulate(_facts, n, FREE, answer, seed, timeout=HANG).results
        ):
            yield f"{n} ranks: {fact}", per_fact


def _facts(rank, world_size, answer, seed):
    rng, log = torch.Generator().manual_seed(seed), []
    values = torch.randn(world_size, 3, generator=rng)
    factors = torch.randn(world_size, 3 * world_size, generator=rng)  # the gradients of the ranks
    shard = values[rank].clone().requires_grad_()
    whole = answer(shard, *halves(log))
    facts = {
        "forward gives the shards of all ranks": whole.detach(),
        "collectives of forward": list(log),
    }
    facts["the result takes part in backward"] = whole.requires_grad
    (whole * factors[rank]).sum().backward()
    facts["collectives after backward"] = list(log)
    facts["the gradient of the shard"] = shard.grad
    (answer(shard, *halves(log)) * factors[rank]).sum().backward()
    facts["a second backward adds to it"] = shard.grad
    return facts
