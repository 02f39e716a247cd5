"""Probe of exercise lightning_fit."""

import contextlib
import io
import logging
import os
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from unittest import mock

import torch
from torch.utils.data import DataLoader, TensorDataset

from course.checks.data_parallel.networks import all_close, classifier, micro_batches, weights_of
from course.engine.exercise import Answer, Facts, exercise
from course.engine.probing.laws import tried
from course.engine.probing.values import type_names
from course.parallel.distributed import run_ranks

LR = 0.5
STEPS = 3  # of a rank in an epoch: 11 or 12 samples in batches of 4


@dataclass
class _Fit:
    """What came of the answer on one rank."""

    kinds: list[str] | str  # the types of what it returned
    losses: list[float]
    printed: str
    files: list[str]  # left in the current folder
    weights: list[torch.Tensor]


@exercise(needs="pytorch_lightning", seconds=60, starts_processes=True, given_modules_only=True)
def lightning_fit(answer: Answer, device: torch.device, seed: int) -> Facts:
    """Two ranks that train with Lightning."""
    epochs = 2 + seed % 2
    one, other = run_ranks(_fit_in_rank, 2, answer, epochs, seed, backend="gloo", timeout=15)
    kinds = tried([one.kinds, other.kinds], [epochs, seed % 3])
    yield "returns a list of floats, on each rank", kinds
    counts = [len(one.losses), len(other.losses)]
    yield "one loss for each step of the rank, through all epochs", counts
    yield "nothing is printed", one.printed + other.printed
    yield "no file is left in the current folder", [one.files, other.files]
    first_epoch = [one.losses[:STEPS], other.losses[:STEPS]]
    yield "the losses of each rank in the first epoch", first_epoch
    yield "the losses in later epochs", [one.losses[STEPS:], other.losses[STEPS:]]
    yield "both ranks end with the same weights", all_close(one.weights, other.weights)
    yield "the weights", one.weights


def _fit_in_rank(rank: int, world_size: int, answer: Answer, epochs: int, seed: int) -> _Fit:
    rng = torch.Generator().manual_seed(seed)
    ((inputs, labels),) = micro_batches(rng, [21 + seed % 3], "cpu")
    model = classifier(seed)
    # a loader that is left with its own sampler shuffles otherwise on every rank
    torch.manual_seed(rank)
    loader = DataLoader(TensorDataset(inputs, labels), batch_size=4, shuffle=True)
    printed = io.StringIO()
    with (
        tempfile.TemporaryDirectory() as folder,
        # a notebook that sets up logging prints what Lightning notes: that is not asked
        mock.patch.object(logging.root, "handlers", [logging.NullHandler()]),
        contextlib.redirect_stdout(printed),
        _tempting_gpus(),
    ):
        os.chdir(folder)
        try:
            returned = answer(model, loader, LR, epochs)
            files = sorted(os.listdir(folder))
        finally:
            os.chdir("/")
    losses = []
    if isinstance(returned, (list, tuple)):
        losses = [float(loss) for loss in returned]
    return _Fit(type_names(returned), losses, printed.getvalue(), files, weights_of(model))


@contextlib.contextmanager
def _tempting_gpus() -> Iterator[None]:
    """Inside the block there seem to be GPUs, on every machine; to compute on one is an error."""
    no = RuntimeError(
        "something looks for a GPU: a Trainer without accelerator='cpu', "
        "or an optimizer other than plain SGD."
    )
    with (
        mock.patch("torch.cuda.device_count", return_value=2),
        # else Lightning saves random states of real GPUs
        mock.patch("torch.cuda.is_available", return_value=False),
        mock.patch("torch.cuda._lazy_init", side_effect=no),
    ):
        yield
