"""How long a training takes to a target, by batch size: runs -> updates, seconds, two formulas.

Part 5 of unit 03 predicts the seconds to the target, u (1 + B_c / B) (c + s B), and measures them.
The learning rates are tuned for each batch size, on a grid of factors of two, by `course bench ncf
critical`.
"""

import functools
import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from types import SimpleNamespace
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from course.measure.comparison import compare, ratio_interval
from course.training.recommender import SAMPLES_PER_POSITIVE, Experiment
from course.training.recommender_loop import History, Step

# Adam: {times the base batch: (learning rate, updates to the target, about)}
TUNED = {
    4: (1 / 64, 240),
    16: (1 / 32, 78),
    64: (1 / 16, 31),
    192: (1 / 16, 20),
    576: (1 / 4, 13),
}
EVALUATIONS = 20  # on the way to the target
TIMED_UPDATES = 3  # per run, when one update is timed


class Cost(NamedTuple):
    """Seconds of an update: `per_update` + `per_sample` * batch, neither below 0."""

    per_update: float
    per_sample: float

    @property
    def samples(self) -> float:
        """c / s, the samples that cost as much as an update; infinite where samples cost 0."""
        return self.per_update / self.per_sample if self.per_sample else math.inf

    def fastest(self, critical: float) -> float:
        """The batch that reaches a target first, by the formula; infinite if the largest does.

        Args:
            critical: batch beyond which few updates are saved. An estimate may be negative: then
                more than one sample per update is wasted, and this is 0.
        """
        return math.sqrt(self.samples * critical) if critical > 0 else 0.0


class Need(NamedTuple):
    """Updates to the target: `fewest` * (1 + `critical` / batch)."""

    fewest: float
    critical: float


def adam(parameters: Any, times: int) -> torch.optim.Adam:
    """Adam with the learning rate that suits `times` the base batch."""
    return torch.optim.Adam(parameters, lr=TUNED[times][0])


def run_to_target(
    experiment: Experiment,
    sizes: SimpleNamespace,
    times: int,
    seed: int,
    step: Step | None = None,
) -> History:
    """The History of Adam with `times` the base batch until it reaches `sizes.target`."""
    batch = times * sizes.base_batch
    n_samples = SAMPLES_PER_POSITIVE * len(experiment.data.train_users)
    every = max(1, TUNED[times][1] // EVALUATIONS)
    return experiment.train_fresh(
        lambda parameters: adam(parameters, times),
        batch,
        seed,
        epochs=sizes.target_epochs,
        target=sizes.target,
        evaluate_every=every * batch / n_samples,
        step=step,
    )


def metered_step(
    pieces: int, make_meters: Callable[[torch.optim.Optimizer], list[Any]], meters: list[Any]
) -> Step:
    """A training step in `pieces` equal micro-batches, which calls meters after each backward.

    The meters are made at the first step, with its optimizer, and put into `meters`. A batch that
    is smaller than the first one, such as the last of an epoch, is trained on without them.
    """
    rows_of_first: list[int] = []

    def step(
        model: nn.Module,
        users: Tensor,
        items: Tensor,
        labels: Tensor,
        optimizer: torch.optim.Optimizer,
    ) -> Tensor:
        if not rows_of_first:
            rows_of_first.append(len(labels))
            meters.extend(make_meters(optimizer))
        optimizer.zero_grad()
        total = torch.zeros((), device=labels.device)
        parts = (users.chunk(pieces), items.chunk(pieces), labels.chunk(pieces))
        for some_users, some_items, some_labels in zip(*parts, strict=True):
            logits = model(some_users, some_items)
            loss = F.binary_cross_entropy_with_logits(logits, some_labels, reduction="sum")
            loss = loss / len(labels)
            loss.backward()
            total += loss.detach()
            if len(labels) == rows_of_first[0]:
                for meter in meters:
                    meter.after_backward()
        optimizer.step()
        return total

    return step


def seconds_per_update(experiment: Experiment, sizes: SimpleNamespace) -> dict[int, float]:
    """{batch: seconds of an update of Adam}, of all `sizes.critical_times` in mixed rounds."""
    ways = {}
    for times in sizes.critical_times:
        batch = times * sizes.base_batch
        make_optimizer = functools.partial(adam, times=times)
        ways[f"{batch:,}"] = experiment.some_updates(make_optimizer, batch, TIMED_UPDATES)
    device = experiment.data.device
    compared = compare(ways, device=device, seconds=sizes.seconds, progress=False)
    found = {}
    for times, way in zip(sizes.critical_times, ways, strict=True):
        found[times * sizes.base_batch] = compared.time(way).estimate / TIMED_UPDATES
    return found


def cost(seconds: Mapping[int, float]) -> Cost:
    """The Cost that {batch: seconds of an update} has at its smallest and its largest batch.

    If the largest takes no longer, as on a GPU that it does not fill, a sample costs 0.
    """
    small, large = min(seconds), max(seconds)
    per_sample = (seconds[large] - seconds[small]) / (large - small)
    if per_sample <= 0:
        return Cost((seconds[small] + seconds[large]) / 2, 0.0)
    return Cost(max(seconds[small] - per_sample * small, 0.0), per_sample)


def fastest_batch(seconds: Mapping[int, Sequence[float]]) -> int | None:
    """The batch that takes fewer seconds than all others, or None if that is not decided.

    Args:
        seconds: {batch: seconds of each seed, the same seeds for all}.
    """
    best = min(seconds, key=lambda batch: statistics.median(seconds[batch]))
    fewest = torch.tensor(seconds[best], dtype=torch.float64)
    for batch, own in seconds.items():
        if batch == best or min(own) == math.inf:  # no seed reached the target
            continue
        longer = ratio_interval(torch.tensor(own, dtype=torch.float64), fewest)
        if not longer.low > 1:  # also if it is NaN
            return None
    return best


def fitted(updates: Mapping[int, float]) -> Need:
    """The Need that fits {batch: updates} best, in the mean square of logarithms.

    NaN for both unless three batches or more reached the target.
    """
    points = [(batch, own) for batch, own in updates.items() if math.isfinite(own)]
    if len(points) < 3:
        return Need(math.nan, math.nan)
    best = (math.inf, Need(math.nan, math.nan))
    for critical in torch.logspace(1, 7, 601, base=10).tolist():
        logs = [math.log(own / (1 + critical / batch)) for batch, own in points]
        need = Need(math.exp(statistics.mean(logs)), critical)
        best = min(best, (statistics.pvariance(logs), need))
    return best[1]


def train_in_stages(
    experiment: Experiment, stages: Sequence[tuple[float, int, float]], seed: int
) -> tuple[float, int]:
    """(HR@10 at the end, updates) of Adam in stages.

    Args:
        stages: (epochs, batch size, learning rate) of each.
    """
    model = experiment.fresh_model(seed=seed)
    optimizer = torch.optim.Adam(model.parameters())
    updates = 0
    history = History()
    for number, (epochs, batch, lr) in enumerate(stages):
        for group in optimizer.param_groups:
            group["lr"] = lr
        order = seed * len(stages) + number  # new batches in each stage
        history = experiment.train(
            model, optimizer, batch, epochs, seed=order, evaluate_every=epochs
        )
        updates += history.updates
    return history.hit_rate[-1], updates
