"""The setting that all experiments of unit 03 share.

How ratings are split, how negatives are drawn and how a ranking is judged are arguments, because
they are exercises of part 6. The library's own are in implicit_feedback.py, the training loop in
recommender_loop.py.
"""

import itertools
import math
import statistics
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from course.datasets import movielens
from course.device import device
from course.training.implicit_feedback import leave_one_out, rank_metrics, sample_negatives
from course.training.metrics import RankMetrics, evaluate
from course.training.models import NEUMF_SIZES, DotProduct, NeuMF
from course.training.recommender_loop import (
    Batch,
    History,
    Interactions,
    LeaveOneOut,
    SampleNegatives,
    Step,
    epoch_batches,
    keep_freed_memory,
    train,
    training_step,
)

# of a model that says 1/5 to all: one positive in five
CONSTANT_LOSS = -(0.2 * math.log(0.2) + 0.8 * math.log(0.8))
LOG_ODDS = math.log(0.2 / 0.8)  # the logit of 1/5
SAMPLES_PER_POSITIVE = 5  # itself, and four negatives
SILENCE_ROWS = 8192  # samples on which silent units are counted
BATCH_FACTORS = (1, 16, 192)  # of the base batch

MakeOptimizer = Callable[[Iterator[nn.Parameter]], torch.optim.Optimizer]


class Experiment:
    """One data set and one way to train on it; every model starts from the same initial values.

    Runs are evaluated on the validation items, one per user; the test items are for the end, by
    `test`.

    Args:
        sizes: what `course.sizes("03_large_batch")` returns.
        leave_one_out: (users, timestamps) -> (rest, latest), two masks over the rows.
        sample_negatives, rank_metrics: see `recommender_loop.epoch_batches` and `metrics.evaluate`.

    Attributes:
        data: Interactions on `course.device()`.
        about: the data in a line: their name, whether they are real, how many users and films.
        batches: 1, 16 and 192 times the base batch.
        popularity: HR@10, on the validation items, of ranking by the number of training positives,
            the same for all users.
    """

    def __init__(
        self,
        sizes: SimpleNamespace,
        *,
        leave_one_out: LeaveOneOut = leave_one_out,
        sample_negatives: SampleNegatives = sample_negatives,
        rank_metrics: RankMetrics = rank_metrics,
    ):
        ratings = movielens.load(sizes.dataset)
        self.data = Interactions.from_ratings(ratings, leave_one_out, sample_negatives, device())
        origin = "real ratings" if ratings.real else "a stand-in: invented ratings"
        size = f"{ratings.n_users:,} users, {ratings.n_items:,} films"
        self.about = f"{sizes.dataset}, {origin}; {size}"
        self.batches = [sizes.base_batch * factor for factor in BATCH_FACTORS]
        self.epochs = sizes.epochs
        self.sample_negatives = sample_negatives
        self.rank_metrics = rank_metrics
        counts = torch.bincount(self.data.train_items, minlength=self.data.n_items)
        self.popularity = evaluate(_Popularity(counts), *self.data.judged, rank_metrics)[0]

    def __str__(self):
        n_positives = len(self.data.train_users)
        n_samples = SAMPLES_PER_POSITIVE * n_positives
        updates = []
        for batch in self.batches:
            updates.append(f"{math.ceil(n_samples / batch):,} at batch {batch:,}")
        sizes = f"{n_positives:,} positives, {n_samples:,} samples per epoch"
        return f"{sizes}\nupdates per epoch: {', '.join(updates)}"

    def fresh_model(
        self, size: str = "paper", seed: int = 0, output_bias: float = LOG_ODDS
    ) -> NeuMF:
        """A new NeuMF, with the same initial values at every call with one seed.

        Args:
            size: a key of models.NEUMF_SIZES.

        Embeddings start with a deviation of 0.1 instead of the paper's 0.01: plain SGD would need
        several epochs more to leave the saddle at zero, where a product of two tiny vectors has
        almost no gradient. The output bias starts at the log odds of a positive, so that the first
        updates need not push all logits down.
        """
        torch.manual_seed(seed)
        model = NeuMF(self.data.n_users, self.data.n_items, **NEUMF_SIZES[size], std=0.1)
        model = model.to(self.data.device)
        nn.init.constant_(model.output.bias, output_bias)
        return model

    def fresh_dot_product(self, factors: int, seed: int = 0) -> DotProduct:
        """A new matrix factorisation, with the same initial values at every call with one seed."""
        torch.manual_seed(seed)
        return DotProduct(self.data.n_users, self.data.n_items, factors).to(self.data.device)

    def first_batches(self, number: int, batch_size: int, seed: int = 0) -> list[Batch]:
        """The first (users, items, labels) of an epoch, the same at every call with one seed."""
        generator = torch.Generator(self.data.device).manual_seed(seed)
        epoch = epoch_batches(self.data, batch_size, self.sample_negatives, generator=generator)
        return list(itertools.islice(epoch, number))

    def first_batch(self, batch_size: int) -> Batch:
        """The first of them, the same at every call."""
        (batch,) = self.first_batches(1, batch_size)
        return batch

    def train(
        self,
        model: nn.Module,
        optimizer: torch.optim.Optimizer,
        batch_size: int,
        epochs: float | None = None,
        **options: Any,
    ) -> History:
        """The History of training `model`, with its silent units at the end.

        Args:
            options: of `recommender_loop.train`.
        """
        history = train(
            model,
            optimizer,
            self.data,
            batch_size=batch_size,
            epochs=epochs or self.epochs,
            sample_negatives=self.sample_negatives,
            rank_metrics=self.rank_metrics,
            **options,
        )
        if isinstance(model, NeuMF) and not history.diverged:
            history.silent = self.silent_units(model)
        return history

    @torch.no_grad()
    def silent_units(self, model: NeuMF, rows: int = SILENCE_ROWS) -> list[float]:
        """Share of the units of each MLP layer that output 0 for all of `rows` samples.

        Floats from 0 to 1.
        """
        users, items, _ = self.first_batch(rows)
        hidden = torch.cat([model.mlp_user.weight[users], model.mlp_item.weight[items]], dim=1)
        shares = []
        for layer in model.mlp:
            hidden = F.relu(layer(hidden))
            shares.append((hidden == 0).all(0).float().mean().item())
        return shares

    def train_fresh(
        self, make_optimizer: MakeOptimizer, batch_size: int, seed: int = 0, **options: Any
    ) -> History:
        """The History of training a fresh model with `make_optimizer(parameters)`.

        Args:
            seed: of the initial values, the order and the negatives.
            options: of `recommender_loop.train`.
        """
        model = self.fresh_model(seed=seed)
        optimizer = make_optimizer(model.parameters())
        return self.train(model, optimizer, batch_size, seed=seed, **options)

    def some_updates(
        self,
        make_optimizer: MakeOptimizer,
        batch_size: int,
        n_updates: int,
        *,
        step: Step = training_step,
        size: str = "paper",
    ) -> Callable[[], None]:
        """A function that makes `n_updates` updates of a fresh model on one batch, to be timed.

        Args:
            step: see `recommender_loop.train`.
            size: a key of models.NEUMF_SIZES.
        """
        keep_freed_memory()
        model = self.fresh_model(size)
        batch = self.first_batch(batch_size)
        optimizer = make_optimizer(model.parameters())

        def run() -> None:
            for _ in range(n_updates):
                step(model, *batch, optimizer)

        return run

    def test(self, model: nn.Module) -> tuple[float, float]:
        """(HR@10, NDCG@10) of `model` on the test items, which nothing may be tuned on."""
        return evaluate(model, self.data.test_items, self.data.duplicate, self.rank_metrics)

    def test_among_all(self, model: nn.Module, most_users: int = 2000) -> float:
        """HR@10 of the first users' test films, each among all films that its user did not take."""
        data = self.data
        films = data.test_items[:most_users, :1]
        everything = torch.arange(data.n_items, device=films.device).expand(len(films), -1)
        taken = data.seen[: len(films)] | (everything == films)
        taken = taken | (everything == data.valid_items[: len(films), :1])
        candidates = torch.cat([films, everything], dim=1)
        left_out = torch.cat([torch.zeros_like(films, dtype=torch.bool), taken], dim=1)
        return evaluate(model, candidates, left_out, self.rank_metrics)[0]


