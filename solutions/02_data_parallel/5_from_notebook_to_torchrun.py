# %% [markdown]
# # Data parallel, part 5: Train under torchrun
#
# **How does a training run outside of the notebook, on any number of processes, and go on after one of them has died?**
#
# A launcher starts one process per device and tells each who it is. You choose the device of a process and complete a
# training script that saves checkpoints. Then a rank is killed, and the training goes on to the same weights, bit by
# bit. At the end Lightning does the same, on one device and on two.
#
# **You will be able to**
#
# - tell `RANK` from `LOCAL_RANK`, and find the bug where somebody did not
# - write a script for torchrun that survives the death of a rank, and kill one to see it
# - train with Lightning on ranks that are there already
#
# **Minutes** 25 core · 150 in all
#
# **Needs** part 1 (what a rank is); for exercise 2 part 4 helps (samplers and `set_epoch`)

# %% locked="setup"
import importlib.util
import math
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import cloudpickle
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
# ## The device of a process
#
# **A process computes on the GPU with the number of its local rank; its rank among all machines is another
# number.**
#
# A launcher such as `torchrun` starts one process per GPU on each machine and tells each of them two numbers. `RANK`
# counts all processes of the training, over all machines; samplers and the process group need it, and what the whole
# job does once, such as writing a file, belongs to `RANK` 0. `LOCAL_RANK` counts the processes of one machine, and CUDA
# counts the GPUs of one machine in the same way.
#
# | two machines, two GPUs each | first | first | second | second |
# |---|---|---|---|---|
# | `RANK` | 0 | 1 | 2 | 3 |
# | `LOCAL_RANK` | 0 | 1 | 0 | 1 |
# | GPU of this machine | `cuda:0` | `cuda:1` | `cuda:0` | `cuda:1` |
#
# A published example for DDP gets the device in the following way (in our words). There are two bugs in it: one
# stops it everywhere, and one would stop it on the second machine only. Find them before you go on.


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
# `torch.cuda.device` is no device. It is a context manager: inside of `with torch.cuda.device(1):` the GPU 1 is the
# current one. `model.to` refuses it, with a GPU and without. What the author meant is `torch.device`. Then the
# second bug shows: on the second of two machines with two GPUs, process 2 asks for `cuda:2`, and there is none.

# %% [markdown]
# ### Exercise 1 · The device of this process
#
# Mend both bugs: write the function that says on which device a process computes.
#
# **Points** 2 · **Core** · **Difficulty** ●○○ · **Minutes** 8 · **Lines** 5
#
# **Must**
# - without GPUs return the CPU, whatever the local rank;
# - with GPUs return the one with the local rank, and with its number: `cuda:0`, not `cuda`;
# - use the arguments only: the function asks nobody.
#
# **Raises** ValueError if there are GPUs but none with this number; the message holds the values of both arguments.
#
# **Source** DTU, course on machine learning operations, `distributed_example.py` (the bugs, rebuilt); PyTorch
# documentation of `torch.device`, `torch.cuda.device` and of torchrun, "Environment Variables".
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
# ## Who tells a process which rank it is
#
# **A rank is an ordinary process; that it is rank 3 of 8 it reads from environment variables that a launcher set.**
#
# Until now `run_ranks` has started the ranks. On many machines a *launcher* does it: the same command is given on every
# machine, and all processes run the same script. What makes them differ is a handful of environment variables, which
# `dist.init_process_group` reads if it is told nothing else (`init_method="env://"`, the default).
#
# Beside the two numbers above, `WORLD_SIZE` says how many processes there are in all, and `LOCAL_WORLD_SIZE` how many
# share the cores of this machine. `MASTER_ADDR` and `MASTER_PORT` say where to meet: address and port of a small store
# on the machine of rank 0, so they are the same on every machine. torchrun calls the processes of one machine a group,
# so `GROUP_RANK` is the number of the machine.
#
# With three nodes of four processes each, the first process of the last node has `RANK` 8, `LOCAL_RANK` 0 and
# `GROUP_RANK` 2: ranks are counted node by node. A published course page (DTU 02476, distributed training) starts its
# example by a shell script that sets `WORLD_SIZE` and not `MASTER_ADDR`; its launcher, `torch.distributed.launch`, has
# been replaced by torchrun.

