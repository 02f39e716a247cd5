"""Accuracy of Neural Collaborative Filtering on MovieLens-1M.

`accuracy` trains with the split and the test negatives that He et al. published. Settings are
chosen on validation items, each user's last training row, ranked among 99 items that the user has
no training row of; models of that search never see these rows. The best setting is then trained on
all training rows, for a fixed number of epochs, and tested once on the test items. Finished runs
are kept in a file.
"""

import json
import statistics
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from course.datasets import data_folder, movielens
from course.device import device, machine
from course.errors import CourseError
from course.notebook.solutions import load_solutions
from course.training.models import NEUMF_SIZES, DotProduct, NeuMF, lookup
from course.training.recommender_loop import Interactions, train

# where the search for settings of Adam begins
SETTINGS = {
    ("neumf", 8): dict(lr=3e-3, batch_size=4096, l2=0.03, n_negatives=8, dropout=0.0),
    ("neumf", 32): dict(lr=2e-3, batch_size=20480, l2=0.002, n_negatives=8, dropout=0.5),
    ("dot", None): dict(lr=3e-3, batch_size=8192, l2=0.005, n_negatives=8),
}
# factors by which each is varied around the best so far
VARIED = {
    "l2": (0.3, 3.0),
    "lr": (0.5, 2.0),
}
NEGATIVES = 99  # items that a validation item is ranked among
KEPT = "ncf-accuracy-bench.jsonl"
Step = Callable[[torch.nn.Module, Tensor, Tensor, Tensor, torch.optim.Optimizer], Tensor]


class Score(NamedTuple):
    """HR@10 and NDCG@10."""

    hit_rate: float
    ndcg: float


def accuracy(model_name: str, factors: int, epochs: int = 20, seeds: int = 3) -> list[Score]:
    """Choose settings on validation items, train with them, and print the scores on the test.

    Args:
        model_name: "neumf" (8 or 32 factors) or "dot" (any number).
        seeds: runs with the settings that were chosen.

    The learning rate falls linearly to 0 over all epochs; nothing is evaluated before the last.

    Returns: the Score on the test items of each seed.
    Raises: CourseError for a model without settings.
    """
    best = SETTINGS.get((model_name, factors if model_name == "neumf" else None))
    if best is None:
        asked = f"no settings for {model_name} with {factors} factors"
        raise CourseError(f"{asked}; neumf has 8 and 32, dot any number.")
    file = data_folder() / KEPT
    print(f"\n{model_name}, {factors} factors, Adam, {epochs} epochs; runs are kept in {file}")
    print(machine())
    run = partial(_recorded_run, file, model_name, factors, epochs)
    for name, times in VARIED.items():  # one setting after the other, around the best so far
        tried = [best] + [best | {name: best[name] * factor} for factor in times]
        best = max(tried, key=lambda settings: run(settings, 0, "validation"))
    scores = [run(best, seed, "test") for seed in range(seeds)]
    print(f"chosen: {best}")
    _print_mean("HR@10", [score.hit_rate for score in scores])
    _print_mean("NDCG@10", [score.ndcg for score in scores])
    return scores


def _print_mean(name: str, values: list[float]) -> None:
    seeds = len(values)
    error = f" ± {statistics.stdev(values) / seeds**0.5:.4f}" if seeds > 1 else ""
    mean = f"{statistics.mean(values):.4f}{error}"
    print(f"test {name}: {mean} (mean and standard error of {seeds} seeds)")


def _recorded_run(
    file: Path,
    model_name: str,
    factors: int,
    epochs: int,
    settings: dict[str, Any],
    seed: int,
    split: str,
) -> Score:
    """The Score of the run in `file` with these settings, or of a new one that is kept there."""
    wanted = dict(
        model=model_name, factors=factors, epochs=epochs, settings=settings, seed=seed, split=split
    )
    run = _kept_run(file, wanted)
    if run is None:
        started = time.perf_counter()
        hit_rate, ndcg = _train(model_name, factors, epochs, settings, seed, split)
        seconds = round(time.perf_counter() - started, 1)
        run = wanted | dict(hit_rate=hit_rate, ndcg=ndcg, seconds=seconds, machine=machine())
        file.parent.mkdir(parents=True, exist_ok=True)
        with open(file, "a", encoding="utf-8") as stream:
            stream.write(json.dumps(run) + "\n")
    score = Score(run["hit_rate"], run["ndcg"])
    shown = "done"  # no test score here: nobody chooses by what is not printed
    if split == "validation":
        shown = f"HR@10 {score.hit_rate:.4f}, NDCG@10 {score.ndcg:.4f}"
    print(f"  {split}, seed {seed}, {settings}: {shown}, {run['seconds']} s", flush=True)
    return score


