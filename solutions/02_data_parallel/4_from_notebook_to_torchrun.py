# %% [markdown]
# # Data parallel, part 4: Train under torchrun, and survive
#
# **How does a training leave the notebook, and how does it survive when its processes are killed?**
#
# You make a small GPT train on two ranks with the loss curve of one process, kill a rank with SIGKILL, and resume on
# another number of ranks. This is the capstone of the unit.
#
# **You will be able to**
#
# - tell `RANK` from `LOCAL_RANK`, and find the bug in code that confuses them
# - start a script with torchrun
# - turn a training of one process into one of N with the same loss curve
# - write a checkpoint that holds everything that the next step reads
#
# **Minutes** 43 core · 119 in all · session 2
#
# **Needs** part 1 (what a rank is) and `shard_scale` of part 3

# %% locked="setup"
import importlib.util
import inspect
import math
import os
import tempfile
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

import course
from course.checks import data_parallel as check
from course.datasets import fashion
from course.measure.comparison import largest_difference
from course.parallel import lives
from course.parallel.distributed import run_ranks
from course.plots import data_parallel as plots
from course.training import gpt_on_ranks, gpt_run
from course.training.models import FashionCNN
from course.training.ragged_transformer import padded_losses

print(course.machine())
torch.set_num_threads(1)  # the model is small
sizes = course.sizes("02_data_parallel")

# %% [markdown]
# ## Which GPU is mine?
#
# Each process of a training needs a GPU of its machine that no other process uses. A *launcher* such as `torchrun`
# starts the processes of a machine, usually one per GPU, and gives each two numbers in its environment. `RANK` is its
# number among all processes of the training. `LOCAL_RANK` is its number on its machine. CUDA numbers the GPUs of a
# machine in the same way, from 0.
#
# | two machines, two GPUs each | first | first | second | second |
# |---|---|---|---|---|
# | `RANK` | 0 | 1 | 2 | 3 |
# | `LOCAL_RANK` | 0 | 1 | 0 | 1 |
# | GPU of this machine | `cuda:0` | `cuda:1` | `cuda:0` | `cuda:1` |
#
# This function has two bugs of a published example (rewritten from DTU 02476, `distributed_example.py`). One bug fails
# everywhere, the other only on the second machine. Find both before you run the next cell.


# %% locked="published_setup"
def published_setup(model, rank):
    """The model on the device of process `rank`; `rank` is the RANK that the launcher gave."""
    device = torch.cuda.device(rank)
    return model.to(device)


# %% tags=["experiment"]
try:
    published_setup(nn.Linear(2, 2), rank=0)
except TypeError as error:
    first_line = str(error).splitlines()[0]
    print("TypeError:", first_line[:90])

# %% [markdown]
# `torch.cuda.device` is a context manager that changes the selected GPU; the author meant `torch.device`. With that
# fixed, the second bug shows: on the second machine, process 2 asks for `cuda:2`, which does not exist there.
#
# **Takeaway** Compute on the GPU with your `LOCAL_RANK`. `RANK` 0 does what is needed once, such as saving, and
# `LOCAL_RANK` 0 what each machine needs, such as a download.

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
# What type does `model.to` take? And which ranks exist with `device_count` GPUs, if they count from 0?
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
        raise ValueError(
            f"local rank {local_rank} has no GPU: there are {device_count}; start fewer processes."
        )
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
# To leave the notebook, a training needs a script that torchrun can start. `init_process_group` reads `RANK`,
# `WORLD_SIZE` and the meeting point, `MASTER_ADDR` and `MASTER_PORT`, from the environment. Parts 2 and 3 explain DDP
# and the sampler.
#
# The cell prints `scripts/smallest_ddp.py` without its last lines, and runs it. In a terminal, the same command is
# `torchrun --standalone --nproc-per-node 2 scripts/smallest_ddp.py`. How many steps does each rank take per epoch?

# %% tags=["experiment"]
print(lives.smallest_script())  # 29 lines to read
with tempfile.TemporaryDirectory() as folder:
    printed = lives.torchrun(lives.SMALLEST, folder, ranks=2)
print(*sorted(printed.splitlines()), sep="\n")

