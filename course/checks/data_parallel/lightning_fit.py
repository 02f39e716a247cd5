"""Probe of exercise lightning_fit."""

import contextlib
import io
import os
import tempfile
from unittest import mock

import torch
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

from course.checks.data_parallel.networks import all_close, classifier, micro_batches, weights_of
from course.checks.engine import exercise
from course.checks.probing.values import type_names
from course.parallel.distributed import run_ranks

LR = 0.5
STEPS = 3  # of a rank in an epoch: 11 or 12 samples in batches of 4


@exercise(needs="pytorch_lightning", seconds=60)
def lightning_fit(answer, device, seed):
    """Two ranks that train with Lightning; then one process takes the steps that they took."""
    ranks = run_ranks(_lightning_in_rank, 2, answer, 2 + seed % 2, seed, backend="gloo", timeout=15)
    yield "returns a list of floats, on each rank", [rank["kinds"] for rank in ranks]
    yield "one loss for each step of the rank, through all epochs", [len(rank["losses"]) for rank in ranks]
    yield "nothing is printed", not any(rank["printed"] for rank in ranks)
    yield "no file is left in the current folder", [rank["files"] for rank in ranks]
    yield "the losses of each rank in the first epoch", [rank["losses"][:STEPS] for rank in ranks]
    yield "the losses in later epochs", [rank["losses"][STEPS:] for rank in ranks]
    yield "both ranks end with the same weights", all_close(ranks[0]["weights"], ranks[1]["weights"])
    yield "the weights", ranks[0]["weights"]
    losses, weights = _in_one_process([rank["steps"] for rank in ranks], seed)
    same = [_same_numbers(rank["losses"], right) for rank, right in zip(ranks, losses, strict=True)]
    yield "the losses are those of a plain loop with DDP", same
    yield "and so are the weights", [all_close(rank["weights"], weights) for rank in ranks]


def _data(seed):
    return micro_batches(torch.Generator().manual_seed(seed), [21 + seed % 3], "cpu")[0]


def _lightning_in_rank(rank, world_size, answer, epochs, seed):
    """What came of the answer on this rank; "steps" are the samples that the model saw."""
    inputs, labels = _data(seed)
    model, steps = classifier(seed), []
    model.register_forward_hook(lambda module, given, output: steps.append(_places(inputs, given[0])))
    torch.manual_seed(rank)  # a loader that is left with its own sampler shuffles otherwise on every rank
    loader = DataLoader(TensorDataset(inputs, labels), batch_size=4, shuffle=True)
    printed = io.StringIO()
    with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(printed), _tempting_gpus():
        os.chdir(folder)
        try:
            theirs = answer(model, loader, LR, epochs)
            files = sorted(os.listdir(folder))
        finally:
            os.chdir("/")
    losses = [float(loss) for loss in theirs] if isinstance(theirs, (list, tuple)) else []
    return {"kinds": type_names(theirs), "losses": losses, "steps": steps, "printed": printed.getvalue(),
            "files": files, "weights": weights_of(model)}  # fmt: skip


def _places(inputs, batch):
    """The numbers of the samples of a batch."""
    return (batch[:, None] == inputs).all(2).int().argmax(1).tolist()


@contextlib.contextmanager
def _tempting_gpus():
    """Inside the block there seem to be GPUs, and who wants to compute on one is told: the same on every machine."""
    no = RuntimeError(
        "something looks for a GPU: a Trainer without accelerator='cpu', or an optimizer other than plain SGD."
    )
    with mock.patch("torch.cuda.device_count", return_value=2), mock.patch("torch.cuda._lazy_init", side_effect=no):
        yield


def _in_one_process(steps, seed):
    """(losses of each rank, weights) if one process takes the `steps` of all ranks: SGD, written out."""
    inputs, labels = _data(seed)
    model = classifier(seed)
    weights, losses = list(model.parameters()), [[] for _ in steps]
    for samples in zip(*steps, strict=False):
        of_ranks = [F.cross_entropy(model(inputs[some]), labels[some]) for some in samples]
        for rank, loss in enumerate(of_ranks):
            losses[rank].append(loss.item())
        gradients = torch.autograd.grad(torch.stack(of_ranks).mean(), weights)
        with torch.no_grad():
            for weight, gradient in zip(weights, gradients, strict=True):
                weight -= LR * gradient
    return losses, weights_of(model)


def _same_numbers(seen, expected):
    return len(seen) == len(expected) and all_close([torch.tensor(seen)], [torch.tensor(expected)])
