"""Known mistakes of exercise loader_options, and right answers in other styles."""

import multiprocessing

import torch

from course.checks.known_answers import alternative

MISTAKES = {
    "always_pinned": (
        "pin_memory is always on. Pinned memory serves copies to a CUDA device; for others it is a copy for nothing.",
        ('torch.device(device).type == "cuda"', "True"),
    ),
    "never_pinned": (
        "pin_memory is off for a CUDA device. Go by the device that is given, not by torch.cuda.is_available(), which "
        "says what this machine has.",
        ('torch.device(device).type == "cuda"', "False"),
    ),
    "compared_with_a_word": (
        'The device is compared with the word "cuda", which misses "cuda:1" and torch.device objects. Compare '
        "torch.device(device).type.",
        ("torch.device(device).type ==", "device =="),
    ),
    "pinned_unless_cpu": (
        'pin_memory is on for every device but the CPU. Ask for "cuda": other devices have no use for it here.',
        ('== "cuda"', '!= "cpu"'),
    ),
    "always_prefetched": (
        "prefetch_factor is set also without workers, which DataLoader refuses. Without workers it is None.",
        ("prefetch_factor if workers else None", "prefetch_factor"),
    ),
    "always_persistent": (
        "persistent_workers is set also without workers, which DataLoader refuses. Without workers it is False.",
        ('"persistent_workers": workers', '"persistent_workers": True'),
    ),
    "always_forked": (
        "The start method is named also without workers, which DataLoader refuses. Without workers it is None.",
        ('"fork" if workers else None', '"fork"'),
    ),
    "never_persistent": (
        "The workers end with each epoch and start again for the next. Set persistent_workers where there are some.",
        ('"persistent_workers": workers', '"persistent_workers": False'),
    ),
    "start_method_of_the_platform": (
        "The start method is left to the platform, which may be spawn or forkserver: they cannot find a Dataset from "
        'a notebook cell. Name it: "fork".',
        ('"fork" if workers else None', "None"),
    ),
    "two_batches_ahead": (
        "The argument prefetch_factor is not used: there are always two batches per worker. Hand it on.",
        ("prefetch_factor if workers", "2 if workers"),
    ),
}


@alternative
def keys_where_needed(num_workers, device, prefetch_factor=2):
    options = {"num_workers": num_workers}
    if str(device).startswith("cuda"):
        options["pin_memory"] = True
    if num_workers:
        options.update(
            persistent_workers=True,
            prefetch_factor=prefetch_factor,
            multiprocessing_context=multiprocessing.get_context("fork"),
        )
    return options


@alternative
def two_cases(num_workers, device, prefetch_factor=2):
    pin = torch.device(device).type in {"cuda"}
    if num_workers == 0:
        return dict(num_workers=0, pin_memory=pin)
    return dict(
        num_workers=num_workers,
        pin_memory=pin,
        persistent_workers=True,
        prefetch_factor=prefetch_factor,
        multiprocessing_context="fork",
    )
