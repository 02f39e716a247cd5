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
from torch.optim import Optimizer

from course.checkup.facts import (
    BATCH_TIMES,
    BF16,
    CHANNELS_LAST,
    COMPILE,
    FLOAT32,
    FUSED,
    LARGER_BATCH,
    MANY_OPTIMIZERS,
    ONE_OPTIMIZER,
    TF32,
    THREADS,
    WITHOUT_ANOMALY,
    NoWay,
)
from course.checkup.failures import in_words
from course.checkup.replay import Mode, Replay, mapped, merged, rebuilt
from course.checkup.seen import Call
from course.checkup.tensors import tensors_in
from course.device import cores

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
    if any(_dtype(call.module) == torch.float64 for call in replay.calls):
        of_name[FLOAT32] = in_float32
    if replay.anomaly:
        of_name[WITHOUT_ANOMALY] = without_anomaly
    if replay.device == "cpu" and torch.get_num_threads() < cores():
        of_name[THREADS] = with_all_threads
    if replay.device == "cuda" and torch.get_float32_matmul_precision() == "highest":
        of_name[TF32] = in_tf32
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


def in_float32(replay: Replay) -> Way:
    """The step with models, arguments and optimizers in float32."""
    calls = _copies(replay)
    copies: dict[int, nn.Parameter] = {}  # by the id of the parameter
    for call in calls:
        model = copy.deepcopy(call.module).float()
        pairs = zip(call.module.parameters(), model.parameters(), strict=True)
        copies |= {id(parameter): copied for parameter, copied in pairs}
        call.module = model
        call.args = mapped(_in_float32, call.args)
        call.kwargs = mapped(_in_float32, call.kwargs)
    optimizers = [_on_copies(optimizer, copies) for optimizer in replay.optimizers]
    return replay.like(calls, optimizers)


def _in_float32(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.float() if tensor.is_floating_point() else tensor


def _on_copies(optimizer: Optimizer, copies: dict[int, nn.Parameter]) -> Optimizer:
    groups = []
    for group in optimizer.param_groups:
        if not all(id(parameter) in copies for parameter in group["params"]):
            raise NoWay("an optimizer steps parameters of no model that was seen")
        groups.append({**group, "params": [copies[id(p)] for p in group["params"]]})
    return rebuilt(optimizer, groups=groups)


def without_anomaly(replay: Replay) -> Way:
    """The step without anomaly detection."""
    way = replay.like()
    way.anomaly = False
    return way


def with_all_threads(replay: Replay) -> Way:
    """The step with a thread per core."""
    return functools.partial(
        _with_setting, replay, torch.get_num_threads, torch.set_num_threads, cores()
    )


def in_tf32(replay: Replay) -> Way:
    """The step with matrices multiplied in TF32."""
    read, write = torch.get_float32_matmul_precision, torch.set_float32_matmul_precision
    return functools.partial(_with_setting, replay, read, write, "high")


def _with_setting(
    replay: Replay, read: Callable[[], Any], write: Callable[[Any], object], value: Any
) -> None:
    """Take the step with another value of a setting of torch."""
    before = read()
    write(value)
    try:
        replay()
    finally:
        write(before)


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
    return replay.like(calls)


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
    return replay.like(optimizers=fused)


def with_one_optimizer(replay: Replay) -> Way:
    """The step with one optimizer for all parameters."""
    return replay.like(optimizers=[merged(replay.optimizers)])


def compiled(replay: Replay) -> Way:
    """The step with compiled models."""
    calls = _copies(replay)
    for call in calls:
        call.module = torch.compile(call.module)
    return replay.like(calls)


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
    return replay.like(calls)


def _repeated(tensor: torch.Tensor, batch_size: int) -> torch.Tensor:
    if tensor.dim() and tensor.shape[0] == batch_size:
        return torch.cat([tensor] * BATCH_TIMES)
    return tensor


def _copies(replay: Replay) -> list[Call]:
    return [copy.copy(call) for call in replay.calls]