# %% [markdown]
# Both ranks take 10 steps per epoch: 1,000 samples in steps of 2 times 50. The first samples differ between ranks and
# between epochs.
#
# **Takeaway** A script for torchrun adds four things: the process group, DDP, a sampler with `set_epoch`, and "only
# rank 0 writes".

# %% [markdown]
# ## What does the given training do?
#
# This training runs in one process. You will put it on two ranks and kill it, so read all of it first. A `Run` holds
# what the next step reads.

# %% locked="given"
# 43 lines to read
for definition in (
    gpt_run.Run,
    gpt_run.global_batch,
    gpt_run.update,
    gpt_run.token_mean,
    gpt_run.train,
):
    print(inspect.getsource(definition))

# %% [markdown]
# Several ranks will train it with the function below. Every rank draws the same *global batch*, with the same tokens
# hidden. Two pieces are missing: `rank_loss` and `checkpoint`.

# %% locked="on_ranks"
print(inspect.getsource(gpt_on_ranks.train_on_ranks))  # 31 lines to read

# %% [markdown]
# ## Which loss must a rank compute?
#
# On any number of ranks, the loss curve must match the curve of one process to 1e-6. Two things could prevent this:
#
# - The texts have different lengths, so a mean of means is wrong (part 3). You fix that now.
# - Sums in another order are rounded differently, and training amplifies it. So the given training uses float64. There
#   the errors of its 60 steps stay far below 1e-6.

# %% [markdown]
# ### Exercise 2 · The loss of a rank
#
# Select this rank's texts from the global batch. Return the loss that makes DDP's mean of gradients the gradient of the
# mean over *all* predicted tokens. `padded_losses(model, texts)` gives `(losses, is_predicted)`, both of shape (texts,
# longest); a loss is 0 where nothing is predicted. A text of n tokens has n - 1 predictions.
#
# **Points** 3 · **Core** · **Difficulty** ●●○ · **Minutes** 9 · **Lines** 4
#
# **Must**
#
# - put each text on exactly one rank; the ranks' numbers of texts differ by at most one
# - call the model once, and send no message
#
# **You may assume** that the batch has a text for each rank.
#
# **Source** Part 3, exercise 1; PyTorch's documentation of `DistributedDataParallel`, on how gradients are averaged.
#
# <details><summary>Hint 1</summary>
#
# Every rank knows the whole batch. How can it learn without a message how many tokens all ranks predict?
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# `batch[rank::world_size]` deals out like cards. `sum(len(tokens) - 1 for tokens in batch)` is the number of all
# predictions. DDP divides by `world_size`, so multiply.
#
# </details>


# %% solution="rank_loss"
def rank_loss(model, batch, rank, world_size):
    """The loss of this rank, a tensor of shape (): DDP's mean of its gradients is that of the global batch.

    Args:
        model: DDP around a RaggedTransformer, as `padded_losses` takes it.
        batch: the global batch, a list of int64 tensors (length,), the same on every rank.
        rank, world_size: of this process.
    """
    ### BEGIN SOLUTION
    mine = batch[rank::world_size]
    losses, _ = padded_losses(model, mine)
    n_tokens = sum(len(tokens) - 1 for tokens in batch)
    return losses.sum() * world_size / n_tokens
    ### END SOLUTION


# %% test="rank_loss-visible" points=1
check.rank_loss(rank_loss)

# %% test="rank_loss-hidden" points=2
### BEGIN HIDDEN TESTS
check.rank_loss(rank_loss, seed=3407)
### END HIDDEN TESTS

# %% [markdown]
# ## What must a checkpoint hold?
#
# When a process fails, torchrun ends all processes. With `--max-restarts 1` it starts them once more, from the first
# line of the script. The new processes know only what is in a file, the *checkpoint*. It must be
#
# - *complete*: it holds everything that the next step reads, such as weights, the optimizer's state and the position in
#   the data;
# - *atomic*: a crash during the write must not leave half a checkpoint. `gpt_on_ranks.write_durably` writes a temporary
#   file, calls `os.fsync` so that its contents survive a power cut, and renames it over the old one.
#
# What happens if one piece is missing? The training is killed after 20 steps, and the resumed training takes that piece
# from a new `Run`.
#
# **Predict**: which pieces change the *first* loss after the resume? Ask which of them the first forward reads.

# %%
predicted_pieces = None  # a set of names out of "optimizer", "scheduler", "random", "step"

