"""Train a recommender on implicit feedback and record its accuracy and speed.

An epoch is made on the device: all positives once and new negatives for each, drawn, shuffled and
cut into batches there, without a DataLoader and without a host sync between two updates. How
negatives are drawn and how a ranking is scored are arguments, because both are exercises of unit
03_large_batch.
"""

import ctypes
import itertools
import math
import platform
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from course.datasets.movielens import Ratings
from course.measure.timing import now
from course.training.metrics import RankMetrics, candidates, evaluate

REPEATS = 5  # timed runs in mode "perf"
TEST_NEGATIVES = 100  # per user, among which the held-out item is ranked
HELD_OUT_SEEDS = (1, 2)  # of these negatives, for the test and for validation

Batch = tuple[Tensor, Tensor, Tensor]  # (users, items, labels)
# (users (n,), seen, generator) -> items (n,)
SampleNegatives = Callable[[Tensor, Tensor, torch.Generator | None], Tensor]
# (users, timestamps) -> (rest, latest), two masks over the rows
LeaveOneOut = Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]
# (model, users, items, labels, optimizer) -> mean loss of the batch
Step = Callable[[nn.Module, Tensor, Tensor, Tensor, torch.optim.Optimizer], Tensor]
# (step, steps_per_epoch) -> learning rate
Schedule = Callable[[int, int], float]


@dataclass
class Interactions:
    """Training positives and test candidates of implicit feedback, all tensors on one device.

    train_users, train_items: int64 (n,), one row per positive.
    seen: bool (n_users, n_items), True for these.
    test_items: int64 (n_users, 1 + n_negatives), held-out item first; duplicate: bool, as
        `metrics.candidates` says.
    valid_items, valid_duplicate: the same for a second held-out item per user, on which everything
        is tuned; or None.
    """

    train_users: Tensor
    train_items: Tensor
    n_users: int
    n_items: int
    seen: Tensor
    test_items: Tensor
    duplicate: Tensor
    valid_items: Tensor | None = None
    valid_duplicate: Tensor | None = None

    @classmethod
    def from_split(
        cls,
        train_users: Tensor,
        train_items: Tensor,
        test_items: Tensor,
        test_negatives: Tensor,
        n_users: int,
        n_items: int,
        device: torch.device | str = "cpu",
    ) -> "Interactions":
        """Interactions on `device`, without items for validation.

        Args:
            train_users, train_items: int64 (n,), the positives.
            test_items: int64 (n_users,), the held-out items.
            test_negatives: int64 (n_users, n_negatives).
        """
        train_users = train_users.to(device)
        train_items = train_items.to(device)
        seen = torch.zeros(n_users, n_items, dtype=torch.bool, device=device)
        seen[train_users, train_items] = True
        items, duplicate = candidates(test_items.to(device), test_negatives.to(device))
        return cls(train_users, train_items, n_users, n_items, seen, items, duplicate)

    @classmethod
    def from_ratings(
        cls,
        ratings: Ratings,
        leave_one_out: LeaveOneOut,
        sample_negatives: SampleNegatives,
        device: torch.device | str = "cpu",
    ) -> "Interactions":
        """Interactions on `device`: per user one item for the test and one for validation.

        The test item is the user's latest; the validation item is the latest of the rest; all
        others are trained on.

        Args:
            leave_one_out: (users, timestamps) -> (rest, latest), two masks over the rows.
            sample_negatives: see `epoch_batches`; the negatives to rank among are the same at every
                call.
        """
        known = torch.zeros(ratings.n_users, ratings.n_items, dtype=torch.bool)
        known[ratings.users, ratings.items] = True
        users = ratings.users
        items = ratings.items
        timestamps = ratings.timestamps
        everyone = torch.arange(ratings.n_users).repeat_interleave(TEST_NEGATIVES)
        held_out = []
        for seed in HELD_OUT_SEEDS:
            rest, latest = leave_one_out(users, timestamps)
            item_of = torch.zeros(ratings.n_users, dtype=torch.int64)
            item_of[users[latest]] = items[latest]
            generator = torch.Generator().manual_seed(seed)
            negatives = sample_negatives(everyone, known, generator).view(-1, TEST_NEGATIVES)
            held_out.append((item_of, negatives))
            users = users[rest]
            items = items[rest]
            timestamps = timestamps[rest]
        test, validation = held_out
        data = cls.from_split(users, items, *test, ratings.n_users, ratings.n_items, device)
        valid_items, valid_negatives = validation
        data.valid_items, data.valid_duplicate = candidates(
            valid_items.to(device), valid_negatives.to(device)
        )
        return data

    @property
    def judged(self) -> tuple[Tensor, Tensor]:
        """(items, duplicate) to evaluate a training run on: validation, else test."""
        if self.valid_items is None:
            return self.test_items, self.duplicate
        return self.valid_items, self.valid_duplicate

    @property
    def device(self) -> torch.device:
        return self.train_users.device


