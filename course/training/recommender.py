"""The setting that all experiments of unit 03 share.

How ratings are split, how negatives are drawn and how a ranking is judged are arguments, because
they are exercises of part 1. The library's own are in implicit_feedback.py, the training loop in
recommender_loop.py.
"""

import math
from collections.abc import Callable
from types import SimpleNamespace

import torch
from torch import nn
from torch.nn import functional as F

from course.datasets import movielens
from course.device import device
from course.training.implicit_feedback import leave_one_out, rank_metrics, sample_negatives
from course.training.metrics import evaluate
from course.training.models import NEUMF_SIZES, NeuMF
from course.training.recommender_loop import History, Interactions, epoch_batches, train

# of a model that says 1/5 to all: one positive in five
CONSTANT_LOSS = -(0.2 * math.log(0.2) + 0.8 * math.log(0.8))
LOG_ODDS = math.log(0.2 / 0.8)  # the logit of 1/5
HEALTH_ROWS = 8192  # samples on which silent units are counted


class Experiment:
    """One data set and one way to train on it; every model starts from the same initial values.

    Runs are evaluated on the validation items, one per user; the test items are for the end, by
    `test`.

    Args:
        sizes: what `course.sizes("03_large_batch")` returns.
        leave_one_out: (users, timestamps) -> (rest, latest), two masks over the rows.
        sample_negatives, rank_metrics: see `recommender_loop.epoch_batches` and `metrics.evaluate`.

    data: Interactions on `course.device()`.   batches: 1, 16 and 192 times the base batch.
    popularity: HR@10, on the validation items, of ranking by the number of training positives, the
    same for all users.
    """

    def __init__(
        self, sizes: SimpleNamespace, *, leave_one_out=leave_one_out, sample_negatives=sample_negatives,
        rank_metrics=rank_metrics,
    ):  # fmt: skip
        ratings = movielens.load(sizes.dataset)
        self.data = Interactions.from_ratings(ratings, leave_one_out, sample_negatives, device())
        self.batches = [sizes.base_batch * k for k in (1, 16, 192)]
        self.epochs, self.sample_negatives, self.rank_metrics = (
            sizes.epochs,
            sample_negatives,
            rank_metrics,
        )
        counts = torch.bincount(self.data.train_items, minlength=self.data.n_items)
        self.popularity = evaluate(_Popularity(counts), *self.data.judged, rank_metrics)[0]

    def __str__(self):
        n_positives = len(self.data.train_users)
        updates = ", ".join(
            f"{math.ceil(5 * n_positives / batch):,} at batch {batch:,}" for batch in self.batches
        )
        return f"{n_positives:,} positives, {5 * n_positives:,} samples per epoch\nupdates per epoch: {updates}"

    def fresh_model(
        self, size: str = "paper", seed: int = 0, output_bias: float = LOG_ODDS
    ) -> NeuMF:
        """A new NeuMF with one of models.NEUMF_SIZES and the same initial values at every call with
        one seed.

        Embeddings start with a deviation of 0.1 instead of the paper's 0.01: plain SGD would need
        several epochs more to leave the saddle at zero, where a product of two tiny vectors has
        almost no gradient. The output bias starts at the log odds of a positive, so that the first
        updates need not push all logits down.
        """
        torch.manual_seed(seed)
        model = NeuMF(self.data.n_users, self.data.n_items, **NEUMF_SIZES[size], std=0.1).to(
            self.data.device
        )
        nn.init.constant_(model.output.bias, output_bias)
        return model

    def first_batch(self, batch_size: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """The first (users, items, labels) of an epoch, the same at every call."""
        generator = torch.Generator(self.data.device).manual_seed(0)
        return next(
            epoch_batches(self.data, batch_size, self.sample_negatives, generator=generator)
        )

    def train(
        self, model, optimizer, batch_size: int, epochs: float | None = None, **options
    ) -> History:
        """The History of training `model`, with its silent units at the end; options: of
        `recommender_loop.train`.
        """
        history = train(
            model, optimizer, self.data, batch_size=batch_size, epochs=epochs or self.epochs,
            sample_negatives=self.sample_negatives, rank_metrics=self.rank_metrics, **options,
        )  # fmt: skip
        if isinstance(model, NeuMF) and not history.diverged:
            history.silent = self.silent_units(model)
        return history

    @torch.no_grad()
    def silent_units(self, model: NeuMF, rows: int = HEALTH_ROWS) -> list[float]:
        """Share of the units of each MLP layer that output 0 for all of `rows` samples, floats from
        0 to 1.
        """
        users, items, _ = self.first_batch(rows)
        hidden, shares = (
            torch.cat([model.mlp_user.weight[users], model.mlp_item.weight[items]], dim=1),
            [],
        )
        for layer in model.mlp:
            hidden = F.relu(layer(hidden))
            shares.append((hidden == 0).all(0).float().mean().item())
        return shares

    def train_fresh(
        self, make_optimizer: Callable, batch_size: int, seed: int = 0, **options
    ) -> History:
        """The History of training a fresh model with the optimizer that
        `make_optimizer(parameters)` returns.

        Args:
            seed: of the initial values, the order and the negatives.
        """
        model = self.fresh_model(seed=seed)
        return self.train(
            model, make_optimizer(model.parameters()), batch_size, seed=seed, **options
        )

    def train_sgd(self, batch_size: int, lr: float, momentum: float = 0.9, **options) -> History:
        """The History of training a fresh model by SGD."""
        return self.train_fresh(
            lambda p: torch.optim.SGD(p, lr=lr, momentum=momentum), batch_size, **options
        )

    def train_adam(self, batch_size: int, lr: float, **options) -> History:
        """The History of training a fresh model by Adam."""
        return self.train_fresh(lambda p: torch.optim.Adam(p, lr=lr), batch_size, **options)

    def test(self, model: nn.Module) -> tuple[float, float]:
        """(HR@10, NDCG@10) of `model` on the test items, which nothing may be tuned on."""
        return evaluate(model, self.data.test_items, self.data.duplicate, self.rank_metrics)


class _Popularity(nn.Module):
    """A model that scores an item by how often it was chosen, whoever asks."""

    def __init__(self, counts):
        super().__init__()
        self.counts = counts

    def forward(self, users, items):
        return self.counts[items].float()


def print_run(label: str, history: History) -> None:
    """Print a line about a run: how it ended, last training loss, updates, seconds, silent units
    per MLP layer.
    """
    end = (
        "diverged"
        if history.diverged
        else f"HR@10 {history.hit_rate[-1]:.3f}, NDCG@10 {history.ndcg[-1]:.3f}"
    )
    seconds = sum(history.seconds_train)
    health = (
        "  silent units " + ", ".join(f"{share:.0%}" for share in history.silent)
        if history.silent
        else ""
    )
    print(
        f"{label:<31}{end:<28}loss {history.loss[-1]:<8.3g}{history.updates:>7,} updates{seconds:>6.1f} s{health}"
    )


def print_log(history: History) -> None:
    """Print one line per evaluation: epoch, mean training loss since the last one, HR@10, NDCG@10,
    samples/s.
    """
    print("epoch    loss   HR@10  NDCG@10   samples/s")
    columns = (history.epoch, history.loss, history.hit_rate, history.ndcg, history.throughput)
    for epoch, loss, hit_rate, ndcg, throughput in zip(*columns, strict=True):
        print(f"{epoch:5.4g} {loss:7.4f} {hit_rate:7.3f} {ndcg:8.3f} {throughput:11,.0f}")