# %% tags=["experiment"]
undisturbed = gpt_run.train(gpt_run.new_run()).losses

curves = {}
changes_first_loss = set()
for piece in ("optimizer", "scheduler", "random", "step"):
    losses = gpt_run.losses_without(piece, 20)
    curves[f"without {piece}"] = losses
    first_step = gpt_run.first_difference(losses, undisturbed)
    print(f"without {piece}: the first loss that differs is the loss of step {first_step}")
    if first_step == 21:
        changes_first_loss.add(piece)

what = "pieces that change the first loss after the resume"
print(course.score("02/4", what, predicted_pieces, changes_first_loss))
course.claim(
    "a checkpoint without one of these four pieces changes the losses and raises no error",
    undisturbed not in curves.values(),
)
title = "Whatever the checkpoint forgets: no error, and a curve that falls"
plots.against_undisturbed(undisturbed, curves, title)

# %% [markdown]
# **Shown**: each curve forgets one piece and nothing else. The first step after the resume is step 21.
#
# - *Random state and position* decide which tokens its forward sees, so its loss differs.
# - Its update reads the *optimizer's state*, so the next loss is the first that differs.
# - At its end, the *scheduler* sets the learning rate of the next update. So the loss after that update differs.
#
# **Takeaway** A checkpoint must hold everything that the next step reads. What it forgets may raise no error, so
# compare with an undisturbed run.

# %% [markdown]
# ### Exercise 3 · A complete checkpoint
#
# Write the two methods. `state` returns a dict of everything that the next step of a `Run` reads. `restore` puts it
# into a new `Run`, which other processes have made with another seed.
#
# **Points** 4 · **Core** · **Difficulty** ●●○ · **Minutes** 9 · **Lines** 16
#
# **Must**
#
# - use the names of the eight fields of `Run` as the keys, and only tensors, numbers, lists and dicts as values, so
#   that `torch.load(path, weights_only=True)` reads it
# - restore so that the next losses are, bit by bit, those of a training that was never stopped
#
# **Source** PyTorch's documentation, "Saving and loading a general checkpoint", and of `torch.Generator.get_state`.
#
# <details><summary>Hint 1</summary>
#
# Which of the eight have a `state_dict()`? What has `torch.Generator` instead?
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# `model`, `optimizer`, `scheduler` and `scaler` have `state_dict()` and `load_state_dict()`. A generator has
# `get_state()`, a tensor on the CPU, and `set_state()`. `step`, `seed` and `losses` are plain values.
#
# </details>


# %% solution="Checkpoint"
class Checkpoint:
    """What a training writes down, and how new processes resume from it."""

    def state(self, run):
        """A dict of everything that the next step of `run`, a gpt_run.Run, reads."""
        ### BEGIN SOLUTION
        return {
            "model": run.model.state_dict(),
            "optimizer": run.optimizer.state_dict(),
            "scheduler": run.scheduler.state_dict(),
            "scaler": run.scaler.state_dict(),
            "random": run.random.get_state(),
            "seed": run.seed,
            "step": run.step,
            "losses": run.losses,
        }
        ### END SOLUTION

    def restore(self, run, state):
        """None; the new `run` becomes the one whose `state` was written."""
        ### BEGIN SOLUTION
        run.model.load_state_dict(state["model"])
        run.optimizer.load_state_dict(state["optimizer"])
        run.scheduler.load_state_dict(state["scheduler"])
        run.scaler.load_state_dict(state["scaler"])
        run.random.set_state(state["random"])
        run.seed = state["seed"]
        run.step = state["step"]
        run.losses = list(state["losses"])
        ### END SOLUTION


# %% test="Checkpoint-visible" points=2
check.Checkpoint(Checkpoint)

# %% test="Checkpoint-hidden" points=2
### BEGIN HIDDEN TESTS
check.Checkpoint(Checkpoint, seed=271)
### END HIDDEN TESTS

# %% [markdown]
# ## Does your training survive?
#
# Now torchrun starts your training three times, as on a cluster that takes machines away. Rank 0 writes a checkpoint
# every 10 steps, and when a start ends as planned. What the processes do between a start or restart and their end is a
# *life*.
#
# 1. On two ranks. In step 14, rank 1 gets SIGKILL, the signal that Linux sends when memory runs out. torchrun
#    restarts both ranks (`--max-restarts 1`), and they stop after step 25.
# 2. On one rank, which gets SIGKILL in step 38.
# 3. On two ranks again, to the end.
#
# **Predict**: after how many steps does the last start resume?

