"""What the ranks do while `train_ddp` is checked: lives of a training, whose model logs inputs.

A life is one call of the answer, in ranks as torchrun leaves them: variables set, no process group.
In one life the model raises in the middle of an epoch, and the next must resume from the
checkpoint. What must come of it is in course/checks/data_parallel/train_ddp.py.
"""

import os
import tempfile
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple
from unittest import mock

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional as F
from torch.utils.data import TensorDataset

from course.engine.exercise import Answer
from course.parallel.distributed import run_ranks

WORLD_SIZE = 2
EPOCHS = 3
BATCH = 8  # n_samples is chosen so that an epoch has three steps
TIMEOUT_SECONDS = 30.0  # of all lives together, which take two seconds where nothing else runs
CHECKPOINT = "run.pt"


class Life(NamedTuple):
    """One call of the answer: what is changed in its options, and when the model raises."""

    noisy: bool = False  # whether the model has dropout and BatchNorm
    steps_before_cut: int | None = None  # forward passes after which the model raises
    save_every: int = 1000
    batch_size: int = BATCH
    lr: float = 0.2
    seed_offset: int = 0


LIVES = {
    "plain": Life(),
    "whole": Life(noisy=True, save_every=2),
    "cut": Life(noisy=True, save_every=2, steps_before_cut=5),
    "learning rate 0": Life(lr=0.0, seed_offset=1),
    "one batch per epoch": Life(batch_size=1000),
    "resumed": Life(noisy=True, save_every=2),
    "finished": Life(noisy=True, save_every=2),
}


@dataclass
class Record:
    """What came of one life in one rank."""

    losses: Any  # what the answer returned
    raised: str | None  # the type of what it raised
    group_left: bool  # whether a process group was there afterwards
    steps: list[list[int]]  # the samples of each step
    reports: list[tuple[int, float]]  # (epoch, loss)
    saves: list[int]  # the steps after which another checkpoint was there
    replaced: bool  # whether every save replaced the checkpoint by a new file
    files: list[str]
    kept: list[torch.Tensor]  # the dropout mask of each step
    reads: int  # of samples
    flushed: bool  # whether os.fsync was called before each checkpoint got its name
    saved: Any  # the checkpoint, or a sentence


kept_objects = []  # of a rank, until it ends


def keep_group() -> None:
    """Keep the process group from being freed with the model.

    torch 2.13 can hang there, because freeing a gloo group waits for the group's thread, which may
    itself wait for Python's lock.
    """
    if dist.is_initialized() and dist.group.WORLD not in kept_objects:
        kept_objects.append(dist.group.WORLD)


class Cut(Exception):
    """Stands for a machine that fails in the middle of a step."""


class Watch:
    """Log of one rank in one life: samples of each step, dropout, reports, checkpoints."""

    def __init__(
        self, checkpoint: Path, n_samples: int, steps_before_cut: int | None = None
    ) -> None:
        self.checkpoint = checkpoint
        self.n_samples = n_samples
        self.steps_before_cut = steps_before_cut
        self.reads = 0
        self.flushed_sizes = set()  # bytes of files at os.fsync
        self.unflushed = 0  # checkpoints
        self.steps = []
        self.kept = []
        self.reports = []
        self.saves = []
        self.descriptors = []
        self.seen = None  # (inode, time) of the latest checkpoint

    def note_step(self, images: torch.Tensor) -> None:
        """Note the samples of a step.  Raises: Cut after the last step of this life."""
        self.note_checkpoint()
        if len(self.steps) == self.steps_before_cut:
            raise Cut("the machine is taken away")
        samples = images[:, 0, 0, 0] * self.n_samples
        self.steps.append(samples.round().int().tolist())

    def note_checkpoint(self) -> None:
        """Note after how many steps another checkpoint is there.

        Each is kept open, so that no other gets its inode.
        """
        if not self.checkpoint.exists():
            return
        stat = self.checkpoint.stat()
        identity = stat.st_ino, stat.st_mtime_ns
        if self.seen != identity:
            self.seen = identity
            self.unflushed += stat.st_size not in self.flushed_sizes
            self.saves.append(len(self.steps))
            self.descriptors.append(os.open(self.checkpoint, os.O_RDONLY))

    def note_report(self, epoch: int, loss: float) -> None:
        """Stands for what the answer reports to."""
        self.reports.append((epoch, loss))

    def replaced(self) -> bool:
        """True if every save replaced the checkpoint by a new file."""
        inodes = {os.fstat(descriptor).st_ino for descriptor in self.descriptors}
        return len(inodes) == len(self.descriptors)

    def fsync(self, file: Any) -> None:
        """Stands for os.fsync."""
        descriptor = file if isinstance(file, int) else file.fileno()
        self.flushed_sizes.add(os.fstat(descriptor).st_size)


class Spy(nn.Module):
    """A small classifier of images (n, 1, 2, 3) that logs its samples and its dropout masks."""

    def __init__(self, noisy: bool, watch: Watch) -> None:
        super().__init__()
        self.first = nn.Linear(6, 5)
        self.last = nn.Linear(5, 3)
        self.norm = nn.BatchNorm1d(5) if noisy else nn.Identity()
        self.noisy = noisy
        self.watch = watch
        keep_group()  # a life that has nothing left to train calls no forward

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """(n, 1, 2, 3) -> (n, 3)."""
        keep_group()
        self.watch.note_step(images)
        hidden = self.norm(self.first(images.flatten(1))).tanh()
        if self.noisy:
            mask = F.dropout(torch.ones_like(hidden), 0.5, self.training)
            self.watch.kept.append(mask)
            hidden = hidden * mask
        return self.last(hidden)


