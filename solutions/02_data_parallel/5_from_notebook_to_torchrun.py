# %% [markdown]
# # Data parallel, part 5: Train under torchrun
#
# **How does a training run outside of the notebook, on any number of processes, and go on after one of them has died?**
#
# A launcher starts one process per device and tells each who it is. You choose the device of a process, write the
# environment that torchrun gives it, and complete a training script that saves checkpoints and resumes to the bit. Then
# Lightning does the same.
#
# **You will be able to**
#
# - tell `RANK` from `LOCAL_RANK`, and find the bug where somebody did not
# - write a script for torchrun that survives the death of a rank
# - train with Lightning on ranks that are there already
#
# **Minutes** 0 core · 145 in all
#
# **Needs** part 1 (what a rank is); part 4 helps (samplers and `set_epoch`)

# %% locked="setup"
import itertools
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import cloudpickle
import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler

import course
from course import distributed
from course.checks import data_parallel as check

print(course.machine())
sizes = course.sizes("02_data_parallel")

# %% [markdown]
# ## The device of a process
#
# **A process computes on the GPU with the number of its local rank; its rank among all machines is another
# number.**
#
# A launcher such as `torchrun` starts one process a GPU on each machine and tells each of them two numbers. `RANK`
# counts all processes of the training, over all machines; samplers and the process group need it. `LOCAL_RANK`
# counts the processes of one machine, and CUDA counts the GPUs of one machine in the same way.
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
# **Points** 2 · **Extra** · **Difficulty** ●○○ · **Minutes** 8 · **Lines** 5
#
# **Convention** Local ranks count from 0. Without a GPU every process computes on the CPU, however many there are.
# With GPUs a process has one of its own, the one with its local rank, and the device holds this number: `cuda:0`,
# not `cuda`. If there is no GPU with that number, that is a ValueError whose message holds both numbers,
# `local_rank` and `device_count`; two processes never share a GPU quietly. The function asks nobody: it knows what
# it is given.
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
# **A rank is an ordinary process; that it is rank 3 of 8 it reads from its environment, where a launcher wrote
# it.**
#
# Until now `run_ranks` has started the ranks. For training on many machines a *launcher* does it: the same command
# is given on every machine, and the launcher starts one process for each GPU of it. All of them run the same
# script. What makes them differ is a handful of environment variables, which `dist.init_process_group` reads if it
# is told nothing else (`init_method="env://"`, the default).
#
# Two of them say where to meet: `MASTER_ADDR` and `MASTER_PORT` are address and port of a small store on the
# machine of rank 0, kept by the launcher, or by rank 0 if nobody else does. So they are the same on every machine.
# `WORLD_SIZE` and `RANK` say how many processes there are in all and which of them this is. The rest is about one
# machine: `LOCAL_RANK` picks the GPU, and `LOCAL_WORLD_SIZE` tells how many processes share the cores. torchrun
# calls a group of processes on one machine, a node, a group, and so the number of the machine is `GROUP_RANK`.
#
# A published course page (DTU 02476, distributed training) starts its example by a shell script that sets
# `WORLD_SIZE` and not `MASTER_ADDR`, and names a file that is not there. Its launcher, `torch.distributed.launch`,
# has been replaced by torchrun.

# %% [markdown]
# ### Exercise 2 · What the launcher says
#
# Write the environment of one process, as torchrun gives it.
#
# **Points** 2 · **Extra** · **Difficulty** ●○○ · **Minutes** 8 · **Lines** 9
#
# **Convention** Nodes, processes of a node and ranks count from 0. Every node has as many processes. Ranks are
# dealt node by node: the first `per_node` ranks are those of node 0. Names and values are `str`, because nothing
# else fits into an environment. The dict holds these seven names and no other: `MASTER_ADDR`, `MASTER_PORT`,
# `WORLD_SIZE`, `RANK`, `LOCAL_RANK`, `LOCAL_WORLD_SIZE`, `GROUP_RANK`. The function sets nothing, it returns.
#
# **Source** PyTorch documentation, "torchrun (Elastic Launch)", section "Environment Variables".
#
# <details><summary>Hint 1</summary>
#
# Three nodes of four processes each: which rank does the first process of the last node have?
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# In front of this process stand all processes of the nodes before, `node * per_node` of them, and `local_rank` of
# its own node. All in all there are `nodes * per_node`.
#
# </details>


