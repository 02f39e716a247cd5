"""Attention whose keys and values are spread over ranks: *positions per rank* -> parts, messages.

A part is what one rank knows of the attention of all queries. How parts are merged and which
positions a rank gets are tasks of unit 07, part 5; who waits for whom is counted here.

Source: Liu, Zaharia and Abbeel 2023, "Ring Attention", arXiv:2310.01889, section 3.
"""

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor

Merge = Callable[[Tensor, Tensor, Tensor], Tensor]  # of stacked parts -> (rows, dim)


class Part(NamedTuple):
    """The attention of `rows` queries to some of the keys; zeros and -inf where it sees none."""

    numerators: Tensor  # (rows, dim): sum over keys of exp(score - maximum) * value
    denominators: Tensor  # (rows,): sum over keys of exp(score - maximum)
    maxima: Tensor  # (rows,): the largest score


class Head(NamedTuple):
    """Queries, keys and values of one attention head: (tokens, dim) each."""

    q: Tensor
    k: Tensor
    v: Tensor


def random_head(tokens: int, dim: int, seed: int = 0, scale: float = 1.0) -> Head:
    """A float64 Head whose scores spread by about `scale`."""
    rng = torch.Generator().manual_seed(seed)
    q, k, v = torch.randn(3, tokens, dim, generator=rng, dtype=torch.float64)
    return Head(scale * q, k, v)


def attention_part(q: Tensor, k: Tensor, v: Tensor, is_seen: Tensor) -> Part:
    """The Part of the keys `k`, of which there may be none.

    Args:
        q: (rows, dim).
        k, v: (keys, dim).
        is_seen: bool (rows, keys), True where a query may see a key.
    """
    rows, dim = q.shape
    scores = q @ k.T / math.sqrt(dim)
    scores = scores.masked_fill(~is_seen, -math.inf)
    nothing = torch.full((rows, 1), -math.inf, dtype=q.dtype, device=q.device)
    maxima = torch.cat([nothing, scores], dim=1).amax(1)
    # -inf - -inf is NaN, so a row that sees no key subtracts 0
    weights = torch.exp(scores - maxima.masked_fill(maxima == -math.inf, 0)[:, None])
    return Part(weights @ v, weights.sum(1), maxima)


def causal_parts(head: Head, shares: Sequence[Tensor]) -> list[Part]:
    """A Part per rank, of all queries and the keys at the positions that are its share."""
    queries = torch.arange(len(head.q), device=head.q.device)
    parts = []
    for share in shares:
        is_seen = share[None, :] <= queries[:, None]
        parts.append(attention_part(head.q, head.k[share], head.v[share], is_seen))
    return parts


def stacked(parts: Sequence[Part]) -> tuple[Tensor, Tensor, Tensor]:
    """(numerators (ranks, rows, dim), denominators (ranks, rows), maxima (ranks, rows))."""
    numerators = torch.stack([part.numerators for part in parts])
    denominators = torch.stack([part.denominators for part in parts])
    maxima = torch.stack([part.maxima for part in parts])
    return numerators, denominators, maxima


def random_shares(tokens: int, ranks: int, seed: int) -> list[Tensor]:
    """Each position on a random rank; a rank may get none."""
    rng = torch.Generator().manual_seed(seed)
    owner = torch.randint(ranks, (tokens,), generator=rng)
    return [(owner == rank).nonzero().flatten() for rank in range(ranks)]


def contiguous(rank: int, ranks: int, tokens: int) -> Tensor:
    """The positions of `rank` if each rank gets one piece of the sequence: int64."""
    return torch.arange(tokens).chunk(ranks)[rank]


def ring_attention(
    rank: int, world_size: int, merge: Merge, head: Head, shares: Sequence[Tensor]
) -> Tensor:
    """Causal attention of this rank's queries, (its positions, dim); call it in a rank.

    Each rank begins with the keys and values of its share. They travel around the ring: in each of
    `world_size - 1` rounds a rank sends what it has to the next rank, in one message.

    Args:
        shares: positions of each rank, equally many.
    """
    mine = shares[rank]
    held = torch.stack([head.k[mine], head.v[mine]])
    parts = []
    for step in range(world_size):
        positions = shares[(rank - step) % world_size]
        is_seen = positions[None, :] <= mine[:, None]
        parts.append(attention_part(head.q[mine], held[0], held[1], is_seen))
        if step < world_size - 1:
            held = _passed_on(held, rank, world_size)
    return merge(*stacked(parts))


def _passed_on(held: Tensor, rank: int, world_size: int) -> Tensor:
    """What the rank before holds, after `held` was sent to the next rank."""
    arrived = torch.empty_like(held)
    sending = dist.isend(held, (rank + 1) % world_size)
    dist.recv(arrived, (rank - 1) % world_size)
    sending.wait()
    return arrived


def pairs_per_step(shares: Sequence[Tensor]) -> Tensor:
    """int64 (steps, ranks): pairs of a query and a key that it sees, in each step of the ring."""
    ranks = len(shares)
    pairs = torch.zeros(ranks, ranks, dtype=torch.int64)
    for step in range(ranks):
        for rank, queries in enumerate(shares):
            keys = shares[(rank - step) % ranks]
            pairs[step, rank] = (keys[None, :] <= queries[:, None]).sum()
    return pairs
