"""Accuracy and speed of Neural Collaborative Filtering on MovieLens-1M.

`accuracy` trains with the split and the test negatives that He et al. published.  Settings are chosen on validation
items, each user's last training row, ranked among 99 items that the user has no training row of; models of that search
never see these rows.  The best setting is then trained on all training rows, for a fixed number of epochs, and tested
once on the test items.  Finished runs are kept in a file.  `throughput` compares our training loop with NVIDIA's, whose
files neumf.py and dataloading.py in FOLDER are used unchanged (they are in
https://github.com/NVIDIA/DeepLearningExamples, PyTorch/Recommendation/NCF).
"""

import contextlib
import importlib
import itertools
import json
import statistics
import sys
import time
import types
import warnings
from functools import partial
from pathlib import Path

import torch
from torch import multiprocessing
from torch.nn import functional as F

from course.benchmarks import spread
from course.checks.expected import load_solutions
from course.datasets import data_folder, movielens
from course.device import device, machine
from course.errors import CourseError
from course.training.models import NEUMF_SIZES, DotProduct, NeuMF, lookup
from course.training.recommender_loop import Interactions, epoch_batches, keep_freed_memory, train

# Where the search for settings of Adam begins.
SETTINGS = {
    ("neumf", 8): dict(lr=3e-3, batch_size=4096, l2=0.03, n_negatives=8, dropout=0.0),
    ("neumf", 32): dict(lr=2e-3, batch_size=20480, l2=0.002, n_negatives=8, dropout=0.5),
    ("dot", None): dict(lr=3e-3, batch_size=8192, l2=0.005, n_negatives=8),
}
VARIED = {"l2": (0.3, 3.0), "lr": (0.5, 2.0)}  # factors by which each is varied around the best so far
KEPT = "ncf-accuracy-bench.jsonl"


def accuracy(model_name, factors, epochs=20, seeds=3):
    """Choose settings on validation items, train with them for each seed, and print HR@10 and NDCG@10 on the test.

    Args:
        model_name: "neumf" (8 or 32 factors) or "dot" (any number).

    The learning rate falls linearly to 0 over all epochs; nothing is evaluated before the last.
    Returns: list of (HR@10, NDCG@10) on the test items, one per seed.
    Raises: CourseError for a model without settings.
    """
    best = SETTINGS.get((model_name, factors if model_name == "neumf" else None))
    if best is None:
        raise CourseError(f"no settings for {model_name} with {factors} factors; neumf has 8 and 32, dot any number.")
    file = data_folder() / KEPT
    print(f"\n{model_name}, {factors} factors, Adam, {epochs} epochs; runs are kept in {file}")
    print(machine())
    run = partial(_kept_run, file, model_name, factors, epochs)
    for name, times in VARIED.items():  # one setting after the other, around the best so far
        tried = [best] + [best | {name: best[name] * factor} for factor in times]
        best = max(tried, key=lambda one: run(one, 0, "validation"))
    results = [run(best, seed, "test") for seed in range(seeds)]
    print(f"chosen: {best}")
    for name, values in zip(("HR@10", "NDCG@10"), zip(*results, strict=True), strict=True):
        error = f" ± {statistics.stdev(values) / len(values) ** 0.5:.4f}" if len(values) > 1 else ""
        print(f"test {name}: {statistics.mean(values):.4f}{error} (mean and standard error of {seeds} seeds)")
    return results


