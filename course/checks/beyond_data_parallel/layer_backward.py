"""Probe of exercise layer_backward."""

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from course.checks.data_parallel.ranks import in_threads, together
from course.engine.exercise import Answer, Facts, exercise
from course.engine.probing.laws import tried
from course.parallel.counting import counted


class _Scatter:
    """A reduce-scatter that notes when it starts and when it is waited for."""

    def __init__(self, log: list[str], flat: Tensor) -> None:
        self.log = log
        log.append(f"scatter of {len(flat)} numbers")
        parts = torch.empty(dist.get_world_size(), *flat.shape, dtype=flat.dtype)
        dist.all_gather(list(parts), flat.detach().contiguous())
        self.piece = parts.sum(0).chunk(dist.get_world_size())[dist.get_rank()].clone()

    def wait(self) -> Tensor:
        self.log.append("wait")
        return self.piece


@exercise()
def layer_backward(answer: Answer, device: torch.device, seed: int) -> Facts:
    """The gradient of the input, the piece of the mean gradient of the layer, what is sent."""
    for n in (2, 4):
        for fact, per_rank in together(in_threads(_facts, n, answer, seed)):
            yield f"{n} ranks: {fact}", per_rank
    for fact, per_rank in together(in_threads(_inside_no_grad, 2, answer, seed)):
        yield fact, per_rank


def _facts(rank: int, world_size: int, answer: Answer, seed: int) -> dict[str, object]:
    """Facts of a rank about one layer whose weight is the first numbers of its vector."""
    log: list[str] = []
    compute, whole, x, grad, start_scatter = _arguments(rank, seed, log)
    given = [whole.clone(), x.clone(), grad.clone()]
    with counted() as traffic:
        result: Any = answer(compute, whole, x, grad, start_scatter)
    facts: dict[str, object] = {"returns two values": len(result)}
    of_x, handle = result
    facts["the gradient of x"] = of_x.detach()
    facts["what was sent, and not waited for"] = list(log)
    n_scatters = sum(event.startswith("scatter") for event in log)
    alone = traffic.calls() == n_scatters  # each of which is an all-gather
    facts["nothing else was sent"] = tried(alone, given[1].tolist())
    facts["the piece of the mean gradient"] = handle.wait().detach()
    same = [torch.equal(a, b) for a, b in zip((whole, x, grad), given, strict=True)]
    facts["whole, x and grad stay as they are"] = same
    leaves = (whole, x)
    drawn = given[1].tolist()
    marked = [tensor.requires_grad or tensor.grad is not None for tensor in leaves]
    facts["whole and x have no graph and no grad"] = tried(not any(marked), drawn)
    facts["the gradient of x has no graph"] = tried(not of_x.requires_grad, drawn)
    return facts


def _inside_no_grad(rank: int, world_size: int, answer: Answer, seed: int) -> dict[str, object]:
    """Facts of a rank about a call where autograd is off."""
    with torch.no_grad():
        of_x, handle = answer(*_arguments(rank, seed + 1, []))
    return {
        "inside no_grad: the gradient of x": of_x.detach(),
        "inside no_grad: the piece of the mean gradient": handle.wait().detach(),
    }


def _arguments(rank: int, seed: int, log: list[str]) -> tuple[Any, ...]:
    """What an answer is called with on a rank."""
    rng = torch.Generator().manual_seed(1000 * seed)
    dim = 4 * (1 + seed % 2)
    whole = torch.randn(dim * dim + dim, generator=rng, dtype=torch.float64)
    rng.manual_seed(1000 * seed + rank + 1)
    x = torch.randn(3, dim, generator=rng, dtype=torch.float64)
    grad = torch.randn(3, dim, generator=rng, dtype=torch.float64)

    def compute(whole: Tensor, x: Tensor) -> Tensor:
        return torch.tanh(x @ whole[: dim * dim].view(dim, dim) + whole[dim * dim :])

    def start_scatter(flat: Tensor) -> _Scatter:
        return _Scatter(log, flat)

    return compute, whole, x, grad, start_scatter
