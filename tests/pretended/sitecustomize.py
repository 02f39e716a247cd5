"""Give every process that imports torch a pretended CUDA device, spawned ones included (../pretend_cuda.py).

Python imports this module when it starts if its folder is on PYTHONPATH; nothing happens before torch is imported.
"""

import atexit
import importlib.abc
import importlib.machinery
import os
import sys

TESTS = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


class AfterTorch(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds torch as Python does, and enters the pretence once torch is there."""

    def find_spec(self, name, path=None, target=None):
        if name != "torch":
            return None
        sys.meta_path.remove(self)
        spec = importlib.machinery.PathFinder.find_spec(name, path)
        if spec:
            self.real, spec.loader = spec.loader, self
        return spec

    def create_module(self, spec):
        return self.real.create_module(spec)

    def exec_module(self, module):
        self.real.exec_module(module)
        sys.path.append(TESTS)
        from pretend_cuda import pretend_cuda

        pretended = pretend_cuda()
        pretended.__enter__()
        atexit.register(pretended.__exit__, None, None, None)


if os.environ.get("PRETEND_CUDA"):
    sys.meta_path.insert(0, AfterTorch())
