"""A sharded checkpoint for another number of ranks: *shards of flat numbers* -> other shards.

N ranks keep ceil(numbers / N) numbers each; the last shards are filled up with zeros. Which pieces
of the old shards a new rank needs is a task of unit 07, part 5.
"""

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.utils import parameters_to_vector, vector_to_parameters

from course.training.ragged_transformer import RaggedTransformer
from course.training.small_gpt import next_token_loss, random_tokens

# (numbers, old ranks, new ranks, new rank) -> (old rank, start, end) in the shard of that rank
Pieces = Callable[[int, int, int, int], Sequence[tuple[int, int, int]]]


class Recut(NamedTuple):
    """The shards of the new ranks, and how often each number of each old shard was read."""

    shards: list[Tensor]
    reads: Tensor  # int64 (old ranks, numbers of a shard)


def shards_of(flat: Tensor, ranks: int) -> list[Tensor]:
    """`flat` in equal shards, the last ones filled up with zeros."""
    size = math.ceil(len(flat) / ranks)
    padded = flat.new_zeros(ranks * size)
    padded[: len(flat)] = flat
    return list(padded.view(ranks, size))


def recut(shards: Sequence[Tensor], numbers: int, ranks: int, pieces: Pieces) -> Recut:
    """The shards of `ranks` new ranks, of which each reads its `pieces`."""
    reads = torch.zeros(len(shards), len(shards[0]), dtype=torch.int64)
    size = math.ceil(numbers / ranks)
    made = []
    for rank in range(ranks):
        found = []
        for owner, start, end in pieces(numbers, len(shards), ranks, rank):
            found.append(shards[owner][start:end])
            reads[owner, start:end] += 1
        shard = shards[0].new_zeros(size)
        joined = torch.cat([shard[:0], *found])
        shard[: len(joined)] = joined
        made.append(shard)
    return Recut(made, reads)


def reads_each_number_once(numbers: int, old: int, new: int, pieces: Pieces) -> bool:
    """Whether `new` ranks read each number that `old` ranks saved once, and no filling."""
    flat = torch.arange(1, numbers + 1, dtype=torch.float64)
    made = recut(shards_of(flat, old), numbers, new, pieces)
    is_number = torch.stack(shards_of(torch.ones(numbers, dtype=torch.int64), old))
    is_same = torch.equal(torch.cat(made.shards)[:numbers], flat)
    return is_same and torch.equal(made.reads, is_number)


def weights_after_a_restart(pieces: Pieces, old: int, new: int) -> tuple[Tensor, Tensor]:
    """A small GPT after six steps of Adam: weights (in one go, with a checkpoint after three).

    The checkpoint has shards of the weights and of Adam's two averages on `old` ranks. They are
    loaded on `new` ranks, whose shards are put together.
    """
    whole = _Training()
    whole.take_steps(range(6))
    before = _Training()
    before.take_steps(range(3))
    after = _Training()
    after.take_steps(range(1))  # so that Adam has averages, which are then replaced
    loaded = []
    for flat in before.state():
        made = recut(shards_of(flat, old), len(flat), new, pieces)
        loaded.append(torch.cat(made.shards)[: len(flat)])
    after.load(loaded, step=3)
    after.take_steps(range(3, 6))
    return whole.state()[0], after.state()[0]


class _Training:
    """A small GPT and Adam, whose state can be read and written as flat tensors."""

    def __init__(self) -> None:
        torch.manual_seed(0)
        self.model = RaggedTransformer(256, 16, 2)
        self.optimizer = torch.optim.Adam(self.model.parameters())

    def take_steps(self, steps: Sequence[int]) -> None:
        for step in steps:
            self.optimizer.zero_grad()
            next_token_loss(self.model, random_tokens(2, seed=step)).backward()
            self.optimizer.step()

    def state(self) -> list[Tensor]:
        """Weights and both averages of Adam, flat."""
        flat = [parameters_to_vector(self.model.parameters()).detach()]
        for name in ("exp_avg", "exp_avg_sq"):
            flat.append(parameters_to_vector(self._averages(name)))
        return flat

    def load(self, flat: Sequence[Tensor], step: int) -> None:
        weights, *averages = flat
        with torch.no_grad():
            vector_to_parameters(weights.clone(), self.model.parameters())
        for name, values in zip(("exp_avg", "exp_avg_sq"), averages, strict=True):
            pieces = values.split([average.numel() for average in self._averages(name)])
            for average, piece in zip(self._averages(name), pieces, strict=True):
                average.copy_(piece.view_as(average))
        for kept in self.optimizer.state.values():
            kept["step"].fill_(step)

    def _averages(self, name: str) -> list[Tensor]:
        state = self.optimizer.state
        return [state[parameter][name] for parameter in self.model.parameters()]
