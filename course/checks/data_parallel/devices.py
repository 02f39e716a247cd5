"""One process with several devices: messages between them, modules to be copied, replicas that
meet.
"""

import functools
import threading
import time

import torch
from torch import nn

from course.engine.probing import threads
from course.parallel.distributed import Transfers

READY_MADE = ("torch.nn.DataParallel", "torch.nn.parallel")  # what no answer may use


def ways(messages):
    """The way of each message, in words."""
    return [f"place {source} to place {target}" for source, target, _ in messages]


def message_sizes(messages):
    """Bytes of each message."""
    return [size for _, _, size in messages]


class StampingTransfers(Transfers):
    """Adds 1 more than the place it goes to, to all that passes: what has not passed can be told
    from what has.
    """

    def send(self, tensors, source, target):
        return [copied + 1 + target for copied in super().send(tensors, source, target)]


class TiedLayers(nn.Module):
    """Two layers with one weight, a frozen parameter, and two buffers, one of which every call
    changes; row by row.
    """

    def __init__(self):
        super().__init__()
        self.inner, self.outer = nn.Linear(4, 4), nn.Linear(4, 4)
        self.outer.weight = self.inner.weight
        self.scale = nn.Parameter(torch.rand(4) + 0.5, requires_grad=False)
        self.register_buffer("shift", torch.randn(4), persistent=False)
        self.register_buffer("calls", torch.zeros((), dtype=torch.int64))
        self.power = 2

    def forward(self, x):
        self.calls += 1
        return self.outer(torch.tanh(self.inner(x) * self.scale + self.shift) ** self.power)


def odd_module(device, seed):
    """A float64 module with a submodule in eval mode, which would be noticed in train mode."""
    torch.manual_seed(seed)
    module = nn.Sequential(TiedLayers(), nn.Dropout(0.5), nn.Linear(4, 3)).double().to(device)
    module[1].eval()
    return module


def module_state(module):
    """The tensors of a module: which objects they are, their values and gradients."""
    tensors = [*module.parameters(), *module.buffers()]
    return [(id(t), t.tolist(), None if t.grad is None else t.grad.tolist()) for t in tensors]


def gradients_or_text(module):
    """{name: gradient} of what is not frozen; a text where there is none."""
    named = [(name, p.grad) for name, p in module.named_parameters() if p.requires_grad]
    return {name: "no gradient" if grad is None else grad for name, grad in named}


class Meeting:
    """Functions of one argument, `replicas`, that note in `met` whether all run at once; the last
    one ends first.
    """

    def __init__(self, n):
        self.meeting, self.met = threads.Meeting(n), []
        self.ended = [threading.Event() for _ in range(n)]
        self.replicas = [functools.partial(self._run, place) for place in range(n)]

    def _run(self, place, part):
        met = self.meeting.wait()
        if met and place + 1 < len(self.ended):
            met = self.ended[place + 1].wait(threads.MEET)
            time.sleep(0.01)  # the other is on its way out
        self.met.append(met)
        self.ended[place].set()
        return part
