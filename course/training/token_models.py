"""Models that read tokens.

How to put their layers together for groups and flat batches is the task of unit 05.
"""

import math
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional as F

Attend = Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]  # (q, k, v, mask) -> attended


class TokenPool(nn.Module):
    """Embedding, linear map, maximum over the tokens of a sequence, projection to one score.

    The model of asym's demonstration (github.com/daeseoklee/asym). `features` and `score` work on
    any shape, for batches without padding.
    """

    def __init__(self, vocabulary: int, emb_dim: int, hidden_dim: int):
        super().__init__()
        self.emb = nn.Embedding(vocabulary, emb_dim)
        self.linear = nn.Linear(emb_dim, hidden_dim)
        self.proj = nn.Linear(hidden_dim, 1)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        """float32 (n,): the scores of a padded batch x (n, longest); `mask` is True at tokens."""
        features = self.features(x).masked_fill(~mask[..., None], -math.inf)
        return self.score(features.amax(1))

    def features(self, tokens: Tensor) -> Tensor:
        """float32 (..., hidden_dim) of int64 tokens (...): what the maximum is taken of."""
        return self.linear(self.emb(tokens))

    def score(self, pooled: Tensor) -> Tensor:
        """float32 (n,) of the maxima (n, hidden_dim)."""
        return self.proj(pooled).squeeze(-1)


class TokenAttention(nn.Module):
    """Embedding, one layer of self-attention, mean over a sequence, projection to one score."""

    def __init__(self, vocabulary: int, dim: int, heads: int = 4):
        super().__init__()
        self.heads = heads
        self.emb = nn.Embedding(vocabulary, dim)
        self.qkv = nn.Linear(dim, 3 * dim)
        self.proj = nn.Linear(dim, 1)

    def forward(
        self, x: Tensor, mask: Tensor, attend: Attend = F.scaled_dot_product_attention
    ) -> Tensor:
        """float32 (n,): the scores of a padded batch x (n, longest); `mask` is True at tokens.

        Args:
            attend: called with q, k, v and a mask that is True where a query may look at a key.
        """
        attended = attend(*self.queries_keys_values(x), mask[:, None, None, :])
        of_tokens = self.scores_of_tokens(attended)
        return (of_tokens * mask).sum(1) / mask.sum(1)

    def queries_keys_values(self, tokens: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """(q, k, v), each float32 (..., heads, length, dim / heads).

        Args:
            tokens: int64 (..., length).
        """
        # (..., length, 3, heads, dim / heads)
        split = self.qkv(self.emb(tokens)).unflatten(-1, (3, self.heads, -1))
        return tuple(split.movedim(-3, 0).transpose(-3, -2))

    def scores_of_tokens(self, attended: Tensor) -> Tensor:
        """float32 (..., length): a score per token.

        Args:
            attended: what attention gives, (..., heads, length, dim / heads).
        """
        return self.proj(attended.transpose(-3, -2).flatten(-2)).squeeze(-1)


def attention_written_out(q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Tensor:
    """softmax(q kᵀ / √d) v, with every intermediate result in memory.

    Args:
        mask: bool, True where a query may look at a key.

    Source: Vaswani et al. 2017, section 3.2.1.
    """
    scores = (q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])).masked_fill(~mask, -math.inf)
    return torch.softmax(scores, -1) @ v
