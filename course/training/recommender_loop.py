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
from dataclasses import dataclass, field

import torch
from torch.nn import functional as F

from course.measure.timing import now
from course.training.metrics import candidates, evaluate

REPEATS = 5  # timed runs in mode "perf"
TEST_NEGATIVES = 100  # per user, among which the held-out item is ranked


@dataclass
class Interactions:
    """Training positives and test candidates of implicit feedback, all tensors on one device.

    train_users, train_items: int64 (n,), one row per positive.   seen: bool (n_users, n_items),
    True for these.
    test_items: int64 (n_users, 1 + n_negatives), held-out item first; duplicate: bool, as
    `metrics.candidates` says.
    valid_items, valid_duplicate: the same for a second held-out item per user, on which everything
    is tuned; or None.
    """

    train_users: torch.Tensor
    train_items: torch.Tensor
    n_users: int
    n_items: int
    seen: torch.Tensor
    test_items: torch.Tensor
    duplicate: torch.Tensor
    valid_items: torch.Tensor | None = None
    valid_duplicate: torch.Tensor | None = None

    @classmethod
    def from_split(
        cls, train_users, train_items, test_items, test_negatives, n_users, n_items, device="cpu"
    ):
        """Interactions on `device` from int64 tensors: positives (n,), held-out items (n_users,),
        negatives.
        """
        train_users, train_items = train_users.to(device), train_items.to(device)
        seen = torch.zeros(n_users, n_items, dtype=torch.bool, device=device)
        seen[train_users, train_items] = True
        items, duplicate = candidates(test_items.to(device), test_negatives.to(device))
        return cls(train_users, train_items, n_users, n_items, seen, items, duplicate)

    @classmethod
    def from_ratings(cls, ratings, leave_one_out, sample_negatives, device="cpu"):
        """Interactions on `device` from datasets.movielens.Ratings: per user one test item, one for
        validation.

        The test item is the user's latest; the validation item is the latest of the rest; all
        others are trained on.

        Args:
            leave_one_out: (users, timestamps) -> (rest, latest), two masks over the rows.
            sample_negatives: see `epoch_batches`; the negatives to rank among are the same at every
                call.
        """
        known = torch.zeros(ratings.n_users, ratings.n_items, dtype=torch.bool)
        known[ratings.users, ratings.items] = True
        users, items, timestamps = ratings.users, ratings.items, ratings.timestamps
        held_out = []
        for seed in (1, 2):  # the test, then validation
            rest, latest = leave_one_out(users, timestamps)
            item = torch.zeros(ratings.n_users, dtype=torch.int64)
            item[users[latest]] = items[latest]
            generator = torch.Generator().manual_seed(seed)
            everyone = torch.arange(ratings.n_users).repeat_interleave(TEST_NEGATIVES)
            held_out.append(
                (item, sample_negatives(everyone, known, generator).view(-1, TEST_NEGATIVES))
            )
            users, items, timestamps = users[rest], items[rest], timestamps[rest]
        data = cls.from_split(users, items, *held_out[0], ratings.n_users, ratings.n_items, device)
        data.valid_items, data.valid_duplicate = candidates(
            *(part.to(device) for part in held_out[1])
        )
        return data

    @property
    def judged(self):
        """(items, duplicate) that a training run is evaluated on: those for validation, else those
        for the test.
        """
        if self.valid_items is None:
            return self.test_items, self.duplicate
        return self.valid_items, self.valid_duplicate

    @property
    def device(self):
        return self.train_users.device


@dataclass
class History:
    """What a training run did; most lists have one entry per evaluation (mode "train") or repeat
    (mode "perf").

    epoch: epochs trained so far, a float.  loss: mean over all samples since the entry before.
    samples: trained since then, as counted.  losses: mean loss of the batch of every update (mode
    "train").  diverged: a loss was not finite, so training stopped.  silent: share of the units of
    each MLP layer that output 0 for all samples, at the end.
    """

    epoch: list = field(default_factory=list)
    hit_rate: list = field(default_factory=list)
    ndcg: list = field(default_factory=list)
    loss: list = field(default_factory=list)
    samples: list = field(default_factory=list)
    seconds_train: list = field(default_factory=list)
    seconds_eval: list = field(default_factory=list)
    losses: list = field(default_factory=list)
    updates: int = 0
    steps_per_epoch: int = 0
    diverged: bool = False
    updates_to_target: int | None = None
    silent: list = field(default_factory=list)

    @property
    def throughput(self):
        """Samples per second of training without evaluation, one float per entry."""
        return [
            samples / seconds
            for samples, seconds in zip(self.samples, self.seconds_train, strict=True)
        ]