# %% solution="rank_environment"
def rank_environment(node, local_rank, nodes, per_node, address, port):
    """The environment variables that a launcher gives to process `local_rank` of node `node`, a dict of str to str.

    Args:
        node: number of the machine, from 0 to nodes - 1.
        local_rank: number of the process on its machine, from 0 to per_node - 1.
        nodes, per_node: how many machines there are, and how many processes on each of them.
        address, port: of the store in which the ranks find each other, a str and an int.
    """
    ### BEGIN SOLUTION
    numbers = {
        "MASTER_PORT": port,
        "WORLD_SIZE": nodes * per_node,
        "RANK": node * per_node + local_rank,
        "LOCAL_RANK": local_rank,
        "LOCAL_WORLD_SIZE": per_node,
        "GROUP_RANK": node,
    }
    return {"MASTER_ADDR": address} | {name: str(number) for name, number in numbers.items()}
    ### END SOLUTION


# %% test="rank_environment-visible" points=1
check.rank_environment(rank_environment)

# %% test="rank_environment-hidden" points=1
### BEGIN HIDDEN TESTS
check.rank_environment(rank_environment, seed=29)
### END HIDDEN TESTS

# %% [markdown]
# ## A script for torchrun
#
# **A training that is to run for long must be able to stop at any step and go on: as the same training, in a new
# process, perhaps on another machine.**
#
# `run_ranks` starts processes from a notebook, which is good for looking at them. What is to run for days is a
# script, and `torchrun` starts it: `torchrun --nproc-per-node 2 script.py` runs two processes of the script and
# watches them. It tells each who it is by environment variables. `RANK` counts all processes, from 0 to
# `WORLD_SIZE` - 1. `LOCAL_RANK` counts those of one machine and chooses the GPU. `MASTER_ADDR` and `MASTER_PORT`
# say where the processes meet; `dist.init_process_group` reads them by itself. On two machines with four GPUs each,
# `LOCAL_RANK` 0 exists twice, `RANK` 0 once: what the whole job does once, such as writing a file, belongs to
# `RANK` 0.
#
# If one process dies, the others cannot go on: they would wait for its gradients for ever. So torchrun ends them
# all and, with `--max-restarts 1`, starts all of them once more, from the first line of the script. Nothing is left
# of the memory of the first life. What the second one knows of it, it reads from a file: the *checkpoint*.
#
# Two things make a checkpoint worth its name. It is complete: weights, the buffers of the normalisation, the state
# of the optimizer (momentum is a memory of many steps) and the number of the step. Random numbers need no place in
# it if every step sets them anew from what is known anyway: the seed, the step, the rank. And it is whole: a
# process may die while it writes. So one writes another file beside it and renames that one at the end, which a
# file system does in one step: whoever opens the checkpoint gets the old one or the new one, never half of one.

