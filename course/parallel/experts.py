"""A layer of experts that are spread over ranks: *a slot per token* -> outputs, bytes.

An expert is a matrix; E experts lie on N ranks, E / N on each. A buffer has `capacity` rows for
each expert, so that all messages have the same size. Which row a token gets is a task of unit 07,
part 5.

Source: Fedus, Zoph and Shazeer 2021, "Switch Transformers", arXiv:2101.03961, section 2.2.
"""

from collections.abc import Callable
from typing import NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor

# (scores (tokens, experts), capacity) -> slot of each token, -1 where it is dropped
Route = Callable[[Tensor, int], Tensor]


class RoutedTokens(NamedTuple):
    """Tokens of one rank, the router's scores of them, and all experts."""

    tokens: Tensor  # (tokens, dim)
    scores: Tensor  # (tokens, experts)
    experts: Tensor  # (experts, dim, dim)


def random_tokens(rank: int, tokens: int, dim: int, experts: int, seed: int = 0) -> RoutedTokens:
    """Float64 tokens and scores of `rank`, and experts that are the same on all ranks."""
    shared = torch.Generator().manual_seed(seed)
    matrices = torch.randn(experts, dim, dim, generator=shared, dtype=torch.float64)
    own = torch.Generator().manual_seed(1 + rank + 1000 * seed)
    rows = torch.randn(tokens, dim, generator=own, dtype=torch.float64)
    scores = torch.randn(tokens, experts, generator=own, dtype=torch.float64)
    return RoutedTokens(rows, scores, matrices)


def on_one_device(given: RoutedTokens, slots: Tensor) -> Tensor:
    """(tokens, dim): each token times the matrix of its favourite expert, zeros if dropped."""
    favourite = given.scores.argmax(1)
    outputs = torch.einsum("td,tde->te", given.tokens, given.experts[favourite])
    return outputs * (slots >= 0)[:, None]


def keeps_as_many_as_fit(scores: Tensor, slots: Tensor, capacity: int) -> bool:
    """Whether no two tokens share a slot, and only those are dropped that are too many.

    Args:
        scores: (tokens, experts), of the router.
        slots: (tokens,); -1 where a token is dropped.
        capacity: places of an expert.
    """
    tokens, experts = scores.shape
    wanted = scores.argmax(1).bincount(minlength=experts)
    too_many = int((wanted - capacity).clamp(min=0).sum())
    kept = slots[slots >= 0]
    return len(kept.unique()) == len(kept) and len(kept) + too_many == tokens


def expert_layer(
    rank: int, world_size: int, route: Route, tokens: int, dim: int, experts: int, capacity: int
) -> tuple[Tensor, Tensor]:
    """(slots, outputs) of this rank's random tokens, computed by experts of all ranks.

    Two all-to-alls: tokens travel to their experts, and outputs back. Call it in a rank.
    """
    given = random_tokens(rank, tokens, dim, experts)
    slots = route(given.scores, capacity)
    kept = slots >= 0
    buffer = torch.zeros(experts * capacity, dim, dtype=torch.float64)
    buffer[slots[kept]] = given.tokens[kept]
    arrived = _all_to_all(buffer, rank, world_size)  # a block per rank: tokens for my experts
    mine = given.experts.chunk(world_size)[rank]
    blocks = arrived.view(world_size, len(mine), capacity, dim)
    computed = torch.einsum("ncrd,cde->ncre", blocks, mine).reshape_as(buffer)
    returned = _all_to_all(computed, rank, world_size)
    outputs = torch.zeros_like(given.tokens)
    outputs[kept] = returned[slots[kept]]
    return slots, outputs


def _all_to_all(buffer: Tensor, rank: int, world_size: int) -> Tensor:
    """Send block r of `buffer` to each rank r; return the blocks that arrived, in order of rank."""
    outgoing = [block.contiguous() for block in buffer.chunk(world_size)]
    incoming = [torch.empty_like(block) for block in outgoing]
    incoming[rank] = outgoing[rank]
    requests = []
    for distance in range(1, world_size):
        other = (rank + distance) % world_size
        requests.append(dist.isend(outgoing[other], other))
    for distance in range(1, world_size):
        other = (rank - distance) % world_size
        requests.append(dist.irecv(incoming[other], other))
    for request in requests:
        request.wait()
    return torch.cat(incoming)