# %% [markdown]
# ## A script for torchrun
#
# **A training that is to run for long must be able to stop at any step and go on: as the same training, in a new
# process, perhaps on another machine.**
#
# `run_ranks` starts processes from a notebook, which is good for looking at them. What is to run for days is a
# script, and `torchrun` starts it: `torchrun --nproc-per-node 2 script.py` runs two processes of the script and
# watches them.
#
# If one process dies, the others cannot go on: they would wait for its gradients for ever. So torchrun ends them
# all and, with `--max-restarts 1`, starts all of them once more, from the first line of the script. Nothing is left
# of the memory of the first life. What the second one knows of it, it reads from a file: the *checkpoint*.
#
# Two things make a checkpoint worth its name. It is complete: weights, the buffers of the normalisation, the state
# of the optimizer (momentum is a memory of many steps) and the number of the step. Random numbers need no place in
# it if every step sets them anew from what is known anyway: the seed, the step, the rank. And it is whole: a
# process may die while it writes. So one writes another file beside it and renames that one at the end, which a
# file system does in one step: whoever opens the checkpoint gets the old one or the new one, never half of one. The
# machine may die as well, and a file system may keep a new name before the contents. `os.fsync` before the rename waits
# until the contents are on the disk.

# %% [markdown]
# Exercise 2 is extra. The core goes on at "Kill a rank", with the reference, and ends there. What the script has to do,
# in three groups:
#
# - **train**: call `torch.manual_seed(options.seed)` just before `options.make_model()`, on every rank; share each
#   batch of `options.batch_size` samples equally; let the order depend on seed and epoch alone; before each step seed
#   the random numbers (dropout) from `options.seed`, step and rank alone, so that they differ from step to step and
#   from rank to rank;
# - **report**: return on every rank a list with one mean loss for each epoch that this call trained. The mean is over
#   the samples of all ranks; of an epoch that a checkpoint left half done, over the samples that this call trained.
#   After each epoch rank 0, and no other, calls `options.report(epoch, loss)`;
# - **survive**: rank 0 alone writes the checkpoint after every `save_every`-th step and after every epoch. It is a dict
#   with exactly three keys: "model" (names without a wrapper's prefix), "optimizer" and "step" (updates done). Write it
#   to another file, call `os.fsync`, then rename that file; no second file is left in the folder. A new life goes on
#   after the saved step and does not read samples that are done. The process group is destroyed, also after an error.

