"""How much of a script's batches is padding, read from the batches alone.

All numbers count the cells of the batches that were seen. A few batches say little about how much
sorting would save in an epoch: `bucketed` sorts in a window of these batches, and each of 8 batches
then spans an eighth of the lengths. A wider window leaves less padding.
"""

from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from typing import Any

import torch

from course.checkup.tensors import tensors_in

PADDING_MIN = 0.02  # share of cells that is padding; less is not worth a word
# Share of rows that end in equal tokens: one repeated token at the end is chance, several in a
# quarter of the rows are padding.
SHORT_ROWS_MIN = 0.25


@dataclass(frozen=True)
class Padding:
    """Cells per token of the batches that were seen, and of other ways to batch them.

    Attributes:
        bucketed: if the sequences seen were sorted by length in one window of `batches` batches. An
            epoch sorted in windows of as many batches has about as much padding; one with wider
            windows has less.
    """

    waste: float  # as they are
    longest: float  # if each batch were padded to its longest sequence
    bucketed: float
    sequences: int
    lengths: torch.Tensor  # int64 (sequences,): tokens
    batches: int  # that were seen, and so the window of `bucketed`


def padding_of(batches: Iterable[Any]) -> dict[str, Any]:
    """The fields of Padding of `batches` by name; {} where nothing is padded."""
    found = find_padding(batches)
    return asdict(found) if found else {}


def find_padding(batches: Iterable[Any]) -> Padding | None:
    """The Padding of `batches`, or None where nothing is padded."""
    lengths_per_batch = []
    cells = 0
    tight_cells = 0
    for batch in batches:
        rows = padded_rows(batch)
        if rows is None:
            continue
        lengths, width = rows
        lengths_per_batch.append(lengths.cpu())
        cells += len(lengths) * width
        tight_cells += len(lengths) * int(lengths.max())
    if not lengths_per_batch:
        return None
    lengths = torch.cat(lengths_per_batch)
    tokens = int(lengths.sum())
    if tokens / cells > 1 - PADDING_MIN:
        return None
    batch_size = max(1, len(lengths) // len(lengths_per_batch))
    bucketed_cells = _cells_in_buckets(lengths, batch_size)
    return Padding(
        waste=cells / tokens,
        longest=tight_cells / tokens,
        bucketed=bucketed_cells / tokens,
        sequences=len(lengths),
        lengths=lengths,
        batches=len(lengths_per_batch),
    )


def padded_rows(batch: Any) -> tuple[torch.Tensor, int] | None:
    """(tokens per sequence, int64 (n,); cells per row), or None if a batch shows no padding.

    It is seen in a mask, else in rows of whole numbers that end in equal ones.
    """
    rows = list(_rows_of_numbers(batch))
    masks = [t for t in rows if _is_binary(t)]
    for mask in masks:
        lengths = _lengths_from_mask(mask)
        if lengths is not None:
            return lengths, mask.shape[1]
    for tokens in rows:
        if not _is_binary(tokens):
            lengths = _lengths_from_tokens(tokens)
            if lengths is not None:
                return lengths, tokens.shape[1]
    return None


def _rows_of_numbers(batch: Any) -> Iterator[torch.Tensor]:
    """The (n, width) tensors of whole numbers in a batch."""
    for t in tensors_in(batch):
        if t.dim() == 2 and t.shape[1] > 1 and not t.is_floating_point():
            yield t


def _is_binary(t: torch.Tensor) -> bool:
    return t.dtype == torch.bool or bool(t.max() == 1 and t.min() == 0)


def _lengths_from_mask(t: torch.Tensor) -> torch.Tensor | None:
    """Lengths if `t` marks the tokens, or the padding, and in each row the tokens come first."""
    first = t[:, 0].bool()
    last = t[:, -1].bool()
    if first.all():
        mask = t.bool()
    elif last.any() and not first.any():
        mask = ~t.bool()
    else:
        return None
    tokens_first = mask.sort(1, descending=True).values
    return mask.sum(1) if bool((tokens_first == mask).all()) else None


def _lengths_from_tokens(t: torch.Tensor) -> torch.Tensor | None:
    """Lengths if enough rows of `t` end in several equal tokens."""
    pad = t[:, -1].mode().values
    position = torch.arange(1, t.shape[1] + 1, device=t.device)
    ends = (t != pad).long() * position
    lengths = ends.max(1).values.clamp(min=1)
    short = (lengths < t.shape[1] - 1).float().mean()
    return lengths if short > SHORT_ROWS_MIN else None


def _cells_in_buckets(lengths: torch.Tensor, batch_size: int) -> int:
    """Cells of batches of similar lengths, sorted in one window."""
    cells = 0
    for batch in lengths.sort().values.split(batch_size):
        cells += len(batch) * int(batch.max())
    return cells
