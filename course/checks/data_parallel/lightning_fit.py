"""Probe of exercise lightning_fit."""

import contextlib
import io
import os
import tempfile
from unittest import mock

import torch
from torch.utils.data import DataLoader, TensorDataset

from course.checks.data_parallel.networks import all_close, classifier, micro_batches, weights_of
from course.engine.exercise import Answer, Facts, exercise
from course.engine.probing.values import type_names
from course.parallel.distributed import run_ranks

LR = 0.5
STEPS = 3  # of a rank in an epoch: 11 or 12 samples in batches of 4


@exercise(needs="pytorch_lightning", seconds=60, starts_processes=True, given_modules_only=True)
def lightning_fit(answer: Answer, device: torch.device, seed: int) -> Facts:
    """Two ranks that train with Lightning."""
    ranks = run_ranks(_lightning_in_rank, 2, answer, 2 + seed % 2, seed, backend="gloo", timeout=15)
    yield "returns a list of floats, on each rank", [rank["kinds"] for rank in ranks]
    yield (
        "one loss for each step of the rank, through all epochs",
        [len(rank["losses"]) for rank in ranks],
    )
    yield "nothing is printed", "".join(rank["printed"] for rank in ranks)
    yield "no file is left in the current folder", [rank["files"] for rank in ranks]
    yield "the losses of each rank in the first epoch", [rank["losses"][:STEPS] for rank in ranks]
    yield "the losses in later epochs", [rank["losses"][STEPS:] for rank in ranks]
    yield (
        "both ranks end with the same weights",
        all_close(ranks[0]["weights"], ranks[1]["weights"]),
    )
    yield "the weights", ranks[0]["weights"]


def _lightning_in_rank(rank, world_size, answer, epochs, seed):
    """What came of the answer on this rank."""
    ((inputs, labels),) = micro_batches(torch.Generator().manual_seed(seed), [21 + seed % 3], "cpu")
    model = classifier(seed)
    # a loader that is left with its own sampler shuffles otherwise on every rank
    torch.manual_seed(rank)
    loader = DataLoader(TensorDataset(inputs, labels), batch_size=4, shuffle=True)
    printed = io.StringIO()
    with (
        tempfile.TemporaryDirectory() as folder,
        contextlib.redirect_stdout(printed),
        _tempting_gpus(),
    ):
        os.chdir(folder)
        try:
            theirs = answer(model, loader, LR, epochs)
            files = sorted(os.listdir(folder))
        finally:
            os.chdir("/")
    losses = [float(loss) for loss in theirs] if isinstance(theirs, (list, tuple)) else []
    return {"kinds": type_names(theirs), "losses": losses, "printed": printed.getvalue(),
            "files": files, "weights": weights_of(model)}  # fmt: skip


@contextlib.contextmanager
def _tempting_gpus():
    """Inside the block there seem to be GPUs, and who wants to compute on one is told: the same on
    every machine.
    """
    no = RuntimeError(
        "something looks for a GPU: a Trainer without accelerator='cpu', or an optimizer other than plain SGD."
    )
    with (
        mock.patch("torch.cuda.device_count", return_value=2),
        mock.patch(
            "torch.cuda.is_available", return_value=False
        ),  # or Lightning saves random states of real GPUs
        mock.patch("torch.cuda._lazy_init", side_effect=no),
    ):
        yield