# %% [markdown]
# ### Exercise 2 · Train, stop, and go on
#
# Complete the function that `scripts/train_ddp.py` runs in every process of torchrun.
#
# **Points** 8 · **Extra** · **Difficulty** ●●● · **Minutes** 90 · **Lines** 27
#
# **Must** do what the lists *train*, *report* and *survive* above say. The check goes through them in this order: run
# it after each. A comment above each gap names what later lines need of it. Lines that stand there already may be
# changed.
#
# **You may assume** that `batch_size` is a multiple of the number of ranks, and that the last batch of an epoch, which
# may be smaller, divides evenly too.
#
# **Source** PyTorch's documentation, "torchrun (Elastic Launch)" and "Distributed Data Parallel"; POSIX.1-2017,
# `rename()` and `fsync()`.
#
# <details><summary>Hint 1</summary>
#
# How many processes of two machines find `LOCAL_RANK` 0? What does the second life repeat, if the sampler does not
# know its epoch? And what would SGD with momentum do in its first step, if it had forgotten all steps before?
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# `DistributedSampler(options.dataset, seed=options.seed)` knows rank and world size from the process group; after
# `set_epoch`, `list(sampler)` is the order of this rank. What is left of it after some steps is a slice, and
# `Subset(dataset, indices)` reads no others. Give the loader `share` as its batch size. Keep the model in a variable
# of its own before you wrap it: its `state_dict` is what belongs in the file. The sum of losses over all ranks is
# `dist.all_reduce(total)`; every rank must call it, not only rank 0.
#
# </details>
#
# <details><summary>Hint 3</summary>
#
# The checkpoint: `if rank == 0 and (step % options.save_every == 0 or step % per_epoch == 0):`, then `with
# open(beside, "wb") as file:` with `beside = f"{options.checkpoint}.part"`, in it `torch.save({"model":
# bare.state_dict(), ...}, file)`, `file.flush()`, `os.fsync(file.fileno())`, and after it `os.replace(beside,
# options.checkpoint)`. Random numbers of a step: `torch.manual_seed(1_000_003 * options.seed + world_size * step +
# rank)`, before the model is called. (`hash` of a tuple may change from one version of Python to the next.)
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
    ### BEGIN SOLUTION
    rank, local_rank, world_size = (int(os.environ[name]) for name in ("RANK", "LOCAL_RANK", "WORLD_SIZE"))
    ### END SOLUTION
    on_gpu = options.device == "cuda"
    device = torch.device("cuda", local_rank) if on_gpu else torch.device("cpu")
    if on_gpu:
        torch.cuda.set_device(device)
    # with its device NCCL connects now, and a barrier knows its GPU
    dist.init_process_group("nccl" if on_gpu else "gloo", device_id=device if on_gpu else None)
    share = options.batch_size // world_size  # samples of this rank in a step
    try:
        # bare: a new model on `device`; model: the same in DDP; sampler: draws the samples of this rank
        ### BEGIN SOLUTION
        torch.manual_seed(options.seed)
        bare = options.make_model().to(device)
        model = DistributedDataParallel(bare)
        sampler = DistributedSampler(options.dataset, seed=options.seed)
        ### END SOLUTION
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
            # left: the samples that this rank still has to train in this epoch, a data set in the sampler's order
            ### BEGIN SOLUTION
            sampler.set_epoch(epoch)
            left = Subset(options.dataset, list(sampler)[step % per_epoch * share :])
            ### END SOLUTION
            loader = DataLoader(left, share, num_workers=options.workers, pin_memory=on_gpu)
            for images, labels in loader:
                # from pinned memory, so computing need not wait for the copy
                images = images.to(device, non_blocking=True)
                labels = labels.to(device, non_blocking=True)
                # seed the step; loss: of this rank's batch; update the weights
                ### BEGIN SOLUTION
                torch.manual_seed(1_000_003 * options.seed + world_size * step + rank)
                loss = F.cross_entropy(model(images), labels)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                ### END SOLUTION
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
            ### BEGIN SOLUTION
            dist.all_reduce(total)
            losses.append(total.item() / (count * world_size))
            if rank == 0:
                options.report(epoch, losses[-1])
            ### END SOLUTION
        return losses
    finally:
        ### BEGIN SOLUTION
        dist.destroy_process_group()
        ### END SOLUTION


# %% test="train_ddp-visible" points=4
check.train_ddp(train_ddp)

# %% test="train_ddp-hidden" points=4
### BEGIN HIDDEN TESTS
check.train_ddp(train_ddp, seed=613)
### END HIDDEN TESTS

# %% [markdown]
# ## Kill a rank
#
# **torchrun starts all ranks anew when one has died; what the checkpoint holds is all that is left, and it is enough.**
#
# Your function runs in a real torchrun, on two ranks; the reference if its check has not passed. The first training is
# left alone. In the second one rank 1 is killed as soon as there is a checkpoint, by the signal that Linux uses when
# memory runs out. Two ranks have then to go on from files. A hook in the model counts the steps that each life begins.
#
# **Predict**: a checkpoint is written after every 5th step, and an epoch has 16. From which step does the second life
# go on?

