"""What is looked at in the last steps alone, because it makes them slower.

Values that the script asks for, collectives, gradients, graphs that are kept, bytes that autograd
saves, batches.
"""

import collections
import contextlib
import functools
import os
import sys
import time
import weakref
from collections.abc import Callable
from typing import Any

import torch
from torch.optim import Optimizer

from course.checkup.clock import Clock
from course.checkup.habits import Habits
from course.checkup.lines import this_line
from course.checkup.patches import Patches
from course.checkup.phases import DATA, OPTIMIZER
from course.checkup.schedule import COUNTED_STEPS
from course.checkup.seen import Seen
from course.checkup.tensors import tensors_in
from course.measure.gradient_noise import in_units_of

# calls that need a value of a tensor in Python, and so wait for a GPU
SYNCS = "item tolist __bool__ __float__ __int__ __index__ nonzero cpu numpy".split()
DISTRIBUTIONS = f"{os.sep}torch{os.sep}distributions{os.sep}"
GROUP = 4  # consecutive gradients whose mean stands for one of a larger batch
GRADIENT_BYTES_MAX = 400_000_000  # larger gradients are not copied


class Counted:
    """What the last steps have shown; summary.py reads the fields."""

    def __init__(self, clock: Clock, seen: Seen) -> None:
        self.on = False
        self.syncs: collections.Counter[tuple[str, str]] = collections.Counter()  # (call, line)
        self.sync_seconds = 0.0  # that these took
        self.collectives: collections.Counter[tuple[str, str]] = collections.Counter()
        self.losses: list[weakref.ref] = []  # to the graphs of the losses
        self.graphs_alive: list[int] = []  # how many of these are alive after each step
        # squared norms of gradients, and of means of GROUP of them
        self.small: list[torch.Tensor] = []
        self.large: list[torch.Tensor] = []
        self.saved_bytes: int | None = None  # by autograd in one step
        self.saved_at: collections.Counter[str] = collections.Counter()  # line -> bytes of these
        self.batches: list[Any] = []  # that padding is looked for in
        self.habits = Habits(clock)
        self._clock = clock
        self._seen = seen
        self._gradient_sum: torch.Tensor | None = None
        self._storages: dict[int, tuple[int, str]] = {}  # address -> bytes, line
        self._saving = contextlib.ExitStack()

    def start(self, patches: Patches) -> None:
        """Count from now on, until `patches` are put back."""
        self.on = True
        if not self._seen.compiled:  # it would compile our wrappers, too
            self.habits.start(patches)
        for name in SYNCS:
            patches.replace(torch.Tensor, name, functools.partial(self._count_sync, name))
        patches.undo.callback(self._saving.close)
        if not self._seen.compiled:
            hooks = torch.autograd.graph.saved_tensors_hooks(self._note_saved, lambda saved: saved)
            self._saving.enter_context(hooks)

    def count_collective(self, name: str) -> None:
        """Note a call of torch.distributed."""
        self.collectives[name, this_line()] += 1

    def end_step(self, batch: Any) -> None:
        """Look at what the step has left behind."""
        alive = [loss for loss in self.losses if loss() is not None]
        self.graphs_alive.append(len(alive))
        if batch is not None and len(self.batches) < COUNTED_STEPS:
            self.batches.append(batch)
        if self.saved_bytes is None:
            self._saving.close()
            self.saved_bytes = self._saved_bytes()

    def mark_graph(self, tensors: Any) -> None:
        """Tie a token to a loss's graph: if something keeps the graph, the token stays alive."""
        self.habits.note_backward()
        loss = next(tensors_in(tensors), None)
        with contextlib.suppress(AttributeError, TypeError):  # a graph without metadata
            token = _Token()
            loss.grad_fn.metadata["check-up"] = token
            self.losses.append(weakref.ref(token))

    def read_gradients(self, optimizer: Optimizer) -> None:
        """Note the squared norm of this step's gradient, and of the mean of each GROUP of them.

        Norms are in the optimizer's units, see `measure.gradient_noise`.
        """
        parameters = [p for group in optimizer.param_groups for p in group["params"]]
        gradients = [p.grad for p in parameters if p.grad is not None]
        if not gradients or any(g.is_sparse for g in gradients):
            return
        if sum(g.nbytes for g in gradients) > GRADIENT_BYTES_MAX:
            return
        flat = torch.cat(in_units_of(optimizer))
        self.small.append(flat.square().sum())
        before = self._gradient_sum
        goes_on = before is not None and before.shape == flat.shape
        self._gradient_sum = before + flat if goes_on else flat
        if len(self.small) % GROUP == 0:
            self.large.append((self._gradient_sum / GROUP).square().sum())
            self._gradient_sum = None

    def _note_saved(self, tensor: torch.Tensor) -> torch.Tensor:
        with contextlib.suppress(Exception):  # a tensor without storage
            storage = tensor.untyped_storage()
            self._storages.setdefault(storage.data_ptr(), (storage.nbytes(), this_line()))
        return tensor

    def _saved_bytes(self) -> int:
        for parameter in self._seen.parameters():
            self._storages.pop(parameter.untyped_storage().data_ptr(), None)
        for n_bytes, line in self._storages.values():
            self.saved_at[line] += n_bytes
        return self.saved_at.total()

    def _count_sync(self, name: str, original: Callable[..., Any]) -> Callable[..., Any]:
        clock = self._clock
        call = f".{name.strip('_')}()"
        is_inside = False  # one call may call another

        @functools.wraps(original)
        def counted(tensor: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
            nonlocal is_inside
            if is_inside or clock.is_paused or not clock.is_in_thread() or _checks_arguments():
                return original(tensor, *args, **kwargs)
            if clock.phase in (DATA, OPTIMIZER):  # torch asks for these, not the script
                return original(tensor, *args, **kwargs)
            if not clock.cuda or tensor.is_cuda:
                self.syncs[call, this_line()] += 1
            is_inside = True
            began = time.perf_counter()
            try:
                return original(tensor, *args, **kwargs)
            finally:
                is_inside = False
                self.sync_seconds += time.perf_counter() - began

        return counted


def _checks_arguments() -> bool:
    """Whether torch.distributions asks for a value, which the rule on distributions looks at."""
    return DISTRIBUTIONS in sys._getframe(2).f_code.co_filename


class _Token:
    """Lives as long as the graph that it is tied to."""
