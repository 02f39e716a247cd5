# %% [markdown]
# # Data parallel, part 4: Train under torchrun
#
# **How does a training run outside the notebook, and survive when one of its processes is killed?**
#
# A launcher starts one process per device and tells each who it is. You choose the device of a process, start a script
# on two ranks, and kill a rank in the middle of a training.
#
# **You will be able to**
#
# - tell `RANK` from `LOCAL_RANK`, and find the bug where somebody did not
# - write a script that torchrun starts
# - say what a checkpoint must hold, and kill a rank to see it
#
# **Minutes** 20 core · 103 in all · session 2
#
# **Needs** part 1 (what a rank is)

# %% locked="setup"
import importlib.util
import math
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, Subset, TensorDataset

import course
from course.checks import data_parallel as check
from course.datasets import fashion
from course.learner.predictions import reveal
from course.parallel import distributed
from course.parallel.distributed import run_ranks
from course.training.models import FashionCNN

print(course.machine())
sizes = course.sizes("02_data_parallel")

# %% [markdown]
# ## Which GPU is mine?
#
# A *launcher* such as `torchrun` starts one process per GPU on each machine and tells each of them two numbers. `RANK`
# counts all processes of the training. `LOCAL_RANK` counts the processes of one machine, as CUDA counts its GPUs.
#
# | two machines, two GPUs each | first | first | second | second |
# |---|---|---|---|---|
# | `RANK` | 0 | 1 | 2 | 3 |
# | `LOCAL_RANK` | 0 | 1 | 0 | 1 |
# | GPU of this machine | `cuda:0` | `cuda:1` | `cuda:0` | `cuda:1` |
#
# A published example for DDP finds the device in this way (in our words). It has two bugs: one stops it everywhere, the
# other only on the second machine. Find them before you run the next cell.


# %% locked="published_setup"
def published_setup(model, rank):
    """The model on the device of process `rank`; `rank` is the RANK that the launcher gave."""
    device = torch.cuda.device(rank)
    return model.to(device)


# %% tags=["experiment"]
try:
    published_setup(nn.Linear(2, 2), rank=0)
except TypeError as error:
    print("TypeError:", str(error).splitlines()[0][:90])
print("torch.cuda.device:", torch.cuda.device.__doc__.strip().splitlines()[0])
print("an object of it is a torch.device:", isinstance(torch.cuda.device(0), torch.device))

# %% [markdown]
# `torch.cuda.device` is a context manager; the author meant `torch.device`. Fix that, and the second bug shows: on the
# second machine, process 2 asks for `cuda:2`, which does not exist there.
#
# **Takeaway** A process computes on the GPU with its *local* rank. Only `RANK` 0 does what is needed once, such as
# saving.

# %% [markdown]
# ### Exercise 1 · The device of this process
#
# Fix both bugs: write the function that says on which device a process computes.
#
# ```python
# >>> device_of(local_rank=1, device_count=2)
# device(type='cuda', index=1)
# ```
#
# **Points** 2 · **Core** · **Difficulty** ●○○ · **Minutes** 6 · **Lines** 5
#
# **Must**
#
# - without GPUs return the CPU, whatever the local rank
# - with GPUs return the one with the local rank, and with its number: `cuda:0`, not `cuda`
# - use the arguments only
#
# **Raises** ValueError if there are GPUs but none with this number, with both arguments in the message.
#
# **Source** PyTorch documentation of `torch.device`, `torch.cuda.device` and of torchrun, "Environment Variables".
#
# <details><summary>Hint 1</summary>
#
# Of what type is the thing that `model.to` takes? And which ranks exist with `device_count` GPUs, if they count
# from 0?
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# `torch.device("cuda", 1)` and `torch.device("cuda:1")` are the same, and can be made without a GPU. Ask for a
# `device_count` of 0 first, then whether `local_rank` is too large.
#
# </details>


# %% solution="device_of"
def device_of(local_rank, device_count):
    """The torch.device on which this process computes: the GPU with its local rank, the CPU where there are no GPUs.

    Args:
        local_rank: number of this process on its machine, an int from 0; the launcher's LOCAL_RANK.
        device_count: number of GPUs of this machine, an int from 0; in a program `torch.cuda.device_count()`.

    Raises: ValueError if there are GPUs, but none with this number; the message holds both numbers.
    """
    ### BEGIN SOLUTION
    if device_count == 0:
        return torch.device("cpu")
    if local_rank >= device_count:
        raise ValueError(f"local rank {local_rank} has no GPU: there are {device_count}; start fewer processes.")
    return torch.device("cuda", local_rank)
    ### END SOLUTION