def _kept_run(file, model_name, factors, epochs, settings, seed, split):
    """(HR@10, NDCG@10) of the run in `file` with these settings, or of a new one that is then kept there."""
    wanted = dict(model=model_name, factors=factors, epochs=epochs, settings=settings, seed=seed, split=split)
    lines = file.read_text(encoding="utf-8").splitlines() if file.exists() else []
    found = [kept for kept in map(json.loads, lines) if all(kept[key] == value for key, value in wanted.items())]
    if not found:
        started = time.perf_counter()
        hit_rate, ndcg = _train(model_name, factors, epochs, settings, seed, split)
        seconds = round(time.perf_counter() - started, 1)
        found = [wanted | dict(hit_rate=hit_rate, ndcg=ndcg, seconds=seconds, machine=machine())]
        file.parent.mkdir(parents=True, exist_ok=True)
        with open(file, "a", encoding="utf-8") as stream:
            stream.write(json.dumps(found[0]) + "\n")
    kept = found[0]
    # no test score here: nobody chooses by what is not printed
    score = f"HR@10 {kept['hit_rate']:.4f}, NDCG@10 {kept['ndcg']:.4f}" if split == "validation" else "done"
    print(f"  {split}, seed {seed}, {settings}: {score}, {kept['seconds']} s", flush=True)
    return kept["hit_rate"], kept["ndcg"]


def _train(model_name, factors, epochs, settings, seed, split):
    """(HR@10, NDCG@10) after the last epoch, on the items of `split`: "validation" or "test"."""
    answers = load_solutions("03_large_batch")
    data = _split(split, device(), answers.sample_negatives)
    torch.manual_seed(seed)
    if model_name == "neumf":
        sizes = NEUMF_SIZES["paper" if factors == 8 else "paper32"] | dict(dropout=settings["dropout"])
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
    """A step for `train`: binary cross-entropy plus l2 / 2 times the mean squared norm of the batch's embeddings.

    Unlike Adam's weight_decay, which pulls on every row at every update, this shrinks a row only when it is used: a
    rare item is not forgotten between its appearances.  Source: Rendle et al. 2020, section 3.2, whose SGD does so.
    """

    def step(model, users, items, labels, optimizer):
        optimizer.zero_grad(set_to_none=True)
        loss = F.binary_cross_entropy_with_logits(model(users, items), labels)
        penalty = 0
        for name, table in model.named_children():
            if isinstance(table, torch.nn.Embedding) and "bias" not in name:
                norms = table.weight.square().sum(1)  # per row of the table, which has fewer rows than the batch
                penalty = penalty + lookup(norms, users if "user" in name else items).mean()
        (loss + l2 / 2 * penalty).backward()
        optimizer.step()
        return loss.detach()

    return step if l2 else None


def throughput(nvidia, sizes, batch_sizes, repeats=5, seconds=2.0):
    """Print samples per second of each contestant at each size and batch, and their ratios to NVIDIA's loop.

    Each contestant runs in its own process, as its user would run it, and they take turns: one sample of each, then the
    next of each.  A sample is the preparation of one epoch and about `seconds` of its updates, from which the time
    of the whole epoch follows; only trained samples count, so not those of a last batch that is dropped.  "nvidia kept"
    is their loop with recommender_loop.keep_freed_memory: how much of the ratio comes from that alone.
    """
    split = movielens.load_ncf_split()
    print(f"{split.name}: {len(split.train_users):,} positives, {split.n_users:,} users, {split.n_items:,} items")
    print(machine())
    data = _on_test_items(split, "cpu")
    for size, batch_size in itertools.product(sizes, batch_sizes):
        names = ["nvidia", "nvidia kept", "fast"]
        if NEUMF_SIZES[size]["dropout"]:
            names += ["nvidia bf16", "fast bf16"]
        rates = _take_turns(names, data, size, batch_size, nvidia, repeats, seconds)
        print(f"\n{size} sizes, batch {batch_size:,}: thousand samples/s, median (lowest to highest) of {repeats}")
        for name in names:
            own, theirs = torch.tensor(rates[name]), torch.tensor(rates["nvidia"])
            print(f"  {name:<12}{spread(own / 1e3, ',.1f'):>30}   {spread(own / theirs, '.2f')} of nvidia", flush=True)