@dataclass
class History:
    """What a training run did.

    The first seven lists have one entry per evaluation (mode "train") or repeat (mode "perf").
    """

    epoch: list[float] = field(default_factory=list)  # epochs trained so far
    hit_rate: list[float] = field(default_factory=list)
    ndcg: list[float] = field(default_factory=list)
    loss: list[float] = field(default_factory=list)  # mean over all samples since the entry before
    samples: list[int] = field(default_factory=list)  # trained since then, as counted
    seconds_train: list[float] = field(default_factory=list)
    seconds_eval: list[float] = field(default_factory=list)
    losses: list[float] = field(default_factory=list)  # mean loss of the batch of every update
    updates: int = 0
    steps_per_epoch: int = 0
    diverged: bool = False  # a loss was not finite, so training stopped
    updates_to_target: int | None = None
    # share of the units of each MLP layer that output 0 for all samples, at the end
    silent: list[float] = field(default_factory=list)

    @property
    def throughput(self) -> list[float]:
        """Samples per second of training without evaluation, one float per entry."""
        pairs = zip(self.samples, self.seconds_train, strict=True)
        return [samples / seconds for samples, seconds in pairs]


def epoch_batches(
    data: Interactions,
    batch_size: int,
    sample_negatives: SampleNegatives,
    n_negatives: int = 4,
    generator: torch.Generator | None = None,
) -> Iterator[Batch]:
    """Yield the (users, items, labels) of one epoch, shuffled; labels are float32, 1 if positive.

    Every positive is in exactly one batch, and its user gets `n_negatives` negatives for it
    somewhere in the epoch. The last batch may be smaller. The whole epoch is made on the device of
    `data` at the first `next`.

    Args:
        sample_negatives: (users (n,), seen, generator) -> items (n,).
        generator: torch.Generator on that device, for negatives and order.
    """
    n = len(data.train_users)
    users = data.train_users.repeat(1 + n_negatives)
    items = torch.cat((data.train_items, sample_negatives(users[n:], data.seen, generator)))
    order = torch.randperm(len(users), generator=generator, device=data.device)
    # index_select takes a third of the time of users[order] on the CPU
    users = users.index_select(0, order)
    items = items.index_select(0, order)
    labels = (order < n).float()
    yield from zip(
        users.split(batch_size), items.split(batch_size), labels.split(batch_size), strict=True
    )


def training_step(
    model: nn.Module,
    users: Tensor,
    items: Tensor,
    labels: Tensor,
    optimizer: torch.optim.Optimizer,
) -> Tensor:
    """Update `model` once by binary cross-entropy of its logits.

    Returns: the mean loss of the batch, detached.
    """
    optimizer.zero_grad(set_to_none=True)
    loss = F.binary_cross_entropy_with_logits(model(users, items), labels)
    loss.backward()
    optimizer.step()
    return loss.detach()


def train(
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    data: Interactions,
    *,
    batch_size: int,
    sample_negatives: SampleNegatives,
    rank_metrics: RankMetrics,
    epochs: float = 1,
    n_negatives: int = 4,
    schedule: Schedule | None = None,
    step: Step | None = None,
    mode: str = "train",
    max_steps: int = 20,
    target: float | None = None,
    evaluate_every: float = 1,
    seed: int = 0,
) -> History:
    """Train `model` on `data` and return the History.

    Args:
        sample_negatives, rank_metrics: see `epoch_batches` and `metrics.evaluate`.
        schedule: (step, steps_per_epoch) -> learning rate, set in every param_group before every
            update, times the group's "lr_scale" if it has one, step from 0.
        step: (model, users, items, labels, optimizer) -> mean loss of the batch, in place of
            `training_step`.
        epochs: length of the training, may be a fraction.
        mode: "train" runs `epochs` epochs and evaluates; "perf" runs `max_steps` updates once to
            warm up and then REPEATS times, timed, on batches made before the clock starts.
        target: hit rate; training stops at the first evaluation that reaches it.
        evaluate_every: epochs between evaluations, may be a fraction; the last update is always
            evaluated.
        seed: of negatives and order. Initial values and dropout follow torch.manual_seed.

    Raises: ValueError for another mode.
    """
    if mode not in ("train", "perf"):
        raise ValueError(f"mode is {mode!r}; it must be 'train' or 'perf'")
    keep_freed_memory()
    steps_per_epoch = math.ceil(len(data.train_users) * (1 + n_negatives) / batch_size)
    generator = torch.Generator(data.device).manual_seed(seed)
    batches = _endless_batches(data, batch_size, sample_negatives, n_negatives, generator)
    history = History(steps_per_epoch=steps_per_epoch)
    run = _Run(model, optimizer, batches, history, schedule, step or training_step, data.device)
    if mode == "perf":
        return _measure(run, max_steps)
    period = max(1, round(evaluate_every * steps_per_epoch))
    total = round(epochs * steps_per_epoch)
    while history.updates < total and not history.diverged and history.updates_to_target is None:
        run.advance(min(period - history.updates % period, total - history.updates))
        hit_rate = math.nan
        ndcg = math.nan
        seconds = 0.0
        if not history.diverged:
            started = now(data.device)
            hit_rate, ndcg = evaluate(model, *data.judged, rank_metrics)
            seconds = now(data.device) - started
        history.hit_rate.append(hit_rate)
        history.ndcg.append(ndcg)
        history.seconds_eval.append(seconds)
        if target is not None and hit_rate >= target:
            history.updates_to_target = history.updates
    return history


