"""Probe of exercise sum_over_ranks."""

import torch

from course.checks.data_parallel.ranks import in_threads, together
from course.engine.exercise import Answer, Facts, exercise
from course.parallel.counting import counted


@exercise()
def sum_over_ranks(answer: Answer, device: torch.device, seed: int) -> Facts:
    """The sum of all ranks' parts, its gradient, and what both send."""
    for n in (2, 4):
        for fact, per_rank in together(in_threads(_facts, n, answer, seed)):
            yield f"{n} ranks: {fact}", per_rank


def _facts(rank: int, world_size: int, answer: Answer, seed: int) -> dict[str, object]:
    """Facts of a rank about its own part and a gradient that all ranks share."""
    rng = torch.Generator().manual_seed(seed)
    shape = (2, 3 + seed % 3)
    values = torch.randn(world_size, *shape, generator=rng, dtype=torch.float64)
    factors = torch.randn(shape, generator=rng, dtype=torch.float64)
    part = values[rank].clone().requires_grad_()
    with counted() as traffic:
        total = answer(part)
        facts = {
            "forward gives the sum of the parts": total.detach().clone(),
            "what forward sends": list(traffic),
            "the part stays as it is": torch.equal(part.detach(), values[rank]),
            "the sum takes part in backward": total.requires_grad,
        }
        traffic.clear()
        (total * factors).sum().backward()
        facts["the gradient of the part"] = part.grad
        facts["what backward sends"] = list(traffic)
    later = values[rank].clone().requires_grad_()
    (answer(later * 2) * answer(later.tanh())).sum().backward()
    facts["the gradient through two sums"] = later.grad
    return facts
