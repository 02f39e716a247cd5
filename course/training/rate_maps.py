"""A run for each square of the maps of batch size and learning rate.

A map has a score for each batch size and learning rate, after the same number of epochs.
`course bench rate-maps` runs all squares and records them (course/figures/batch_rate_map.py);
notebooks run some squares themselves.
"""

import math
from collections.abc import Callable, Iterable

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from course.datasets import fashion
from course.training.ragged_transformer import RaggedTransformer
from course.training.recommender import Experiment, final_scores

MOMENTUM = 0.9  # of SGD
# of the transformer: sequences whose next token depends on the last two
VOCABULARY = 16
TOKENS = 24  # per sequence
SURE = 0.9  # probability of the likeliest next token
SEQUENCES = {"train": 12_288, "test": 512}
IMAGES = 12_000  # of the CNN

MakeOptimizer = Callable[[Iterable[nn.Parameter]], torch.optim.Optimizer]


def sgd(lr: float) -> MakeOptimizer:
    """A function that makes SGD with momentum for parameters."""
    return lambda parameters: torch.optim.SGD(parameters, lr=lr, momentum=MOMENTUM)


def adam(lr: float) -> MakeOptimizer:
    """A function that makes Adam for parameters."""
    return lambda parameters: torch.optim.Adam(parameters, lr=lr)


def ncf_score(
    experiment: Experiment, make_optimizer: MakeOptimizer, batch: int, epochs: float, seed: int = 0
) -> float:
    """The HR@10 on validation after `epochs` epochs of NCF; 0 if the run diverged."""
    history = experiment.train_fresh(
        make_optimizer, batch, seed=seed, epochs=epochs, evaluate_every=epochs
    )
    return final_scores([history])[0]


def transformer_score(make_optimizer: MakeOptimizer, batch: int, seed: int = 0) -> float:
    """The share of next tokens that a small transformer predicts after one epoch."""
    table, train = _sequences(SEQUENCES["train"], seed=1)
    _, test = _sequences(SEQUENCES["test"], seed=2, table=table)
    torch.manual_seed(seed)
    model = RaggedTransformer(VOCABULARY, 32, 2, heads=2)

    def loss(rows: Tensor) -> Tensor:
        return F.cross_entropy(_next_scores(model, rows).flatten(0, 1), rows[:, 1:].flatten())

    finite = _one_epoch(model, make_optimizer, len(train), batch, seed, lambda i: loss(train[i]))
    with torch.no_grad():
        right = _next_scores(model, test)[:, 1:].argmax(-1) == test[:, 2:]
    return right.float().mean().item() if finite else 0.0


def cnn_score(make_optimizer: MakeOptimizer, batch: int, seed: int = 0) -> float:
    """The accuracy of a small CNN on Fashion-MNIST's test after one epoch of IMAGES images."""
    data = fashion.load("fashion")
    images = fashion.floats(data.train_images[:IMAGES])
    labels = data.train_labels[:IMAGES]
    torch.manual_seed(seed)
    model = nn.Sequential(
        nn.Conv2d(1, 8, 5, stride=2),
        nn.ReLU(),
        nn.Conv2d(8, 16, 3, stride=2),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(16 * 5 * 5, 10),
    )

    def loss(rows: Tensor) -> Tensor:
        return F.cross_entropy(model(images[rows]), labels[rows])

    finite = _one_epoch(model, make_optimizer, len(images), batch, seed, loss)
    with torch.no_grad():
        right = model(fashion.floats(data.test_images)).argmax(1) == data.test_labels
    return right.float().mean().item() if finite else 0.0


def _one_epoch(model, make_optimizer, n, batch, seed, loss_of_rows) -> bool:
    """Train on all `n` rows once, in random order; return whether all losses were finite."""
    optimizer = make_optimizer(model.parameters())
    order = torch.randperm(n, generator=torch.Generator().manual_seed(seed))
    for rows in order.split(batch):
        optimizer.zero_grad()
        loss = loss_of_rows(rows)
        loss.backward()
        optimizer.step()
        if not math.isfinite(loss.item()):
            return False
    return True


def _next_scores(model, rows):
    return model(rows[:, :-1], torch.arange(rows.shape[1] - 1))


def _sequences(n, seed, table=None):
    """(table, int64 (n, TOKENS)): the likeliest next token of each pair, and sequences."""
    rng = torch.Generator().manual_seed(seed)
    if table is None:
        table = torch.randint(VOCABULARY, (VOCABULARY, VOCABULARY), generator=rng)
    tokens = torch.randint(VOCABULARY, (n, TOKENS), generator=rng)  # also those of chance
    follows = torch.rand(n, TOKENS, generator=rng) < SURE
    for i in range(2, TOKENS):
        likeliest = table[tokens[:, i - 2], tokens[:, i - 1]]
        tokens[:, i] = torch.where(follows[:, i], likeliest, tokens[:, i])
    return table, tokens
