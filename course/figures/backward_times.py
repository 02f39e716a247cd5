"""When the gradients of a model are ready: model, loss -> *layers of a backward_timeline*."""

import statistics
import time
from collections.abc import Callable

import torch
from torch import nn

from course.figures.backward_timeline import Layer

MEGABYTE = 1e6


def backward_layers(
    model: nn.Module, loss: Callable[[], torch.Tensor], depth: int = 2, rounds: int = 7
) -> list[Layer]:
    """The layers of `model`, in the order in which backward finishes them.

    A layer has the ms between its last gradient and that of the layer before (median of `rounds`)
    and the MB of its gradients. The gradients of the model are set to None.

    Args:
        loss: returns the loss of a batch, with its graph.
        depth: a layer is a module with so many names at most, such as "blocks.7".
    """
    owners = _owners(model, depth)
    times: dict[str, list[float]] = {name: [] for name in owners.values()}
    ready: dict[str, float] = {}

    def note(parameter: torch.Tensor) -> None:
        if parameter.is_cuda:
            torch.cuda.synchronize()
        ready[owners[parameter]] = time.perf_counter()

    handles = [parameter.register_post_accumulate_grad_hook(note) for parameter in owners]
    for number in range(rounds + 1):
        model.zero_grad()
        value = loss()
        if value.is_cuda:
            torch.cuda.synchronize()
        ready.clear()
        start = time.perf_counter()
        value.backward()
        if number:  # the first warms up
            for name, when in ready.items():
                times[name].append(when - start)
    for handle in handles:
        handle.remove()
    model.zero_grad()
    return _layers(owners, times)


def _owners(model, depth):
    """{parameter: name of its layer}, of what is trained."""
    owners = {}
    for name, parameter in model.named_parameters():
        if parameter.requires_grad:
            of_module = name.split(".")[:-1]
            owners[parameter] = ".".join(of_module[:depth]) or name
    return owners


def _layers(owners, times):
    megabytes = dict.fromkeys(times, 0.0)
    for parameter, name in owners.items():
        megabytes[name] += parameter.nbytes / MEGABYTE
    medians = {name: statistics.median(each) for name, each in times.items() if each}
    layers = []
    before = 0.0
    for name in sorted(medians, key=medians.get):
        milliseconds = 1e3 * (medians[name] - before)
        layers.append(Layer(name, milliseconds, megabytes[name]))
        before = medians[name]
    return layers
