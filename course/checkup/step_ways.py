"""Other ways to compute the step that was seen last.

A way is a function without arguments that takes the step; one that cannot be taken raises NoWay
with the reason.
"""

import copy
import functools
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from course.checkup.facts import (
    BATCH_TIMES,
    BF16,
    CHANNELS_LAST,
    COMPILE,
    FUSED,
    LARGER_BATCH,
    MANY_OPTIMIZERS,
    ONE_OPTIMIZER,
    NoWay,
)
from course.checkup.failures import in_words
from course.checkup.replay import Mode, Replay, mapped, merged, rebuilt
from course.checkup.seen import Call
from course.checkup.tensors import tensors_in

Way = Callable[[], Any]


def makers(replay: Replay, compile: bool) -> dict[str, Callable[[Replay], Way]]:
    """{name: function that makes a way} of all that may make a step cheaper."""
    of_name: dict[str, Callable[[Replay], Way]] = {
        BF16: in_bf16,
        CHANNELS_LAST: in_channels_last,
        FUSED: with_fused_optimizers,
        LARGER_BATCH: on_a_larger_batch,
    }
    if len(replay.optimizers) >= MANY_OPTIMIZERS:
        of_name[ONE_OPTIMIZER] = with_one_optimizer
    if compile:
        of_name[COMPILE] = compiled
    return of_name


def tried_once(make: Callable[[Replay], Way], replay: Replay) -> Way:
    """The way, after it was taken once.  Raises: NoWay."""
    try:
        way = make(replay)
        way()
    except NoWay:
        raise
    except Exception as error:  # a stranger's model may fail in any way; the report says so
        raise NoWay(in_words(error)) from None
    return way


def bf16_mode(replay: Replay) -> Mode:
    """Autocast to bfloat16 on the replay's device."""
    return functools.partial(torch.autocast, replay.device, torch.bfloat16)


def in_bf16(replay: Replay) -> Way:
    """The step in autocast."""
    for call in replay.calls:
        if call.autocast or _dtype(call.module) != torch.float32:
            raise NoWay("the model does not compute in float32")
    return functools.partial(replay, bf16_mode(replay))


def _dtype(module: nn.Module) -> torch.dtype:
    for parameter in module.parameters():
        if parameter.is_floating_point():
            return parameter.dtype
    return torch.float32


def in_channels_last(replay: Replay) -> Way:
    """The step with models and images in channels_last."""
    convolutions = []
    for call in replay.calls:
        convolutions += [m for m in call.module.modules() if isinstance(m, nn.Conv2d)]
    if not convolutions:
        raise NoWay("there is no convolution")
    wide = [m.weight for m in convolutions if m.weight.shape[-1] > 1]
    if all(weight.is_contiguous(memory_format=torch.channels_last) for weight in wide):
        raise NoWay("the weights are in channels_last already")
    calls = _copies(replay)
    for call in calls:
        call.module = copy.deepcopy(call.module).to(memory_format=torch.channels_last)
        call.args = tuple(_image_in_channels_last(argument) for argument in call.args)
    return Replay(calls, replay.optimizers, replay.device)


def _image_in_channels_last(value: Any) -> Any:
    if isinstance(value, torch.Tensor) and value.dim() == 4:
        return value.contiguous(memory_format=torch.channels_last)
    return value


def with_fused_optimizers(replay: Replay) -> Way:
    """The step with optimizers that update all weights in one kernel."""
    groups = []
    for optimizer in replay.optimizers:
        groups += optimizer.param_groups
    if not all("fused" in group for group in groups):
        raise NoWay("the optimizer has no fused form")
    if all(group["fused"] for group in groups):
        raise NoWay("the optimizer is fused already")
    fused = [rebuilt(one, fused=True, foreach=None) for one in replay.optimizers]
    return Replay(replay.calls, fused, replay.device)


def with_one_optimizer(replay: Replay) -> Way:
    """The step with one optimizer for all parameters."""
    return Replay(replay.calls, [merged(replay.optimizers)], replay.device)


def compiled(replay: Replay) -> Way:
    """The step with compiled models."""
    calls = _copies(replay)
    for call in calls:
        call.module = torch.compile(call.module)
    return Replay(calls, replay.optimizers, replay.device)


def on_a_larger_batch(replay: Replay) -> Way:
    """The step on BATCH_TIMES as many samples; what has no batch dimension stays."""
    calls = _copies(replay)
    for call in calls:
        first = next(tensors_in((call.args, call.kwargs)), None)
        if first is None or not first.dim():
            raise NoWay("no batch is seen in the arguments of the model")
        repeat = functools.partial(_repeated, batch_size=first.shape[0])
        call.args = mapped(repeat, call.args)
        call.kwargs = mapped(repeat, call.kwargs)
        call.gradients = mapped(repeat, call.gradients)
    return Replay(calls, replay.optimizers, replay.device)


def _repeated(tensor: torch.Tensor, batch_size: int) -> torch.Tensor:
    if tensor.dim() and tensor.shape[0] == batch_size:
        return torch.cat([tensor] * BATCH_TIMES)
    return tensor


def _copies(replay: Replay) -> list[Call]:
    return [copy.copy(call) for call in replay.calls]
