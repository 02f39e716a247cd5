"""Take the step that was seen last again, from what was kept of it, and put everything back.

What was kept are the arguments of the models, and the gradients that their outputs got; the loss
itself is not needed.
"""

import contextlib
import copy
import inspect

import torch

from course.checkup.tensors import tensors_in


class Replay:
    """The step that was seen last: forward and backward of each model that the script called, then
    the optimizers.
    """

    def __init__(self, calls, optimizers, device):
        self.calls = [call for call in calls if call and call.gradients]
        self.optimizers, self.device = optimizers, device

    def __call__(self, change=contextlib.nullcontext) -> None:
        for call in self.calls:
            with as_it_was(call, self.device), change():
                outputs = list(tensors_in(call.module(*call.args, **call.kwargs)))
            wanted = [
                (outputs[i], g) for i, g in call.gradients.items() if outputs[i].requires_grad
            ]
            torch.autograd.backward([t for t, _ in wanted], [g.to(t.dtype) for t, g in wanted])
        for optimizer in self.optimizers:
            optimizer.step()
        for optimizer in self.optimizers:
            optimizer.zero_grad()

    def outputs(self, change=contextlib.nullcontext) -> list:
        """The models' outputs, with the same random numbers each time."""
        tensors = []
        with torch.random.fork_rng(devices=[]), torch.no_grad():
            torch.manual_seed(0)
            for call in self.calls:
                with as_it_was(call, self.device), change():
                    tensors += [
                        t.float() for t in tensors_in(call.module(*call.args, **call.kwargs))
                    ]
        return tensors


def as_it_was(call, device):
    """The autocast in which the script called a model, or none."""
    return torch.autocast(device, call.autocast) if call.autocast else contextlib.nullcontext()


def _detached(value):
    """A copy of nested arguments whose tensors belong to no graph."""
    if isinstance(value, torch.Tensor):
        return value.detach()
    if isinstance(value, dict):
        return {key: _detached(part) for key, part in value.items()}
    return type(value)(map(_detached, value)) if type(value) in (list, tuple) else value


def replay_of(watch) -> Replay:
    """The Replay of what a Watch has kept."""
    calls = [call for call in watch.calls.values() if call]
    for call in calls:
        call.args, call.kwargs = _detached(call.args), _detached(call.kwargs)
    return Replay(
        calls,
        [optimizer for _, optimizer in watch.all_optimizers()],
        "cuda" if watch.cuda else "cpu",
    )


@contextlib.contextmanager
def put_back(replay: Replay):
    """After the block weights, buffers, gradients and optimizer state are what they were."""
    tensors = [
        t for call in replay.calls for t in (*call.module.parameters(), *call.module.buffers())
    ]
    values, grads = [t.detach().clone() for t in tensors], [t.grad for t in tensors]
    states = [(optimizer, copy.deepcopy(optimizer.state_dict())) for optimizer in replay.optimizers]
    try:
        yield
    finally:
        with torch.no_grad():
            for t, value, grad in zip(tensors, values, grads, strict=True):
                t.copy_(value)
                t.grad = grad
        for optimizer, state in states:
            optimizer.load_state_dict(state)


def rebuilt(optimizer, **changes):
    """A new optimizer of the same class, groups and settings, with changes."""
    known = inspect.signature(type(optimizer).__init__).parameters
    groups = [{**group, **changes} for group in optimizer.param_groups]
    return type(optimizer)(
        groups, **{k: v for k, v in (optimizer.defaults | changes).items() if k in known}
    )


def merged(optimizers):
    """One optimizer for the parameters of all."""
    first = optimizers[0]
    known = inspect.signature(type(first).__init__).parameters
    parameters = [
        p for optimizer in optimizers for group in optimizer.param_groups for p in group["params"]
    ]
    return type(first)(parameters, **{k: v for k, v in first.defaults.items() if k in known})
