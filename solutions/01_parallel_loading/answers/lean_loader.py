"""Known mistakes of exercise lean_loader, and right answers in other styles."""

import torch
from torch.utils.data import BatchSampler, DataLoader, RandomSampler

from course.engine.known_answers import alternative

MISTAKES = {
    "no_workers": (
        "The main process builds all batches: num_workers is not used. Pass it to DataLoader.",
        ("    workers =", "    num_workers = 0\n    workers ="),
    ),
    "started_again": (
        "The workers end with each epoch and start again in the next. Set persistent_workers=True.",
        ('"persistent_workers": True, ', ""),
    ),
    "list_of_arrays": (
        "Images become arrays, and each number a Python object. Leave collate_fn out: the default stacks tensors.",
        (
            "**workers",
            "collate_fn=lambda items: torch.tensor(np.stack(items).tolist(), dtype=torch.uint8), **workers",
        ),
    ),
    "floats": (
        "Batches are floats, four times the bytes. Send uint8; the step converts it to floats.",
        ("**workers", "collate_fn=lambda items: torch.stack(items).float() / 255, **workers"),
    ),
    "not_without_workers": (
        "torch refuses persistent_workers and a start method without workers. Leave them out for 0.",
        (" if num_workers else {}", ""),
    ),
    "in_order": (
        "Every epoch takes the items in the order of the files. Shuffle them.",
        ("shuffle=True", "shuffle=False"),
    ),
    "last_kept": (
        "The last batch may be smaller than the others. Drop it: drop_last=True.",
        ("drop_last=True", "drop_last=False"),
    ),
    "spawned": (
        "Classes of a notebook exist in forked workers only. Set multiprocessing_context to fork.",
        ('"fork"', '"spawn"'),
    ),
    "never_pins": (
        "pin_memory is not used. Pass it to DataLoader.",
        ("pin_memory=pin_memory", "pin_memory=False"),
    ),
}


@alternative
def batch_sampler(dataset, batch_size, num_workers, pin_memory=False):
    batches = BatchSampler(RandomSampler(dataset), batch_size, drop_last=True)
    options = {"persistent_workers": True, "multiprocessing_context": "fork"} if num_workers else {}
    return DataLoader(
        dataset, batch_sampler=batches, num_workers=num_workers, pin_memory=pin_memory, **options
    )


@alternative
def stacks_itself(dataset, batch_size, num_workers, pin_memory=False):
    options = {
        "shuffle": True,
        "drop_last": True,
        "pin_memory": pin_memory,
        "collate_fn": torch.stack,
    }
    if num_workers:
        options.update(
            num_workers=num_workers, persistent_workers=True, multiprocessing_context="fork"
        )
    return DataLoader(dataset, batch_size, **options)