def epoch_batches(data, batch_size, sample_negatives, n_negatives=4, generator=None):
    """Yield the (users, items, labels) batches of one epoch, shuffled; labels are float32, 1 for a
    positive.

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
    users, items, labels = (
        users.index_select(0, order),
        items.index_select(0, order),
        (order < n).float(),
    )
    yield from zip(
        users.split(batch_size), items.split(batch_size), labels.split(batch_size), strict=True
    )


def training_step(model, users, items, labels, optimizer):
    """Update `model` once by binary cross-entropy of its logits, and return the mean loss of the
    batch, detached.
    """
    optimizer.zero_grad(set_to_none=True)
    loss = F.binary_cross_entropy_with_logits(model(users, items), labels)
    loss.backward()
    optimizer.step()
    return loss.detach()


def train(
    model,
    optimizer,
    data,
    *,
    batch_size,
    sample_negatives,
    rank_metrics,
    epochs=1,
    n_negatives=4,
    schedule=None,
    step=None,
    mode="train",
    max_steps=20,
    target=None,
    evaluate_every=1,
    seed=0,
):
    """Train `model` on `data` and return the History: evaluated during training in mode "train",
    timed in mode "perf".

    Args:
        sample_negatives, rank_metrics: see `epoch_batches` and `metrics.evaluate`.
        schedule: (step, steps_per_epoch) -> learning rate, set in every param_group before every
            update, step from 0.
        step: (model, users, items, labels, optimizer) -> mean loss of the batch, in place of
            `training_step`.
        epochs: length of the training, may be a fraction.
        mode: "train" runs `epochs` epochs; "perf" runs `max_steps` updates once to warm up and then
            REPEATS times, on batches made before the clock starts.
        target: hit rate; training stops at the first evaluation that reaches it.
        evaluate_every: epochs between evaluations, may be a fraction; the last update is always
            evaluated.
        seed: of negatives and order.  Initial values and dropout follow torch.manual_seed.

    Raises: ValueError for another mode.
    """
    if mode not in ("train", "perf"):
        raise ValueError(f"mode is {mode!r}; it must be 'train' or 'perf'")
    keep_freed_memory()
    run = _Run(
        model,
        optimizer,
        data,
        batch_size,
        sample_negatives,
        n_negatives,
        schedule,
        step or training_step,
        seed,
    )
    if mode == "perf":
        return _measure(run, max_steps)
    period = max(1, round(evaluate_every * run.steps_per_epoch))
    total = round(epochs * run.steps_per_epoch)
    history = run.history
    while history.updates < total and not history.diverged and history.updates_to_target is None:
        run.advance(min(period - history.updates % period, total - history.updates))
        hit_rate = ndcg = math.nan
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


class _Run:
    """The updates of one training run, timed; every call of `advance` continues it."""

    def __init__(
        self,
        model,
        optimizer,
        data,
        batch_size,
        sample_negatives,
        n_negatives,
        schedule,
        step,
        seed,
    ):
        self.model, self.optimizer, self.schedule, self.step = model, optimizer, schedule, step
        self.device = data.device
        self.steps_per_epoch = math.ceil(len(data.train_users) * (1 + n_negatives) / batch_size)
        generator = torch.Generator(data.device).manual_seed(seed)
        epochs = (
            epoch_batches(data, batch_size, sample_negatives, n_negatives, generator)
            for _ in itertools.count()
        )
        self.batches = itertools.chain.from_iterable(epochs)
        self.history = History(steps_per_epoch=self.steps_per_epoch)

    def advance(self, n_steps):
        """Make `n_steps` updates and append epoch, loss, samples and seconds to the history."""
        history, samples = self.history, 0
        # one tensor for all losses: thousands of small ones, kept, would cut up the memory that the
        # steps free
        losses = torch.zeros(n_steps, device=self.device)
        total = torch.zeros((), dtype=torch.float64, device=self.device)
        self.model.train()
        started = now(self.device)
        for k, (users, items, labels) in enumerate(itertools.islice(self.batches, n_steps)):
            if self.schedule is not None:
                lr = self.schedule(history.updates, self.steps_per_epoch)
                for group in self.optimizer.param_groups:
                    group["lr"] = lr
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
        history.epoch.append(history.updates / self.steps_per_epoch)
        history.diverged = not math.isfinite(history.loss[-1])


def _measure(run, max_steps):
    """Return the History of REPEATS runs of `max_steps` updates, without the warm-up before
    them.
    """
    # no epoch is drawn inside a timing
    run.batches = itertools.cycle(list(itertools.islice(run.batches, max_steps)))
    for _ in range(1 + REPEATS):
        run.advance(max_steps)
    history = run.history
    for entries in (history.epoch, history.loss, history.samples, history.seconds_train):
        del entries[0]
    return history


def keep_freed_memory() -> bool:
    """Make the C library keep freed memory for the next step; return whether it does, which needs
    glibc.

    glibc returns every freed block above 32 MB to the system, so each activation of a large batch
    is new memory whose
    pages the system has to find and clear at every step: that can take longer than the arithmetic.
    CUDA tensors have a caching allocator for the same reason. In return the process keeps its peak
    memory.

    Source: mallopt(3), M_MMAP_THRESHOLD and M_TRIM_THRESHOLD; PyTorch's performance tuning guide
    recommends other allocators (jemalloc, tcmalloc) to the same end.
    """
    if platform.libc_ver()[0] != "glibc":
        return False
    mallopt = ctypes.CDLL(None).mallopt
    m_trim_threshold, m_mmap_threshold = -1, -3
    return bool(mallopt(m_mmap_threshold, 2**30) and mallopt(m_trim_threshold, 2**31 - 1))
