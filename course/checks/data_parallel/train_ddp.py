"""Probe of exercise train_ddp."""

import itertools
from collections.abc import Sequence
from typing import Any

import torch

from course.checks.data_parallel import ddp_run
from course.checks.data_parallel.ddp_run import BATCH, EPOCHS, Record
from course.engine.exercise import Answer, Facts, exercise
from course.engine.probing.values import type_names

Records = Sequence[dict[str, Record]]  # {life: what came of it} of each rank


@exercise(seconds=60, starts_processes=True)
def train_ddp(answer: Answer, device: torch.device, seed: int) -> Facts:
    """Lives of one training in two ranks, always on the CPU."""
    ranks = ddp_run.lives(answer, seed)
    images, _ = ddp_run.data(seed)
    plain = [rank["plain"] for rank in ranks]
    yield from _training(plain, len(images))
    saved = ranks[0]["plain"].saved
    keys = sorted(map(str, saved)) if isinstance(saved, dict) else saved
    yield "what the checkpoint holds", keys
    if keys != ["model", "optimizer", "step"]:
        return
    yield "its step", saved["step"]
    yield "its model has the names of the model itself", list(saved["model"])
    yield from _losses_and_weights(ranks)
    yield from _files_and_reports(plain)
    yield from _seeds(ranks)
    yield "steps after which rank 0 has saved, save_every=2", ranks[0]["whole"].saves

    cut = [rank["cut"] for rank in ranks]
    yield "an error in a step is raised to the caller", [life.raised for life in cut]
    yield "the process group is gone after an error", not any(life.group_left for life in cut)
    yield "files after an error", cut[0].files
    if "resumed" in ranks[0]:
        yield from _resumed(ranks)


def _training(lives: Sequence[Record], n: int) -> Facts:
    """What is trained, on what, in which order."""
    losses = lives[0].losses
    yield "returns a float for each epoch", type_names(losses)
    sizes = [list(map(len, life.steps)) for life in lives]
    yield "samples that each rank takes in each step", sizes
    epochs = _epochs(lives, n)
    yield "an epoch visits each sample once", [sorted(epoch) == list(range(n)) for epoch in epochs]
    yield "every epoch has another order", len(set(map(tuple, epochs)))
    yield "every rank returns the same losses", lives[1].losses == losses
    yield "files that rank 0 leaves", lives[0].files
    yield "files that rank 1 leaves", lives[1].files


def _epochs(lives: Sequence[Record], n: int) -> list[list[int]]:
    """The samples of each epoch, of all ranks together, in the order in which they come."""
    steps_per_epoch = -(-n // BATCH)
    steps = []
    for of_ranks in zip(*(life.steps for life in lives), strict=False):
        steps.append(list(itertools.chain.from_iterable(of_ranks)))
    epochs = []
    for epoch in range(EPOCHS):
        start = epoch * steps_per_epoch
        of_epoch = steps[start : start + steps_per_epoch]
        epochs.append(list(itertools.chain.from_iterable(of_epoch)))
    return epochs


def _losses_and_weights(ranks: Records) -> Facts:
    """Losses and weights of trainings in which the order of the samples does not matter."""
    for text in ("learning rate 0", "one batch per epoch"):
        losses = [_vector(rank[text].losses) for rank in ranks]
        yield f"{text}: the losses, means over all ranks", losses
        reported = [loss for _, loss in ranks[0][text].reports]
        yield f"{text}: the losses that rank 0 reports", _vector(reported)
    saved = ranks[0]["one batch per epoch"].saved
    yield "one batch per epoch: the weights", saved["model"]
    momenta = _momenta(saved["optimizer"])
    yield "one batch per epoch: the momentum of each weight, in the optimizer", momenta


def _vector(numbers: Any) -> Any:
    """A list of numbers as a float32 tensor, which need not be equal to the last bit.

    Anything else stays as it is.
    """
    return torch.tensor(numbers) if isinstance(numbers, list) else numbers


def _momenta(state: Any) -> list[Any]:
    """The momentum buffers in the state of an SGD."""
    entries = state.get("state", {}).values() if isinstance(state, dict) else []
    return [entry.get("momentum_buffer") for entry in entries if isinstance(entry, dict)]


def _files_and_reports(lives: Sequence[Record]) -> Facts:
    """When and how checkpoints are written, what is reported, what is left."""
    yield "steps after which rank 0 has saved, save_every=1000", lives[0].saves
    yield "a new checkpoint is another file, put in the place of the old one", lives[0].replaced
    flushed = lives[0].flushed
    yield "every checkpoint is flushed and os.fsync called before it gets its name", flushed
    yield "epochs that each rank reports", [_reported_epochs(life) for life in lives]
    yield "the process group is gone at the end", not any(life.group_left for life in lives)


def _reported_epochs(life: Record) -> list[int]:
    return [epoch for epoch, _ in life.reports]


def _seeds(ranks: Records) -> Facts:
    """Whether what is random depends on the seed, the step and the rank."""
    other_order = ranks[0]["plain"].steps != ranks[0]["learning rate 0"].steps
    yield "another seed, another order", other_order
    masks = [_first_masks(rank["whole"]) for rank in ranks]
    yield "dropout differs from rank to rank", not torch.equal(*masks)
    patterns = {tuple(mask.flatten().tolist()) for mask in masks[0]}
    # of ten bits: two may be equal by chance
    yield "dropout differs from step to step", len(patterns) > len(masks[0]) - 3


def _first_masks(life: Record) -> torch.Tensor:
    """(steps, 2, features): what dropout keeps of the first two samples of each step."""
    return torch.stack([mask[:2] for mask in life.kept])


def _resumed(ranks: Records) -> Facts:
    """A life that begins with the checkpoint of another, and one in which nothing is left to do."""
    resumed = [rank["resumed"] for rank in ranks]
    finished = [rank["finished"] for rank in ranks]
    left = [rank["whole"].steps[4:] for rank in ranks]  # five steps were done, four were saved
    yield "steps that a second life trains", [len(life.steps) for life in resumed]
    yield "it trains the samples that were left", [life.steps for life in resumed] == left
    yield "samples that it reads from the data set", [life.reads for life in resumed]
    yield "epochs that it reports", _reported_epochs(resumed[0])
    same = _same_tensors(resumed[0].saved["model"], ranks[0]["whole"].saved["model"])
    yield "it ends with the very weights of a training that was never stopped", same
    losses_and_steps = [[life.losses, len(life.steps)] for life in finished]
    yield "a third life has nothing left to train", losses_and_steps
    yield "files that are left", finished[0].files


def _same_tensors(these: dict[str, torch.Tensor], those: dict[str, torch.Tensor]) -> bool:
    if these.keys() != those.keys():
        return False
    return all(torch.equal(these[name], those[name]) for name in those)
