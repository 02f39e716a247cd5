"""What the ranks do while `train_ddp` is checked: a model that logs its inputs, lives of one
training.

A life is one call of the answer, in ranks as torchrun leaves them: variables set, no process group.
In one life the model raises in the middle of an epoch, and the next must resume from the
checkpoint. What must come of it is in course/checks/data_parallel/train_ddp.py.
"""

import os
import tempfile
from pathlib import Path
from types import SimpleNamespace
from typing import NamedTuple
from unittest import mock

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional as F
from torch.utils.data import TensorDataset

from course.parallel.distributed import run_ranks

WORLD = 2
EPOCHS, BATCH = 3, 8  # n_samples is chosen so that an epoch has three steps
TIMEOUT = 30.0  # of all lives together, which take two seconds where nothing else runs
CHECKPOINT = "run.pt"


class Life(NamedTuple):
    """One call of the answer: what is changed in its options, and after how many forwards the model
    raises.
    """

    noisy: bool = False  # whether the model has dropout and BatchNorm
    until: int | None = None
    save_every: int = 1000
    batch_size: int = BATCH
    lr: float = 0.2
    other: int = 0  # added to the seed


LIVES = {
    "plain": Life(),
    "whole": Life(noisy=True, save_every=2),
    "cut": Life(noisy=True, save_every=2, until=5),
    "learning rate 0": Life(lr=0.0, other=1),
    "one batch per epoch": Life(batch_size=1000),
    "resumed": Life(noisy=True, save_every=2),
    "finished": Life(noisy=True, save_every=2),
}

kept_objects = []  # of a rank, until it ends


def keep_group(*_):
    """Keep the process group from being freed with the model.

    torch 2.13 can stop for ever there: freeing a gloo group waits for its thread, which may wait
    for Python's lock.
    """
    if dist.is_initialized() and dist.group.WORLD not in kept_objects:
        kept_objects.append(dist.group.WORLD)


class Cut(Exception):
    """Stands for a machine that fails in the middle of a step."""


class Spy(nn.Module):
    """A small classifier of images (n, 1, 2, 3) that logs the samples it sees and what its dropout
    keeps.
    """

    def __init__(self, noisy, watch):
        super().__init__()
        self.first, self.last = nn.Linear(6, 5), nn.Linear(5, 3)
        self.norm = nn.BatchNorm1d(5) if noisy else nn.Identity()
        self.noisy, self.watch = noisy, watch
        keep_group()  # a life that has nothing left to train calls no forward

    def forward(self, images):
        keep_group()
        self.watch.sees(images)
        hidden = self.norm(self.first(images.flatten(1))).tanh()
        if self.noisy:
            mask = F.dropout(torch.ones_like(hidden), 0.5, self.training)
            self.watch.kept.append(mask)
            hidden = hidden * mask
        return self.last(hidden)


class Counted(TensorDataset):
    """A data set that counts the samples that are read."""

    def __init__(self, watch, *tensors):
        super().__init__(*tensors)
        self.watch = watch

    def __getitem__(self, index):
        self.watch.reads += 1
        return super().__getitem__(index)


class Watch:
    """Log of one rank in one life: samples of each step, dropout, reports, and what becomes of the
    checkpoint.
    """

    def __init__(self, checkpoint, n_samples, until=None):
        self.checkpoint, self.n_samples, self.until = checkpoint, n_samples, until
        # samples read, bytes of files at os.fsync, checkpoints
        self.reads, self.flushed, self.unflushed = (
            0,
            set(),
            0,
        )
        self.steps, self.kept, self.reports, self.saves, self.files, self.seen = (
            [],
            [],
            [],
            [],
            [],
            None,
        )

    def sees(self, images):
        self.look()
        if len(self.steps) == self.until:
            raise Cut("the machine is taken away")
        self.steps.append((images[:, 0, 0, 0] * self.n_samples).round().int().tolist())

    def look(self):
        """Note after how many steps another checkpoint lies there, and keep each open: no other
        gets its inode.
        """
        if self.checkpoint.exists():
            stat = self.checkpoint.stat()
            if self.seen != (stat.st_ino, stat.st_mtime_ns):
                self.seen = stat.st_ino, stat.st_mtime_ns
                self.unflushed += stat.st_size not in self.flushed
                self.saves.append(len(self.steps))
                self.files.append(os.open(self.checkpoint, os.O_RDONLY))

    def replaced(self):
        """True if every checkpoint became a file of its own."""
        return len({os.fstat(file).st_ino for file in self.files}) == len(self.files)

    def flushes(self, descriptor):
        """Stands for os.fsync."""
        self.flushed.add(
            os.fstat(descriptor if isinstance(descriptor, int) else descriptor.fileno()).st_size
        )


