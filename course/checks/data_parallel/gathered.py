"""Probe of exercise gathered."""

import torch

from course.checks.data_parallel.ranks import FREE, HANG_SECONDS, together
from course.checks.data_parallel.shards import logged_halves
from course.engine.exercise import Answer, Facts, exercise
from course.engine.probing.laws import tried
from course.parallel.network import simulate


@exercise()
def gathered(answer: Answer, device: torch.device, seed: int) -> Facts:
    """Forward gathers, backward hands each rank its part of the mean gradient."""
    for n in (2, 4):
        simulation = simulate(_facts, n, FREE, answer, seed, timeout=HANG_SECONDS)
        for fact, per_rank in together(simulation.results):
            yield f"{n} ranks: {fact}", per_rank


def _facts(rank: int, world_size: int, answer: Answer, seed: int) -> dict[str, object]:
    """Facts of a rank about two forward and backward passes through its shard."""
    rng = torch.Generator().manual_seed(seed)
    log = []
    values = torch.randn(world_size, 3, generator=rng)
    factors = torch.randn(world_size, 3 * world_size, generator=rng)  # the gradients of the ranks
    shard = values[rank].clone().requires_grad_()
    whole = answer(shard, *logged_halves(log))
    facts = {
        "forward gives the shards of all ranks": whole.detach(),
        "collectives of forward": list(log),
    }
    facts["the result takes part in backward"] = whole.requires_grad
    (whole * factors[rank]).sum().backward()
    facts["collectives after backward"] = list(log)
    facts["the gradient of the shard"] = shard.grad
    again = answer(shard, *logged_halves(log))
    (again * factors[rank]).sum().backward()
    facts["a second backward adds to it"] = shard.grad.clone()
    given = factors[rank].clone()
    answer(shard, *logged_halves(log)).backward(given)
    is_same = torch.equal(given, factors[rank])
    fact = "the gradient that backward is given stays as it is"
    facts[fact] = tried(is_same, factors[rank])
    return facts
