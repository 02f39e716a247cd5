"""Probe of exercise loader_options."""

import warnings

import torch
from torch.utils.data import DataLoader

from course.checks.engine import exercise


@exercise()
def loader_options(answer, device, seed):
    """The options, as a real DataLoader understands them."""
    workers, ahead = 2 + seed % 3, 3 + seed % 61

    def understood(*args, **kwargs):
        """The options as attributes of a loader made with them, or how DataLoader refuses them."""
        names = ("num_workers", "pin_memory", "persistent_workers", "prefetch_factor")
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # more workers than this machine has cores
                loader = DataLoader([0], **answer(*args, **kwargs))
        except (TypeError, ValueError) as error:
            return dict.fromkeys((*names, "start method"), f"refused by DataLoader: {error}")
        context = loader.multiprocessing_context
        seen = {name: getattr(loader, name) for name in names}
        return seen | {"start method": None if context is None else context.get_start_method()}

    options = answer(workers, "cpu")
    known = {"num_workers", "pin_memory", "persistent_workers", "prefetch_factor", "multiprocessing_context"}
    yield "returns a dictionary", type(options).__name__
    yield "no options other than the five", sorted(set(options) - known)
    each = {f"num_workers={n}": understood(n, "cpu") for n in (0, 1, workers)}
    yield "num_workers", {text: seen["num_workers"] for text, seen in each.items()}
    yield "persistent_workers, where there are workers", {t: s["persistent_workers"] for t, s in each.items()}
    yield "prefetch_factor, where there are workers", {t: s["prefetch_factor"] for t, s in each.items()}
    yield "the start method is fork, where there are workers", {t: s["start method"] for t, s in each.items()}
    pinned = {d: understood(workers, d)["pin_memory"] for d in ("cpu", "cuda", "cuda:1")}
    yield "pin_memory: for a CUDA device only", pinned
    pinned = {repr(d): understood(workers, d)["pin_memory"] for d in map(torch.device, ("cuda:0", "cuda", "cpu"))}
    yield "pin_memory: the device as a torch.device", pinned
    yield "pin_memory: no CUDA device either", {d: understood(workers, d)["pin_memory"] for d in ("mps", "cpu:0")}
    yield "without workers, a CUDA device", understood(0, "cuda")
    yield "prefetch_factor as given", [understood(1, "cpu", f)["prefetch_factor"] for f in (1, 2, ahead)]
    yield "prefetch_factor by name", understood(workers, "cpu", prefetch_factor=ahead)["prefetch_factor"]
    yield "prefetch_factor is given, but there are no workers", understood(0, "cpu", ahead)
