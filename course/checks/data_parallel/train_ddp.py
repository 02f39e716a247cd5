"""Probe of exercise train_ddp."""

import itertools
from typing import Any

import torch

from course.checks.data_parallel import ddp_run
from course.checks.data_parallel.ddp_run import BATCH, EPOCHS, Record
from course.engine.exercise import Answer, Facts, exercise
from course.engine.probing.laws import tried
from course.engine.probing.values import type_names

Steps = list[list[int]]  # the samples of each step
Records = dict[str, Record]  # {life: what came of it} of a rank


@exercise(seconds=60, starts_processes=True)
def train_ddp(answer: Answer, device: torch.device, seed: int) -> Facts:
    """Lives of one training in two ranks, always on the CPU."""
    rank_0, rank_1 = ddp_run.lives(answer, seed)
    images, labels = ddp_run.data(seed)
    drawn = labels.tolist()
    yield from _training(rank_0["plain"], rank_1["plain"], len(images))
    saved = rank_0["plain"].saved
    keys = sorted(map(str, saved)) if isinstance(saved, dict) else saved
    yield "what the checkpoint holds", keys
    if keys != ["model", "optimizer", "step"]:
        return
    yield "its step", saved["step"]
    yield "its model has the names of the model itself", list(saved["model"])
    yield from _losses_and_weights(rank_0, rank_1)
    yield from _files_and_reports(rank_0["plain"], rank_1["plain"], drawn)
    yield from _seeds(rank_0, rank_1, drawn)
    yield "steps after which rank 0 has saved, save_every=2", rank_0["whole"].saves

    cut_0 = rank_0["cut"]
    cut_1 = rank_1["cut"]
    yield "an error in a step is raised to the caller", [cut_0.raised, cut_1.raised]
    group_is_left = cut_0.group_left or cut_1.group_left
    yield "the process group is gone after an error", tried(not group_is_left, drawn)
    yield "files after an error", cut_0.files
    if "resumed" in rank_0:
        yield from _resumed(rank_0, rank_1, drawn)


def _training(life_0: Record, life_1: Record, n: int) -> Facts:
    """What both ranks train, on what, in which order."""
    yield "returns a float for each epoch", type_names(life_0.losses)
    sizes = [list(map(len, life_0.steps)), list(map(len, life_1.steps))]
    yield "samples that each rank takes in each step", sizes
    epochs = _epochs(life_0.steps, life_1.steps, n)
    yield "an epoch visits each sample once", [sorted(epoch) == list(range(n)) for epoch in epochs]
    yield "every epoch has another order", len(set(map(tuple, epochs)))
    yield "every rank returns the same losses", life_1.losses == life_0.losses
    yield "files that rank 0 leaves", life_0.files
    yield "files that rank 1 leaves", life_1.files


def _epochs(steps_0: Steps, steps_1: Steps, n: int) -> list[list[int]]:
    """The samples of each epoch, of both ranks together, in the order in which they come."""
    steps_per_epoch = -(-n // BATCH)
    steps = []
    for samples_0, samples_1 in zip(steps_0, steps_1, strict=False):
        steps.append(samples_0 + samples_1)
    epochs = []
    for epoch in range(EPOCHS):
        start = epoch * steps_per_epoch
        of_epoch = steps[start : start + steps_per_epoch]
        epochs.append(list(itertools.chain.from_iterable(of_epoch)))
    return epochs


def _losses_and_weights(rank_0: Records, rank_1: Records) -> Facts:
    """Losses and weights of trainings in which the order of the samples does not matter."""
    for text in ("learning rate 0", "one batch per epoch"):
        losses = [_vector(rank_0[text].losses), _vector(rank_1[text].losses)]
        yield f"{text}: the losses, means over all ranks", losses
        reported = [loss for _, loss in rank_0[text].reports]
        yield f"{text}: the losses that rank 0 reports", _vector(reported)
    saved = rank_0["one batch per epoch"].saved
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


def _files_and_reports(life_0: Record, life_1: Record, drawn: list[int]) -> Facts:
    """When and how checkpoints are written, what is reported, what is left."""
    yield "steps after which rank 0 has saved, save_every=1000", life_0.saves
    replaced = tried(life_0.replaced, drawn)
    yield "a new checkpoint is another file, put in the place of the old one", replaced
    flushed = tried(life_0.flushed, drawn)
    yield "every checkpoint is flushed and os.fsync called before it gets its name", flushed
    yield "epochs that each rank reports", [_reported_epochs(life_0), _reported_epochs(life_1)]
    group_is_left = life_0.group_left or life_1.group_left
    yield "the process group is gone at the end", tried(not group_is_left, drawn)


def _reported_epochs(life: Record) -> list[int]:
    return [epoch for epoch, _ in life.reports]


def _seeds(rank_0: Records, rank_1: Records, drawn: list[int]) -> Facts:
    """Whether what is random depends on the seed, the step and the rank."""
    other_order = rank_0["plain"].steps != rank_0["learning rate 0"].steps
    yield "another seed, another order", tried(other_order, drawn)
    masks = _first_masks(rank_0["whole"])
    differ = not torch.equal(masks, _first_masks(rank_1["whole"]))
    yield "dropout differs from rank to rank", tried(differ, drawn)
    patterns = {tuple(mask.flatten().tolist()) for mask in masks}
    # of ten bits: two may be equal by chance
    differ = len(patterns) > len(masks) - 3
    yield "dropout differs from step to step", tried(differ, drawn)


def _first_masks(life: Record) -> torch.Tensor:
    """(steps, 2, features): what dropout keeps of the first two samples of each step."""
    return torch.stack([mask[:2] for mask in life.kept])


def _resumed(rank_0: Records, rank_1: Records, drawn: list[int]) -> Facts:
    """A life that begins with the checkpoint of another, and one in which nothing is left to do."""
    second_0 = rank_0["resumed"]
    second_1 = rank_1["resumed"]
    yield "steps that a second life trains", [len(second_0.steps), len(second_1.steps)]
    # five steps were done, four were saved
    same_on_0 = second_0.steps == rank_0["whole"].steps[4:]
    same_on_1 = second_1.steps == rank_1["whole"].steps[4:]
    yield "it trains the samples that were left", tried(same_on_0 and same_on_1, drawn)
    yield "samples that it reads from the data set", [second_0.reads, second_1.reads]
    yield "epochs that it reports", _reported_epochs(second_0)
    same = tried(_same_tensors(second_0.saved["model"], rank_0["whole"].saved["model"]), drawn)
    yield "it ends with the very weights of a training that was never stopped", same
    third_0 = rank_0["finished"]
    third_1 = rank_1["finished"]
    losses_and_steps = [
        [third_0.losses, len(third_0.steps)],
        [third_1.losses, len(third_1.steps)],
    ]
    yield "a third life has nothing left to train", losses_and_steps
    yield "files that are left", third_0.files


def _same_tensors(these: dict[str, torch.Tensor], those: dict[str, torch.Tensor]) -> bool:
    if these.keys() != those.keys():
        return False
    return all(torch.equal(these[name], those[name]) for name in those)