# %%
predicted_step = None  # steps that are done

# %% tags=["experiment"]
save_every = 10
starts = [
    # 13 steps are done when it is killed
    lives.Start(ranks=2, until=25, save_every=save_every, kill_at=13, max_restarts=1),
    lives.Start(ranks=1, until=gpt_run.STEPS, save_every=save_every, kill_at=37),
    lives.Start(ranks=2, until=gpt_run.STEPS, save_every=save_every),
]
functions = (course.solved(check.rank_loss), course.solved(check.Checkpoint))

with tempfile.TemporaryDirectory() as folder:
    lived = lives.live(starts, functions, Path(folder))
    last_checkpoint = torch.load(Path(folder, "gpt.pt"), weights_only=True)

# %% tags=["experiment"]
for number, life in enumerate(lived, start=1):
    end = "killed" if life.was_killed else "stops"
    first_step = life.steps[0] + 1
    last_step = life.steps[-1] + 1
    print(f"life {number}, ranks: {life.ranks}, from step {first_step}, {end} in step {last_step}")

what = "steps that are done when the last start resumes"
print(course.score("02/4", what, predicted_step, lived[-1].steps[0], null=None))

losses = last_checkpoint["losses"]
difference = largest_difference(losses, undisturbed)
print(f"largest difference from the loss curve of one process: {difference:.1e}")
is_same_curve = difference <= 1e-6
course.claim(
    "killed twice and resumed on 2, 1 and 2 ranks, the training has the loss curve of one process to 1e-6",
    is_same_curve,
)
title = "Four lives on 2, 2, 1 and 2 ranks: one loss curve"
plots.lives_of_ranks(undisturbed, losses, lived, save_every, title)

# %% [markdown]
# A dotted line is a checkpoint. After a kill, the next life repeats the steps since the last checkpoint and gets the
# same losses. A kill costs these steps and the time to start.
#
# The losses agree to rounding. They need not agree bit by bit, because another number of ranks sums in another order.
#
# **Takeaway** A training survives if its checkpoint holds what the next step reads, is replaced atomically, and does
# not depend on the number of ranks.
#
# <details><summary>What changes on GPUs, and in your own training?</summary>
#
# - On *GPUs*, the backend is `"nccl"`, the model and the texts of each batch move to `device_of(...)`, and
#   `torch.cuda.set_device` gets that device, too.
# - *Dropout* draws from each rank's own generator. Save `torch.get_rng_state()` and `torch.cuda.get_rng_state()` of
#   every rank. They fit only the same number of ranks; on another number, the training is valid but not equal.
# - A *cluster* that takes a machine away, for example under Slurm, sends SIGTERM some time before SIGKILL. Catch it
#   (`signal.signal`), set a flag, and write a checkpoint after the step. All ranks must do so in the same step, so
#   all-reduce the flag.
# - *Large or sharded models* may not fit into the memory of rank 0. `torch.distributed.checkpoint` lets each rank write
#   its part and can load the parts on another number of ranks.
# - `weights_only=True` (the default since torch 2.6) refuses pickled code. With `map_location="cuda"`, a generator's
#   state is on the GPU, and `set_state` refuses it. So load to the CPU.
# - A `DataLoader` with workers prefetches. Count the batches that were trained, not the batches that were loaded.
# - The files in `scripts/` end with `os._exit(0)`, because torch 2.13 with gloo sometimes aborts while Python exits.
#   The cells above do not print this line. Do not copy it.
#
# </details>
#
# <details><summary>Your training in a terminal</summary>
#
# Save the notebook, start this, and kill one of the ranks by hand:
#
# ```
# export TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1
# torchrun --standalone --nproc-per-node 2 --max-restarts 1 scripts/train_gpt.py --checkpoint gpt.pt \
#     --answers notebooks/02_data_parallel/4_from_notebook_to_torchrun.ipynb
# ```
#
# Without the variable, a restart can hang in torch 2.13. If torchrun prints nothing, your machine's name may have no
# address: add `--local-addr 127.0.0.1`. torchrun also sets `GROUP_RANK`, the number of the machine, and
# `LOCAL_WORLD_SIZE`, the number of processes on it.
# [docs/more-machines.md](../../docs/more-machines.md) has launch scripts for several nodes and for Slurm, and says how
# to find a hang.
#
# </details>