class _Popularity(nn.Module):
    """A model that scores an item by how often it was chosen, the same for all users."""

    def __init__(self, counts: Tensor):
        super().__init__()
        self.counts = counts

    def forward(self, users: Tensor, items: Tensor) -> Tensor:
        return self.counts[items].float()


def print_run(label: str, history: History) -> None:
    """Print a line about a run.

    How it ended, last training loss, updates, seconds, silent units per MLP layer.
    """
    end = "diverged"
    if not history.diverged:
        end = f"HR@10 {history.hit_rate[-1]:.3f}, NDCG@10 {history.ndcg[-1]:.3f}"
    health = ""
    if history.silent:
        health = "  silent units " + ", ".join(f"{share:.0%}" for share in history.silent)
    cost = f"{history.updates:>7,} updates{sum(history.seconds_train):>6.1f} s"
    print(f"{label:<31}{end:<28}loss {history.loss[-1]:<8.3g}{cost}{health}")


def print_log(history: History) -> None:
    """Print a line per epoch: the scores, the loss and the throughput.

    A star marks the best hit rate so far.
    """
    best = -math.inf
    print("epoch   HR@10  NDCG@10    loss    samples/s")
    for i, (hit_rate, ndcg) in enumerate(zip(history.hit_rate, history.ndcg, strict=True)):
        star = "*" if hit_rate > best else " "
        best = max(best, hit_rate)
        scores = f"{hit_rate:.3f}{star} {ndcg:8.3f} {history.loss[i]:7.3f}"
        print(f"{history.epoch[i]:5.0f}   {scores} {history.throughput[i]:12,.0f}")


def print_seeds(label: str, histories: list[History]) -> None:
    """Print a line about runs that differ in the seed alone: scores, loss and updates."""
    scores = listed(final_scores(histories))
    loss = statistics.mean(history.loss[-1] for history in histories)
    print(f"{label:<28} HR@10 {scores}   loss {loss:.3f}   {histories[0].updates:,} updates")


def final_scores(histories: list[History]) -> list[float]:
    """The last HR@10 of each run, 0 for one that diverged."""
    return [0.0 if history.diverged else history.hit_rate[-1] for history in histories]


def silent_last_layer(histories: list[History]) -> list[float]:
    """The silent share of the last MLP layer of each run, 1 for one that diverged."""
    return [1.0 if history.diverged else history.silent[-1] for history in histories]


def listed(values: list[float]) -> str:
    """The values of all seeds as text, with three decimals."""
    return ", ".join(f"{value:.3f}" for value in values)