# %% test="device_of-visible" points=1
check.device_of(device_of)

# %% test="device_of-hidden" points=1
### BEGIN HIDDEN TESTS
check.device_of(device_of, seed=11)
### END HIDDEN TESTS

# %% [markdown]
# ## What does a script for torchrun look like?
#
# This is a whole training with DDP. `init_process_group` reads `RANK`, `WORLD_SIZE` and the meeting point `MASTER_ADDR`
# and `MASTER_PORT` from the environment, where torchrun wrote them. `DistributedSampler` deals out the samples: every
# rank draws the same permutation and takes every N-th place. Its permutation depends on seed and epoch, so call
# `set_epoch`, or every epoch has the same order.
#
# Predict: 1,000 samples, batches of 50 per rank, 2 ranks. How many steps does one epoch have?

# %%
predicted_steps = None  # steps per epoch

# %% tags=["experiment"]
SCRIPT = """
import os, torch, torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

dist.init_process_group("gloo")  # "nccl" on GPUs, with the device of LOCAL_RANK
rank = dist.get_rank()
torch.manual_seed(0)
data = TensorDataset(torch.randn(1000, 20), torch.randint(2, (1000,)))
model = DistributedDataParallel(torch.nn.Linear(20, 2))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
sampler = DistributedSampler(data, seed=0)
loader = DataLoader(data, batch_size=50, sampler=sampler)
for epoch in range(2):
    sampler.set_epoch(epoch)
    for inputs, labels in loader:
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(inputs), labels).backward()
        optimizer.step()
    first = list(sampler)[:3]
    print(f"rank {rank}, epoch {epoch}: {len(loader)} steps, the first samples are {first}\\n", end="", flush=True)
if rank == 0:  # one file for all; the name in it is that of the bare model
    torch.save(model.module.state_dict(), "model.pt")
dist.destroy_process_group()
os._exit(0)  # torch 2.13 aborts now and then while Python ends with a gloo group
"""
with tempfile.TemporaryDirectory() as folder:
    Path(folder, "train.py").write_text(SCRIPT)
    # in a terminal: torchrun --standalone --nproc-per-node 2 train.py
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "train.py"]
    variables = os.environ | distributed.ONE_MACHINE | {"OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, env=variables)
if done.returncode:
    raise RuntimeError(done.stderr[-4000:])
print(*sorted(done.stdout.splitlines()), sep="\n")
steps = int(re.search(r"(\d+) steps", done.stdout)[1])
print(f"steps per epoch: {steps}{reveal(predicted_steps)}")

# %% [markdown]
# **Takeaway** A script for torchrun adds four things: the process group, DDP, a sampler with `set_epoch`, and "rank 0
# writes".

# %% [markdown]
# ## What does a rank do when the other one ends?
#
# Two processes all-reduce once. Then rank 1 returns, or it is killed, or it sleeps for a minute. Rank 0 calls
# `all_reduce` again. The time limit of the group is 5 seconds.
#
# Predict: how long does rank 0 wait if rank 1 is killed?

# %%
predicted_wait = None  # seconds

# %% tags=["experiment"]
PEER = """
import os, re, signal, sys, time, torch, torch.distributed as dist
from datetime import timedelta

how, rank, folder = sys.argv[1], int(sys.argv[2]), sys.argv[3]
dist.init_process_group("gloo", init_method=f"file://{folder}/{how}", rank=rank, world_size=2)
group = dist.new_group(timeout=timedelta(seconds=5))
dist.all_reduce(torch.ones(1), group=group)
if rank == 1 and how == "killed":
    os.kill(os.getpid(), signal.SIGKILL)
if rank == 1 and how == "hangs":
    time.sleep(60)
if rank == 0:
    start = time.perf_counter()
    try:
        dist.all_reduce(torch.ones(1), group=group)
    except RuntimeError as error:
        said = re.sub(r"^\\[.*?\\] ", "", str(error).splitlines()[0])
        print(f"{time.perf_counter() - start:.2f} {said.split(' [')[0]}", flush=True)
"""
waits = {}
with tempfile.TemporaryDirectory() as folder:
    script = Path(folder, "peer.py")
    script.write_text(PEER)
    variables = os.environ | distributed.ONE_MACHINE | {"OMP_NUM_THREADS": "1"}
    pairs = {how: [subprocess.Popen([sys.executable, str(script), how, str(rank), folder], env=variables, text=True,
                                    stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) for rank in range(2)]
             for how in ("returned", "killed", "hangs")}  # fmt: skip
    for how, peers in pairs.items():
        lines = peers[0].communicate(timeout=120)[0].splitlines()
        waited, _, said = next(line for line in lines if not line.startswith("[Gloo]")).partition(" ")  # torch 2.8's
        peers[1].kill()
        peers[1].communicate()
        waits[how] = float(waited)
        print(
            f"rank 1 {how:>8}: rank 0 waits {waited} s" + reveal(predicted_wait) * (how == "killed") + f", then: {said}"
        )
course.claim("with gloo, a rank notices within 3 seconds that the other one was killed", waits["killed"] < 3,
             f"{waits['killed']:.2f} s", otherwise="Read the message: did the machine have time for it?")  # fmt: skip
course.claim("with gloo, a rank waits for a hanging one until the time limit", waits["hangs"] > 4.9,
             f"{waits['hangs']:.1f} s", otherwise="Read the message: what ended the wait?")  # fmt: skip

# %% [markdown]
# A process that lives and does not answer looks like a slow one, so only the time limit ends the wait. Gloo's default
# is 30 minutes, NCCL's is 10 (`torch.distributed.constants`).
#
# **Takeaway** With gloo, the end of a rank is noticed as soon as its connection closes. A hanging rank costs the time
# limit: set one that you can afford.

# %% [markdown]
# ## What must a checkpoint hold?
#
# When one process fails, torchrun ends them all and, with `--max-restarts 1`, starts all of them again from the first
# line of the script. The second life knows only what is in a file, the *checkpoint*.
#
# - It is *complete*: weights, buffers, the optimizer's state (such as momentum) and the number of the step.
# - It is *atomic*: a crash during the write must never leave half a file. So write a temporary file, call `os.fsync`,
#   and rename it over the old one.

# %% [markdown]
# ## Where does a killed training resume?
#
# This script trains 20 steps on two ranks and writes a checkpoint after every 5th. In the training "killed", rank 1 is
# killed in its thirteenth step, by the signal that Linux uses when memory runs out. The training "whole" is left alone.
#
# Predict: how many steps are done when the second life begins?

# %%
predicted_step = None  # steps that are done

# %% tags=["experiment"]
LIVES = """
import os, signal, sys, torch, torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
rank, name, life = dist.get_rank(), sys.argv[1], os.environ["TORCHELASTIC_RESTART_COUNT"]
torch.manual_seed(0)
bare = torch.nn.Linear(20, 2)
model = DistributedDataParallel(bare)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
step = 0  # steps that are done
if os.path.exists(f"{name}.pt"):
    saved = torch.load(f"{name}.pt")
    bare.load_state_dict(saved["model"])
    optimizer.load_state_dict(saved["optimizer"])
    step = saved["step"]
while step < 20:
    if rank == 0:
        print(f"{name}, life {life}: step {step + 1}", flush=True)
    torch.manual_seed(2 * step + rank)  # every life draws the same batch in this step
    inputs, labels = torch.randn(50, 20), torch.randint(2, (50,))
    if (name, life, rank, step) == ("killed", "0", 1, 12):
        os.kill(os.getpid(), signal.SIGKILL)
    optimizer.zero_grad()
    torch.nn.functional.cross_entropy(model(inputs), labels).backward()
    optimizer.step()
    step += 1
    if rank == 0 and step % 5 == 0:
        state = {"model": bare.state_dict(), "optimizer": optimizer.state_dict(), "step": step}
        torch.save(state, f"{name}.part")  # exercise 2 adds the fsync
        os.replace(f"{name}.part", f"{name}.pt")
dist.destroy_process_group()
"""
with tempfile.TemporaryDirectory() as folder:
    Path(folder, "lives.py").write_text(LIVES)
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2",
               "--max-restarts", "1", "lives.py"]  # fmt: skip
    variables = os.environ | distributed.ONE_MACHINE | {"OMP_NUM_THREADS": "1"}
    variables["TORCH_DISABLE_SHARE_RDZV_TCP_STORE"] = "1"  # else the second life may meet at the store of the first
    started = [subprocess.Popen([*command, name], cwd=folder, env=variables, text=True,
                                stdout=subprocess.PIPE, stderr=subprocess.PIPE)
               for name in ("whole", "killed")]  # fmt: skip
    said = [launcher.communicate(timeout=300) for launcher in started]
    if any(launcher.returncode for launcher in started):
        raise RuntimeError("\n".join(errors[-2000:] for _, errors in said))
    whole, killed = (torch.load(Path(folder, f"{name}.pt"))["model"] for name in ("whole", "killed"))
