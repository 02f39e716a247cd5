"""Known mistakes of exercise train_ddp, and right answers in other styles."""

import contextlib
import os
import tempfile
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.utils.data import BatchSampler, DataLoader, DistributedSampler

from course.engine.known_answers import alternative

MISTAKES = {
    "every_machine_writes": (
        "A process on each machine writes the checkpoint, because LOCAL_RANK 0, or no rank at all, was asked for. "
        "RANK 0 exists once: let that one write.",
        ("rank == 0 and", "local_rank == 0 and"),
        ('.part"', '.part{rank}"'),
    ),
    "names_of_the_wrapper": (
        "The names in the checkpoint begin with module.: they are those of DistributedDataParallel, which a model "
        "alone cannot load. Save the state of the model that you wrapped.",
        ("bare.load_state_dict", "model.load_state_dict"),
        ("bare.state_dict", "model.state_dict"),
    ),
    "writes_over": (
        "The checkpoint is written over while it may be read, or while the process may die. Write a temporary file "
        "next to it and rename that one with os.replace.",
        ('f"{options.checkpoint}.part"', "options.checkpoint"),
        ("os.replace(beside, options.checkpoint)", "pass"),
    ),
    "forgets_momentum": (
        "The second life begins with an optimizer that has forgotten its momentum. Load its state "
        "from the checkpoint too.",
        ('optimizer.load_state_dict(saved["optimizer"])', "pass"),
    ),
    "reads_what_is_done": (
        "After a resume the samples that are done are read once more and thrown away. Cut them off the sampler's "
        "list, and give the loader the rest.",
        ("[step % per_epoch * share :]", ""),
        ("in loader:", "in list(loader)[step % per_epoch :]:"),
    ),
    "skips_batches_of_all_ranks": (
        "Each step that is done skips as many samples as all ranks took together. `list(sampler)` is the order of this "
        "rank alone, which took `share` of them.",
        ("* share :]", "* options.batch_size :]"),
    ),
    "never_flushed": (
        "The checkpoint gets its name before its contents are on the disk; after a power cut it may be empty. Call "
        "os.fsync on the file before os.replace.",
        ("os.fsync(file.fileno())", "pass"),
    ),
}


@contextlib.contextmanager
def _group():
    dist.init_process_group(backend="gloo", init_method="env://")
    try:
        yield dist.get_rank(), dist.get_world_size()
    finally:
        dist.destroy_process_group()


def _put(state, path):
    with tempfile.NamedTemporaryFile(dir=Path(path).parent, delete=False) as file:
        torch.save(state, file)
        file.flush()
        os.fsync(file)
    Path(file.name).rename(path)


@alternative
def shares_by_hand(options):
    with _group() as (rank, world_size):
        torch.manual_seed(options.seed)
        module = options.make_model()
        parallel = nn.parallel.DistributedDataParallel(module)
        optimizer = torch.optim.SGD(module.parameters(), options.lr, momentum=0.9)
        n, size, path = len(options.dataset), options.batch_size, Path(options.checkpoint)
        per_epoch, step, means = -(-n // size), 0, []
        if path.is_file():
            state = torch.load(path, weights_only=True)
            module.load_state_dict(state["model"])
            optimizer.load_state_dict(state["optimizer"])
            step = int(state["step"])
        sums = torch.zeros(2)
        while step < options.epochs * per_epoch:
            epoch, batch = divmod(step, per_epoch)
            order = torch.randperm(
                n, generator=torch.Generator().manual_seed(options.seed * 1000 + epoch)
            ).tolist()
            mine = order[batch * size : (batch + 1) * size][rank::world_size]
            images, labels = (
                torch.stack(part) for part in zip(*(options.dataset[i] for i in mine), strict=True)
            )
            torch.manual_seed((options.seed + 1) * 10**6 + step * world_size + rank)
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(parallel(images), labels)
            loss.backward()
            optimizer.step()
            step += 1
            sums += torch.tensor([loss.item() * len(mine), len(mine)])
            if rank == 0 and (step % options.save_every == 0 or batch + 1 == per_epoch):
                _put(
                    {
                        "model": module.state_dict(),
                        "optimizer": optimizer.state_dict(),
                        "step": step,
                    },
                    path,
                )
            if batch + 1 == per_epoch:
                dist.all_reduce(sums)
                means.append((sums[0] / sums[1]).item())
                sums.zero_()
                if rank == 0:
                    options.report(epoch, means[-1])
        return means


@alternative
def batches_left_of_a_batch_sampler(options):
    with _group() as (rank, world_size):
        torch.manual_seed(options.seed)
        model = nn.parallel.DistributedDataParallel(options.make_model())
        optimizer = torch.optim.SGD(model.parameters(), lr=options.lr, momentum=0.9)
        criterion = nn.CrossEntropyLoss(reduction="none")
        sampler = DistributedSampler(
            options.dataset, world_size, rank, shuffle=True, seed=options.seed
        )
        batches = BatchSampler(sampler, options.batch_size // world_size, drop_last=False)
        step, history = 0, []
        with contextlib.suppress(FileNotFoundError):
            found = torch.load(options.checkpoint, weights_only=True, map_location="cpu")
            model.module.load_state_dict(found["model"])
            optimizer.load_state_dict(found["optimizer"])
            step = found["step"]
        for epoch in range(options.epochs):
            if step >= (epoch + 1) * len(batches):
                continue
            sampler.set_epoch(epoch)
            left = list(batches)[step - epoch * len(batches) :]
            seen = []
            for images, labels in DataLoader(options.dataset, batch_sampler=left):
                torch.random.default_generator.manual_seed(
                    (options.seed + 1) * 2**20 + 2 * step + rank
                )
                losses = criterion(model(images), labels)
                optimizer.zero_grad(set_to_none=False)
                losses.mean().backward()
                optimizer.step()
                seen.extend(losses.tolist())
                step += 1
                if rank == 0 and not (step % options.save_every and step % len(batches)):
                    beside = Path(options.checkpoint).with_suffix(".new")
                    contents = {
                        "step": step,
                        "model": model.module.state_dict(),
                        "optimizer": optimizer.state_dict(),
                    }
                    torch.save(contents, beside)
                    with open(beside, "rb") as file:
                        os.fsync(file.fileno())
                    os.rename(beside, options.checkpoint)
            everything = [None] * world_size
            dist.all_gather_object(everything, seen)
            flat = sum(everything, [])
            history.append(sum(flat) / len(flat))
            if not rank:
                options.report(epoch, history[-1])
        return history