# %%
predicted_step = None  # steps that are done when the second life begins

# %% tags=["experiment"]
script = Path(course.__file__).parents[1] / "scripts" / "train_ddp.py"
work = tempfile.TemporaryDirectory()
train_now = course.solved(check.train_ddp)


def train_and_log(options):
    """`train_now`; a file per rank and life gets a line: process, step it goes on from, a dot per step it begins."""
    import os
    from pathlib import Path

    import torch

    life, name = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0"), Path(options.checkpoint).stem
    resumed = torch.load(options.checkpoint)["step"] if os.path.exists(options.checkpoint) else 0
    log = open(f"{name}-{os.environ['RANK']}-{life}", "ab", buffering=0)  # unbuffered: what it holds survives the kill
    log.write(f"{os.getpid()} {resumed} ".encode())
    make = options.make_model

    def begins(*_):  # returns None: what a hook returns would take the place of the input
        log.write(b".")

    def make_counted():
        model = make()
        model.register_forward_pre_hook(begins)
        return model

    options.make_model = make_counted
    return train_now(options)


Path(work.name, "function").write_bytes(cloudpickle.dumps(train_and_log))


def torchrun(name, *options, ranks=2):
    """Start the script under torchrun in the folder of this experiment: the launcher, a running process."""
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(ranks)]
    train = [str(script), "--function", "function", "--dataset", "tiny", "--epochs", str(sizes.epochs + 3)]
    call = [*launcher, "--max-restarts", "1", *train, "--save-every", "5", "--checkpoint", f"{name}.pt", *options]
    variables = os.environ | distributed.ONE_MACHINE | {"OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "ignore"}
    variables["TORCH_DISABLE_SHARE_RDZV_TCP_STORE"] = "1"  # the script says why
    with open(Path(work.name, f"{name}.log"), "w") as log:
        return subprocess.Popen(call, cwd=work.name, env=variables, stdout=log, stderr=log)


def outcome(name, process):
    """(the lines on epochs, the checkpoint) of a training that has ended."""
    code = process.wait(timeout=300)
    said = Path(work.name, f"{name}.log").read_text()
    if code:
        raise RuntimeError(f"torchrun ended with {code}:\n{said[-4000:]}")
    return re.findall(r"^epoch .*", said, re.M), torch.load(Path(work.name, f"{name}.pt"))


def kill_a_rank(name, process):
    """Kill rank 1 with SIGKILL as soon as there is a checkpoint."""
    while not Path(work.name, f"{name}.pt").exists() and process.poll() is None:
        time.sleep(0.005)
    if process.poll() is None:
        os.kill(int(life_of(name, 1, 0)[0]), signal.SIGKILL)


def life_of(name, rank, life):
    """(number of the process, step that it went on from, steps that it began) of a rank in a life."""
    process, resumed, dots = Path(work.name, f"{name}-{rank}-{life}").read_text().split(" ")
    return int(process), int(resumed), len(dots)


# %% tags=["experiment"]
start = time.perf_counter()
lines, whole = outcome("whole", torchrun("whole"))
undisturbed = time.perf_counter() - start
print("never stopped:", *lines, sep="\n   ")
start = time.perf_counter()
process = torchrun("killed")
kill_a_rank("killed", process)
lines, killed = outcome("killed", process)
disturbed = time.perf_counter() - start
print("rank 1 killed:", *lines, sep="\n   ")
lives = sorted(path.name[-1] for path in Path(work.name).glob("killed-0-*"))
begun = max(life_of("killed", rank, 0)[2] for rank in range(2))  # also the step in which the others were left waiting
resumed = life_of("killed", 0, 1)[1] if len(lives) == 2 else math.nan
course.claim("torchrun started the ranks a second time", lives == ["0", "1"], f"lives: {len(lives)}")
course.claim("the restarted ranks resumed from a checkpoint in the middle of the training", 0 < resumed < whole["step"],
             f"step {resumed} of {whole['step']}{reveal(predicted_step)}",
             otherwise="Rank 1 had finished before the signal reached it. Run the cell again.")  # fmt: skip
same = all(torch.equal(a, b) for a, b in zip(whole["model"].values(), killed["model"].values(), strict=True))
course.claim("the killed training ends with the weights of the undisturbed one, bit by bit", same)
print(
    f"steps that the first life began: {begun}; the second went on after step {resumed}; begun twice: {begun - resumed}"
)
print(f"undisturbed {undisturbed:.1f} s, killed {disturbed:.1f} s")

# %% [markdown]
# Compare the losses by epoch: that of the epoch in which the second life began may differ, because it is the mean over
# the steps since the checkpoint. All later ones are equal. The second life goes on from the last checkpoint that was
# whole. The death of a rank costs the steps since then, few here because it was killed just after one, and the start of
# all ranks, which is mostly the import of torch. Saving more often reduces the first and not the second. Equal bits
# need the same kind of CPU and as many ranks as before: with another number of ranks, sums are rounded differently and
# dropout draws other numbers.
#
# To do the same in a terminal with five epochs of the real data, save the notebook and kill one of the ranks by hand:
#
# ```
# export TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1
# torchrun --standalone --nproc-per-node 2 --max-restarts 1 scripts/train_ddp.py --epochs 5 --checkpoint run.pt \
#     --answers notebooks/02_data_parallel/5_from_notebook_to_torchrun.ipynb
# ```

# %% [markdown]
# ## The same with Lightning
#
# **A framework writes the loop for you; what it does with the ranks, the sampler and the group you still have to
# know.**
#
# PyTorch Lightning asks for a module with two methods, `training_step` (batch → loss) and `configure_optimizers`,
# and a `Trainer` that is told where to compute. The Trainer wraps the module into DDP, calls `zero_grad`,
# `backward` and `step`, and puts a `DistributedSampler` in the place of the loader's own sampler, one that shuffles
# if the loader does. It also tells that sampler the epoch.
#
# Where do the ranks come from? If the environment has no `LOCAL_RANK`, Lightning starts the other processes itself,
# by calling your script again. If there is one, as under torchrun and in `run_ranks`, somebody else has started
# them: Lightning takes the ranks as they are, and a process group that exists already. So every rank makes the same
# Trainer.
#
# The course page named above tells to change two arguments of the Trainer, `accelerator` and `gpus`. The second is
# gone since Lightning 2: now `accelerator` names the kind of device, `devices` how many a node has, and `strategy`
# the way they work together ("auto", the default, takes DDP for more than one).

# %% [markdown]
# ### Exercise 3 · Let Lightning do it
#
# Train a classifier with Lightning, on ranks that are there already.
#
# **Points** 4 · **Extra** · **Difficulty** ●●○ · **Minutes** 30 · **Lines** 17
#
# **Must**
# - import `pytorch_lightning` inside the function, because it takes seconds;
# - train `model` itself with cross-entropy and plain SGD, on the CPU, with as many devices as the group has ranks;
# - make no logger, no checkpoint and no progress bar: leave no file, and write nothing to stdout (what Lightning logs
#   to stderr does not matter);
# - return the losses of this rank's own batches, one per step, through all epochs.
#
# **You may assume** that every rank calls it with equal arguments; `loader` goes over the whole data set, and
# Lightning's sampler deals it out.
#
# **Source** Documentation of Lightning 2, "LightningModule", "Trainer", "Run on an on-prem cluster".
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
# A class inside of a function sees the function's arguments. In `__init__`, after `super().__init__()`, keep
# `self.model = model`, so that the parameters of the model are those of the module, and a list of losses. In
# `training_step(self, batch, batch_idx)` append `loss.item()` and return `loss`.
#
# </details>
#
# <details><summary>Hint 3</summary>
#
# `pl.Trainer(accelerator="cpu", devices=dist.get_world_size(), max_epochs=epochs, logger=False,
# enable_checkpointing=False, enable_progress_bar=False).fit(module, loader)`
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
    ### BEGIN SOLUTION
    import pytorch_lightning as pl

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
    quiet = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False}
    pl.Trainer(accelerator="cpu", devices=ranks, max_epochs=epochs, **quiet).fit(module, loader)
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
# The same training, with the same batch of all devices together, on one device and on two. A device of the CPU is a
# process with one thread. The time of an epoch is what several epochs take more than one, so that the start of the
# Trainer is not in it.

