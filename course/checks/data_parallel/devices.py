"""One process with several devices: messages between them, modules to copy, replicas that meet."""

import functools
import threading
import time
from collections.abc import Iterable
from typing import Any

import torch
from torch import nn

from course.engine.probing import threads
from course.parallel.distributed import Transfers

READY_MADE = ("torch.nn.DataParallel", "torch.nn.parallel")  # what no answer may use

Message = tuple[int, int, int]  # (source, target, bytes), as in Transfers.log


def routes(messages: Iterable[Message]) -> list[str]:
    """From where to where each message goes, in words."""
    return [f"place {source} to place {target}" for source, target, _ in messages]


def message_sizes(messages: Iterable[Message]) -> list[int]:
    """Bytes of each message."""
    return [n_bytes for _, _, n_bytes in messages]


class StampingTransfers(Transfers):
    """Adds 1 more than the place it goes to, to all that passes.

    So what has passed can be told from what has not.
    """

    def send(self, tensors: list[torch.Tensor], source: int, target: int) -> list[torch.Tensor]:
        """As Transfers.send, stamped."""
        return [copied + 1 + target for copied in super().send(tensors, source, target)]


class TiedLayers(nn.Module):
    """Two layers with one weight, a frozen parameter, and two buffers; row by row.

    Every call changes one of the buffers.
    """

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(4, 4)
        self.outer = nn.Linear(4, 4)
        self.outer.weight = self.inner.weight
        self.scale = nn.Parameter(torch.rand(4) + 0.5, requires_grad=False)
        self.register_buffer("shift", torch.randn(4), persistent=False)
        self.register_buffer("calls", torch.zeros((), dtype=torch.int64))
        self.power = 2

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """(n, 4) -> (n, 4)."""
        self.calls += 1
        hidden = torch.tanh(self.inner(x) * self.scale + self.shift)
        return self.outer(hidden**self.power)


def odd_module(device: torch.device, seed: int) -> nn.Sequential:
    """A float64 module with a submodule in eval mode, which would be noticed in train mode."""
    torch.manual_seed(seed)
    module = nn.Sequential(TiedLayers(), nn.Dropout(0.5), nn.Linear(4, 3)).double().to(device)
    module[1].eval()
    return module


def module_state(module: nn.Module) -> list[tuple[int, Any, Any]]:
    """(id, values, gradient) of each parameter and buffer, as plain numbers."""
    state = []
    for tensor in (*module.parameters(), *module.buffers()):
        gradient = None if tensor.grad is None else tensor.grad.tolist()
        state.append((id(tensor), tensor.tolist(), gradient))
    return state


def gradients_or_text(module: nn.Module) -> dict[str, torch.Tensor | str]:
    """{name: gradient} of what is not frozen; a text where there is none."""
    gradients = {}
    for name, parameter in module.named_parameters():
        if parameter.requires_grad:
            gradients[name] = "no gradient" if parameter.grad is None else parameter.grad
    return gradients


class Meeting:
    """Functions `replicas` of one argument that note in `met` whether all run simultaneously.

    The last function ends first.
    """

    def __init__(self, n: int) -> None:
        self.meeting = threads.Meeting(n)
        self.met = []
        self.ended = [threading.Event() for _ in range(n)]
        self.replicas = [functools.partial(self._run, place) for place in range(n)]

    def _run(self, place: int, part: torch.Tensor) -> torch.Tensor:
        met = self.meeting.wait()
        if met and place + 1 < len(self.ended):
            met = self.ended[place + 1].wait(threads.MEET)
            time.sleep(0.01)  # the other is on its way out
        self.met.append(met)
        self.ended[place].set()
        return part
