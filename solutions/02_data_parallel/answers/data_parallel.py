"""Known mistakes of exercise data_parallel, and right answers in other styles."""

import copy
import itertools
import threading
from concurrent.futures import ThreadPoolExecutor

import torch
from torch import nn
from torch.func import functional_call
from torch.utils import _pytree as pytree

from course.checks.engine import alternative, mistake


def _send(transfers, tensors, source, target):
    return transfers.send(tensors, source, target)


def _send_to_others(transfers, tensors, source, target):
    return tensors if source == target else transfers.send(tensors, source, target)


def _scatter(batch, transfers, send=_send):
    """The right parts, whose way to send can be spoilt."""
    leaves, form = pytree.tree_flatten(batch)
    where = [i for i, leaf in enumerate(leaves) if torch.is_tensor(leaf)]
    parts = []
    for place, pieces in enumerate(zip(*(leaves[i].chunk(len(transfers.devices)) for i in where), strict=True)):
        arrived = dict(zip(where, send(transfers, list(pieces), 0, place), strict=True))
        parts.append(pytree.tree_unflatten([arrived.get(i, leaf) for i, leaf in enumerate(leaves)], form))
    return parts


def _replicate(module, transfers, n=None, send=_send, use=lambda copied: copied):
    """A right answer whose ways to send and to use a copy can be spoilt."""
    tensors = [*module.parameters(), *module.buffers()]
    replicas = []
    for place in range(len(transfers.devices) if n is None else n):
        copies = map(use, send(transfers, tensors, 0, place))
        replicas.append(copy.deepcopy(module, dict(zip(map(id, tensors), copies, strict=True))))
    return replicas


def _entered_modes(grad=None):
    """A function that puts the calling thread into the modes that this one has now, or into another grad mode."""
    grad = torch.is_grad_enabled() if grad is None else grad
    casts = [(k, torch.is_autocast_enabled(k), torch.get_autocast_dtype(k)) for k in ("cpu", "cuda")]

    def enter():
        torch.set_grad_enabled(grad)
        for kind, on, dtype in casts:
            torch.set_autocast_enabled(kind, on)
            torch.set_autocast_dtype(kind, dtype)

    return enter


def _apply(replicas, parts, grad=None):
    """The right outputs; `grad` spoils the grad mode of the threads."""
    with ThreadPoolExecutor(len(parts), initializer=_entered_modes(grad)) as pool:
        futures = [pool.submit(replica, part) for replica, part in zip(replicas, parts, strict=True)]
    return [future.result() for future in futures]


def _gather(outputs, transfers, send=_send):
    """The right whole, whose way to send can be spoilt."""
    arrived = [send(transfers, [output], place, 0)[0] for place, output in enumerate(outputs)]
    return torch.cat([torch.atleast_1d(output) for output in arrived])


@mistake(
    "data_parallel",
    "The module is sent to all devices, also to those without a part. Replicate it for len(parts) places.",
)
def a_replica_for_every_device(module, batch, transfers):
    parts = _scatter(batch, transfers)
    replicas = _replicate(module, transfers)
    return _gather(_apply(replicas[: len(parts)], parts), transfers)


@mistake(
    "data_parallel",
    "The gradients stay in the replicas, which are thrown away. A replica needs copies that autograd traces back to "
    "the module.",
)
def gradients_stay_in_the_replicas(module, batch, transfers):
    parts = _scatter(batch, transfers)

    def parameter(copied):
        return nn.Parameter(copied.detach(), copied.requires_grad) if copied.is_floating_point() else copied

    return _gather(_apply(_replicate(module, transfers, len(parts), use=parameter), parts), transfers)


@mistake(
    "data_parallel",
    "Place 0 computes with the module itself, so it has no message, and may change the module. Give place 0 a replica.",
)
def place_0_without_messages(module, batch, transfers):
    parts = _scatter(batch, transfers, send=_send_to_others)
    replicas = _replicate(module, transfers, len(parts), send=_send_to_others)
    return _gather(_apply(replicas, parts), transfers, send=_send_to_others)


@mistake(
    "data_parallel",
    "All places compute with one module, the original, and the replicas that were sent are not used. A call may change "
    "the module, and on real devices its parameters lie elsewhere: give each place its replica.",
)
def one_module_for_all_places(module, batch, transfers):
    parts = _scatter(batch, transfers)
    return _gather(_apply([module for _ in _replicate(module, transfers, len(parts))], parts), transfers)


