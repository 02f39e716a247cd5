"""What the ranks do while `train_ddp` is checked: a model that logs its inputs, lives of one training, torchrun.

A life is one call of the answer, in ranks as torchrun leaves them: variables set, no process group.  In one life the
model raises in the middle of an epoch, and the next must resume from the checkpoint.  What must come of it is in
course/checks/data_parallel/train_ddp.py.
"""

import os
import signal
import tempfile
import threading
import time
from pathlib import Path
from types import SimpleNamespace
from unittest import mock

import cloudpickle
import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional as F
from torch.utils.data import TensorDataset

from course.parallel.distributed import run_ranks

WORLD = 2
EPOCHS, BATCH = 3, 8  # n_samples is chosen so that an epoch has three steps
# life -> is the model noisy, after how many forwards it raises, options.save_every
LIVES = {"plain": (False, None, 1000), "whole": (True, None, 2), "cut": (True, 5, 2), "resumed": (True, None, 2)}
LIVES["finished"] = LIVES["resumed"]
LIVES["other seed"] = LIVES["plain"]
TIMEOUT = 30.0  # of all lives together, which take two seconds where nothing else runs
TORCHRUN_TIMEOUT = 15.0  # it imports torch anew, in each rank
CHECKPOINT = "run.pt"


kept_objects = []  # of a rank, until it ends


def keep_group(*_):
    """Keep the process group from being freed with the model.

    torch 2.13 can stop for ever there: freeing a gloo group waits for its thread, which may wait for Python's lock.
    """
    if dist.is_initialized() and dist.group.WORLD not in kept_objects:
        kept_objects.append(dist.group.WORLD)


class Cut(Exception):
    """Stands for a machine that fails in the middle of a step."""


class Spy(nn.Module):
    """A small classifier of images (n, 1, 2, 3) that logs the samples it sees and what its dropout keeps."""

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
            kept = F.dropout(torch.ones_like(hidden), 0.5, self.training)
            self.watch.kept.append(kept)
            hidden = hidden * kept
        logits = self.last(hidden)
        if logits.requires_grad:
            logits.register_hook(lambda _: self.watch.looks_for_gradients(self))
        return logits


class Counted(TensorDataset):
    """A data set that counts the samples that are read."""

    def __init__(self, watch, *tensors):
        super().__init__(*tensors)
        self.watch = watch

    def __getitem__(self, index):
        self.watch.reads += 1
        return super().__getitem__(index)


class Watch:
    """Log of one rank in one life: samples of each step, dropout, reports, and what becomes of the checkpoint."""

    def __init__(self, checkpoint, n_samples, until=None):
        self.checkpoint, self.n_samples, self.until = checkpoint, n_samples, until
        self.reads, self.flushed, self.unflushed = 0, set(), 0  # samples read, bytes of files at os.fsync, checkpoints
        self.steps, self.kept, self.reports, self.saves, self.links, self.seen = [], [], [], [], [], None
        self.stale = False

    def sees(self, images):
        self.look()
        if len(self.steps) == self.until:
            raise Cut("the machine is taken away")
        self.steps.append((images[:, 0, 0, 0] * self.n_samples).round().int().tolist())

    def looks_for_gradients(self, model):
        """Note whether some gradient is not cleared when a backward pass begins."""
        self.stale |= any(p.grad is not None and bool(p.grad.any()) for p in model.parameters())

    def look(self):
        """Note after how many steps another checkpoint lies there, and keep each by a second name."""
        if self.checkpoint.exists():
            stat = self.checkpoint.stat()
            if self.seen != (stat.st_ino, stat.st_mtime_ns):
                self.seen = stat.st_ino, stat.st_mtime_ns
                self.unflushed += stat.st_size not in self.flushed
                self.saves.append(len(self.steps))
                self.links.append(
                    self.checkpoint.parent.parent / f"{self.checkpoint.parent.name}-{time.monotonic_ns()}"
                )
                os.link(self.checkpoint, self.links[-1])

    def replaced(self):
        """True if every checkpoint became a file of its own."""
        places = [(path.stat().st_ino, path.stat().st_dev) for path in self.links]
        return len(set(places)) == len(places)

    def reported(self, epoch, loss):
        self.reports.append((epoch, loss))

    def flushes(self, descriptor):
        """Stands for os.fsync."""
        self.flushed.add(os.fstat(descriptor if isinstance(descriptor, int) else descriptor.fileno()).st_size)


def data(seed):
    """(images, labels) of 20, 22 or 24 samples; the first pixel of sample i is i / n."""
    rng = torch.Generator().manual_seed(seed)
    n = 20 + 2 * (seed % 3)
    images = torch.rand(n, 1, 2, 3, generator=rng)
    images[:, 0, 0, 0] = torch.arange(n) / n
    return images, torch.randint(3, (n,), generator=rng)


def options(data_seed, seed, noisy, watch, save_every):
    """The argument of `train_ddp`."""
    return SimpleNamespace(
        dataset=Counted(watch, *data(data_seed)), make_model=lambda: Spy(noisy, watch), device="cpu", epochs=EPOCHS,
        batch_size=BATCH, lr=0.2, seed=seed, workers=0, checkpoint=str(watch.checkpoint), save_every=save_every,
        report=watch.reported,
    )  # fmt: skip


