"""Train the small GPT on the ranks of a process group: a Run -> the same losses on every rank.

gpt_run.py is the loop of one process. What differs here: DistributedDataParallel, a loss of this
rank's texts, the mean of the logged losses, and a checkpoint from which a later start resumes, on
as many ranks as there are then.
"""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

import torch
import torch.distributed as dist
from torch import Tensor
from torch.nn.parallel import DistributedDataParallel

from course.training.gpt_run import Run, global_batch, new_run, texts, update

RankLoss = Callable[..., Tensor]  # (model, batch, rank, world_size) -> tensor of shape ()


class Checkpoint(Protocol):
    """What a checkpoint holds; the learner's answer."""

    def state(self, run: Run) -> dict:
        """Everything that the next step reads."""

    def restore(self, run: Run, state: dict) -> None:
        """Put `state` into a new Run."""


def train_on_ranks(
    rank_loss: RankLoss,
    checkpoint: Checkpoint,
    path: Path,
    until: int,
    save_every: int,
    before_step: Callable[[int], None] = lambda step: None,
) -> Run:
    """The Run of this rank, trained until its step is `until`; it resumes from `path` if it exists.

    Args:
        save_every: steps between two checkpoints, which rank 0 writes; the end writes one, too.
        before_step: called with the number of updates that are done.
    """
    rank, world_size = dist.get_rank(), dist.get_world_size()
    run = new_run()
    if path.exists():
        # weights_only refuses pickled code, so a checkpoint from elsewhere cannot run any
        checkpoint.restore(run, torch.load(path, weights_only=True))
    wrapped = DistributedDataParallel(run.model)
    corpus = texts()
    while run.step < until:
        before_step(run.step)
        loss = rank_loss(wrapped, global_batch(run, corpus), rank, world_size)
        logged = loss.detach().clone()
        dist.all_reduce(logged)  # on every rank, so outside any `if rank == 0`
        run.losses.append(logged.item() / world_size)
        update(run, loss)
        is_due = run.step % save_every == 0 or run.step == until
        if rank == 0 and is_due:
            write_durably(checkpoint.state(run), path)
    return run


def write_durably(state: Any, path: Path) -> None:
    """Write `state` so that `path` holds the old file or the new one, whatever happens meanwhile.

    Source: POSIX.1-2017, rename() and fsync(); a rename is on the disk when its folder is.
    """
    partial = path.with_suffix(".part")  # in the same folder, so that a rename suffices
    with open(partial, "wb") as file:
        torch.save(state, file)
        file.flush()
        os.fsync(file.fileno())
    os.replace(partial, path)
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