def _take_turns(names, data, size, batch_size, nvidia, repeats, seconds):
    """{name: samples per second of each repeat}, measured in turn, each name in a process of its own."""
    context = multiprocessing.get_context("spawn")
    with contextlib.ExitStack() as stack:
        pipes = {}
        for name in names:
            ours, theirs = context.Pipe()
            process = context.Process(target=_contestant, args=(theirs, name, data, size, batch_size, nvidia, seconds))
            process.start()
            theirs.close()  # so that the pipe ends when its process dies
            stack.callback(process.join)
            stack.callback(ours.close)
            pipes[name] = ours
        rates = {name: [] for name in names}
        for turn in range(1 + repeats):
            for name, pipe in pipes.items():
                try:
                    pipe.send("go")
                    rate = pipe.recv()
                except (EOFError, BrokenPipeError):
                    raise CourseError(f"the process of {name!r} ended early; see its message above.") from None
                if turn:  # the first is the warm-up
                    rates[name].append(rate)
    return rates


def _contestant(pipe, name, data, size, batch_size, nvidia, seconds):
    """Answer every message on `pipe` with samples per second of a new epoch, until the pipe closes."""
    who, _, how = name.partition(" ")
    torch.manual_seed(0)
    if who == "fast" or how == "kept":
        keep_freed_memory()
    arguments = data, NEUMF_SIZES[size], batch_size, how == "bf16"
    with contextlib.suppress(EOFError, KeyboardInterrupt):
        epoch = _our_epoch(*arguments) if who == "fast" else _nvidia_epoch(*arguments, nvidia)
        while True:
            pipe.recv()
            pipe.send(_rate(epoch, seconds))


def _rate(epoch, seconds):
    """Samples per second of an epoch, from its preparation and its first updates.

    Args:
        epoch: () -> (batches, update, n_batches, n_samples) that prepares a fresh epoch: `update(batch)` trains one.
    """
    started = time.perf_counter()
    batches, update, n_batches, n_samples = epoch()
    prepared = time.perf_counter()
    done = 0
    for batch in batches:
        update(batch)
        done += 1
        elapsed = time.perf_counter() - prepared
        if elapsed > seconds and done > 2:
            break
    return n_samples / (prepared - started + elapsed / done * n_batches)