class CountingDataset(TensorDataset):
    """A data set that counts the samples that are read."""

    def __init__(self, watch: Watch, *tensors: torch.Tensor) -> None:
        super().__init__(*tensors)
        self.watch = watch

    def __getitem__(self, index: int) -> tuple[torch.Tensor, ...]:
        self.watch.reads += 1
        return super().__getitem__(index)


def data(seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    """(images, labels) of 20, 22 or 24 samples; the first pixel of sample i is i / n."""
    rng = torch.Generator().manual_seed(seed)
    n = 20 + 2 * (seed % 3)
    images = torch.rand(n, 1, 2, 3, generator=rng)
    images[:, 0, 0, 0] = torch.arange(n) / n
    labels = torch.randint(3, (n,), generator=rng)
    return images, labels


def live(answer: Answer, seed: int, folder: Path, life: Life) -> Record:
    """Call the answer in this rank, and return what came of it."""
    folder.mkdir(exist_ok=True)
    images, labels = data(seed)
    watch = Watch(folder / CHECKPOINT, len(images), life.steps_before_cut)
    options = SimpleNamespace(
        dataset=CountingDataset(watch, images, labels),
        make_model=lambda: Spy(life.noisy, watch),
        device="cpu",
        epochs=EPOCHS,
        batch_size=min(life.batch_size, len(images)),
        lr=life.lr,
        seed=seed + life.seed_offset,
        workers=0,
        checkpoint=str(watch.checkpoint),
        save_every=life.save_every,
        report=watch.note_report,
    )
    losses = None
    raised = None
    try:
        with mock.patch("os.fsync", watch.fsync):
            losses = answer(options)
    except Cut as error:
        raised = type(error).__name__
    group_left = dist.is_initialized()
    if group_left:
        dist.destroy_process_group()
    watch.note_checkpoint()
    return Record(
        losses=losses,
        raised=raised,
        group_left=group_left,
        steps=watch.steps,
        reports=watch.reports,
        saves=watch.saves,
        replaced=watch.replaced(),
        files=sorted(path.name for path in folder.iterdir()),
        kept=watch.kept,
        reads=watch.reads,
        flushed=not watch.unflushed,
        saved=load(watch.checkpoint),
    )


def in_rank(
    rank: int, world_size: int, answer: Answer, seed: int, folder: str
) -> dict[str, Record]:
    """{life: what came of it} in one rank, without torchrun."""
    ports = _stores_of_an_agent(rank)
    # a rank that left while the other still connects to it would make that one wait for seconds
    dist.barrier()
    keep_group()
    dist.destroy_process_group()
    torch.set_num_threads(1)
    _set_variables_of_torchrun(rank)
    shared = Path(folder)
    records = {}
    for (name, life), port in zip(LIVES.items(), ports, strict=True):
        if name == "resumed" and _other_ranks_have_saved(shared):
            # ranks that all write would race for one file, and what has been found says enough
            break
        os.environ["MASTER_PORT"] = str(port)
        # in the first lives each rank has its own path, because no other rank may write; to resume,
        # all ranks read one file
        place = "cut0" if name in ("resumed", "finished") else f"{name}{rank}"
        records[name] = live(answer, seed, shared / place, life)
    return records


def _stores_of_an_agent(rank: int) -> list[int]:
    """The port of a store for each life; rank 0 has the stores that an agent would have."""
    ports = [0] * len(LIVES)
    if rank == 0:
        # they belong to a rank because they look up names, too, and only ranks have a resolver that
        # gives up soon
        for i in range(len(LIVES)):
            store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
            kept_objects.append(store)  # until the other rank has ended
            ports[i] = store.port
    dist.broadcast_object_list(ports)
    return ports


def _set_variables_of_torchrun(rank: int) -> None:
    os.environ["MASTER_ADDR"] = "127.0.0.1"
    os.environ["TORCHELASTIC_USE_AGENT_STORE"] = "True"
    os.environ["TORCHELASTIC_RUN_ID"] = "check"
    # as on two machines
    os.environ["LOCAL_RANK"] = "0"
    os.environ["LOCAL_WORLD_SIZE"] = "1"
    os.environ["GROUP_RANK"] = str(rank)


def _other_ranks_have_saved(shared: Path) -> bool:
    """True if a rank other than 0 has written a checkpoint in one of its lives."""
    return any(path.parent.name[-1] != "0" for path in shared.glob(f"*/{CHECKPOINT}"))


def load(path: Path) -> Any:
    """The checkpoint at `path`; a sentence if there is none, or it cannot be read."""
    try:
        return torch.load(path, weights_only=True)
    except Exception as error:
        return f"cannot be read: {type(error).__name__}"


def lives(answer: Answer, seed: int) -> list[dict[str, Record]]:
    """{life: what came of it} of each rank, in ranks that course.parallel.distributed starts."""
    with tempfile.TemporaryDirectory() as folder:
        return run_ranks(
            in_rank, WORLD_SIZE, answer, seed, folder, backend="gloo", timeout=TIMEOUT_SECONDS
        )