def _kept_run(file: Path, wanted: dict[str, Any]) -> dict[str, Any] | None:
    """The first run in `file` with all that is `wanted`, or None."""
    if not file.exists():
        return None
    for line in file.read_text(encoding="utf-8").splitlines():
        run = json.loads(line)
        if run.items() >= wanted.items():
            return run
    return None


def _train(
    model_name: str, factors: int, epochs: int, settings: dict[str, Any], seed: int, split: str
) -> Score:
    """The Score after the last epoch, on the items of `split`: "validation" or "test"."""
    answers = load_solutions("03_large_batch")
    data = _split(split, device(), answers.sample_negatives)
    torch.manual_seed(seed)
    if model_name == "neumf":
        sizes = NEUMF_SIZES["paper" if factors == 8 else "paper32"]
        model = NeuMF(data.n_users, data.n_items, **sizes | dict(dropout=settings["dropout"]))
    else:
        model = DotProduct(data.n_users, data.n_items, factors)
    model = model.to(device())
    lr = settings["lr"]

    def falling_lr(step: int, steps_per_epoch: int) -> float:
        return lr * (1 - step / (epochs * steps_per_epoch))

    history = train(
        model,
        torch.optim.Adam(model.parameters(), lr, fused=True),
        data,
        batch_size=settings["batch_size"],
        epochs=epochs,
        evaluate_every=epochs,
        sample_negatives=answers.sample_negatives,
        rank_metrics=answers.rank_metrics,
        n_negatives=settings["n_negatives"],
        schedule=falling_lr,
        step=regularised_step(settings["l2"]),
        seed=seed,
    )
    return Score(history.hit_rate[-1], history.ndcg[-1])


def regularised_step(l2: float) -> Step | None:
    """A step for `train` with a penalty on the batch's embeddings; None, its default, for l2 = 0.

    The loss is binary cross-entropy plus l2 / 2 times the mean squared norm of the embeddings.
    Unlike Adam's weight_decay, which pulls on every row at every update, this shrinks a row only
    when it is used: a rare item is not forgotten between its appearances. Source: Rendle et al.
    2020, section 3.2, whose SGD does so.
    """

    def step(
        model: torch.nn.Module,
        users: Tensor,
        items: Tensor,
        labels: Tensor,
        optimizer: torch.optim.Optimizer,
    ) -> Tensor:
        optimizer.zero_grad(set_to_none=True)
        loss = F.binary_cross_entropy_with_logits(model(users, items), labels)
        penalty = 0
        for name, table in model.named_children():
            if isinstance(table, torch.nn.Embedding) and "bias" not in name:
                # per row of the table, which has fewer rows than the batch
                norms = table.weight.square().sum(1)
                penalty = penalty + lookup(norms, users if "user" in name else items).mean()
        (loss + l2 / 2 * penalty).backward()
        optimizer.step()
        return loss.detach()

    return step if l2 else None


def _split(
    name: str, where: torch.device | str, sample_negatives: Callable[..., Tensor]
) -> Interactions:
    """Interactions of ML-1M on the device `where`, to be judged on "test" or "validation"."""
    split = movielens.load_ncf_split()
    users = split.train_users
    items = split.train_items
    held_out = (split.test_items, split.test_negatives)
    if name == "validation":
        last = _last_row_of_each_user(split)
        held_out = (items[last], _validation_negatives(split, sample_negatives))
        rest = torch.ones(len(users), dtype=torch.bool)
        rest[last] = False
        users = users[rest]
        items = items[rest]
    return Interactions.from_split(users, items, *held_out, split.n_users, split.n_items, where)


def _last_row_of_each_user(split: movielens.Split) -> Tensor:
    """int64 (n_users,): each user's rows are in the order of time."""
    rows = torch.arange(len(split.train_users))
    last = torch.zeros(split.n_users, dtype=torch.int64)
    return last.scatter_reduce_(0, split.train_users, rows, "amax")


def _validation_negatives(
    split: movielens.Split, sample_negatives: Callable[..., Tensor]
) -> Tensor:
    """int64 (n_users, NEGATIVES): items that the user has no training row of."""
    known = torch.zeros(split.n_users, split.n_items, dtype=torch.bool)
    known[split.train_users, split.train_items] = True
    users = torch.arange(split.n_users).repeat_interleave(NEGATIVES)
    drawn = sample_negatives(users, known, torch.Generator().manual_seed(1))
    return drawn.view(-1, NEGATIVES)
