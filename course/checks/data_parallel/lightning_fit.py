"""Probe of exercise lightning_fit."""

import contextlib
import copy
import io
import os
import tempfile
from unittest import mock

import torch
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

from course.checks.data_parallel.shared import _all_close, _classifier, _micro_batches, _type_names, _weights
from course.checks.engine import exercise
from course.distributed import run_ranks


@exercise(needs="pytorch_lightning", seconds=60)
def lightning_fit(answer, device, seed):
    """Two ranks that train with Lightning, and the same training as a plain loop with DDP."""
    ranks = run_ranks(_lightning_in_rank, 2, answer, 0.5, 2 + seed % 2, seed, backend="gloo", timeout=15)
    yield "returns a list of floats, on each rank", [rank["kinds"] for rank in ranks]
    yield "one loss for each step of the rank, through all epochs", [rank["steps"] for rank in ranks]
    yield "nothing is printed", not any(rank["printed"] for rank in ranks)
    yield "no file is left in the current folder", [rank["files"] for rank in ranks]
    yield "the losses of each rank in the first epoch", [rank["losses"][: rank["in_epoch"]] for rank in ranks]
    yield "the losses in later epochs", [rank["losses"][rank["in_epoch"] :] for rank in ranks]
    yield "both ranks end with the same weights", _all_close(ranks[0]["weights"], ranks[1]["weights"])
    yield "the weights", ranks[0]["weights"]
    yield "the losses are those of a plain loop with DDP", [rank["same losses"] for rank in ranks]
    yield "and so are the weights", [rank["same weights"] for rank in ranks]


def _lightning_in_rank(rank, world_size, answer, lr, epochs, seed):
    """What came of the answer on this rank, and whether a plain loop gives the same."""
    rng = torch.Generator().manual_seed(seed)
    data = TensorDataset(*_micro_batches(rng, [21 + seed % 3], "cpu")[0])
    model = _classifier(seed)
    plain = copy.deepcopy(model)
    losses = _plain_loop(plain, data, lr, epochs)
    torch.manual_seed(rank)  # a loader that is left with its own sampler shuffles otherwise on every rank
    loader = DataLoader(data, batch_size=4, shuffle=True)
    printed = io.StringIO()
    with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(printed), _tempting_gpus():
        os.chdir(folder)
        try:
            theirs = answer(model, loader, lr, epochs)
            files = sorted(os.listdir(folder))
        finally:
            os.chdir("/")
    seen = [float(loss) for loss in theirs] if isinstance(theirs, (list, tuple)) else []
    return {
        "kinds": _type_names(theirs),
        "steps": len(seen),
        "in_epoch": len(losses) // epochs,
        "printed": printed.getvalue(),
        "files": files,
        "losses": seen,
        "weights": _weights(model),
        "same losses": len(seen) == len(losses) and _all_close([torch.tensor(seen)], [torch.tensor(losses)]),
        "same weights": _all_close(_weights(model), _weights(plain)),
    }


@contextlib.contextmanager
def _tempting_gpus():
    """Inside the block there seem to be GPUs, and who wants to compute on one is told: the same on every machine."""
    no = RuntimeError("the Trainer takes a GPU where there is one; it should compute on the CPU: accelerator='cpu'.")
    with mock.patch("torch.cuda.device_count", return_value=2), mock.patch("torch.cuda._lazy_init", side_effect=no):
        yield


def _plain_loop(model, data, lr, epochs):
    """The losses of this rank; trains `model` with torch alone."""
    sampler = DistributedSampler(data)
    loader = DataLoader(data, batch_size=4, sampler=sampler)
    ddp, losses = DistributedDataParallel(model), []
    optimizer = torch.optim.SGD(ddp.parameters(), lr)
    for epoch in range(epochs):
        sampler.set_epoch(epoch)
        for inputs, labels in loader:
            loss = F.cross_entropy(ddp(inputs), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
    return losses
