"""Known mistakes of exercise batch_plan, and right answers in other styles."""

import itertools

import torch
from torch.utils.data import BatchSampler, SequentialSampler

from course.engine.known_answers import alternative

MISTAKES = {
    "batches_cut_up": (
        "Each batch is cut up among the workers. Workers build whole batches: batch k goes to worker k % num_workers.",
        ("(k % num_workers if", "(k if"),
        (
            "None, batch) for k, batch in enumerate(batches)]",
            "None, part.tolist())\n        for batch in batches\n"
            "        for k, part in enumerate(torch.tensor(batch).chunk(num_workers or 1))\n    ]",
        ),
    ),
    "runs_of_batches": (
        "Each worker gets a run of batches, the first run to worker 0. Deal them out round robin: k % num_workers.",
        ("k % num_workers if", "k // -(-len(batches) // num_workers) if"),
    ),
    "items_dealt_out": (
        "The items are dealt out to workers one by one, as among ranks. The loop gets batches of neighbouring items.",
        ("    stop =", "    step = num_workers or 1\n    stop ="),
        (
            "None, batch)",
            "None, list(range(n_items))[k // step * step * batch_size + k % step :: step][: len(batch)])",
        ),
    ),
    "worker_zero_always": (
        "With num_workers=0 there is no worker 0: the main process builds the batches. The worker is None.",
        ("k % num_workers if num_workers else None", "k % (num_workers or 1)"),
    ),
    "last_always_dropped": (
        "A last batch that is not full is always left out. Keep it unless drop_last.",
        (" if drop_last else n_items", ""),
    ),
    "beyond_the_end": (
        "The last batch runs past the last item. End it where the dataset ends.",
        ("min(start + batch_size, stop)", "start + batch_size"),
    ),
    "full_batch_dropped": (
        "drop_last drops the last batch even if it is full. Drop it only if items are missing in it.",
        ("n_items - n_items % batch_size", "(n_items - 1) // batch_size * batch_size"),
    ),
    "workers_from_one": (
        "Workers are counted from 1. Their ids begin with 0, and batch 0 is built by worker 0.",
        ("k % num_workers if", "k % num_workers + 1 if"),
    ),
    "ranges": (
        "The indices of a batch are a range. The loop gets lists: list(range(...)).",
        (
            "list(range(start, min(start + batch_size, stop)))",
            "range(start, min(start + batch_size, stop))",
        ),
    ),
    "worker_of_the_first_item": (
        "The batch's first item chooses the worker. Deal out batches: batch k goes to worker k % num_workers.",
        ("(k % num_workers", "(batch[0] % num_workers"),
    ),
}


@alternative
def batch_sampler_and_cycle(n_items, batch_size, num_workers, drop_last=False):
    sampler = BatchSampler(SequentialSampler(range(n_items)), batch_size, drop_last)
    workers = itertools.cycle(range(num_workers) if num_workers else [None])
    return list(zip(workers, sampler, strict=False))


@alternative
def item_by_item(n_items, batch_size, num_workers, drop_last=False):
    plan = []
    for i in range(n_items):
        if i % batch_size == 0:
            plan.append([len(plan) % num_workers if num_workers > 0 else None, []])
        plan[-1][1].append(i)
    if drop_last and plan and len(plan[-1][1]) < batch_size:
        del plan[-1]
    return plan


@alternative
def split_of_torch(n_items, batch_size, num_workers, drop_last=False):
    parts = [part.tolist() for part in torch.arange(n_items).split(batch_size)] if n_items else []
    full = [part for part in parts if len(part) == batch_size or not drop_last]
    return [
        ((i % num_workers) if num_workers else None, tuple(part)) for i, part in enumerate(full)
    ]
