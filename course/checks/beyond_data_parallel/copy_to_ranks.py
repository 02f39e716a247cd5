"""Probe of exercise copy_to_ranks."""

import torch

from course.checks.data_parallel.ranks import in_threads, together
from course.engine.exercise import Answer, Facts, exercise
from course.parallel.counting import counted


@exercise()
def copy_to_ranks(answer: Answer, device: torch.device, seed: int) -> Facts:
    """The same values on all ranks, the sum of their gradients, and what both send."""
    for n in (2, 4):
        for fact, per_rank in together(in_threads(_facts, n, answer, seed)):
            yield f"{n} ranks: {fact}", per_rank


def _facts(rank: int, world_size: int, answer: Answer, seed: int) -> dict[str, object]:
    """Facts of a rank about an input that all ranks share and the rank's own use of it."""
    rng = torch.Generator().manual_seed(seed)
    shape = (2, 3 + seed % 3)
    values = torch.randn(shape, generator=rng, dtype=torch.float64)
    factors = torch.randn(world_size, *shape, generator=rng, dtype=torch.float64)
    x = values.clone().requires_grad_()
    with counted() as traffic:
        copied = answer(x)
        facts = {
            "forward gives the values of x": copied.detach().clone(),
            "what forward sends": list(traffic),
            "the result takes part in backward": copied.requires_grad,
        }
        (copied * factors[rank]).sum().backward()
        facts["the gradient of x"] = x.grad
        facts["what backward sends"] = list(traffic)
    given = factors[rank].clone()
    answer(x).backward(given)
    facts["the gradient that backward gets stays as it is"] = torch.equal(given, factors[rank])
    facts["a second backward adds to the gradient of x"] = x.grad
    later = values.clone().requires_grad_()
    (answer(later.tanh()) * factors[rank]).square().sum().backward()
    facts["the gradient of what x was made of"] = later.grad
    return facts
