"""When the gradients of a backward pass are ready: what follows is waiting for other ranks.

DDP all-reduces each bucket of gradients in the background once it is ready, and waits for them all
at the end of the backward pass. So a rank's own time in backward ends with its last gradient. What
follows is cut off as communication.
"""

import functools
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch.autograd.graph import get_gradient_edge
from torch.utils.hooks import RemovableHandle

from course.checkup.clock import Clock
from course.checkup.phases import CUT
from course.checkup.seen import Seen


def world_size() -> int:
    """How many ranks train together."""
    if dist.is_available() and dist.is_initialized():
        return dist.get_world_size()
    return 1


class Readiness:
    """Cuts backward passes after their last gradient, in steps that are CUT; on for several ranks.

    A pass is not clear if it waits for others before its last gradient, as FSDP does.
    """

    def __init__(self, clock: Clock, seen: Seen) -> None:
        self.is_on = False
        self.unclear = 0  # backward passes that could not be cut
        self._clock = clock
        self._seen = seen
        self._is_inside = False  # a backward pass
        self._is_clear = True  # the one that runs
        self._last: Any = None  # moment of the last gradient: Clock.now and Clock.queued
        self._cuts = 0  # of the step at that moment

    def note_collective(self) -> None:
        """Note that ranks may wait for each other now."""
        self._is_clear = False

    def cut(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """`torch.autograd.backward`, cut into its own time and waiting."""

        @functools.wraps(original)
        def backward(*args: Any, **kwargs: Any) -> Any:
            if not self.is_on or not self._clock.on or self._clock.step.kind not in CUT:
                return original(*args, **kwargs)
            if self._is_inside:  # a checkpoint that calls backward inside backward
                self._is_clear = False
                return original(*args, **kwargs)
            self._is_inside = True
            handles = self._watch_gradients()
            try:
                result = original(*args, **kwargs)
            finally:
                self._is_inside = False
                for handle in handles:
                    handle.remove()
            self._cut_off()
            return result

        return backward

    def _watch_gradients(self) -> list[RemovableHandle]:
        self._is_clear = True
        self._last = None
        return self._seen.failures.look("when gradients are ready", self._hooks, default=[])

    def _hooks(self) -> list[RemovableHandle]:
        """Hooks of the graph's last nodes: the parameters themselves get none."""
        handles = []
        for parameter in self._seen.parameters():
            if parameter.requires_grad and parameter.is_leaf:
                node = get_gradient_edge(parameter).node
                handles.append(node.register_prehook(self._is_ready))
        return handles

    def _is_ready(self, gradients: tuple[torch.Tensor, ...]) -> None:
        self._last = (self._clock.now(), self._clock.queued())
        self._cuts = self._clock.n_cuts

    def _cut_off(self) -> None:
        is_last = self._last is not None and self._cuts == self._clock.n_cuts
        if is_last and self._is_clear:
            self._clock.waited_since(*self._last)
        else:
            self.unclear += 1
