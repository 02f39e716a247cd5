"""A small causal transformer on ragged sequences: tokens -> *next-token losses*, padded or packed.

One model takes both kinds of batches. A padded batch has a sequence per row. A packed batch has
several per row, so it says at which position of its sequence each token stands, and a mask keeps
the sequences of a row apart. How to pack is the task of unit 05, part 4.

After GPT-2 (Radford et al. 2019, pre-norm blocks), with the fixed positions of Vaswani et al. 2017,
section 3.5, so that any position has a code.
"""

import math
from collections.abc import Callable, Iterable, Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F

NO_TARGET = -1  # where no next token is to be predicted: padding, and the last token of a sequence


class RaggedTransformer(nn.Module):
    """Scores of the next token; see `forward`. `heads` divides `dim`, which is even.

    Its blocks are pre-norm, unless `block` is PostNormBlock.
    """

    def __init__(
        self,
        vocabulary: int,
        dim: int,
        layers: int,
        heads: int = 4,
        block: "type[Block] | None" = None,
    ):
        super().__init__()
        block = block or Block
        self.embedding = nn.Embedding(vocabulary, dim)
        self.blocks = nn.ModuleList(block(dim, heads) for _ in range(layers))
        self.norm = nn.LayerNorm(dim)
        self.scores = nn.Linear(dim, vocabulary, bias=False)

    def forward(self, tokens: Tensor, positions: Tensor, mask: Tensor | None = None) -> Tensor:
        """(rows, columns, vocabulary): the scores of the token that follows each one.

        Args:
            tokens: int64 (rows, columns).
            positions: int64, of the same shape or (columns,): of each token in its sequence.
            mask: bool (rows or 1, columns, columns), True where a query (row) may look at a key
                (column). None: at itself and all cells to its left, which suffices for padding on
                the right, because no token looks at it.
        """
        x = self.embedding(tokens) + position_codes(positions, self.embedding.weight)
        for block in self.blocks:
            x = block(x, mask)
        return self.scores(self.norm(x))


class Block(nn.Module):
    """Attention, then an MLP of four times the width, each added to what came in."""

    def __init__(self, dim: int, heads: int):
        super().__init__()
        self.heads = heads
        self.attend = F.scaled_dot_product_attention  # or another function that is called like it
        self.norm_1 = nn.LayerNorm(dim)
        self.qkv = nn.Linear(dim, 3 * dim)
        self.out = nn.Linear(dim, dim)
        self.norm_2 = nn.LayerNorm(dim)
        self.mlp = nn.Sequential(nn.Linear(dim, 4 * dim), nn.GELU(), nn.Linear(4 * dim, dim))

    def forward(self, x: Tensor, mask: Tensor | None) -> Tensor:
        """Like `x`, (rows, columns, dim)."""
        x = x + self.attention(self.norm_1(x), mask)
        return x + self.mlp(self.norm_2(x))

    def attention(self, x: Tensor, mask: Tensor | None) -> Tensor:
        """Like `x`: what each token gathers from those that it may look at."""
        # (3, rows, heads, columns, dim / heads)
        split = self.qkv(x).unflatten(-1, (3, self.heads, -1)).movedim(-3, 0)
        q, k, v = split.transpose(-3, -2)
        if mask is None:
            attended = self.attend(q, k, v, is_causal=True)
        else:
            attended = self.attend(q, k, v, attn_mask=mask[:, None])
        return self.out(attended.transpose(-3, -2).flatten(-2))


class PostNormBlock(Block):
    """The block of Vaswani et al. 2017, which normalises after each addition."""

    def forward(self, x: Tensor, mask: Tensor | None) -> Tensor:
        """Like `x`, (rows, columns, dim)."""
        x = self.norm_1(x + self.attention(x, mask))
        return self.norm_2(x + self.mlp(x))


def position_codes(positions: Tensor, like: Tensor) -> Tensor:
    """(..., dim): sines and cosines of `positions`, of `like`'s last dimension and dtype.

    Source: Vaswani et al. 2017, section 3.5.
    """
    dim = like.shape[-1]
    halves = torch.arange(0, dim, 2, device=like.device, dtype=like.dtype)
    angles = positions[..., None].to(like.dtype) * torch.exp(halves * (-math.log(10_000) / dim))
    return torch.cat([angles.sin(), angles.cos()], -1)


# ---- losses


def targets_of(tokens: Tensor, lengths: Tensor) -> Tensor:
    """The token that follows each one of a flat batch; NO_TARGET at the last of each sequence.

    Args:
        tokens: int64 (total,), the sequences one after the other.
        lengths: int64 (n,), tokens per sequence.
    """
    targets = tokens.roll(-1)
    targets[lengths.cumsum(0) - 1] = NO_TARGET
    return targets


