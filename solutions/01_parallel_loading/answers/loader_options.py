"""Known mistakes of exercise loader_options, and right answers in other styles."""

import multiprocessing

import torch

from course.checks.engine import alternative, mistake


def options(num_workers, device, prefetch_factor, **changes):
    """The right options with some changed."""
    workers = num_workers > 0
    right = {
        "num_workers": num_workers,
        "pin_memory": torch.device(device).type == "cuda",
        "persistent_workers": workers,
        "prefetch_factor": prefetch_factor if workers else None,
        "multiprocessing_context": "fork" if workers else None,
    }
    return right | changes


@mistake(
    "loader_options",
    "pin_memory is always on. Pinned memory serves copies to a CUDA device; for others it is a copy for nothing.",
)
def always_pinned(num_workers, device, prefetch_factor=2):
    return options(num_workers, device, prefetch_factor, pin_memory=True)


@mistake(
    "loader_options",
    "pin_memory is off for a CUDA device. Go by the device that is given, not by torch.cuda.is_available(), which says "
    "what this machine has.",
)
def never_pinned(num_workers, device, prefetch_factor=2):
    return options(num_workers, device, prefetch_factor, pin_memory=False)


@mistake(
    "loader_options",
    'The device is compared with the word "cuda", which misses "cuda:1" and torch.device objects. Compare '
    "torch.device(device).type.",
)
def compared_with_a_word(num_workers, device, prefetch_factor=2):
    return options(num_workers, device, prefetch_factor, pin_memory=device == "cuda")


@mistake(
    "loader_options",
    'pin_memory is on for every device but the CPU. Ask for "cuda": other devices have no use for it here.',
)
def pinned_unless_cpu(num_workers, device, prefetch_factor=2):
    return options(num_workers, device, prefetch_factor, pin_memory=torch.device(device).type != "cpu")


@mistake(
    "loader_options",
    "prefetch_factor is set also without workers, which DataLoader refuses. Without workers it is None.",
)
def always_prefetched(num_workers, device, prefetch_factor=2):
    return options(num_workers, device, prefetch_factor, prefetch_factor=prefetch_factor)


@mistake(
    "loader_options",
    "persistent_workers is set also without workers, which DataLoader refuses. Without workers it is False.",
)
def always_persistent(num_workers, device, prefetch_factor=2):
    return options(num_workers, device, prefetch_factor, persistent_workers=True)


@mistake(
    "loader_options",
    "The start method is named also without workers, which DataLoader refuses. Without workers it is None.",
)
def always_forked(num_workers, device, prefetch_factor=2):
    return options(num_workers, device, prefetch_factor, multiprocessing_context="fork")


@mistake(
    "loader_options",
    "The workers end with each epoch and are started anew for the next. Set persistent_workers where there are some.",
)
def never_persistent(num_workers, device, prefetch_factor=2):
    return options(num_workers, device, prefetch_factor, persistent_workers=False)


@mistake(
    "loader_options",
    "The start method is left to the platform, which may be spawn or forkserver: they cannot find a Dataset from a "
    'notebook cell. Name it: "fork".',
)
def start_method_of_the_platform(num_workers, device, prefetch_factor=2):
    return options(num_workers, device, prefetch_factor, multiprocessing_context=None)


@mistake(
    "loader_options",
    "The argument prefetch_factor is not used: there are always two batches per worker. Hand it on.",
)
def two_batches_ahead(num_workers, device, prefetch_factor=2):
    return options(num_workers, device, 2)


@alternative("loader_options")
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


@alternative("loader_options")
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
