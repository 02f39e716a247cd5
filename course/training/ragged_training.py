"""Train the ragged transformer on batches in a given order: order -> *curve* -> plots, claims.

An update takes the batches of one step, each a list of sequence numbers, and weighs every token
alike. Validation is not counted as time.
"""

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from course.datasets.sequences import Sequences
from course.measure.timing import now
from course.training.ragged_transformer import RaggedTransformer, loss_on, padded_losses

Batch = Sequence[int]
LEARNING_RATE = 3e-3


@dataclass(frozen=True)
class Curve:
    """What one training reached: after `updates` and `seconds`, the validation `losses`."""

    updates: list[int]
    seconds: list[float]
    losses: list[float]

    def at_time(self, seconds: float) -> float:
        """The loss after so many seconds, on the line between the two measured next to it."""
        pairs = itertools.pairwise(zip(self.seconds, self.losses, strict=True))
        for (begin, before), (end, after) in pairs:
            if begin <= seconds <= end:
                return before + (after - before) * (seconds - begin) / (end - begin)
        return self.losses[-1]


def train(
    data: Sequences,
    held_out: Sequences,
    steps: Iterator[Sequence[Batch]],
    *,
    dim: int,
    layers: int,
    updates: int,
    points: int = 6,
    seed: int = 0,
    device: torch.device | str = "cpu",
) -> Curve:
    """The validation curve of a new model that is trained on `data`.

    Args:
        steps: yields the batches of each update, without end.
        points: how often the loss on `held_out` is measured.
    """
    torch.manual_seed(seed)
    model = RaggedTransformer(data.vocabulary, dim, layers).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=LEARNING_RATE, weight_decay=0.0)
    check = [held_out[i][0].to(device) for i in range(len(held_out))]
    curve = Curve([0], [0.0], [loss_on(model, check)])
    spent = 0.0
    every = max(updates // points, 1)
    for number in range(1, updates + 1):
        begin = now(device)
        update(model, optimizer, [_texts(data, batch, device) for batch in next(steps)])
        spent += now(device) - begin
        if number % every == 0 or number == updates:
            curve.updates.append(number)
            curve.seconds.append(spent)
            curve.losses.append(loss_on(model, check))
    return curve


def update(
    model: nn.Module, optimizer: torch.optim.Optimizer, batches: Sequence[Sequence[Tensor]]
) -> None:
    """Take one step on the mean over all tokens of `batches`, which are padded one by one."""
    total = 0
    for batch in batches:
        total += sum(len(text) - 1 for text in batch)
    optimizer.zero_grad()
    for batch in batches:
        losses, _ = padded_losses(model, batch)  # 0 at the padding
        (losses.sum() / max(total, 1)).backward()
    optimizer.step()


def steps_of(
    batches_of_epoch: Callable[[int], Iterable[Batch]], per_update: int = 1
) -> Iterator[list[Batch]]:
    """Yield `per_update` batches after each other, epoch after epoch.

    Args:
        batches_of_epoch: called with the number of the epoch.
    """
    for epoch in itertools.count():
        batches = iter(batches_of_epoch(epoch))
        while step := list(itertools.islice(batches, per_update)):
            yield step


def _texts(data, batch, device):
    return [data[int(i)][0].to(device) for i in batch]
