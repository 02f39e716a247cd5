"""Train the ragged transformer on batches in a given order: order -> *curve* -> plots, claims.

An update takes the batches of one step, each a list of sequence numbers, and weighs every token
alike. What a training has cost is counted in cells of its padded batches, so that it is the same on
a busy machine; seconds are kept, too, without those of validation.
"""

import itertools
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

import torch
from torch import Tensor, nn
from tqdm import tqdm

from course.datasets.sequences import Sequences
from course.errors import CourseError
from course.measure.comparison import Interval, difference_interval, ratio_interval
from course.measure.timing import now
from course.training.ragged_transformer import (
    RaggedTransformer,
    gradient_of,
    loss_on,
    padded_losses,
)
from course.training.segments import relative_difference

Batch = Sequence[int]

LEARNING_RATE = 3e-3


@dataclass(frozen=True)
class Curve:
    """The validation `losses` of one training, each after so many `updates`, `cells`, `seconds`.

    The first point is the untrained model. `model` is the one after the last update.
    """

    updates: list[int]
    cells: list[int]
    seconds: list[float]
    losses: list[float]
    model: nn.Module | None = None

    def at_update(self, number: int) -> float:
        """The loss that was measured after so many updates."""
        return self.losses[self.updates.index(number)]

    def at_cells(self, cells: float) -> float:
        """The loss after so many cells, on the line between the two measured next to it.

        Raises: CourseError before the first measured point of the training, or after the last one.
        """
        points = zip(self.cells[1:], self.losses[1:], strict=True)
        for (begin, before), (end, after) in itertools.pairwise(points):
            if begin <= cells <= end:
                return before + (after - before) * (cells - begin) / (end - begin)
        raise CourseError(
            f"the loss after {cells:,} cells was asked for, it was measured from "
            f"{self.cells[1]:,} to {self.cells[-1]:,}; train longer, or measure more often."
        )


def train(
    data: Sequences,
    held_out: Sequences,
    steps: Iterator[Sequence[Batch]],
    *,
    dim: int,
    layers: int,
    updates: int,
    every: int,
    cells: int = 0,
    seed: int = 0,
    device: torch.device | str = "cpu",
) -> Curve:
    """The validation curve of a new model that is trained on `data`.

    Args:
        steps: yields the batches of each update, without end.
        updates, cells: the training ends when it has had so many of both.
        every: after so many updates the loss on `held_out` is measured, and at the end.
    """
    torch.manual_seed(seed)
    model = RaggedTransformer(data.vocabulary, dim, layers).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=LEARNING_RATE, weight_decay=0.0)
    check = [held_out[i][0].to(device) for i in range(len(held_out))]
    curve = Curve([0], [0], [0.0], [loss_on(model, check)], model)
    used = 0
    spent = 0.0
    for number in itertools.count(1):
        begin = now(device)
        batches = [_texts(data, batch, device) for batch in next(steps)]
        used += update(model, optimizer, batches)
        spent += now(device) - begin
        is_over = number >= updates and used >= cells
        if is_over or number % every == 0:
            curve.updates.append(number)
            curve.cells.append(used)
            curve.seconds.append(spent)
            curve.losses.append(loss_on(model, check))
        if is_over:
            return curve


def train_each(
    orders: Sequence[str],
    data: Sequences,
    held_out: Sequences,
    steps: Callable[[str, Sequences, int], Iterator[Sequence[Batch]]],
    seeds: int,
    *,
    to_equal_cells: bool = False,
    **shape: object,
) -> dict[str, list[Curve]]:
    """{order: its Curve for each seed}; trainings of one seed follow each other.

    On a CPU they run in one thread: so small a model gains nothing by more, and on a busy machine
    threads that wait for each other would take most of the time.

    Args:
        steps: called with an order, the data and the seed; see `train`.
        to_equal_cells: whether each training lasts until it has had the cells of the first order.
        shape: what `train` takes of the model.
    """
    runs = {order: [] for order in orders}
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        for seed in tqdm(range(seeds), "seeds", file=sys.stdout, leave=False):
            least = 0
            for order in orders:
                of_seed = steps(order, data, seed)
                curve = train(data, held_out, of_seed, cells=least, seed=seed, **shape)
                runs[order].append(curve)
                if to_equal_cells:
                    least = runs[orders[0]][-1].cells[-1]
    finally:
        torch.set_num_threads(threads)
    return runs


def update(
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    batches: Sequence[Sequence[Tensor]],
) -> int:
    """Take one step on the mean over all tokens of `batches`, one by one; return its cells."""
    total = 0
    for batch in batches:
        total += sum(len(text) - 1 for text in batch)
    cells = 0
    optimizer.zero_grad()
    for batch in batches:
        losses, _ = padded_losses(model, batch)
        cells += losses.numel()
        (losses.sum() / max(total, 1)).backward()
    optimizer.step()
    return cells


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


def with_the_tokens_of(
    sampler: Iterable[Batch], lengths: Tensor, seed: int
) -> Callable[[int], Iterable[Batch]]:
    """Batches of texts drawn at random, each with the tokens of a batch of `sampler`.

    So an update has as many tokens as one of `sampler`, up to its last text, but texts of any
    length. One text follows the other through random orders of the set. For `steps_of`.

    Args:
        sampler: has `set_epoch`.
    """
    drawn = _shuffled_without_end(len(lengths), seed)

    def batches(epoch: int) -> Iterator[Batch]:
        sampler.set_epoch(epoch)
        for batch in sampler:
            wanted = int(lengths[batch].sum())
            found = []
            while wanted > 0:
                found.append(next(drawn))
                wanted -= int(lengths[found[-1]])
            yield found

    return batches


def _shuffled_without_end(n, seed):
    rng = torch.Generator().manual_seed(seed)
    while True:
        yield from torch.randperm(n, generator=rng).tolist()


def by_updates(runs: Mapping[str, Sequence[Curve]], number: int) -> dict[str, list[float]]:
    """{order: the validation loss of each seed after so many updates}."""
    return {
        order: [curve.at_update(number) for curve in of_order] for order, of_order in runs.items()
    }


def by_cells(runs: Mapping[str, Sequence[Curve]], number: int) -> dict[str, list[float]]:
    """{order: the loss of each seed, after the cells of so many updates of the first order}."""
    base = next(iter(runs.values()))
    found = {}
    for order, of_order in runs.items():
        found[order] = []
        for curve, of_base in zip(of_order, base, strict=True):
            cells = of_base.cells[of_base.updates.index(number)]
            found[order].append(curve.at_cells(cells))
    return found


def differences(losses: Sequence[float], others: Sequence[float]) -> list[float]:
    """`losses` minus `others`, seed by seed."""
    return [loss - other for loss, other in zip(losses, others, strict=True)]


def seconds_over(runs: Mapping[str, Sequence[Curve]], order: str, base: str) -> Interval:
    """How many times the seconds of `base` the trainings of `order` took, by pairs of seeds."""
    taken = {}
    for name in (order, base):
        taken[name] = torch.tensor([curve.seconds[-1] for curve in runs[name]])
    return ratio_interval(taken[order], taken[base])


def lowest(losses: Mapping[str, Sequence[float]]) -> list[str]:
    """The orders with the lowest losses: the best one, and those not shown to be above it.

    Args:
        losses: {order: loss of each seed}.
    """
    best = min(losses, key=lambda name: fmean(losses[name]))
    found = [best]
    for name, of_order in losses.items():
        interval = difference_interval(of_order, losses[best])
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
        found[way] = relative_difference(averaged, expected)
    return found


def _texts(data, batch, device):
    return [data[int(i)][0].to(device) for i in batch]