steps = [[int(n) for n in re.findall(rf"killed, life {life}: step (\d+)", said[1][0])] for life in (0, 1)]
for life, numbers in enumerate(steps):
    print(f"killed, life {life}: steps {numbers[0]} to {numbers[-1]}")
print(f"done when the second life begins: {steps[1][0] - 1}" + reveal(predicted_step)
      + f"; begun twice: {len(set(steps[0]) & set(steps[1]))} steps")  # fmt: skip
course.claim("the restarted ranks resume in the middle of the training", 0 < steps[1][0] - 1 < 20,
             f"after step {steps[1][0] - 1} of 20")  # fmt: skip
course.claim("the killed training ends with the weights of the undisturbed one, bit by bit",
             all(torch.equal(whole[key], killed[key]) for key in whole))  # fmt: skip

# %% [markdown]
# **Takeaway** The killed training resumed from weights, optimizer and step, and ended with the same weights, bit by
# bit.

# %% [markdown]
# ## Can you write it? · extra
#
# ### Exercise 2 · Survive
#
# Here a data set is read, so a life that begins within an epoch must skip the samples that are done. Fill the three
# gaps that let the training survive: load, skip, save. With 16 steps per epoch and a checkpoint after step 20, the next
# life starts at the fifth step of the second epoch.
#
# **Points** 8 · **Extra** · **Difficulty** ●●● · **Minutes** 35 · **Lines** 15
#
# **Must**
#
# - let rank 0 alone save a dict with the keys "model" (as `bare` names it), "optimizer" and "step" (updates done),
#   after every `save_every`-th step and after every epoch
# - replace the old checkpoint atomically
# - resume after the saved step, without reading samples that are done
#
# **You may assume** that `batch_size` is a multiple of the number of ranks.
#
# **Source** PyTorch's documentation, "torchrun (Elastic Launch)"; POSIX.1-2017, `rename()` and `fsync()`.
#
# <details><summary>Hint 1</summary>
#
# How many processes of two machines find `LOCAL_RANK` 0? And what would SGD with momentum do in its first step, if it
# had forgotten all steps before?
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# After `set_epoch`, `list(sampler)` is the order of this rank. What is left of it after some steps is a slice, and
# `Subset(dataset, indices)` reads no others. Load with `map_location=device`, on every rank.
#
# </details>
#
# <details><summary>Hint 3</summary>
#
# `if rank == 0 and (step % options.save_every == 0 or step % per_epoch == 0):`, then `with open(beside, "wb") as file:`
# with `beside = f"{options.checkpoint}.part"`, in it `torch.save({"model": bare.state_dict(), ...}, file)`,
# `file.flush()`, `os.fsync(file.fileno())`, and after it `os.replace(beside, options.checkpoint)`.
#
# </details>


