"""Known mistakes of exercise block_mask, and right answers in other styles."""

import torch

from course.engine.known_answers import alternative, mistake

MISTAKES = {
    "turned_round": (
        "The mask is inverted. True means that the token may attend.",
        ("mask.tril() if causal else mask", "~(mask.tril() if causal else mask)"),
    ),
    "causal_ignored": (
        "`causal` is ignored. With it, no token looks at one that comes later.",
        ("mask.tril() if causal else mask", "mask"),
    ),
    "looks_ahead": (
        "With `causal`, tokens look ahead instead of back: that is triu, not tril.",
        ("tril()", "triu()"),
    ),
    "not_itself": (
        "With `causal`, a token does not see itself. It does: keep the diagonal.",
        ("tril()", "tril(-1)"),
    ),
    "other_sequences": (
        "The mask is inverted: tokens of *other* sequences are True. Compare with ==.",
        ("==", "!="),
    ),
    "always_causal": (
        "The mask is causal although nobody asked: without `causal`, tokens see all of their sequence.",
        (" if causal else mask", ""),
    ),
    "causal_alone": (
        "With `causal`, the blocks are lost: tokens see those of earlier sequences. Both must hold.",
        ("mask.tril()", "torch.ones_like(mask).tril()"),
    ),
    "causal_by_sequence": (
        "With `causal`, sequences are compared, not tokens: tokens see all of this and earlier sequences.",
        ("mask.tril()", "owner[:, None] >= owner"),
    ),
    "lengths_compared": (
        "Tokens of sequences of equal length see each other. Compare the numbers of the sequences, not their lengths.",
        ("torch.arange(len(lengths), device=lengths.device)", "lengths"),
    ),
}


@mistake(
    "A block begins at the length of the sequence before. Its beginning moves on by that length: start += n."
)
def begins_at_the_last_length(lengths, causal=False):
    mask = torch.zeros(
        int(lengths.sum()), int(lengths.sum()), dtype=torch.bool, device=lengths.device
    )
    start = 0
    for n in lengths.tolist():
        mask[start : start + n, start : start + n] = True
        start = n
    return mask.tril() if causal else mask


@alternative
def block_diagonal(lengths, causal=False):
    blocks = [torch.ones(n, n, dtype=torch.int64, device=lengths.device) for n in lengths.tolist()]
    return torch.block_diag(*[block.tril() if causal else block for block in blocks]).bool()


@alternative
def between_borders(lengths, causal=False):
    ends = lengths.cumsum(0)
    begin, end = (ends - lengths).repeat_interleave(lengths), ends.repeat_interleave(lengths)
    key = torch.arange(int(ends[-1]), device=lengths.device)
    mask = (key >= begin[:, None]) & (key < end[:, None])
    return mask & (key <= key[:, None]) if causal else mask
