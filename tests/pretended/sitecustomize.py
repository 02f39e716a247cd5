"""Give every process that imports torch a pretended CUDA device, spawned ones included (../pretend_cuda.py).

Python imports this module when it starts if its folder is on PYTHONPATH; nothing happens before torch is imported.
`course grade` starts its own processes in an environment that it has cleaned, so the two variables are put back there.
The jails are forks of such a process, which has imported all by then, so they have the device as well.
"""

import atexit
import importlib.abc
import importlib.machinery
import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))


class After(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds the module `name` as Python does, and calls `change(module)` once it is there."""

    def __init__(self, name, change):
        self.name, self.change = name, change

    def find_spec(self, name, path=None, target=None):
        if name != self.name:
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
        self.change(module)


def pretend(torch):
    """Enter the pretence for the rest of the process."""
    sys.path.append(os.path.dirname(HERE))
    from pretend_cuda import pretend_cuda

    pretended = pretend_cuda()
    pretended.__enter__()
    atexit.register(pretended.__exit__, None, None, None)


def hand_on(module):
    """Let the processes of the grader know of the pretended device."""
    clean = module.Zygote._environment

    def environment(self):
        env = clean(self)
        return env | {"PRETEND_CUDA": "1", "PYTHONPATH": os.pathsep.join([HERE, env["PYTHONPATH"]])}

    module.Zygote._environment = environment


if os.environ.get("PRETEND_CUDA"):
    sys.meta_path[:0] = [After("torch", pretend), After("instructor.jail.zygote", hand_on)]