def losses_of(scores: Tensor, targets: Tensor) -> Tensor:
    """The cross entropy of each cell, 0 where there is no target.

    Args:
        scores: float (..., vocabulary).
        targets: int64 (...), NO_TARGET where nothing is to be predicted.
    """
    losses = F.cross_entropy(
        scores.flatten(0, -2), targets.flatten(), ignore_index=NO_TARGET, reduction="none"
    )
    return losses.view_as(targets)


def padded_losses(model: nn.Module, sequences: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
    """(losses, mask), each (n, longest): of one padded batch; `mask` is True where a token follows.

    Args:
        sequences: int64 (length,) each.
    """
    tokens = nn.utils.rnn.pad_sequence(list(sequences), batch_first=True)
    lengths = torch.tensor([len(sequence) for sequence in sequences], device=tokens.device)
    columns = torch.arange(tokens.shape[1], device=tokens.device)
    mask = columns + 1 < lengths[:, None]
    targets = tokens.roll(-1, 1).masked_fill(~mask, NO_TARGET)
    return losses_of(model(tokens, columns), targets), mask


def rows_of(
    packs: Sequence[tuple[Tensor, Tensor, Tensor]],
    masks: Sequence[Tensor],
    row_length: int | None = None,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Packed rows of one batch: (tokens, positions, mask, targets), filled up to `row_length`.

    A cell that fills a row looks at itself alone and has no target.

    Args:
        packs: of each row (tokens (total,), positions (total,), cu_seqlens (n + 1,)).
        masks: of each row, bool (total, total).
        row_length: at least the tokens of the longest row, which is the default.
    """
    targets = [targets_of(tokens, ends.diff().long()) for tokens, _, ends in packs]
    longest = row_length or max(len(tokens) for tokens, _, _ in packs)

    def filled(rows: Iterable[Tensor], value: int) -> Tensor:
        return torch.stack([F.pad(row, (0, longest - len(row)), value=value) for row in rows])

    square = []
    for mask in masks:
        room = longest - len(mask)
        square.append(F.pad(mask, (0, room, 0, room)))
    itself = torch.eye(longest, dtype=torch.bool, device=masks[0].device)
    return (
        filled([tokens for tokens, _, _ in packs], 0),
        filled([positions for _, positions, _ in packs], 0),
        torch.stack(square) | itself,
        filled(targets, NO_TARGET),
    )


def packed_losses(
    model: nn.Module,
    members_of_rows: Sequence[Sequence[Tensor]],
    pack: Callable[[Sequence[Tensor]], tuple[Tensor, Tensor, Tensor]],
    block_mask: Callable[..., Tensor],
    row_length: int | None = None,
) -> tuple[Tensor, Tensor]:
    """(losses, mask), each (rows, columns): of packed rows; `mask` is True where a token follows.

    Args:
        members_of_rows: the sequences of each row, int64 (length,) each.
        pack, block_mask: as unit 05, part 4, asks for.
        row_length: as in `rows_of`.
    """
    packs = [pack(members) for members in members_of_rows]
    masks = [block_mask(ends.diff().long(), causal=True) for _, _, ends in packs]
    tokens, positions, mask, targets = rows_of(packs, masks, row_length)
    return losses_of(model(tokens, positions, mask), targets), targets != NO_TARGET


def gradient_of(model: nn.Module, loss: Tensor) -> Tensor:
    """The gradient of `loss` for all parameters as one vector."""
    parts = torch.autograd.grad(loss, list(model.parameters()), retain_graph=True)
    return torch.cat([part.flatten() for part in parts])


def loss_on(model: nn.Module, sequences: Sequence[Tensor], at_once: int = 16) -> float:
    """The mean loss over all tokens that follow one, sorted by length to be fast."""
    ordered = sorted(sequences, key=len)
    total = 0.0
    count = 0
    with torch.no_grad():
        for start in range(0, len(ordered), at_once):
            losses, mask = padded_losses(model, ordered[start : start + at_once])
            total += losses.sum().item()
            count += int(mask.sum())
    return total / count


# ---- torch.compile


def graphs_compiled(
    model: Callable[..., object], inputs: Iterable[tuple], dynamic: bool | None = False
) -> int:
    """How many graphs `torch.compile` makes for `model`.

    Nothing is compiled to machine code, so it takes little time; see `backend="eager"`.

    Args:
        inputs: the arguments of each call.
        dynamic: of torch.compile. False: each shape gets a graph; None, its default: a size that
            changes is made dynamic; True: sizes are dynamic from the start.
    """
    made = []

    def counted(graph: torch.fx.GraphModule, _: Sequence[Tensor]) -> Callable:
        made.append(graph)
        return graph.forward

    torch._dynamo.reset()
    limits = dict(recompile_limit=1000, accumulated_recompile_limit=1000)
    with torch._dynamo.config.patch(**limits), torch.no_grad():
        compiled = torch.compile(model, backend=counted, dynamic=dynamic)
        for arguments in inputs:
            compiled(*arguments)
    torch._dynamo.reset()
    return len(made)