# %% solution="train_ddp"
def train_ddp(options):
    """Mean losses of the epochs that this call has trained, a list of floats, the same on every rank.

    Runs in every process that torchrun starts, trains one model on all of them, and goes on from a checkpoint.

    Args:
        options: has the attributes
            dataset: torch Dataset of (image, label).   make_model: function without arguments that gives a new model.
            device: "cpu" (backend gloo) or "cuda" (NCCL, a GPU for each process of a machine).
            epochs, batch_size (samples per step, all ranks together), lr, seed, workers (of each rank's loader).
            checkpoint: path of the file, on a disk that all ranks see.   save_every: steps between two checkpoints.
            report: function (epoch, loss), to be called by rank 0 after each epoch.
    """
    # rank, local_rank, world_size: what torchrun wrote into os.environ, as int
    rank, local_rank, world_size = (int(os.environ[name]) for name in ("RANK", "LOCAL_RANK", "WORLD_SIZE"))
    on_gpu = options.device == "cuda"
    device = torch.device("cuda", local_rank) if on_gpu else torch.device("cpu")
    if on_gpu:
        torch.cuda.set_device(device)
    # with its device NCCL connects now, and a barrier knows its GPU
    dist.init_process_group("nccl" if on_gpu else "gloo", device_id=device if on_gpu else None)
    share = options.batch_size // world_size  # samples of this rank in a step
    try:
        # bare: a new model on `device`; model: the same in DDP; sampler: draws the samples of this rank
        torch.manual_seed(options.seed)
        bare = options.make_model().to(device)
        model = DistributedDataParallel(bare)
        sampler = DistributedSampler(options.dataset, seed=options.seed)
        optimizer = torch.optim.SGD(model.parameters(), lr=options.lr, momentum=0.9)
        per_epoch = math.ceil(len(options.dataset) / options.batch_size)  # steps
        step, losses = 0, []  # updates so far, also those of earlier lives
        if os.path.exists(options.checkpoint):
            # set `step`, and the state of the model and of the optimizer
            ### BEGIN SOLUTION
            saved = torch.load(options.checkpoint, map_location=device)
            bare.load_state_dict(saved["model"])
            optimizer.load_state_dict(saved["optimizer"])
            step = saved["step"]
            ### END SOLUTION
        for epoch in range(step // per_epoch, options.epochs):
            total, count = 0, 0  # loss summed over samples, samples: of this rank
            sampler.set_epoch(epoch)
            # left: the samples of this rank that earlier lives have not trained
            ### BEGIN SOLUTION
            left = Subset(options.dataset, list(sampler)[step % per_epoch * share :])
            ### END SOLUTION
            loader = DataLoader(left, share, num_workers=options.workers, pin_memory=on_gpu)
            for images, labels in loader:
                # from pinned memory, so computing need not wait for the copy
                images = images.to(device, non_blocking=True)
                labels = labels.to(device, non_blocking=True)
                # seed the step; loss: of this rank's batch; update the weights
                torch.manual_seed(1_000_003 * options.seed + world_size * step + rank)
                loss = F.cross_entropy(model(images), labels)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                step += 1
                total += loss.detach() * len(labels)
                count += len(labels)
                # write the checkpoint if this rank must do so now
                ### BEGIN SOLUTION
                if rank == 0 and (step % options.save_every == 0 or step % per_epoch == 0):
                    state = {"model": bare.state_dict(), "optimizer": optimizer.state_dict(), "step": step}
                    beside = f"{options.checkpoint}.part"
                    with open(beside, "wb") as file:
                        torch.save(state, file)
                        file.flush()
                        os.fsync(file.fileno())
                    os.replace(beside, options.checkpoint)
                ### END SOLUTION
            # append the mean loss over the samples of all ranks to `losses`, and report it
            dist.all_reduce(total)
            losses.append(total.item() / (count * world_size))
            if rank == 0:
                options.report(epoch, losses[-1])
        return losses
    finally:
        dist.destroy_process_group()


# %% test="train_ddp-visible" points=4
check.train_ddp(train_ddp)

# %% test="train_ddp-hidden" points=4
### BEGIN HIDDEN TESTS
check.train_ddp(train_ddp, seed=613)
### END HIDDEN TESTS

# %% [markdown]
# <details><summary>Your function in a terminal, and on more machines</summary>
#
# Save the notebook, and kill one of the ranks by hand:
#
# ```
# export TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1
# torchrun --standalone --nproc-per-node 2 --max-restarts 1 scripts/train_ddp.py --epochs 5 --checkpoint run.pt \
#     --answers notebooks/02_data_parallel/4_from_notebook_to_torchrun.ipynb
# ```
#
# If torchrun prints nothing, your machine's own name may have no address: add `--local-addr 127.0.0.1`.
#
# Nothing in the script knows how many machines there are. torchrun also sets `GROUP_RANK`, the number of the machine,
# and `LOCAL_WORLD_SIZE`, how many processes share it. [docs/more-machines.md](../../docs/more-machines.md) has launch
# scripts for several nodes and for Slurm, and how to find a hang.
#
# </details>

# %% [markdown]
# ## Which parts of this does Lightning do? · extra
#
# With PyTorch Lightning, you write a module with `training_step` (batch → loss) and `configure_optimizers`, and tell a
# `Trainer` where to compute. The Trainer wraps the module in DDP, runs the loop, and replaces the loader's sampler by a
# `DistributedSampler` with `set_epoch`.

# %% [markdown]
# ### Exercise 3 · Let Lightning do it
#
# Train a classifier with Lightning, on ranks that exist already. With 2 ranks, 64 samples, batches of 8 and 3 epochs,
# each rank returns 12 losses.
#
# **Points** 4 · **Extra** · **Difficulty** ●●○ · **Minutes** 25 · **Lines** 15
#
# **Must**
#
# - train `model` itself with cross-entropy and plain SGD, on the CPU, with as many devices as the group has ranks
# - leave no file (no logger, no checkpoint), and print nothing to stdout
# - return the losses of this rank's own batches, one per step
#
# **You may assume** that every rank calls it with equal arguments, and that `loader` goes over the whole data set.
#
# **Source** Documentation of Lightning 2, "LightningModule", "Trainer".
#
# <details><summary>Hint 1</summary>
#
# Which of the lines of a training loop are yours, and which will the Trainer run for you? Where can you note the
# loss?
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# A class inside a function sees the function's arguments. In `__init__`, after `super().__init__()`, keep
# `self.model = model`, so that the parameters of the model are those of the module, and a list of losses. In
# `training_step(self, batch, batch_idx)` append `loss.item()` and return `loss`.
#
# </details>
#
# <details><summary>Hint 3</summary>
#
# `pl.Trainer(accelerator="cpu", devices=dist.get_world_size(), max_epochs=epochs, logger=False,
# enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False).fit(module, loader)`
#
# </details>


# %% solution="lightning_fit"
def lightning_fit(model, loader, lr, epochs):
    """The losses of all steps of this rank while Lightning trains `model` on all ranks, a list of floats.

    Args:
        model: module on the CPU, inputs -> logits (n, classes), the same on every rank; its weights are changed.
        loader: DataLoader over the whole data set, of batches (inputs, labels).
        lr: learning rate of SGD.
        epochs: passes over the data, 1 or more.
    """
    import pytorch_lightning as pl  # here, because it takes seconds

    ### BEGIN SOLUTION
    class Classifier(pl.LightningModule):
        def __init__(self):
            super().__init__()
            self.model, self.losses = model, []

        def training_step(self, batch, batch_idx):
            inputs, labels = batch
            loss = F.cross_entropy(self.model(inputs), labels)
            self.losses.append(loss.item())
            return loss

        def configure_optimizers(self):
            return torch.optim.SGD(self.model.parameters(), lr)

    module = Classifier()
    ranks = dist.get_world_size()
    silent = dict.fromkeys(["logger", "enable_checkpointing", "enable_progress_bar", "enable_model_summary"], False)
    pl.Trainer(accelerator="cpu", devices=ranks, max_epochs=epochs, **silent).fit(module, loader)
    return module.losses
    ### END SOLUTION


# %% test="lightning_fit-visible" points=2
check.lightning_fit(lightning_fit)

# %% test="lightning_fit-hidden" points=2
### BEGIN HIDDEN TESTS
check.lightning_fit(lightning_fit, seed=9)
### END HIDDEN TESTS

# %% [markdown]
# ### One device and two
#
# We train on one device and on two, with the same total batch. Here a device is a process with one thread. Part 5 times
# such steps; here we count them.
#
# Predict: one device takes 8 steps per epoch, with batches of 64. How many does each of two devices take, with
# batches of 32?

# %%
predicted_steps = None  # per epoch and device


# %% tags=["experiment"]
def lightning_in_rank(rank, world_size, fit, images, labels, batch_size, epochs):
    """(steps per epoch, mean losses of the epochs) on this rank."""
    import logging

    logging.getLogger("pytorch_lightning").setLevel(logging.ERROR)
    torch.set_num_threads(1)
    torch.manual_seed(0)
    loader = DataLoader(TensorDataset(images, labels), batch_size // world_size, shuffle=True)
    losses = torch.tensor(fit(FashionCNN(dropout=0.0, norm=None), loader, 0.05, epochs)).view(epochs, -1)
    return losses.shape[1], losses.mean(1).tolist()


if importlib.util.find_spec("pytorch_lightning"):
    garments, steps = fashion.load("tiny"), {}
    tiny = [t[:512] for t in (fashion.floats(garments.train_images), garments.train_labels)]
    for n in (1, 2):
        fit_now = course.solved(check.lightning_fit)
        ranks = run_ranks(lightning_in_rank, n, fit_now, *tiny, 64, sizes.epochs, backend="gloo", timeout=300)
        steps[n], losses = ranks[0]
        print(f"devices: {n}, {steps[n]} steps per epoch on each, losses of rank 0 by epoch:",
              *(f"{loss:.2f}" for loss in losses))  # fmt: skip
    print(f"steps on each of two devices: {steps[2]}" + reveal(predicted_steps))
    course.claim("with Lightning, each of two devices takes as many steps per epoch as one device with twice the batch",
                 steps[1] == steps[2], f"{steps[1]} and {steps[2]} steps")  # fmt: skip
else:
    print("pytorch_lightning is not installed: this measurement is skipped")

# %% [markdown]
# **Takeaway** Lightning provides the loop, the sampler and DDP. Each device takes every step, with its share of the
# batch.
