"""Known mistakes of exercise flat_attention, and right answers in other styles."""

import math
import warnings

import torch
from torch.nn import functional as F

from course.checks.engine import alternative, mistake


def _mask(lengths):
    owner = torch.arange(len(lengths), device=lengths.device).repeat_interleave(lengths)
    return owner[:, None] == owner


@mistake("flat_attention", "Tokens look at the whole batch. Each may look only at its own sequence.")
def whole_batch(q, k, v, lengths):
    q, k, v = (part.transpose(0, 1) for part in (q, k, v))
    return F.scaled_dot_product_attention(q, k, v).transpose(0, 1)


@mistake(
    "flat_attention",
    "Heads and tokens have changed places: the heads of a token look at each other. Put heads first.",
)
def heads_as_tokens(q, k, v, lengths):
    return F.scaled_dot_product_attention(q, k, v)


def _weighted(q, k, v, weights):
    """What `weights` (a function of the scores, heads first) make of v."""
    q, k, v = (part.transpose(0, 1) for part in (q, k, v))
    return (weights(q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])) @ v).transpose(0, 1)


@mistake(
    "flat_attention",
    "The mask comes after the softmax, so the weights of a token do not add up to 1. Mask the scores before it.",
)
def masked_after_softmax(q, k, v, lengths):
    return _weighted(q, k, v, lambda scores: scores.softmax(-1) * _mask(lengths))


@mistake(
    "flat_attention",
    "Masked scores are 0, and a score of 0 has a weight above 0. They must be minus infinity.",
)
def masked_with_zero(q, k, v, lengths):
    return _weighted(q, k, v, lambda scores: (scores * _mask(lengths)).softmax(-1))


@mistake(
    "flat_attention",
    "A mask of floats is *added* to the scores: 1 here, 0 there hides nothing. Give a mask of bool.",
)
def mask_of_floats(q, k, v, lengths):
    return _weighted(q, k, v, lambda scores: (scores + _mask(lengths).to(scores.dtype)).softmax(-1))


@mistake(
    "flat_attention",
    "The mask is turned round: tokens look at all sequences but their own. True is where a query may look.",
)
def turned_round(q, k, v, lengths):
    return _weighted(q, k, v, lambda scores: scores.masked_fill(_mask(lengths), -math.inf).softmax(-1))


@mistake(
    "flat_attention",
    "The mask is turned round: tokens look at all sequences but their own. True is where a query may look.",
)
def turned_round_for_torch(q, k, v, lengths):
    q, k, v = (part.transpose(0, 1) for part in (q, k, v))
    return F.scaled_dot_product_attention(q, k, v, attn_mask=~_mask(lengths)).transpose(0, 1)


@mistake(
    "flat_attention",
    "The softmax runs over the queries. The weights of each query add up to 1: take the last dimension.",
)
def softmax_over_queries(q, k, v, lengths):
    return _weighted(q, k, v, lambda scores: scores.masked_fill(~_mask(lengths), -math.inf).softmax(-2))


@mistake(
    "flat_attention",
    "`view` or `reshape` mixes tokens and heads. Exchange the two dimensions with transpose.",
)
def reshaped(q, k, v, lengths):
    shape = q.shape
    q, k, v = (part.reshape(shape[1], shape[0], shape[2]) for part in (q, k, v))
    return F.scaled_dot_product_attention(q, k, v, attn_mask=_mask(lengths)).reshape(shape)


@mistake("flat_attention", "The scores are divided by d. Divide them by √d.")
def divided_by_d(q, k, v, lengths):
    return _weighted(
        q, k, v, lambda scores: (scores / math.sqrt(q.shape[-1])).masked_fill(~_mask(lengths), -math.inf).softmax(-1)
    )


@mistake("flat_attention", "The scores are divided by √(heads · d). Divide them by √d, the width of one head.")
def divided_by_all_heads(q, k, v, lengths):
    return _weighted(
        q, k, v, lambda scores: (scores / math.sqrt(q.shape[1])).masked_fill(~_mask(lengths), -math.inf).softmax(-1)
    )


@mistake("flat_attention", "The batch is padded, and tokens look at the padding: its keys are 0, so they get weight.")
def looks_at_padding(q, k, v, lengths):
    pad = torch.nn.utils.rnn.pad_sequence
    q, k, v = (pad(list(part.split(lengths.tolist())), batch_first=True).transpose(1, 2) for part in (q, k, v))
    found = F.scaled_dot_product_attention(q, k, v).transpose(1, 2)
    return torch.cat([row[:length] for row, length in zip(found, lengths.tolist(), strict=True)])


@mistake("flat_attention", "The scores are not divided by √d.")
def not_scaled(q, k, v, lengths):
    q, k, v = (part.transpose(0, 1) for part in (q, k, v))
    return F.scaled_dot_product_attention(q, k, v, attn_mask=_mask(lengths), scale=1.0).transpose(0, 1)


@mistake("flat_attention", "The result stands with heads first. Turn it back: (total, heads, d).")
def heads_stay_first(q, k, v, lengths):
    q, k, v = (part.transpose(0, 1) for part in (q, k, v))
    return F.scaled_dot_product_attention(q, k, v, attn_mask=_mask(lengths))


@mistake("flat_attention", "The mask is causal. Here each token sees its whole sequence.")
def causal(q, k, v, lengths):
    q, k, v = (part.transpose(0, 1) for part in (q, k, v))
    return F.scaled_dot_product_attention(q, k, v, attn_mask=_mask(lengths).tril()).transpose(0, 1)


@alternative("flat_attention")
def nested_tensors(q, k, v, lengths):
    offsets = F.pad(lengths.cumsum(0), (1, 0))
    flat = (part.contiguous() for part in (q, k, v))
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "The PyTorch API of nested tensors is in prototype stage")
        q, k, v = (torch.nested.nested_tensor_from_jagged(part, offsets).transpose(1, 2) for part in flat)
        return F.scaled_dot_product_attention(q, k, v).transpose(1, 2).values()


@alternative("flat_attention")
def sequence_by_sequence(q, k, v, lengths):
    found = []
    for a, b, c in zip(*(part.split(lengths.tolist()) for part in (q, k, v)), strict=True):
        scores = torch.einsum("qhd,khd->hqk", a, b) / math.sqrt(a.shape[-1])
        found.append(torch.einsum("hqk,khd->qhd", scores.softmax(-1), c))
    return torch.cat(found)