@mistake(
    "data_parallel",
    "The outputs are put together where they are, as if all devices were one. Send each to place 0.",
)
def outputs_are_not_sent(module, batch, transfers):
    parts = _scatter(batch, transfers)
    return torch.cat([torch.atleast_1d(o) for o in _apply(_replicate(module, transfers, len(parts)), parts)])


@mistake(
    "data_parallel",
    "A batch that is a dict or a tuple is not cut. Use scatter, which walks through it.",
)
def tensors_only(module, batch, transfers):
    parts = [transfers.send([piece], 0, k)[0] for k, piece in enumerate(batch.chunk(len(transfers.devices)))]
    return _gather(_apply(_replicate(module, transfers, len(parts)), parts), transfers)


@mistake(
    "data_parallel",
    "The outputs are cut off from autograd, so nothing can be trained by them. Detach nothing.",
)
def no_graph(module, batch, transfers):
    parts = _scatter(batch, transfers)
    outputs = _apply(_replicate(module, transfers, len(parts)), parts, grad=False)
    return _gather(outputs, transfers).requires_grad_(torch.is_grad_enabled())


def _rows(value, start, stop, found):
    """The rows from `start` to `stop` of all tensors, which are appended to `found`; an index stands for each."""
    if isinstance(value, torch.Tensor):
        index = len(found)
        found.append(value[start:stop])
        return lambda arrived: arrived[index]
    if isinstance(value, dict):
        makers = {key: _rows(item, start, stop, found) for key, item in value.items()}
        return lambda arrived: {key: make(arrived) for key, make in makers.items()}
    if type(value) in (tuple, list):
        makers = [_rows(item, start, stop, found) for item in value]
        return lambda arrived: type(value)(make(arrived) for make in makers)
    return lambda arrived: value


def _length(value):
    if isinstance(value, torch.Tensor):
        return value.size(0)
    items = value.values() if isinstance(value, dict) else value if isinstance(value, (tuple, list)) else ()
    return max(map(_length, items), default=0)


def slices_and_makers(batch, transfers):
    length = _length(batch)
    step = (length + len(transfers.devices) - 1) // len(transfers.devices)
    parts = []
    for place, start in enumerate(range(0, length, step)):
        found = []
        make = _rows(batch, start, start + step, found)
        parts.append(make(transfers.send(found, 0, place)))
    return parts


def attribute_by_attribute(module, transfers, n=None):
    """As torch does it: a shallow copy of each submodule, the copies as plain attributes, no parameters listed."""
    everything = list(dict.fromkeys([*module.parameters(), *module.buffers()]))
    replicas = []
    for place in list(range(len(transfers.devices)))[:n]:
        sent = dict(zip(everything, transfers.send(everything, 0, place), strict=True))
        twins = {original: original.__new__(type(original)) for original in module.modules()}
        for original, twin in twins.items():
            twin.__dict__ = original.__dict__ | {"_parameters": {}, "_buffers": dict(original._buffers)}
            twin._modules = {name: twins.get(child) for name, child in original._modules.items()}
            for name, buffer in original._buffers.items():
                twin._buffers[name] = sent.get(buffer)
            for name, parameter in original._parameters.items():
                object.__setattr__(twin, name, sent.get(parameter))
        replicas.append(twins[module])
    return replicas


def one_after_the_other(outputs, transfers):
    whole = None
    for place, output in enumerate(outputs):
        (output,) = transfers.send([output if output.shape else output.reshape(1)], place, 0)
        whole = output if whole is None else torch.cat((whole, output))
    return whole


@alternative("data_parallel")
def steps_of_others(module, batch, transfers):
    parts = slices_and_makers(batch, transfers)
    return _gather(_apply(attribute_by_attribute(module, transfers, len(parts)), parts), transfers)


@alternative("data_parallel")
def a_module_object_for_each_thread(module, batch, transfers):
    parts = _scatter(batch, transfers)
    named = dict(itertools.chain(module.named_parameters(), module.named_buffers()))
    enter, outputs = _entered_modes(), [None] * len(parts)

    def work(place, own, tensors):
        enter()
        outputs[place] = functional_call(own, tensors, (parts[place],))

    threads = []
    for place in range(len(parts)):
        tensors = dict(zip(named, transfers.send(list(named.values()), 0, place), strict=True))
        threads.append(threading.Thread(target=work, args=(place, copy.deepcopy(module), tensors)))
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return one_after_the_other(outputs, transfers)
