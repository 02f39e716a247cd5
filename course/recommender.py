"""The setting that all experiments of unit 03 share: ratings + parts of a trainer -> *experiment* -> History of a run.

How ratings are split, how negatives are drawn and how a ranking is judged are arguments, because they are exercises of
part 1.  The training loop itself is in training.py.
"""

import math
from types import SimpleNamespace

import torch

from course.datasets import movielens
from course.device import device
from course.models import NEUMF_SIZES, NeuMF
from course.training import History, Interactions, epoch_batches, train


class Experiment:
    """One data set and one way to train on it; every model starts from the same initial values.

    Args:
        sizes: what `course.sizes("03_large_batch")` returns.
        leave_one_out: (users, timestamps) -> (train, test), two masks over the rows.
        sample_negatives, rank_metrics: see `training.epoch_batches` and `metrics.evaluate`.

    data: Interactions on `course.device()`.   batches: 1, 16 and 192 times the base batch.
    """

    def __init__(self, sizes: SimpleNamespace, *, leave_one_out, sample_negatives, rank_metrics):
        ratings = movielens.load(sizes.dataset)
        self.data = Interactions.from_ratings(ratings, leave_one_out, sample_negatives, device())
        self.batches = [sizes.base_batch * k for k in (1, 16, 192)]
        self.epochs, self.sample_negatives, self.rank_metrics = sizes.epochs, sample_negatives, rank_metrics

    def __str__(self):
        n_positives = len(self.data.train_users)
        updates = ", ".join(f"{math.ceil(5 * n_positives / batch):,} at batch {batch:,}" for batch in self.batches)
        return f"{n_positives:,} positives, {5 * n_positives:,} samples per epoch\nupdates per epoch: {updates}"

    def fresh_model(self, size: str = "paper") -> NeuMF:
        """A new NeuMF with one of models.NEUMF_SIZES and the same initial values at every call.

        Embeddings start with a deviation of 0.1 instead of the paper's 0.01: plain SGD would need several epochs more
        to leave the saddle at zero, where a product of two tiny vectors has almost no gradient.
        """
        torch.manual_seed(0)
        return NeuMF(self.data.n_users, self.data.n_items, **NEUMF_SIZES[size], std=0.1).to(self.data.device)

    def first_batch(self, batch_size: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """The first (users, items, labels) of an epoch, the same at every call."""
        generator = torch.Generator(self.data.device).manual_seed(0)
        return next(epoch_batches(self.data, batch_size, self.sample_negatives, generator=generator))

    def train(self, model, optimizer, batch_size: int, epochs: float | None = None, **options) -> History:
        """The History of training `model`; `options` go to `training.train`."""
        return train(
            model, optimizer, self.data, batch_size=batch_size, epochs=epochs or self.epochs, progress=False,
            sample_negatives=self.sample_negatives, rank_metrics=self.rank_metrics, **options,
        )  # fmt: skip

    def train_sgd(self, batch_size: int, lr: float, **options) -> History:
        """The History of training a fresh model by SGD with momentum 0.9."""
        model = self.fresh_model()
        return self.train(model, torch.optim.SGD(model.parameters(), lr=lr, momentum=0.9), batch_size, **options)


def print_run(label: str, history: History) -> None:
    """Print one line about a run: how it ended, its updates and its seconds of training."""
    end = "diverged" if history.diverged else f"HR@10 {history.hit_rate[-1]:.3f}, NDCG@10 {history.ndcg[-1]:.3f}"
    print(f"{label:<31}{end:<28}{history.updates:>7,} updates{sum(history.seconds_train):>6.1f} s")