# %%
predicted_epoch_ratio = None  # seconds per epoch on two devices / on one


# %% tags=["experiment"]
def lightning_in_rank(rank, world_size, fit, images, labels, batch_size, epochs, rounds):
    """(seconds per epoch in each round, mean losses of the epochs) on this rank."""
    import logging

    import pytorch_lightning as pl

    logging.getLogger("pytorch_lightning").setLevel(logging.ERROR)
    torch.set_num_threads(1)
    loader = DataLoader(TensorDataset(images, labels), batch_size // world_size, shuffle=True)
    pl.seed_everything(0)

    def fitted(epochs):
        model = FashionCNN(dropout=0.0, norm=None)
        dist.barrier()
        start = time.perf_counter()
        losses = fit(model, loader, 0.05, epochs)
        return time.perf_counter() - start, torch.tensor(losses).view(epochs, -1).mean(1).tolist()

    fitted(1)
    found = [(fitted(1)[0], *fitted(epochs)) for _ in range(rounds)]
    return [(several - one) / (epochs - 1) for one, several, _ in found], found[-1][2]


if importlib.util.find_spec("pytorch_lightning"):
    garments = fashion.load("tiny")
    tiny = fashion.floats(garments.train_images), garments.train_labels
    epoch_seconds = {}
    for n in (1, 2):
        fit_now = course.solved(check.lightning_fit)
        ranks = run_ranks(lightning_in_rank, n, fit_now, *tiny, 4 * sizes.batch_size, sizes.epochs + 2,
                          sizes.rounds // 2, backend="gloo", timeout=300)  # fmt: skip
        epoch_seconds[n] = torch.tensor([seconds for seconds, _ in ranks]).max(0).values
        print(f"{n} device{'s' * (n > 1)}: {epoch_seconds[n].median():.2f} s per epoch "
              f"({epoch_seconds[n].min():.2f} to {epoch_seconds[n].max():.2f}), losses of rank 0 by epoch: "
              + ", ".join(f"{loss:.2f}" for loss in ranks[0][1]))  # fmt: skip
    ratio = (epoch_seconds[2].median() / epoch_seconds[1].median()).item()
    course.claim("with Lightning, two devices take less time per epoch than one", ratio < 1,
                 f"{ratio:.2f} of it{reveal(predicted_epoch_ratio)}",
                 otherwise="The two devices have no core each, or the batch per device is so small that bookkeeping is "
                           "most of a step.")  # fmt: skip
else:
    print("pytorch_lightning is not installed: this measurement is skipped")

# %% [markdown]
# Lightning's epoch contains its own sampler, DDP and the loop's bookkeeping; part 6 takes the step itself apart. The
# losses by epoch are those of one rank's batches, so the two rows need not be equal: the ranks see other shards, and
# each mean is over half as many samples.

# %% [markdown]
# ## More machines
#
# Nothing in the script knows how many machines there are: the launcher says who is who.
# [docs/more-machines.md](../../docs/more-machines.md) is the chapter on it, with launch scripts for torchrun on
# several nodes and for Slurm, what a restart after the death of a rank loses, and how to find a hang.
