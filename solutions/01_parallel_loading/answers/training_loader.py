"""Known mistakes of exercise training_loader, and right answers in other styles."""

from torch.utils.data import BatchSampler, DataLoader, RandomSampler

from course.engine.known_answers import alternative

MISTAKES = {
    "in_order": (
        "Every epoch takes the items in the order of the files. Shuffle them.",
        ("shuffle=True, ", ""),
    ),
    "last_kept": (
        "The last batch may be smaller than the others. Drop it: drop_last=True.",
        ("drop_last=True, ", ""),
    ),
    "no_workers": (
        "num_workers is not used: the main process builds everything. Pass it to DataLoader.",
        (", num_workers=num_workers)", ")"),
    ),
    "one_by_one": (
        "batch_size is not used: a batch has one item, torch's default. Pass it to DataLoader.",
        ("dataset, batch_size, shuffle", "dataset, shuffle"),
    ),
    "shuffled_once": (
        "The order is drawn only once, so every epoch has the same one. Let the loader shuffle.",
        ("shuffle=True", "sampler=torch.randperm(len(dataset)).tolist()"),
    ),
}


@alternative
def sampler_by_hand(dataset, batch_size, num_workers=0):
    sampler = RandomSampler(dataset)
    return DataLoader(dataset, batch_size, sampler=sampler, num_workers=num_workers, drop_last=True)


@alternative
def whole_batches(dataset, batch_size, num_workers=0):
    batches = BatchSampler(RandomSampler(dataset), batch_size, drop_last=True)
    return DataLoader(dataset, batch_sampler=batches, num_workers=num_workers)
