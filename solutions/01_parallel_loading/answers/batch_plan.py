"""Known mistakes of exercise batch_plan, and right answers in other styles."""

import itertools
import math

import torch
from torch.utils.data import BatchSampler, SequentialSampler

from course.checks.engine import alternative, mistake


def batches_of(n_items, batch_size, drop_last):
    stop = n_items - n_items % batch_size if drop_last else n_items
    return [list(range(k, min(k + batch_size, stop))) for k in range(0, stop, batch_size)]


@mistake(
    "batch_plan",
    "Each batch is cut up among the workers. A worker builds whole batches: batch k is that of worker k % num_workers.",
)
def batches_cut_up(n_items, batch_size, num_workers, drop_last=False):
    plan = []
    for batch in batches_of(n_items, batch_size, drop_last):
        share = math.ceil(len(batch) / max(num_workers, 1))
        parts = [batch[i : i + share] for i in range(0, len(batch), share)]
        plan += [(worker if num_workers else None, part) for worker, part in enumerate(parts)]
    return plan


@mistake(
    "batch_plan",
    "Each worker gets a run of batches, the first run to worker 0. They are dealt out in turn: k % num_workers.",
)
def runs_of_batches(n_items, batch_size, num_workers, drop_last=False):
    batches = batches_of(n_items, batch_size, drop_last)
    run = math.ceil(len(batches) / max(num_workers, 1))
    return [(k // run if num_workers else None, batch) for k, batch in enumerate(batches)]


@mistake(
    "batch_plan",
    "The items are dealt out to the workers one by one, as among ranks. The loop gets batches of neighbouring items.",
)
def items_dealt_out(n_items, batch_size, num_workers, drop_last=False):
    plan = []
    workers = max(num_workers, 1)
    for k, batch in enumerate(batches_of(n_items, batch_size, drop_last)):
        start = k // workers * workers * batch_size + k % workers
        indices = [i for i in range(start, n_items, workers)][: len(batch)]
        plan.append((k % workers if num_workers else None, indices))
    return plan


@mistake("batch_plan", "With num_workers=0 there is no worker 0: the main process builds the batches. Say None.")
def worker_zero_always(n_items, batch_size, num_workers, drop_last=False):
    return [(k % max(num_workers, 1), batch) for k, batch in enumerate(batches_of(n_items, batch_size, drop_last))]


@mistake("batch_plan", "A last batch that is not full is always left out. Keep it unless drop_last.")
def last_always_dropped(n_items, batch_size, num_workers, drop_last=False):
    batches = batches_of(n_items, batch_size, True)
    return [(k % num_workers if num_workers else None, batch) for k, batch in enumerate(batches)]


@mistake("batch_plan", "The last batch goes on beyond the last item. It ends where the dataset ends.")
def beyond_the_end(n_items, batch_size, num_workers, drop_last=False):
    starts = [batch[0] for batch in batches_of(n_items, batch_size, drop_last)]
    return [
        (k % num_workers if num_workers else None, list(range(start, start + batch_size)))
        for k, start in enumerate(starts)
    ]


@mistake("batch_plan", "drop_last drops the last batch even if it is full. Drop it only if items are missing in it.")
def full_batch_dropped(n_items, batch_size, num_workers, drop_last=False):
    batches = batches_of(n_items, batch_size, False)
    kept = batches[:-1] if drop_last else batches
    return [(k % num_workers if num_workers else None, batch) for k, batch in enumerate(kept)]


@mistake("batch_plan", "Workers are counted from 1. Their ids begin with 0, and batch 0 is built by worker 0.")
def workers_from_one(n_items, batch_size, num_workers, drop_last=False):
    batches = batches_of(n_items, batch_size, drop_last)
    return [(k % num_workers + 1 if num_workers else None, batch) for k, batch in enumerate(batches)]


@mistake(
    "batch_plan",
    "The worker is that of the batch's first item. Batches are dealt out, not items: batch k % num_workers.",
)
def worker_of_the_first_item(n_items, batch_size, num_workers, drop_last=False):
    batches = batches_of(n_items, batch_size, drop_last)
    return [(batch[0] % num_workers if num_workers else None, batch) for batch in batches]


@alternative("batch_plan")
def batch_sampler_and_cycle(n_items, batch_size, num_workers, drop_last=False):
    sampler = BatchSampler(SequentialSampler(range(n_items)), batch_size, drop_last)
    workers = itertools.cycle(range(num_workers) if num_workers else [None])
    return list(zip(workers, sampler, strict=False))


@alternative("batch_plan")
def item_by_item(n_items, batch_size, num_workers, drop_last=False):
    plan = []
    for i in range(n_items):
        if i % batch_size == 0:
            plan.append([len(plan) % num_workers if num_workers > 0 else None, []])
        plan[-1][1].append(i)
    if drop_last and plan and len(plan[-1][1]) < batch_size:
        del plan[-1]
    return plan


@alternative("batch_plan")
def split_of_torch(n_items, batch_size, num_workers, drop_last=False):
    parts = [part.tolist() for part in torch.arange(n_items).split(batch_size)] if n_items else []
    full = [part for part in parts if len(part) == batch_size or not drop_last]
    return [((i % num_workers) if num_workers else None, tuple(part)) for i, part in enumerate(full)]
