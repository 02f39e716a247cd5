"""The texts of an epoch, padded or packed: way, model -> *gradient*, cells, pairs, bytes.

The ways are "random batches" and "bucketed batches", which are padded, and "flat" and "packed
rows", which pack the random batches. The sampler and how to pack are exercises of unit 05.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from types import SimpleNamespace

import torch
from torch import Tensor, nn

from course.datasets.sequences import Sequences
from course.training.grouping import bytes_for_backward, in_rows
from course.training.ragged_transformer import packed_losses, padded_losses

Batch = Sequence[Sequence[int]]  # rows of text numbers

RANDOM = "random batches"
BUCKETED = "bucketed batches"
FLAT = "flat"
PACKED = "packed rows"
PADDED = (RANDOM, BUCKETED)  # a row has one text
WINDOW = 50  # batches that the sampler sorts together, for buckets


@dataclass
class EpochInFourWays:
    """All `texts` of an epoch in batches, of each way; those of seed 0 until `shuffle` is called.

    Args:
        make_sampler: called with (lengths, batch_size, window, seed=...); gives the batches.
        pack, block_mask: as part 4 asks for.
        size: has `training_batch`, texts per batch, and `row_length`, tokens of a packed row.
    """

    ways = (RANDOM, BUCKETED, FLAT, PACKED)

    texts: Sequences
    make_sampler: Callable[..., Iterable[list[int]]]
    pack: Callable[[Sequence[Tensor]], tuple[Tensor, Tensor, Tensor]]
    block_mask: Callable[..., Tensor]
    size: SimpleNamespace
    device: torch.device | str = "cpu"
    batches: dict[str, list[Batch]] = field(init=False)

    def __post_init__(self) -> None:
        self.shuffle(0)

    def shuffle(self, seed: int) -> None:
        """Draw the batches again."""
        lengths = self.texts.lengths
        batch_size = self.size.training_batch
        shuffled = list(self.make_sampler(lengths, batch_size, 1, seed=seed))
        bucketed = list(self.make_sampler(lengths, batch_size, WINDOW, seed=seed))
        in_short_rows = []
        for batch in shuffled:
            in_short_rows.append(in_rows(batch, lengths[batch], self.size.row_length))
        self.batches = {
            RANDOM: [_one_per_row(batch) for batch in shuffled],
            BUCKETED: [_one_per_row(batch) for batch in bucketed],
            FLAT: [[batch] for batch in shuffled],
            PACKED: in_short_rows,
        }

    def cells(self, way: str) -> int:
        """The cells of the epoch."""
        return sum(len(batch) * self._columns(way, batch) for batch in self.batches[way])

    def pairs(self, way: str) -> int:
        """The pairs of cells that attention computes in the epoch.

        Under a mask these are all pairs of a row. Padded batches need none, and causal attention
        computes the pairs of a cell with itself and with the cells to its left.
        """
        total = 0
        for batch in self.batches[way]:
            columns = self._columns(way, batch)
            of_row = columns * (columns + 1) // 2 if way in PADDED else columns**2
            total += len(batch) * of_row
        return total

    def loss(self, way: str, batch: Batch, model: nn.Module) -> Tensor:
        """What a batch adds to the mean loss of the epoch over all tokens that follow one."""
        rows = [[self.texts[i][0].to(self.device) for i in row] for row in batch]
        if way in PADDED:
            losses, _ = padded_losses(model, [text for (text,) in rows])
        else:
            row_length = self.size.row_length if way == PACKED else None
            losses, _ = packed_losses(model, rows, self.pack, self.block_mask, row_length)
        n_predicted = len(self.texts.values) - len(self.texts)
        return losses.sum() / n_predicted

    def backward(self, way: str, model: nn.Module) -> None:
        """Compute the gradient of the epoch."""
        model.zero_grad()
        for batch in self.batches[way]:
            self.loss(way, batch, model).backward()

    def bytes_of_largest(self, way: str, model: nn.Module) -> int:
        """The bytes for backward of the batch that keeps most."""
        weights = list(model.parameters())
        kept = []
        for batch in self.batches[way]:
            kept.append(bytes_for_backward(partial(self.loss, way, batch, model), weights))
        return max(kept)

    def _columns(self, way, batch):
        if way == PACKED:
            return self.size.row_length
        return max(int(self.texts.lengths[row].sum()) for row in batch)


def _one_per_row(batch):
    return [[i] for i in batch]