# %% [markdown]
# ### Exercise 3 · Train, stop, and go on
#
# Complete the function that `scripts/train_ddp.py` runs in every process that torchrun starts. Lines that stand
# there already may be changed, if the facts below stay true.
#
# **Points** 8 · **Extra** · **Difficulty** ●●● · **Minutes** 90 · **Lines** 26
#
# **Convention** `torch.manual_seed(options.seed)` comes just before `options.make_model()`, on every rank. A step
# takes `options.batch_size` samples, an equal share on each rank; the last batch of an epoch may be smaller. The
# loss is the mean cross-entropy, the optimizer SGD with momentum 0.9. Every epoch has an order of its own, which
# depends on the seed and the epoch alone. Random numbers inside a step, such as those of dropout, differ from rank
# to rank and from step to step; they depend on seed, step and rank alone. Rank 0, and no other, writes the
# checkpoint: after every `save_every`-th step, counted from the start of the training, and after every epoch; a
# dict with "model" (the state of the model itself, without the prefix of a wrapper), "optimizer" and "step"
# (updates done), saved by `torch.save` so that `torch.load` reads it with `weights_only=True`. Whoever opens
# `options.checkpoint` at any time finds a whole file, and nothing else is left beside it. If there is a checkpoint
# at the start, the training goes on after its step, and ends with the very weights of one that was never stopped;
# if it was finished, nothing is trained. At the end of an epoch rank 0 calls `options.report(epoch, loss)`, `epoch`
# counted from 0; the loss is the mean over the samples of all ranks in this epoch (of those since the start, if it
# began in the middle). The process group is gone when the function is left, also by an error.
#
# **Source** PyTorch's documentation, "torchrun (Elastic Launch)" and "Distributed Data Parallel"; POSIX.1-2017,
# `rename()` (the old file or the new one, at any time).
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
# `DistributedSampler(options.dataset, seed=options.seed)` knows rank and world size from the process group;
# `set_epoch` must be called before the loader is iterated. Give the loader the share of one rank as its batch size.
# Keep the model in a variable of its own before you wrap it: its `state_dict` is what belongs in the file. The sum
# of losses over all ranks is `dist.all_reduce(total)`; every rank must call it, not only rank 0.
#
# </details>
#
# <details><summary>Hint 3</summary>
#
# The checkpoint: `if rank == 0 and (step % options.save_every == 0 or step % len(loader) == 0):`, then
# `torch.save({"model": bare.state_dict(), ...}, beside)` with `beside = f"{options.checkpoint}.part"`, then
# `os.replace(beside, options.checkpoint)`. Random numbers of a step: `torch.manual_seed(hash((options.seed, step,
# rank)))`, before the model is called.
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
            epochs, batch_size (samples a step, all ranks together), lr, seed.
            checkpoint: path of the file, on a disk that all ranks see.   save_every: steps between two checkpoints.
            report: function (epoch, loss), to be called by rank 0 after each epoch.
    """
    ### BEGIN SOLUTION
    rank, local_rank, world_size = (int(os.environ[name]) for name in ("RANK", "LOCAL_RANK", "WORLD_SIZE"))
    ### END SOLUTION
    device = torch.device("cuda", local_rank) if options.device == "cuda" else torch.device("cpu")
    if device.type == "cuda":
        torch.cuda.set_device(device)
    dist.init_process_group("nccl" if device.type == "cuda" else "gloo")
    try:
        ### BEGIN SOLUTION
        torch.manual_seed(options.seed)
        bare = options.make_model().to(device)
        model = DistributedDataParallel(bare)
        sampler = DistributedSampler(options.dataset, seed=options.seed)
        loader = DataLoader(options.dataset, options.batch_size // world_size, sampler=sampler)
        ### END SOLUTION
        optimizer = torch.optim.SGD(model.parameters(), lr=options.lr, momentum=0.9)
        step, losses = 0, []  # updates so far, also those of earlier lives
        if os.path.exists(options.checkpoint):
            ### BEGIN SOLUTION
            saved = torch.load(options.checkpoint, map_location=device)
            bare.load_state_dict(saved["model"])
            optimizer.load_state_dict(saved["optimizer"])
            step = saved["step"]
            ### END SOLUTION
        for epoch in range(step // len(loader), options.epochs):
            total, count = 0, 0  # loss summed over samples, samples: of this rank
            ### BEGIN SOLUTION
            sampler.set_epoch(epoch)
            ### END SOLUTION
            for images, labels in itertools.islice(loader, step % len(loader), None):  # without those that are done
                ### BEGIN SOLUTION
                torch.manual_seed(hash((options.seed, step, rank)))
                loss = F.cross_entropy(model(images.to(device)), labels.to(device))
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                ### END SOLUTION
                step += 1
                total += loss.detach() * len(labels)
                count += len(labels)
                ### BEGIN SOLUTION
                if rank == 0 and (step % options.save_every == 0 or step % len(loader) == 0):
                    state = {"model": bare.state_dict(), "optimizer": optimizer.state_dict(), "step": step}
                    beside = f"{options.checkpoint}.part"
                    torch.save(state, beside)
                    os.replace(beside, options.checkpoint)
                ### END SOLUTION
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
# ### Run it
#
# Your function in a real torchrun, on two ranks; the reference if its check has not passed.

# %% tags=["experiment"]
script = Path(course.__file__).parents[1] / "scripts" / "train_ddp.py"
work = tempfile.TemporaryDirectory()
Path(work.name, "function").write_bytes(cloudpickle.dumps(course.solved(check.train_ddp)))


def torchrun(*options, ranks=2):
    """Run the script under torchrun in a folder of its own, and show what it printed."""
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(ranks)]
    call = [*launcher, str(script), "--function", "function", *map(str, options)]
    variables = os.environ | distributed.ONE_MACHINE | {"OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "ignore"}
    done = subprocess.run(call, cwd=work.name, env=variables, capture_output=True, text=True, timeout=300)
    print(done.stdout)
    if done.returncode:
        raise RuntimeError(f"torchrun ended with {done.returncode}:\n{done.stderr[:4000]}")


# %% tags=["experiment"]
print("one epoch, then stop:")
torchrun("--dataset", "tiny", "--epochs", 1, "--checkpoint", "stopped.pt")
print("the same command with more epochs goes on from its checkpoint:")
torchrun("--dataset", "tiny", "--epochs", sizes.epochs + 1, "--checkpoint", "stopped.pt")
print("never stopped:")
torchrun("--dataset", "tiny", "--epochs", sizes.epochs + 1, "--checkpoint", "whole.pt")
weights = [torch.load(Path(work.name) / f"{name}.pt") for name in ("stopped", "whole")]
same = all(torch.equal(a, b) for a, b in zip(*(w["model"].values() for w in weights), strict=True))
print(f"same weights, to the bit: {same}")

# %% [markdown]
# A rank that is killed in the middle is the same case: torchrun starts all ranks anew, and they go on from the last
# checkpoint. What is lost is the work since then. Try it in a terminal, and kill one of the two ranks (not torchrun);
# save the notebook first, if it is your function that should train:
#
# ```
# export TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1
# torchrun --standalone --nproc-per-node 2 --max-restarts 1 scripts/train_ddp.py --epochs 5 --checkpoint run.pt \
#     --answers notebooks/02_data_parallel/5_from_notebook_to_torchrun.ipynb
# ```
#
# Tracebacks of the ranks that lost their partner come first; then the epochs go on. (The script says why that
# variable is needed.) The tests of this course do the same, in `tests/test_nodes.py`.

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
# ### Exercise 4 · Let Lightning do it
#
# Train a classifier with Lightning, on ranks that are there already.
#
# **Points** 4 · **Extra** · **Difficulty** ●●○ · **Minutes** 30 · **Lines** 17
#
# **Convention** The function is called on every rank of `run_ranks` with equal arguments. `loader` goes over the
# whole data set; each rank trains on its share, as Lightning's `DistributedSampler` deals it
# (`use_distributed_sampler`, on by default). Import `pytorch_lightning` *inside* the function: it takes seconds,
# and only who trains with it should wait. On the CPU (`accelerator="cpu"`), also where there is a GPU; as many
# devices as the group has ranks. Cross-entropy, plain SGD, `epochs` epochs, and `model` itself is trained. No
# logger, no checkpoint, no progress bar: nothing is printed and no file is made in the current folder. Returned are
# the losses of this rank's own batches, not averaged over the ranks, one a step, through all epochs.
#
# **Source** Documentation of Lightning 2, "LightningModule", "Trainer" (its arguments) and "Run on an on-prem
# cluster" (what `LOCAL_RANK` means).
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
# ## More machines
#
# Nothing in the script knows how many machines there are: the launcher says who is who.
# [docs/more-machines.md](../../docs/more-machines.md) is the chapter on it, with launch scripts for torchrun on
# several nodes and for Slurm, what a restart after the death of a rank loses, and how to find a hang.
