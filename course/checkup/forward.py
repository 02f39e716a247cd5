"""Hooks on the modules that the script calls: the time of their forward passes, and their calls.

The modules are found in the first steps, by hooks on all modules; then each has its own.
"""

import functools
import time
from typing import Any

import torch
from torch.utils.hooks import RemovableHandle

from course.checkup.clock import Clock
from course.checkup.counted import Counted
from course.checkup.lines import this_line
from course.checkup.patches import Hook, Patches
from course.checkup.phases import EVALUATION, FORWARD
from course.checkup.seen import Call, Seen
from course.checkup.tensors import tensors_in


class ForwardHooks:
    """Finds the modules that the script calls, and writes down in `seen` what they do."""

    def __init__(self, clock: Clock, seen: Seen, counted: Counted, patches: Patches) -> None:
        self._clock = clock
        self._seen = seen
        self._counted = counted
        self._patches = patches
        self._depth = 0  # of modules that call modules
        self._on_all: list[RemovableHandle] = []
        self._attached: set[int] = set()  # ids of modules
        self._began = 0.0  # when the forward pass that runs began

    def find_models(self) -> None:
        """Find, from now on, the modules that no other module calls."""
        modules = torch.nn.modules.module
        self._on_all = [
            modules.register_module_forward_pre_hook(self._enter_module),
            modules.register_module_forward_hook(self._leave_module, always_call=True),
        ]
        self._patches.undo.callback(self.end_finding)

    def end_finding(self) -> None:
        """Take the hooks on all modules away."""
        while self._on_all:
            self._on_all.pop().remove()

    def attach(self, module: torch.nn.Module) -> None:
        """Watch a module that the script calls."""
        if id(module) in self._attached:
            return
        self._attached.add(id(module))
        before = Hook(self._before)
        after = Hook(self._after)
        patches = self._patches
        patches.handle(module.register_forward_pre_hook(before, with_kwargs=True))
        patches.handle(module.register_forward_hook(after, with_kwargs=True, always_call=True))

    def _enter_module(self, module: torch.nn.Module, args: tuple) -> None:
        if self._clock.is_in_thread():
            self._depth += 1
            if self._depth == 1:
                self._seen.models.setdefault(id(module), module)

    def _leave_module(self, module: torch.nn.Module, args: tuple, output: Any) -> None:
        if self._clock.is_in_thread():
            self._depth -= 1

    def _before(self, module: torch.nn.Module, args: tuple, kwargs: dict[str, Any]) -> None:
        clock = self._clock
        evaluates = _evaluates(module)
        if not clock.is_in_thread() or not (clock.on or evaluates):
            return
        if clock.on:
            clock.enter(EVALUATION if evaluates else FORWARD)
        self._began = time.perf_counter()

    def _after(
        self, module: torch.nn.Module, args: tuple, kwargs: dict[str, Any], output: Any
    ) -> None:
        clock = self._clock
        if not clock.is_in_thread():
            return
        if clock.on and clock.phase in (EVALUATION, FORWARD):
            clock.leave()
        if _evaluates(module):
            clock.step.evaluated += time.perf_counter() - self._began
            if torch.is_grad_enabled() and any(t.requires_grad for t in tensors_in(output)):
                self._seen.graphs[this_line()] += 1
            return
        self._seen.forwards += 1
        if self._counted.on:
            self._keep_call(Call(module, args, kwargs), output)

    def _keep_call(self, call: Call, output: Any) -> None:
        """Remember what is needed to run this forward and backward again.

        That is the arguments, and the gradients that the outputs will get.
        """
        if next(call.module.parameters(), None) is None:
            return
        device = "cuda" if self._clock.cuda else "cpu"
        if torch.is_autocast_enabled(device):
            call.autocast = torch.get_autocast_dtype(device)
        for i, tensor in enumerate(tensors_in(output)):
            if tensor.requires_grad and tensor.grad_fn is not None:
                tensor.register_hook(functools.partial(call.gradients.__setitem__, i))
        self._seen.calls[id(call.module)] = call


def _evaluates(module: torch.nn.Module) -> bool:
    return not (torch.is_grad_enabled() and module.training)