def live(answer, seed, folder, noisy, until, save_every, other=0):
    """Call the answer in this rank, and return what came of it as plain data."""
    folder.mkdir(exist_ok=True)
    watch = Watch(folder / CHECKPOINT, len(data(seed)[0]), until)
    losses, raised = None, None
    try:
        with mock.patch("os.fsync", watch.flushes):
            losses = answer(options(seed, seed + other, noisy, watch, save_every))
    except Cut as error:
        raised = type(error).__name__
    left = dist.is_initialized()
    if left:
        dist.destroy_process_group()
    watch.look()
    files = sorted(path.name for path in folder.iterdir())
    return {"losses": losses, "raised": raised, "group left": left, "steps": watch.steps, "reports": watch.reports,
            "saves": watch.saves, "replaced": watch.replaced(), "files": files, "kept": watch.kept,
            "reads": watch.reads, "flushed": not watch.unflushed, "stale": watch.stale}  # fmt: skip


def in_rank(rank, world_size, answer, seed, folder):
    """{life: what came of it} in one rank, without torchrun; rank 0 has the stores that an agent would have."""
    # they belong to a rank because they look up names, too, and only ranks have a resolver that gives up soon
    stores = [dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False) for _ in LIVES if rank == 0]
    ports = [store.port for store in stores] or [0] * len(LIVES)
    dist.broadcast_object_list(ports)
    kept_objects.extend(stores)  # until the other rank has ended
    dist.barrier()  # a rank that left while the other still connects to it would make that one wait for seconds
    keep_group()
    dist.destroy_process_group()
    torch.set_num_threads(1)
    shared = Path(folder)
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "TORCHELASTIC_USE_AGENT_STORE": "True", "TORCHELASTIC_RUN_ID": "check"}
    os.environ |= {"LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1", "GROUP_RANK": str(rank)}  # as on two machines
    found = {}
    for (name, (noisy, until, save_every)), port in zip(LIVES.items(), ports, strict=True):
        if name == "resumed" and any(path.parent.name[-1] != "0" for path in shared.glob(f"*/{CHECKPOINT}")):
            break  # ranks that all write would race for one file, and what has been found says enough
        os.environ["MASTER_PORT"] = str(port)
        # no other rank may write, so in the first lives each has a place of its own; to go on, all read one file
        place = shared / ("cut0" if name in ("resumed", "finished") else f"{name}{rank}")
        found[name] = live(answer, seed, place, noisy, until, save_every, name == "other seed")
        if name in ("plain", "whole", "resumed") and rank == 0:
            found[name]["saved"] = load(place / CHECKPOINT)
    return found


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


def under_torchrun(answer, seed):
    """(outcome, checkpoint) of a "whole" life that torchrun starts: "all ranks ended well" or the last line of one."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "answer").write_bytes(cloudpickle.dumps((answer, seed)))
        (said,) = run_ranks(_agent, 1, folder, backend="gloo", timeout=TORCHRUN_TIMEOUT)
        errors = [line for path in sorted(Path(folder).glob("error*")) for line in path.read_text().splitlines()]
        ended = len(list(Path(folder).glob("ended*")))
        outcome = "all ranks ended well" if said is None and ended == WORLD else (errors or [said])[-1]
        return outcome, load(Path(folder, "run", CHECKPOINT))


def _agent(rank, world_size, folder):
    """None, or what torchrun raised; this process is its agent, the ranks are forks of it, with torch imported."""
    from torch.distributed import run as torchrun  # takes half a second, and no other rank needs it

    dist.destroy_process_group()
    for name in ("RANK", "LOCAL_RANK", "WORLD_SIZE"):
        os.environ.pop(name)
    os.environ |= {"OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
    flags = f"--nproc-per-node {WORLD} --monitor-interval 0.05 --local-addr 127.0.0.1".split()
    flags += "--rdzv-backend c10d --rdzv-endpoint localhost:0 --rdzv-id check".split()  # as by --standalone
    try:
        config, *_ = torchrun.config_from_args(torchrun.parse_args([*flags, "program"]))
        config.start_method = "fork"
        torchrun.elastic_launch(config, _rank_of_torchrun)(Path(folder))
    except BaseException as error:
        return f"torchrun: {type(error).__name__}"


def _rank_of_torchrun(folder):
    """The life of a rank that torchrun started."""
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT):  # the agent's handlers are its own
        signal.signal(number, signal.SIG_DFL)
    threading.Thread(target=_die_with, args=(os.getppid(),), daemon=True).start()
    torch.set_num_threads(1)
    rank = os.environ["RANK"]
    try:
        answer, seed = cloudpickle.loads((folder / "answer").read_bytes())
        live(answer, seed, folder / "run", *LIVES["whole"])
        (folder / f"ended{rank}").touch()
    except Exception as error:
        (folder / f"error{rank}").write_text(" ".join(f"rank {rank}: {type(error).__name__}: {error}".split())[:300])
        raise


def _die_with(parent):
    """End this process once the agent, its parent, is gone; torchrun gives each rank its own process group."""
    while os.getppid() == parent:
        time.sleep(0.1)
    os.killpg(os.getpgid(0), signal.SIGKILL)
