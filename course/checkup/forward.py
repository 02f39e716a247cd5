"""The forward passes of the modules that the script calls: their time, and their calls.

`nn.Module.__call__` is replaced, and no module gets a hook: so what the script saves, copies or
scripts is what it would be without the check-up.
"""

import contextlib
import functools
import time
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import nn

from course.checkup.clock import Clock
from course.checkup.counted import Counted
from course.checkup.lines import this_line
from course.checkup.passes import Passes
from course.checkup.patches import Patches
from course.checkup.phases import BACKWARD, DATA, FORWARD
from course.checkup.seen import Call, Seen
from course.checkup.tensors import tensors_in

CALL = "__call__"  # what is replaced
CALLS_MAX = 8  # the last ones of a step, that are kept
LOOK = "a forward pass"  # what failed, for the report


class ForwardHooks:
    """Sees the modules that the script calls, and writes down in `seen` what they do."""

    def __init__(self, clock: Clock, seen: Seen, counted: Counted, patches: Patches) -> None:
        self.passes = Passes()
        self._clock = clock
        self._seen = seen
        self._counted = counted
        self._patches = patches
        self._is_inside = False  # a module that the script called; it calls others
        self._in_step = 0  # calls that were kept of the step that runs
        self._put_back: Callable[[], None] = _nothing

    def install(self) -> None:
        """See the modules that no other module calls."""
        self._put_back = self._patches.replace(nn.Module, CALL, self._call)

    @contextlib.contextmanager
    def taken_away(self) -> Iterator[None]:
        """In the block nn.Module is what it was."""
        ours = vars(nn.Module)[CALL]
        setattr(nn.Module, CALL, getattr(ours, "__wrapped__", ours))
        try:
            yield
        finally:
            setattr(nn.Module, CALL, ours)

    def end_finding(self) -> None:
        """See no modules any more."""
        self._put_back()

    def end_step(self) -> None:
        """Begin a new list of calls: those of the last step are what can be tried again."""
        self._in_step = 0

    def _call(self, original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def call(module: nn.Module, *args: Any, **kwargs: Any) -> Any:
            # the compiler takes nothing but the original into its graph
            if torch.compiler.is_compiling() or self._is_inside or not self._is_watched():
                return original(module, *args, **kwargs)
            self._is_inside = True
            began = time.perf_counter()
            phase = self._enter(module)
            try:
                output = original(module, *args, **kwargs)
            finally:
                self._is_inside = False
                self._leave(phase, began)
            self._after(phase, Call(module, args, kwargs), output)
            return output

        return call

    def _is_watched(self) -> bool:
        """Whether a module that is called now is called by the script itself.

        What backward computes again belongs to backward, and what makes data to the data.
        """
        clock = self._clock
        is_part = clock.is_paused or clock.doing in (BACKWARD, DATA)
        return not is_part and clock.is_in_thread()

    def _enter(self, module: nn.Module) -> str:
        self._clock.note_sign()
        phase = self._seen.failures.look(LOOK, self.passes.phase_of, module, default=FORWARD)
        if self._clock.on:
            self._clock.enter(phase)
        return phase

    def _leave(self, phase: str, began: float) -> None:
        clock = self._clock
        if clock.on and clock.phase == phase:
            clock.leave()
        if phase != FORWARD:
            passes = clock.step.passes
            passes[phase] = passes.get(phase, 0.0) + time.perf_counter() - began

    def _after(self, phase: str, call: Call, output: Any) -> None:
        if self._clock.on:
            self._seen.failures.look(LOOK, self._look_at, phase, call, output)

    def _look_at(self, phase: str, call: Call, output: Any) -> None:
        self._seen.note_model(call.module)
        if not torch.is_grad_enabled():
            return
        if phase != FORWARD and any(t.requires_grad for t in tensors_in(output)):
            self._seen.graphs[phase, this_line()] += 1
        if self._counted.on:
            self._keep_call(call, output)

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
        calls = self._seen.calls
        if self._in_step == 0:
            calls.clear()
        calls[self._in_step] = call
        calls.pop(self._in_step - CALLS_MAX, None)
        self._in_step += 1


def _nothing() -> None:
    """Nothing was replaced yet."""
