"""Probe of exercise train_ddp."""

import torch

from course.checks.data_parallel import ddp_run
from course.checks.data_parallel.ddp_run import BATCH, EPOCHS
from course.engine.exercise import Answer, Facts, exercise
from course.engine.probing.values import type_names


@exercise(seconds=60, starts_processes=True)
def train_ddp(answer: Answer, device: torch.device, seed: int) -> Facts:
    """Lives of one training in two ranks, always on the CPU."""
    ranks = ddp_run.lives(answer, seed)
    n = len(ddp_run.data(seed)[0])
    per_epoch = -(-n // BATCH)
    yield from _training([rank["plain"] for rank in ranks], n, per_epoch)
    saved = ranks[0]["plain"]["saved"]
    keys = sorted(map(str, saved)) if isinstance(saved, dict) else saved
    yield "what the checkpoint holds", keys
    if keys != ["model", "optimizer", "step"]:
        return
    yield "its step", saved["step"]
    yield "its model has the names of the model itself", list(saved["model"])
    yield from _values(ranks)
    yield from _files([rank["plain"] for rank in ranks])
    yield from _seeds(ranks)
    yield "steps after which rank 0 has saved, save_every=2", ranks[0]["whole"]["saves"]

    cut = [rank["cut"] for rank in ranks]
    yield "an error in a step is raised to the caller", [life["raised"] for life in cut]
    yield "the process group is gone after an error", not any(life["group left"] for life in cut)
    yield "files after an error", cut[0]["files"]
    if "resumed" in ranks[0]:
        yield from _resumed(ranks)


def _orders(steps, per_epoch):
    """The samples of each epoch in the order in which they come, from the `steps` of the ranks."""
    of_all = [sum(parts, []) for parts in zip(*steps, strict=False)]
    return [sum(of_all[i : i + per_epoch], []) for i in range(0, per_epoch * EPOCHS, per_epoch)]


def _training(lives, n, per_epoch):
    """What is trained, on what, in which order."""
    losses = lives[0]["losses"]
    yield "returns a float for each epoch", type_names(losses)
    yield (
        "samples that each rank takes in each step",
        [[len(s) for s in life["steps"]] for life in lives],
    )
    epochs = _orders([life["steps"] for life in lives], per_epoch)
    yield "an epoch visits each sample once", [sorted(epoch) == list(range(n)) for epoch in epochs]
    yield "every epoch has another order", len(set(map(tuple, epochs)))
    yield "every rank returns the same losses", lives[1]["losses"] == losses
    yield "files that rank 0 leaves", lives[0]["files"]
    yield "files that rank 1 leaves", lives[1]["files"]


def _values(ranks):
    """Losses and weights of trainings in which the order of the samples does not matter."""
    for text in ("learning rate 0", "one batch per epoch"):
        yield (
            f"{text}: the losses, means over all ranks",
            [_vector(rank[text]["losses"]) for rank in ranks],
        )
        yield (
            f"{text}: the losses that rank 0 reports",
            _vector([x for _, x in ranks[0][text]["reports"]]),
        )
    saved = ranks[0]["one batch per epoch"]["saved"]
    yield "one batch per epoch: the weights", saved["model"]
    yield (
        "one batch per epoch: the momentum of each weight, in the optimizer",
        _momenta(saved["optimizer"]),
    )


def _vector(numbers):
    """A list of numbers as a float32 tensor, which need not be equal to the last bit; anything else
    as it is.
    """
    return torch.tensor(numbers) if isinstance(numbers, list) else numbers


def _momenta(state):
    """The momentum buffers in the state of an SGD."""
    entries = state.get("state", {}).values() if isinstance(state, dict) else []
    return [entry.get("momentum_buffer") for entry in entries if isinstance(entry, dict)]


def _files(lives):
    """When and how checkpoints are written, what is reported, what is left."""
    yield "steps after which rank 0 has saved, save_every=1000", lives[0]["saves"]
    yield "a new checkpoint is another file, put in the place of the old one", lives[0]["replaced"]
    yield (
        "every checkpoint is flushed and os.fsync called before it gets its name",
        lives[0]["flushed"],
    )
    yield (
        "epochs that each rank reports",
        [[epoch for epoch, _ in life["reports"]] for life in lives],
    )
    yield "the process group is gone at the end", not any(life["group left"] for life in lives)


def _seeds(ranks):
    """Whether what is random depends on the seed, the step and the rank."""
    yield (
        "another seed, another order",
        ranks[0]["plain"]["steps"] != ranks[0]["learning rate 0"]["steps"],
    )
    # (steps, 2, features)
    masks = [torch.stack([mask[:2] for mask in rank["whole"]["kept"]]) for rank in ranks]
    yield "dropout differs from rank to rank", not torch.equal(*masks)
    # of ten bits: two may be equal by chance
    patterns = {tuple(k.flatten().tolist()) for k in masks[0]}
    yield "dropout differs from step to step", len(patterns) > len(masks[0]) - 3


def _resumed(ranks):
    """A life that begins with the checkpoint of another, and one in which nothing is left to do."""
    resumed = [rank["resumed"] for rank in ranks]
    left = [rank["whole"]["steps"][4:] for rank in ranks]  # five steps were done, four were saved
    yield "steps that a second life trains", [len(life["steps"]) for life in resumed]
    yield "it trains the samples that were left", [life["steps"] for life in resumed] == left
    yield "samples that it reads from the data set", [life["reads"] for life in resumed]
    yield "epochs that it reports", [epoch for epoch, _ in resumed[0]["reports"]]
    weights, whole = (ranks[0][name]["saved"]["model"] for name in ("resumed", "whole"))
    same = weights.keys() == whole.keys() and all(
        torch.equal(weights[name], whole[name]) for name in whole
    )
    yield "it ends with the very weights of a training that was never stopped", same
    yield (
        "a third life has nothing left to train",
        [[rank["finished"]["losses"], len(rank["finished"]["steps"])] for rank in ranks],
    )
    yield "files that are left", ranks[0]["finished"]["files"]
