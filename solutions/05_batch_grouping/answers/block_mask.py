"""Known mistakes of exercise block_mask, and right answers in other styles."""

import torch

from course.checks.engine import alternative, mistake


def _owner(lengths):
    return torch.arange(len(lengths), device=lengths.device).repeat_interleave(lengths)


@mistake("block_mask", "The mask is turned round: True is where a token may look.")
def turned_round(lengths, causal=False):
    owner = _owner(lengths)
    mask = owner[:, None] == owner
    return ~(mask.tril() if causal else mask)


@mistake("block_mask", "`causal` is ignored. With it, no token looks at one that comes later.")
def causal_ignored(lengths, causal=False):
    owner = _owner(lengths)
    return owner[:, None] == owner


@mistake(
    "block_mask",
    "The beginning of a block is set to the length of the sequence before. It moves on by that length: start += n.",
)
def begins_at_the_last_length(lengths, causal=False):
    mask = torch.zeros(int(lengths.sum()), int(lengths.sum()), dtype=torch.bool, device=lengths.device)
    start = 0
    for n in lengths.tolist():
        mask[start : start + n, start : start + n] = True
        start = n
    return mask.tril() if causal else mask


@mistake("block_mask", "With `causal`, tokens look ahead instead of back: that is triu, not tril.")
def looks_ahead(lengths, causal=False):
    owner = _owner(lengths)
    mask = owner[:, None] == owner
    return mask.triu() if causal else mask


@mistake("block_mask", "With `causal`, a token does not see itself. It does: keep the diagonal.")
def not_itself(lengths, causal=False):
    owner = _owner(lengths)
    mask = owner[:, None] == owner
    return mask.tril(-1) if causal else mask


@mistake("block_mask", "The mask is turned round: tokens of *other* sequences are True. Compare with ==.")
def other_sequences(lengths, causal=False):
    owner = _owner(lengths)
    mask = owner[:, None] != owner
    return mask.tril() if causal else mask


@mistake("block_mask", "The mask is causal although nobody asked: without `causal`, tokens see all of their sequence.")
def always_causal(lengths, causal=False):
    owner = _owner(lengths)
    return (owner[:, None] == owner).tril()


@mistake("block_mask", "With `causal`, the blocks are lost: tokens see those of earlier sequences. Both must hold.")
def causal_alone(lengths, causal=False):
    owner = _owner(lengths)
    mask = owner[:, None] == owner
    return torch.ones_like(mask).tril() if causal else mask


@mistake(
    "block_mask", "With `causal`, sequences are compared, not tokens: tokens see all of this and earlier sequences."
)
def causal_by_sequence(lengths, causal=False):
    owner = _owner(lengths)
    return owner[:, None] >= owner if causal else owner[:, None] == owner


@mistake(
    "block_mask",
    "Tokens of sequences of equal length see each other. Compare the numbers of the sequences, not their lengths.",
)
def lengths_compared(lengths, causal=False):
    own = lengths.repeat_interleave(lengths)
    mask = own[:, None] == own
    return mask.tril() if causal else mask


@alternative("block_mask")
def block_diagonal(lengths, causal=False):
    blocks = [torch.ones(n, n, dtype=torch.int64, device=lengths.device) for n in lengths.tolist()]
    return torch.block_diag(*[block.tril() if causal else block for block in blocks]).bool()


@alternative("block_mask")
def between_borders(lengths, causal=False):
    ends = lengths.cumsum(0)
    begin, end = (ends - lengths).repeat_interleave(lengths), ends.repeat_interleave(lengths)
    key = torch.arange(int(ends[-1]), device=lengths.device)
    mask = (key >= begin[:, None]) & (key < end[:, None])
    return mask & (key <= key[:, None]) if causal else mask
