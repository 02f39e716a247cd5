"""What several probes of unit 01_parallel_loading use."""

import io
import pickle
import random
import sys
import types
import warnings

import numpy
import torch
from PIL import Image
from torch.utils.data import DataLoader

PEOPLE = ("Avel_Borin", "Cora_Dunn", "Ede", "Zita_van_Aa")


def _epochs(dataset, epochs=1, num_workers=2, **settings):
    """The batches of each epoch of a DataLoader, a list of lists; no worker is left, whatever the answer did in one.

    Workers are forked, because what a notebook cell defines cannot be pickled.
    """
    if num_workers:
        settings |= {"multiprocessing_context": "fork", "timeout": 5}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Python warns of a fork beside threads, torch of workers without a core
        loader = DataLoader(dataset, num_workers=num_workers, **settings)
        return [_epoch(loader) for _ in range(epochs)]


def _epoch(loader):
    batches = iter(loader)
    try:
        return list(batches)
    except Exception as error:
        if not str(error).startswith("Caught "):  # the words of torch for what was raised in a worker
            raise
        raise RuntimeError(f"in a worker: {str(error).strip().splitlines()[-1]}") from None
    finally:
        getattr(batches, "_shutdown_workers", lambda: None)()  # an exception would keep them alive


def _random_state():
    """The state of the three global sources of random numbers, as something that can be compared."""
    return torch.get_rng_state().tolist(), random.getstate(), repr(numpy.random.get_state())


class _Pickler(pickle.Pickler):
    """Takes what stands at the top of a module for found, also where no such module can be imported, as in a test."""

    def reducer_override(self, thing):
        if not isinstance(thing, (type, types.FunctionType)) or "<" in thing.__qualname__:
            return NotImplemented
        found = thing.__module__ in sys.modules
        return NotImplemented if found else (str, (thing.__qualname__,))


def _can_be_pickled(thing):
    try:
        _Pickler(io.BytesIO()).dump(thing)
    except Exception:
        return False
    return True


def _raised(call):
    """(name of the type, message) of the exception that `call()` raises."""
    try:
        call()
    except Exception as error:
        return type(error).__name__, str(error)
    return "nothing", ""


def _picture(rng, height=20, width=26):
    """A smooth PIL image in mode RGB, which JPEG keeps well."""
    coarse = torch.randint(256, (4, 5, 3), generator=rng, dtype=torch.uint8)
    return Image.fromarray(coarse.numpy()).resize((width, height), Image.Resampling.BICUBIC)


def _kind(value):
    """What a tensor is, without its values; of anything else the name of its type."""
    return [f"Tensor {value.dtype}", value.shape] if isinstance(value, torch.Tensor) else type(value).__name__


def _form(tensor):
    """What a tensor is, without its values."""
    form = {name: getattr(tensor, name, None) for name in ("dtype", "shape")}
    return {"type": type(tensor).__name__, **form, "device": getattr(getattr(tensor, "device", None), "type", None)}


def _error(call, *args, **options):
    """(name, message) of the exception that a call raises; ("no error", "") if it raises none."""
    try:
        call(*args, **options)
    except Exception as error:
        return type(error).__name__, str(error)
    return "no error", ""