def _endless_batches(
    data: Interactions,
    batch_size: int,
    sample_negatives: SampleNegatives,
    n_negatives: int,
    generator: torch.Generator,
) -> Iterator[Batch]:
    """Yield the batches of one epoch after the other."""
    while True:
        yield from epoch_batches(data, batch_size, sample_negatives, n_negatives, generator)


class _Run:
    """The updates of one training run, timed; every call of `advance` continues it."""

    def __init__(
        self,
        model: nn.Module,
        optimizer: torch.optim.Optimizer,
        batches: Iterator[Batch],
        history: History,
        schedule: Schedule | None,
        step: Step,
        device: torch.device,
    ):
        self.model = model
        self.optimizer = optimizer
        self.batches = batches
        self.history = history
        self.schedule = schedule
        self.step = step
        self.device = device

    def advance(self, n_steps: int) -> None:
        """Make `n_steps` updates and append epoch, loss, samples and seconds to the history."""
        history = self.history
        samples = 0
        # one tensor for all losses: thousands of small ones, kept, would cut up the memory that the
        # steps free
        losses = torch.zeros(n_steps, device=self.device)
        total = torch.zeros((), dtype=torch.float64, device=self.device)
        self.model.train()
        started = now(self.device)
        for k, (users, items, labels) in enumerate(itertools.islice(self.batches, n_steps)):
            if self.schedule is not None:
                lr = self.schedule(history.updates, history.steps_per_epoch)
                for group in self.optimizer.param_groups:
                    group["lr"] = lr * group.get("lr_scale", 1.0)
            loss = self.step(self.model, users, items, labels, self.optimizer)
            # stays on the device: .item() here would make every update wait for the last
            total += loss * len(users)
            losses[k] = loss
            samples += len(users)
            history.updates += 1
        history.loss.append(total.item() / samples)  # the one sync
        history.seconds_train.append(now(self.device) - started)
        history.losses += losses.tolist()
        history.samples.append(samples)
        history.epoch.append(history.updates / history.steps_per_epoch)
        history.diverged = not math.isfinite(history.loss[-1])


def _measure(run: _Run, max_steps: int) -> History:
    """The History of REPEATS runs of `max_steps` updates, without the warm-up before them."""
    # no epoch is drawn inside a timing
    run.batches = itertools.cycle(list(itertools.islice(run.batches, max_steps)))
    for _ in range(1 + REPEATS):
        run.advance(max_steps)
    history = run.history
    for entries in (history.epoch, history.loss, history.samples, history.seconds_train):
        del entries[0]
    return history


def keep_freed_memory() -> bool:
    """Make the C library keep freed memory for the next step; return whether it does.

    It does if it is glibc, which returns every freed block above 32 MB to the system. So each
    activation of a large batch is new memory whose pages the system has to find and clear at every
    step: that can take longer than the arithmetic. CUDA tensors have a caching allocator for the
    same reason. In return the process keeps its peak memory.

    Source: mallopt(3), M_MMAP_THRESHOLD and M_TRIM_THRESHOLD; PyTorch's performance tuning guide
    recommends other allocators (jemalloc, tcmalloc) to the same end.
    """
    if platform.libc_ver()[0] != "glibc":
        return False
    mallopt = ctypes.CDLL(None).mallopt
    m_trim_threshold = -1
    m_mmap_threshold = -3
    maps_less = mallopt(m_mmap_threshold, 2**30)
    return bool(maps_less and mallopt(m_trim_threshold, 2**31 - 1))
