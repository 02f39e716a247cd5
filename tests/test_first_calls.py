"""Elementwise functions are called once, by one thread, before any check starts threads."""

import subprocess
import sys

from conftest import ROOT

from course.checks.first_calls import NAMES

CALLED = """
import torch
from torch.utils._python_dispatch import TorchDispatchMode

class Listing(TorchDispatchMode):
    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        print(function.overloadpacket.__name__, *(a.dtype for a in args if isinstance(a, torch.Tensor)))
        return function(*args, **(kwargs or {}))

with Listing():
    import course.grading.sandbox.session
"""


def test_what_checks_and_graders_import_has_called_each_function():
    """oneMKL itself cannot be asked what it has found out."""
    done = subprocess.run([sys.executable, "-c", CALLED], cwd=ROOT, capture_output=True, text=True, check=True)
    wanted = {f"{name} torch.{dtype}" for name in NAMES.split() for dtype in ("float32", "float64")}
    called = {line.replace("special_", "") for line in done.stdout.splitlines()}
    assert wanted <= called, sorted(wanted - called)
