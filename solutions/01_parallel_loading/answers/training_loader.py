"""Known mistakes of exercise training_loader, and right answers in other styles."""

import torch
from torch.utils.data import BatchSampler, DataLoader, RandomSampler

from course.checks.engine import alternative, mistake


@mistake("training_loader", "The order is that of the files, in every epoch: one person after the other. Shuffle.")
def in_order(dataset, batch_size, num_workers=0):
    return DataLoader(dataset, batch_size, drop_last=True, num_workers=num_workers)


@mistake("training_loader", "The last batch may be smaller than the others. Drop it: drop_last=True.")
def last_kept(dataset, batch_size, num_workers=0):
    return DataLoader(dataset, batch_size, shuffle=True, num_workers=num_workers)


@mistake("training_loader", "num_workers is not used: the main process builds everything. Hand it on.")
def no_workers(dataset, batch_size, num_workers=0):
    return DataLoader(dataset, batch_size, shuffle=True, drop_last=True)


@mistake("training_loader", "batch_size is not used: a batch has one item, torch's default. Hand it on.")
def one_by_one(dataset, batch_size, num_workers=0):
    return DataLoader(dataset, shuffle=True, drop_last=True, num_workers=num_workers)


@mistake("training_loader", "The order is drawn once, so every epoch has the same. Let the loader shuffle.")
def shuffled_once(dataset, batch_size, num_workers=0):
    order = torch.randperm(len(dataset)).tolist()
    return DataLoader(dataset, batch_size, sampler=order, drop_last=True, num_workers=num_workers)


@alternative("training_loader")
def sampler_by_hand(dataset, batch_size, num_workers=0):
    sampler = RandomSampler(dataset)
    return DataLoader(dataset, batch_size, sampler=sampler, num_workers=num_workers, drop_last=True)


@alternative("training_loader")
def whole_batches(dataset, batch_size, num_workers=0):
    batches = BatchSampler(RandomSampler(dataset), batch_size, drop_last=True)
    return DataLoader(dataset, batch_sampler=batches, num_workers=num_workers)
