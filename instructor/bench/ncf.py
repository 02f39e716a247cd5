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
from functools import partial

import torch
from torch.nn import functional as F

from course.datasets import data_folder, movielens
from course.device import device, machine
from course.errors import CourseError
from course.notebook.solutions import load_solutions
from course.training.models import NEUMF_SIZES, DotProduct, NeuMF, lookup
from course.training.recommender_loop import Interactions, train

# Where the search for settings of Adam begins.
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
KEPT = "ncf-accuracy-bench.jsonl"


def accuracy(model_name, factors, epochs=20, seeds=3):
    """Choose settings on validation items, train with them for each seed, and print HR@10 and
    NDCG@10 on the test.

    Args:
        model_name: "neumf" (8 or 32 factors) or "dot" (any number).

    The learning rate falls linearly to 0 over all epochs; nothing is evaluated before the last.
    Returns: list of (HR@10, NDCG@10) on the test items, one per seed.
    Raises: CourseError for a model without settings.
    """
    best = SETTINGS.get((model_name, factors if model_name == "neumf" else None))
    if best is None:
        raise CourseError(
            f"no settings for {model_name} with {factors} factors; neumf has 8 and 32, dot any number."
        )
    file = data_folder() / KEPT
    print(f"\n{model_name}, {factors} factors, Adam, {epochs} epochs; runs are kept in {file}")
    print(machine())
    run = partial(_recorded_run, file, model_name, factors, epochs)
    for name, times in VARIED.items():  # one setting after the other, around the best so far
        tried = [best] + [best | {name: best[name] * factor} for factor in times]
        best = max(tried, key=lambda one: run(one, 0, "validation"))
    results = [run(best, seed, "test") for seed in range(seeds)]
    print(f"chosen: {best}")
    for name, values in zip(("HR@10", "NDCG@10"), zip(*results, strict=True), strict=True):
        error = f" ± {statistics.stdev(values) / len(values) ** 0.5:.4f}" if len(values) > 1 else ""
        print(
            f"test {name}: {statistics.mean(values):.4f}{error} (mean and standard error of {seeds} seeds)"
        )
    return results


def _recorded_run(file, model_name, factors, epochs, settings, seed, split):
    """(HR@10, NDCG@10) of the run in `file` with these settings, or of a new one that is then kept
    there.
    """
    wanted = dict(
        model=model_name, factors=factors, epochs=epochs, settings=settings, seed=seed, split=split
    )
    lines = file.read_text(encoding="utf-8").splitlines() if file.exists() else []
    runs = [
        run
        for run in map(json.loads, lines)
        if all(run[key] == value for key, value in wanted.items())
    ]
    if not runs:
        started = time.perf_counter()
        hit_rate, ndcg = _train(model_name, factors, epochs, settings, seed, split)
        seconds = round(time.perf_counter() - started, 1)
        runs = [wanted | dict(hit_rate=hit_rate, ndcg=ndcg, seconds=seconds, machine=machine())]
        file.parent.mkdir(parents=True, exist_ok=True)
        with open(file, "a", encoding="utf-8") as stream:
            stream.write(json.dumps(runs[0]) + "\n")
    run = runs[0]
    # no test score here: nobody chooses by what is not printed
    score = (
        f"HR@10 {run['hit_rate']:.4f}, NDCG@10 {run['ndcg']:.4f}"
        if split == "validation"
        else "done"
    )
    print(f"  {split}, seed {seed}, {settings}: {score}, {run['seconds']} s", flush=True)
    return run["hit_rate"], run["ndcg"]


def _train(model_name, factors, epochs, settings, seed, split):
    """(HR@10, NDCG@10) after the last epoch, on the items of `split`: "validation" or "test"."""
    answers = load_solutions("03_large_batch")
    data = _split(split, device(), answers.sample_negatives)
    torch.manual_seed(seed)
    if model_name == "neumf":
        sizes = NEUMF_SIZES["paper" if factors == 8 else "paper32"] | dict(
            dropout=settings["dropout"]
        )
        model = NeuMF(data.n_users, data.n_items, **sizes)
    else:
        model = DotProduct(data.n_users, data.n_items, factors)
    model, lr = model.to(device()), settings["lr"]
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
        schedule=lambda step, steps_per_epoch: lr * (1 - step / (epochs * steps_per_epoch)),
        step=regularised_step(settings["l2"]),
        seed=seed,
    )
    return history.hit_rate[-1], history.ndcg[-1]


def regularised_step(l2):
    """A step for `train`: binary cross-entropy plus l2 / 2 times the mean squared norm of the
    batch's embeddings.

    Unlike Adam's weight_decay, which pulls on every row at every update, this shrinks a row only
    when it is used: a rare item is not forgotten between its appearances. Source: Rendle et al.
    2020, section 3.2, whose SGD does so.
    """

    def step(model, users, items, labels, optimizer):
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


def _split(name, where, sample_negatives):
    """Interactions of ML-1M on the device `where`, to be judged on the items of `name`: "test" or
    "validation".
    """
    split = movielens.load_ncf_split()
    users, items = split.train_users, split.train_items
    parts = users, items, split.test_items, split.test_negatives
    if name == "validation":
        rows = torch.arange(len(users))  # each user's rows are in the order of time
        last = torch.zeros(split.n_users, dtype=torch.int64).scatter_reduce_(0, users, rows, "amax")
        known = torch.zeros(split.n_users, split.n_items, dtype=torch.bool)
        known[users, items] = True
        generator = torch.Generator().manual_seed(1)
        negatives = sample_negatives(
            torch.arange(split.n_users).repeat_interleave(99), known, generator
        ).view(-1, 99)
        rest = torch.ones(len(users), dtype=torch.bool)
        rest[last] = False
        parts = users[rest], items[rest], items[last], negatives
    return Interactions.from_split(*parts, split.n_users, split.n_items, where)
