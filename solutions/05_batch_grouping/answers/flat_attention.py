"""Known mistakes of exercise flat_attention, and right answers in other styles."""

import math

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
    q, k, v = (torch.nested.nested_tensor_from_jagged(part, offsets).transpose(1, 2) for part in flat)
    return F.scaled_dot_product_attention(q, k, v).transpose(1, 2).values()


@alternative("flat_attention")
def sequence_by_sequence(q, k, v, lengths):
    found = []
    for a, b, c in zip(*(part.split(lengths.tolist()) for part in (q, k, v)), strict=True):
        scores = torch.einsum("qhd,khd->hqk", a, b) / math.sqrt(a.shape[-1])
        found.append(torch.einsum("hqk,khd->qhd", scores.softmax(-1), c))
    return torch.cat(found)
