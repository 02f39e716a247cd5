"""Elementwise functions are called once, by one thread, before any check starts threads."""

import importlib

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from course.engine import exercise, first_calls


class Listing(TorchDispatchMode):
    def __init__(self):
        super().__init__()
        self.called = set()

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        name = function.overloadpacket.__name__.removeprefix("special_")
        self.called |= {(name, a.dtype) for a in args if isinstance(a, torch.Tensor)}
        return function(*args, **(kwargs or {}))


def test_what_checks_and_graders_import_has_called_each_function():
    """oneMKL itself cannot be asked what it has found out."""
    with Listing() as listing:
        importlib.reload(exercise.first_calls)
    wanted = {(name, dtype) for name in first_calls.NAMES.split() for dtype in (torch.float32, torch.float64)}
    assert wanted <= listing.called, wanted - listing.called
