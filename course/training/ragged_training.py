"""Train the ragged transformer on batches in a given order: order -> *curve* -> plots, claims.

An update takes the batches of one step, each a list of sequence numbers, and weighs every token
alike. Validation is not counted as time.
"""

import itertools
import math
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from tqdm import tqdm

from course.datasets.sequences import Sequences
from course.measure.comparison import difference_interval
from course.measure.timing import now
from course.training.ragged_transformer import (
    RaggedTransformer,
    gradient_of,
    loss_on,
    padded_losses,
)

Batch = Sequence[int]
Losses = Callable[[nn.Module, Sequence[Tensor]], tuple[Tensor, Tensor]]
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
    losses_of_batch: Losses = padded_losses,
) -> Curve:
    """The validation curve of a new model that is trained on `data`.

    Args:
        steps: yields the batches of each update, without end.
        points: how often the loss on `held_out` is measured.
        losses_of_batch: called with the model and the texts of a batch; gives the losses, 0 where
            nothing is predicted, and a mask.
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
        batches = [_texts(data, batch, device) for batch in next(steps)]
        update(model, optimizer, batches, losses_of_batch)
        spent += now(device) - begin
        if number % every == 0 or number == updates:
            curve.updates.append(number)
            curve.seconds.append(spent)
            curve.losses.append(loss_on(model, check))
    return curve


def train_each(
    orders: Sequence[str],
    data: Sequences,
    held_out: Sequences,
    steps: Callable[[str, Sequences, int], Iterator[Sequence[Batch]]],
    seeds: int,
    **shape: object,
) -> dict[str, list[Curve]]:
    """{order: its Curve for each seed}; trainings of one seed follow each other.

    On a CPU they run in one thread: so small a model gains nothing by more, and on a busy machine
    threads that wait for each other would take most of the time.

    Args:
        steps: called with an order, the data and the seed; see `train`.
        shape: what `train` takes of the model.
    """
    runs = {order: [] for order in orders}
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        for seed in tqdm(range(seeds), "seeds", file=sys.stdout, leave=False):
            for order in orders:
                of_seed = steps(order, data, seed)
                runs[order].append(train(data, held_out, of_seed, seed=seed, **shape))
    finally:
        torch.set_num_threads(threads)
    return runs


def update(
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    batches: Sequence[Sequence[Tensor]],
    losses_of_batch: Losses = padded_losses,
) -> None:
    """Take one step on the mean over all tokens of `batches`, computed one by one."""
    total = 0
    for batch in batches:
        total += sum(len(text) - 1 for text in batch)
    optimizer.zero_grad()
    for batch in batches:
        losses, _ = losses_of_batch(model, batch)
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


def epochs_of(sampler: Iterable[Batch]) -> Callable[[int], Iterable[Batch]]:
    """A function from the number of an epoch to its batches, for `steps_of`.

    Args:
        sampler: has `set_epoch`.
    """

    def batches(epoch: int) -> Iterable[Batch]:
        sampler.set_epoch(epoch)
        return sampler

    return batches


def from_short_to_long(lengths: Tensor, batch_size: int) -> Callable[[int], Iterable[Batch]]:
    """The batches of the sorted set, the same in each epoch, for `steps_of`."""
    batches = [batch.tolist() for batch in lengths.argsort(stable=True).split(batch_size)]
    return lambda epoch: batches


def ends(curves: Sequence[Curve], seconds: float = math.inf) -> list[float]:
    """The last validation loss of each training, or that after so many seconds."""
    return [curve.at_time(seconds) for curve in curves]


def shortest(runs: Mapping[str, Sequence[Curve]]) -> float:
    """The seconds that every training has lasted."""
    return min(curve.seconds[-1] for curves in runs.values() for curve in curves)


def lowest(losses: Mapping[str, Tensor]) -> list[str]:
    """The orders with the lowest losses: the best one, and those not shown to be above it.

    Args:
        losses: {order: loss of each seed}.
    """
    best = min(losses, key=lambda name: losses[name].mean().item())
    found = [best]
    for name, of_order in losses.items():
        interval = difference_interval(of_order.tolist(), losses[best].tolist())
        if name != best and not interval.low > 0:
            found.append(name)
    return found


def errors_of_gradient(
    model: nn.Module, members: Sequence[Tensor], ways: Mapping[str, Sequence[Tensor]]
) -> dict[str, float]:
    """How far the average of the ranks' gradients is from that of the mean over all tokens.

    Args:
        members: the texts of all ranks.
        ways: {way: losses of the ranks, whose gradients are averaged}.

    Returns: {way: norm of the difference over the norm}.
    """
    losses, mask = padded_losses(model, members)
    expected = gradient_of(model, losses[mask].mean())
    found = {}
    for way, of_ranks in ways.items():
        gradients = [gradient_of(model, loss) for loss in of_ranks]
        averaged = torch.stack(gradients).mean(0)
        found[way] = ((averaged - expected).norm() / expected.norm()).item()
    return found


def _texts(data, batch, device):
    return [data[int(i)][0].to(device) for i in batch]
