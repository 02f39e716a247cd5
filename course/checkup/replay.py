"""Take the step that was seen last again, and put everything back.

What was kept of it are the arguments of the models, and the gradients that their outputs got; the
loss itself is not needed.
"""

import contextlib
import copy
import inspect
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any

import torch
from torch.optim import Optimizer

from course.checkup.seen import Call
from course.checkup.tensors import tensors_in
from course.checkup.watch import Watch

NO_CALLS = "no forward pass was kept; perhaps the script ended too early"

Mode = Callable[[], AbstractContextManager[Any]]  # that the models are called in


class Replay:
    """The step that was seen last.

    Forward and backward of each model that the script called, then the optimizers.
    """

    def __init__(
        self, calls: list[Call], optimizers: list[Optimizer], device: str, anomaly: bool = False
    ) -> None:
        self.calls = [call for call in calls if call.gradients]
        self.optimizers = optimizers
        self.device = device
        self.anomaly = anomaly  # whether the script has it detected

    def like(
        self, calls: list[Call] | None = None, optimizers: list[Optimizer] | None = None
    ) -> "Replay":
        """A Replay with other calls or optimizers."""
        return Replay(
            self.calls if calls is None else calls,
            self.optimizers if optimizers is None else optimizers,
            self.device,
            self.anomaly,
        )

    def __call__(self, mode: Mode = contextlib.nullcontext) -> None:
        with torch.autograd.set_detect_anomaly(self.anomaly):
            self._pass(mode)
        for optimizer in self.optimizers:
            optimizer.step()
        for optimizer in self.optimizers:
            optimizer.zero_grad()

    def _pass(self, mode: Mode) -> None:
        """Forward and backward of each model."""
        for call in self.calls:
            outputs = list(self._outputs_of(call, mode))
            tensors = []
            gradients = []
            for i, gradient in call.gradients.items():
                if outputs[i].requires_grad:
                    tensors.append(outputs[i])
                    gradients.append(gradient.to(outputs[i].dtype))
            torch.autograd.backward(tensors, gradients)

    def forward(self, mode: Mode = contextlib.nullcontext) -> None:
        """Call the models alone."""
        for call in self.calls:
            with as_it_was(call, self.device), mode():
                call.module(*call.args, **call.kwargs)

    def outputs(self, mode: Mode = contextlib.nullcontext) -> list[torch.Tensor]:
        """The models' outputs in float32, with the same random numbers each time."""
        tensors = []
        with torch.random.fork_rng(devices=[]), torch.no_grad():
            torch.manual_seed(0)
            for call in self.calls:
                tensors += [t.float() for t in self._outputs_of(call, mode)]
        return tensors

    def _outputs_of(self, call: Call, mode: Mode) -> Iterator[torch.Tensor]:
        with as_it_was(call, self.device), mode():
            output = call.module(*call.args, **call.kwargs)
        return tensors_in(output)


@contextlib.contextmanager
def as_it_was(call: Call, device: str) -> Iterator[None]:
    """Run the block in the autocast in which the script called a model, or in none.

    The trials run inside another autocast, which is off. torch keeps its 16-bit copies of weights
    until the outermost autocast ends, so without a word they would outlive each update.
    """
    autocast: AbstractContextManager[Any] = contextlib.nullcontext()
    if call.autocast is not None:
        autocast = torch.autocast(device, call.autocast)
    try:
        with autocast:
            yield
    finally:
        torch.clear_autocast_cache()


def mapped(function: Callable[[torch.Tensor], torch.Tensor], value: Any) -> Any:
    """Nested dicts, lists and tuples like `value`, with `function` of each tensor."""
    if isinstance(value, torch.Tensor):
        return function(value)
    if isinstance(value, dict):
        return {key: mapped(function, part) for key, part in value.items()}
    if type(value) in (list, tuple):
        return type(value)(mapped(function, part) for part in value)
    return value


def replay_of(watch: Watch) -> Replay:
    """The Replay of what a Watch has kept; its arguments belong to no graph any more."""
    calls = list(watch.seen.calls.values())
    for call in calls:
        call.args = mapped(torch.Tensor.detach, call.args)
        call.kwargs = mapped(torch.Tensor.detach, call.kwargs)
    optimizers = [seen.optimizer for seen in watch.seen.optimizers.values()]
    device = "cuda" if watch.clock.cuda else "cpu"
    return Replay(calls, optimizers, device, watch.counted.habits.anomaly)


@contextlib.contextmanager
def put_back(replay: Replay) -> Iterator[None]:
    """After the block weights, buffers, gradients and optimizer state are what they were."""
    tensors = []
    for call in replay.calls:
        tensors += [*call.module.parameters(), *call.module.buffers()]
    before = [(t, t.detach().clone(), t.grad) for t in tensors]
    states = [(optimizer, copy.deepcopy(optimizer.state_dict())) for optimizer in replay.optimizers]
    try:
        yield
    finally:
        with torch.no_grad():
            for t, value, gradient in before:
                t.copy_(value)
                t.grad = gradient
        for optimizer, state in states:
            optimizer.load_state_dict(state)


def rebuilt(
    optimizer: Optimizer, groups: list[dict[str, Any]] | None = None, **changes: Any
) -> Optimizer:
    """A new optimizer of the same class, groups and settings, with changes."""
    groups = [{**group, **changes} for group in groups or optimizer.param_groups]
    return type(optimizer)(groups, **_settings(optimizer, **changes))


def merged(optimizers: list[Optimizer]) -> Optimizer:
    """One optimizer, with the settings of the first, for the parameters of all."""
    first = optimizers[0]
    parameters = []
    for optimizer in optimizers:
        for group in optimizer.param_groups:
            parameters += group["params"]
    return type(first)(parameters, **_settings(first))


def _settings(optimizer: Optimizer, **changes: Any) -> dict[str, Any]:
    """The settings of an optimizer that its class takes as arguments, with changes."""
    known = inspect.signature(type(optimizer).__init__).parameters
    settings = optimizer.defaults | changes
    return {name: value for name, value in settings.items() if name in known}