def _our_epoch(data, sizes, batch_size, bf16):
    """Our loop for `_rate`: exact negatives, every positive, last partial batch included."""
    sample_negatives = load_solutions("03_large_batch").sample_negatives
    model = NeuMF(data.n_users, data.n_items, **sizes)
    optimizer = torch.optim.Adam(model.parameters(), 0.0045, betas=(0.25, 0.5), fused=True)
    generator = torch.Generator().manual_seed(0)
    n_samples = 5 * len(data.train_users)

    def update(batch):
        users, items, labels = batch
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast("cpu", torch.bfloat16, enabled=bf16):
            logits = model(users, items)
        F.binary_cross_entropy_with_logits(logits, labels).backward()
        optimizer.step()

    def epoch():
        batches = epoch_batches(data, batch_size, sample_negatives, 4, generator)
        batches = itertools.chain([next(batches)], batches)  # the first `next` makes the whole epoch
        return batches, update, -(-n_samples // batch_size), n_samples

    model.train()
    return epoch


def _nvidia_epoch(data, sizes, batch_size, bf16, folder):
    """NVIDIA's loop of ncf.py for `_rate`, around their own model and data loader.

    Kept: their get_epoch_data with its inexact negatives and its dropped last batch, the traced loss, gradients set to
    None, Adam with their rate and betas.  Changed: torch.optim.Adam in place of apex's FusedAdam, device cpu, and no
    loss scaling, which their ncf.py has on only with fp16.
    """
    neumf, dataloading = _import_nvidia(folder)
    model = neumf.NeuMF(data.n_users, data.n_items, sizes["factors"], list(sizes["layers"]), sizes["dropout"])
    optimizer = torch.optim.Adam(model.parameters(), lr=0.0045, betas=(0.25, 0.5), eps=1e-8)
    criterion = torch.nn.BCEWithLogitsLoss(reduction="none")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch.jit is deprecated, and tracing warns of the shape check it bakes in
        criterion = torch.jit.trace(criterion.forward, (torch.rand(batch_size, 1), torch.rand(batch_size, 1)))
    specification = types.SimpleNamespace(
        channel_spec={"user_ch": ["user"], "item_ch": ["item"], "label_ch": ["label"]},
        feature_spec={"user": {"cardinality": data.n_users}, "item": {"cardinality": data.n_items}},
    )
    columns = dict(user=data.train_users, item=data.train_items, label=torch.ones(len(data.train_users)))
    features = {name: column.view(-1, 1) for name, column in columns.items()}
    arguments = dict(local_rank=0, distributed=False, batch_size=batch_size, world_size=1, negative_samples=4)
    dataset = types.SimpleNamespace(features=features, feature_spec=specification)
    loader = dataloading.TrainDataloader(dataset, types.SimpleNamespace(**arguments))

    def update(batch):
        with torch.autocast("cpu", torch.bfloat16, enabled=bf16):
            outputs = model(batch["user_ch"]["user"], batch["item_ch"]["item"])
            loss = criterion(outputs, batch["label_ch"]["label"].view(-1, 1))
            loss = torch.mean(loss.float().view(-1), 0)
        loss.backward()
        optimizer.step()
        for parameter in model.parameters():
            parameter.grad = None

    def epoch():
        batches = loader.get_epoch_data()
        return batches, update, len(batches), len(batches) * batch_size

    model.train()
    return epoch


def _import_nvidia(folder):
    """Their modules (neumf, dataloading), unmodified, with torch's "cuda:0" answered by the CPU.

    Raises: CourseError if the folder lacks a file.
    """
    files = ("neumf.py", "dataloading.py", "feature_spec.py", "neumf_constants.py")
    missing = [name for name in files if not (Path(folder) / name).is_file()]
    if missing:
        raise CourseError(f"looked in {folder} for NVIDIA's {', '.join(files)}, found no {', '.join(missing)}.")
    sys.path.insert(0, str(folder))
    sys.modules.setdefault("yaml", types.ModuleType("yaml"))  # feature_spec.py imports it; the loop never uses it
    neumf, dataloading = importlib.import_module("neumf"), importlib.import_module("dataloading")
    on_cpu = types.ModuleType("torch")
    on_cpu.__getattr__ = lambda name: getattr(torch, name)
    on_cpu.randperm = lambda n, device: torch.randperm(n)
    dataloading.torch = on_cpu
    return neumf, dataloading


def _split(name, where, sample_negatives):
    """Interactions of ML-1M on the device `where`, to be judged on the items of `name`: "test" or "validation"."""
    split = movielens.load_ncf_split()
    users, items = split.train_users, split.train_items
    if name == "test":
        return _on_test_items(split, where)
    rows = torch.arange(len(users))  # each user's rows are in the order of time
    last = torch.zeros(split.n_users, dtype=torch.int64).scatter_reduce_(0, users, rows, "amax")
    known = torch.zeros(split.n_users, split.n_items, dtype=torch.bool)
    known[users, items] = True
    generator = torch.Generator().manual_seed(1)
    negatives = sample_negatives(torch.arange(split.n_users).repeat_interleave(99), known, generator).view(-1, 99)
    rest = torch.ones(len(users), dtype=torch.bool)
    rest[last] = False
    parts = users[rest], items[rest], items[last], negatives
    return Interactions.from_split(*parts, split.n_users, split.n_items, where)


def _on_test_items(split, where):
    """Interactions of `split` on the device `where`, to be judged on the published test items and negatives."""
    parts = split.train_users, split.train_items, split.test_items, split.test_negatives
    return Interactions.from_split(*parts, split.n_users, split.n_items, where)
