"""Known mistakes of exercise lean_loader, and right answers in other styles."""

import numpy as np
import torch
from torch.utils.data import BatchSampler, DataLoader, RandomSampler

from course.checks.engine import alternative, mistake


def _options(num_workers):
    return {"persistent_workers": True, "multiprocessing_context": "fork"} if num_workers else {}


def _loader(dataset, batch_size, num_workers, pin_memory, **options):
    options = {"shuffle": True, "drop_last": True} | _options(num_workers) | options
    return DataLoader(dataset, batch_size, num_workers=num_workers, pin_memory=pin_memory, **options)


@mistake("lean_loader", "The main process builds all batches: num_workers is not used. Hand it on.")
def no_workers(dataset, batch_size, num_workers, pin_memory=False):
    return _loader(dataset, batch_size, 0, pin_memory)


@mistake("lean_loader", "The workers end with each epoch and start anew in the next: set persistent_workers.")
def started_again(dataset, batch_size, num_workers, pin_memory=False):
    fork = {"multiprocessing_context": "fork", "persistent_workers": False} if num_workers else {}
    return _loader(dataset, batch_size, num_workers, pin_memory, **fork)


@mistake(
    "lean_loader",
    "Images become arrays on their way, and each number a Python object. Leave collate_fn out: the default stacks "
    "tensors.",
)
def list_of_arrays(dataset, batch_size, num_workers, pin_memory=False):
    def collate(items):
        return torch.tensor(np.array([item.numpy() for item in items]).tolist(), dtype=torch.uint8)

    return _loader(dataset, batch_size, num_workers, pin_memory, collate_fn=collate)


@mistake("lean_loader", "Batches are floats, four times the bytes. Hand over uint8; the step makes floats of it.")
def floats(dataset, batch_size, num_workers, pin_memory=False):
    def collate(items):
        return torch.stack(items).float() / 255

    return _loader(dataset, batch_size, num_workers, pin_memory, collate_fn=collate)


@mistake("lean_loader", "torch refuses persistent_workers and a start method without workers. Leave them out for 0.")
def not_without_workers(dataset, batch_size, num_workers, pin_memory=False):
    options = {"persistent_workers": True, "multiprocessing_context": "fork"}
    return _loader(dataset, batch_size, num_workers, pin_memory, **options)


@mistake("lean_loader", "The order is that of the files, in every epoch. Shuffle.")
def in_order(dataset, batch_size, num_workers, pin_memory=False):
    return _loader(dataset, batch_size, num_workers, pin_memory, shuffle=False)


@mistake("lean_loader", "The last batch may be smaller than the others. Drop it: drop_last=True.")
def last_kept(dataset, batch_size, num_workers, pin_memory=False):
    return _loader(dataset, batch_size, num_workers, pin_memory, drop_last=False)


@mistake("lean_loader", "Classes of a notebook exist in forked workers only. Set multiprocessing_context to fork.")
def spawned(dataset, batch_size, num_workers, pin_memory=False):
    spawn = {"multiprocessing_context": "spawn"} if num_workers else {}
    return _loader(dataset, batch_size, num_workers, pin_memory, **spawn)


@mistake("lean_loader", "pin_memory is not handed on.")
def never_pins(dataset, batch_size, num_workers, pin_memory=False):
    return _loader(dataset, batch_size, num_workers, False)


@alternative("lean_loader")
def batch_sampler(dataset, batch_size, num_workers, pin_memory=False):
    batches = BatchSampler(RandomSampler(dataset), batch_size, drop_last=True)
    return DataLoader(
        dataset, batch_sampler=batches, num_workers=num_workers, pin_memory=pin_memory, **_options(num_workers)
    )


@alternative("lean_loader")
def stacks_itself(dataset, batch_size, num_workers, pin_memory=False):
    return _loader(dataset, batch_size, num_workers, pin_memory, collate_fn=torch.stack)
