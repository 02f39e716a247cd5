"""Known mistakes of exercise flat_attention, and right answers in other styles."""

import math
import warnings

import torch
from torch.nn import functional as F

from course.engine.known_answers import alternative, mistake

ATTENTION = "F.scaled_dot_product_attention(q, k, v, attn_mask=owner[:, None] == owner)"

MISTAKES = {
    "whole_batch": (
        "Tokens look at the whole batch. Each may look only at its own sequence.",
        (", attn_mask=owner[:, None] == owner", ""),
    ),
    "heads_as_tokens": (
        "Heads and tokens have changed places: the heads of a token look at each other. Put heads first.",
        ("part.transpose(0, 1)[None] for", "part[None] for"),
        (", attn_mask=owner[:, None] == owner)[0].transpose(0, 1)", ")[0]"),
    ),
    "masked_after_softmax": (
        "The mask comes after the softmax, so the weights of a token do not add up to 1. Mask the scores before it.",
        (
            ATTENTION,
            "((q @ k.mT / q.shape[-1] ** 0.5).softmax(-1) * (owner[:, None] == owner) @ v)",
        ),
    ),
    "masked_with_zero": (
        "Masked scores are 0, and a score of 0 has a weight above 0. They must be minus infinity.",
        (
            ATTENTION,
            "((q @ k.mT / q.shape[-1] ** 0.5 * (owner[:, None] == owner)).softmax(-1) @ v)",
        ),
    ),
    "mask_of_floats": (
        "A mask of floats is *added* to the scores: 1 here, 0 there hides nothing. Give a mask of bool.",
        ("owner[:, None] == owner", "(owner[:, None] == owner).to(q.dtype)"),
    ),
    "turned_round": (
        "The mask is inverted: tokens attend to all sequences but their own. True means that a query may attend.",
        (
            ATTENTION,
            "((q @ k.mT / q.shape[-1] ** 0.5).masked_fill(owner[:, None] == owner, -math.inf).softmax(-1) @ v)",
        ),
    ),
    "turned_round_for_torch": (
        "The mask is inverted: tokens attend to all sequences but their own. True means that a query may attend.",
        ("==", "!="),
    ),
    "softmax_over_queries": (
        "The softmax runs over the queries. The weights of each query add up to 1: take the last dimension.",
        (
            ATTENTION,
            "((q @ k.mT / q.shape[-1] ** 0.5).masked_fill(owner[:, None] != owner, -math.inf).softmax(-2) @ v)",
        ),
    ),
    "reshaped": (
        "`view` or `reshape` mixes tokens and heads. Exchange the two dimensions with transpose.",
        (
            "part.transpose(0, 1)[None] for",
            "part.reshape(part.shape[1], -1, part.shape[2])[None] for",
        ),
        ("owner)[0].transpose(0, 1)", "owner)[0].reshape(q.shape[2], -1, q.shape[3])"),
    ),
    "divided_by_d": (
        "The scores are divided by d. Divide them by √d.",
        ("== owner", "== owner, scale=1 / q.shape[-1]"),
    ),
    "divided_by_all_heads": (
        "The scores are divided by √(heads · d). Divide them by √d, the width of one head.",
        ("== owner", "== owner, scale=(q.shape[1] * q.shape[-1]) ** -0.5"),
    ),
    "not_scaled": (
        "The scores are not divided by √d.",
        ("== owner", "== owner, scale=1.0"),
    ),
    "heads_stay_first": (
        "The result has the heads first. Transpose it back: (total, heads, d).",
        ("owner)[0].transpose(0, 1)", "owner)[0]"),
    ),
    "causal": (
        "The mask is causal. Here each token sees its whole sequence.",
        ("owner[:, None] == owner", "(owner[:, None] == owner).tril()"),
    ),
}


@mistake("The batch is padded, and tokens look at the padding: its keys are 0, so they get weight.")
def looks_at_padding(q, k, v, lengths):
    pad = torch.nn.utils.rnn.pad_sequence
    q, k, v = (
        pad(list(part.split(lengths.tolist())), batch_first=True).transpose(1, 2)
        for part in (q, k, v)
    )
    found = F.scaled_dot_product_attention(q, k, v).transpose(1, 2)
    return torch.cat([row[:length] for row, length in zip(found, lengths.tolist(), strict=True)])


@alternative
def nested_tensors(q, k, v, lengths):
    offsets = F.pad(lengths.cumsum(0), (1, 0))
    flat = (part.contiguous() for part in (q, k, v))
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "The PyTorch API of nested tensors is in prototype stage")
        q, k, v = (
            torch.nested.nested_tensor_from_jagged(part, offsets).transpose(1, 2) for part in flat
        )
        return F.scaled_dot_product_attention(q, k, v).transpose(1, 2).values()


@alternative
def sequence_by_sequence(q, k, v, lengths):
    found = []
    for a, b, c in zip(*(part.split(lengths.tolist()) for part in (q, k, v)), strict=True):
        scores = torch.einsum("qhd,khd->hqk", a, b) / math.sqrt(a.shape[-1])
        found.append(torch.einsum("hqk,khd->qhd", scores.softmax(-1), c))
    return torch.cat(found)