# %% [markdown]
# ## Can you write the loop? · extra
#
# The capstone gave you the loop. Here it runs around a data set with `DistributedSampler` and a `DataLoader`, and you
# make it survive.

# %% [markdown]
# ### Exercise 4 · Survive
#
# A life that begins within an epoch must skip the samples that are already trained. Fill the three gaps: load, skip,
# save. With 16 steps per epoch and a checkpoint after step 20, 4 steps of the second epoch are done. So the next life
# starts at the fifth step of that epoch.
#
# The loader's sampler is the list `left`, which it reads when a pass begins. Fill that list in place, `left[:] = ...`:
# the loader would not see a new list under the same name. This training has neither scheduler nor scaler, and seeds
# every step, so "model", "optimizer" and "step" are complete.
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
# On two machines, how many processes have `LOCAL_RANK` 0? And what would SGD with momentum do in its first step if it
# had forgotten all steps before?
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# After `set_epoch`, `list(sampler)` is the order of this rank. `step % per_epoch` steps of the epoch are done, and each
# took `share` samples of this rank; the rest is a slice. Load with `map_location=device`, on every rank.
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

    Runs in every process that torchrun starts, trains one model on all of them, and resumes from a checkpoint.

    Args:
        options: has the attributes
            dataset: torch Dataset of (image, label).   make_model: function without arguments that gives a new model.
            device: "cpu" (backend gloo) or "cuda" (NCCL, a GPU for each process of a machine).
            epochs, batch_size (samples per step, all ranks together), lr, seed, workers (of each rank's loader).
            checkpoint: path of the file, on a disk that all ranks see.   save_every: steps between two checkpoints.
            report: function (epoch, loss), to be called by rank 0 after each epoch.
    """
    # torchrun sets these three
    rank = int(os.environ["RANK"])
    local_rank = int(os.environ["LOCAL_RANK"])
    world_size = int(os.environ["WORLD_SIZE"])
    on_gpu = options.device == "cuda"
    if on_gpu:
        device = torch.device("cuda", local_rank)
        torch.cuda.set_device(device)
        # with its device NCCL connects now, and a barrier knows its GPU
        dist.init_process_group("nccl", device_id=device)
    else:
        device = torch.device("cpu")
        dist.init_process_group("gloo")
    share = options.batch_size // world_size  # samples of this rank in a step
    try:
        # bare: a new model on `device`; model: the same in DDP; sampler: draws the samples of this rank
        torch.manual_seed(options.seed)
        bare = options.make_model().to(device)
        model = DistributedDataParallel(bare)
        sampler = DistributedSampler(options.dataset, seed=options.seed)
        optimizer = torch.optim.SGD(model.parameters(), lr=options.lr, momentum=0.9)
        per_epoch = math.ceil(len(options.dataset) / options.batch_size)  # steps
        step = 0  # updates so far, also those of earlier lives
        losses = []
        left = []  # the loader draws these indices; it lives as long as its workers, so it is made once
        loader = DataLoader(
            options.dataset,
            share,
            sampler=left,
            num_workers=options.workers,
            pin_memory=on_gpu,
            persistent_workers=options.workers > 0,
        )
        if os.path.exists(options.checkpoint):
            # set `step`, and the state of the model and of the optimizer
            ### BEGIN SOLUTION
            saved = torch.load(options.checkpoint, map_location=device)
            bare.load_state_dict(saved["model"])
            optimizer.load_state_dict(saved["optimizer"])
            step = saved["step"]
            ### END SOLUTION
        for epoch in range(step // per_epoch, options.epochs):
            total = torch.zeros((), device=device)  # loss, summed over samples of this rank
            count = 0  # of these samples
            sampler.set_epoch(epoch)
            # fill `left` with the samples of this rank that earlier lives have not trained
            ### BEGIN SOLUTION
            left[:] = list(sampler)[step % per_epoch * share :]
            ### END SOLUTION
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
                    state = {
                        "model": bare.state_dict(),
                        "optimizer": optimizer.state_dict(),
                        "step": step,
                    }
                    beside = f"{options.checkpoint}.part"
                    with open(beside, "wb") as file:
                        torch.save(state, file)
                        file.flush()
                        os.fsync(file.fileno())
                    os.replace(beside, options.checkpoint)
                ### END SOLUTION
            # append the mean loss over the samples of all ranks to `losses`, and report it
            dist.all_reduce(total)
            losses.append(total.item() / max(1, count * world_size))
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
# `scripts/train_ddp.py` runs your function: `torchrun --standalone --nproc-per-node 2 scripts/train_ddp.py --epochs 5
# --checkpoint run.pt --answers notebooks/02_data_parallel/4_from_notebook_to_torchrun.ipynb`.

# %% [markdown]
# ## Which parts of this does Lightning do? · extra
#
# Lightning runs the training loop for you. You write a module with `training_step` (batch → loss) and
# `configure_optimizers`, and pass a `Trainer` the place to compute: `accelerator="cpu"` or `"gpu"`, and the number of
# `devices`. With several devices, the Trainer wraps the module in DDP, runs the loop, and replaces the loader's sampler
# by a `DistributedSampler` with `set_epoch`.
#
# By default it also prints, and writes logs and checkpoints. Four flags, each set to `False`, make it silent: `logger`,
# `enable_checkpointing`, `enable_progress_bar` and `enable_model_summary`.

# %% [markdown]
# ### Exercise 5 · Let Lightning do it
#
# Train a classifier with Lightning on ranks that already exist. With 2 ranks, 64 samples, batches of 8 and 3 epochs,
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
# Which lines of a training loop are yours, and which will the Trainer run for you? Where can you note the loss?
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
            self.model = model
            self.losses = []

        def training_step(self, batch, batch_idx):
            inputs, labels = batch
            loss = F.cross_entropy(self.model(inputs), labels)
            self.losses.append(loss.item())
            return loss

        def configure_optimizers(self):
            return torch.optim.SGD(self.model.parameters(), lr)

    module = Classifier()
    ranks = dist.get_world_size()
    trainer = pl.Trainer(
        accelerator="cpu",
        devices=ranks,
        max_epochs=epochs,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(module, loader)
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
# We train on one device and on two, with the same total batch. Here a device is a process with one thread. We count
# steps and see whether the loss falls; part 5 measures time.


# %% locked="lightning_in_rank"
def lightning_in_rank(rank, world_size, fit, images, labels, batch_size, epochs):
    """(steps per epoch, mean losses of the epochs) on this rank."""
    import logging

    logging.getLogger("pytorch_lightning").setLevel(logging.ERROR)
    torch.set_num_threads(1)
    torch.manual_seed(0)
    dataset = TensorDataset(images, labels)
    loader = DataLoader(dataset, batch_size // world_size, shuffle=True)
    model = FashionCNN(dropout=0.0)
    losses = fit(model, loader, 0.1, epochs)
    by_epoch = torch.tensor(losses).view(epochs, -1)
    return by_epoch.shape[1], by_epoch.mean(1).tolist()


# %% tags=["experiment"]
if importlib.util.find_spec("pytorch_lightning"):
    fit_now = course.solved(check.lightning_fit)
    garments = fashion.load("tiny")
    images = fashion.floats(garments.train_images)[:512]
    labels = garments.train_labels[:512]
    arguments = (fit_now, images, labels, 64, sizes.epochs)

    steps = {}
    for devices in (1, 2):
        of_ranks = run_ranks(lightning_in_rank, devices, *arguments, backend="gloo", timeout=300)
        steps[devices], losses = of_ranks[0]
        curve = " ".join(f"{loss:.2f}" for loss in losses)
        print(
            f"devices: {devices}, {steps[devices]} steps per epoch on each, "
            f"losses of rank 0 by epoch: {curve}"
        )

    course.claim(
        "with Lightning, each of two devices takes as many steps per epoch as one device with twice the batch",
        steps[1] == steps[2],
        f"{steps[1]} and {steps[2]} steps",
    )
else:
    print("pytorch_lightning is not installed: this measurement is skipped")

# %% [markdown]
# **Takeaway** Lightning provides the loop, the sampler and DDP. Each device takes every step, with its share of the
# batch.