def data(seed):
    """(images, labels) of 20, 22 or 24 samples; the first pixel of sample i is i / n."""
    rng = torch.Generator().manual_seed(seed)
    n = 20 + 2 * (seed % 3)
    images = torch.rand(n, 1, 2, 3, generator=rng)
    images[:, 0, 0, 0] = torch.arange(n) / n
    return images, torch.randint(3, (n,), generator=rng)


def live(answer, seed, folder, life):
    """Call the answer in this rank, and return what came of it as plain data."""
    folder.mkdir(exist_ok=True)
    images, labels = data(seed)
    watch = Watch(folder / CHECKPOINT, len(images), life.until)
    options = SimpleNamespace(
        dataset=Counted(watch, images, labels), make_model=lambda: Spy(life.noisy, watch), device="cpu", epochs=EPOCHS,
        batch_size=min(life.batch_size, len(images)), lr=life.lr, seed=seed + life.other, workers=0,
        checkpoint=str(watch.checkpoint), save_every=life.save_every,
        report=lambda epoch, loss: watch.reports.append((epoch, loss)),
    )  # fmt: skip
    losses, raised = None, None
    try:
        with mock.patch("os.fsync", watch.flushes):
            losses = answer(options)
    except Cut as error:
        raised = type(error).__name__
    left = dist.is_initialized()
    if left:
        dist.destroy_process_group()
    watch.look()
    files = sorted(path.name for path in folder.iterdir())
    return {"losses": losses, "raised": raised, "group left": left, "steps": watch.steps, "reports": watch.reports,
            "saves": watch.saves, "replaced": watch.replaced(), "files": files, "kept": watch.kept,
            "reads": watch.reads, "flushed": not watch.unflushed,
            "saved": load(watch.checkpoint)}  # fmt: skip


def in_rank(rank, world_size, answer, seed, folder):
    """{life: what came of it} in one rank, without torchrun; rank 0 has the stores that an agent
    would have.
    """
    # they belong to a rank because they look up names, too, and only ranks have a resolver that
    # gives up soon
    stores = [
        dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
        for _ in LIVES
        if rank == 0
    ]
    ports = [store.port for store in stores] or [0] * len(LIVES)
    dist.broadcast_object_list(ports)
    kept_objects.extend(stores)  # until the other rank has ended
    # a rank that left while the other still connects to it would make that one wait for seconds
    dist.barrier()
    keep_group()
    dist.destroy_process_group()
    torch.set_num_threads(1)
    shared = Path(folder)
    os.environ |= {
        "MASTER_ADDR": "127.0.0.1",
        "TORCHELASTIC_USE_AGENT_STORE": "True",
        "TORCHELASTIC_RUN_ID": "check",
    }
    # as on two machines
    os.environ |= {
        "LOCAL_RANK": "0",
        "LOCAL_WORLD_SIZE": "1",
        "GROUP_RANK": str(rank),
    }
    lives = {}
    for (name, life), port in zip(LIVES.items(), ports, strict=True):
        if name == "resumed" and any(
            path.parent.name[-1] != "0" for path in shared.glob(f"*/{CHECKPOINT}")
        ):
            # ranks that all write would race for one file, and what has been found says enough
            break
        os.environ["MASTER_PORT"] = str(port)
        # no other rank may write, so in the first lives each has a place of its own; to resume, all
        # read one file
        place = shared / ("cut0" if name in ("resumed", "finished") else f"{name}{rank}")
        lives[name] = live(answer, seed, place, life)
    return lives


def load(path):
    """The checkpoint at `path`; a sentence if there is none, or it cannot be read."""
    try:
        return torch.load(path, weights_only=True)
    except Exception as error:
        return f"cannot be read: {type(error).__name__}"


def lives(answer, seed):
    """[{life: what came of it} of each rank], in ranks that course.parallel.distributed starts."""
    with tempfile.TemporaryDirectory() as folder:
        return run_ranks(in_rank, WORLD, answer, seed, folder, backend="gloo", timeout=TIMEOUT)
