"""Wrong answers to the exercises of 02_data_parallel that learners give, each wrong in one idea, and what to say."""

import contextlib
import copy
import math
import os
import shutil
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, Sampler

from course.checks.engine import mistake


def _walk(value, use):
    """A right walk over a batch: `value` with use(tensor) for each tensor."""
    if isinstance(value, torch.Tensor):
        return use(value)
    if isinstance(value, dict):
        return {key: _walk(item, use) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)([_walk(item, use) for item in value])
    return value


def _send(transfers, tensors, source, target):
    return transfers.send(tensors, source, target)


def _send_to_others(transfers, tensors, source, target):
    return tensors if source == target else transfers.send(tensors, source, target)


def _scatter(batch, transfers, cut=torch.chunk, walk=_walk, send=_send):
    """A right answer in pieces, so that each mistake can spoil one of them."""
    tensors = []
    _walk(batch, tensors.append)
    parts = []
    for place, pieces in enumerate(zip(*(cut(t, len(transfers.devices)) for t in tensors), strict=True)):
        arrived = iter(send(transfers, list(pieces), 0, place))
        parts.append(walk(batch, lambda tensor, arrived=arrived: next(arrived)))
    return parts


@mistake(
    "scatter",
    "Each tensor of a part is a message of its own. Collect the tensors of a part in a list, and send the list.",
)
def a_message_for_each_tensor(batch, transfers):
    n = len(transfers.devices)
    if isinstance(batch, torch.Tensor):
        return [transfers.send([piece], 0, place)[0] for place, piece in enumerate(batch.chunk(n))]
    if isinstance(batch, dict):
        items = zip(*(a_message_for_each_tensor(item, transfers) for item in batch.values()), strict=False)
        return [dict(zip(batch, part, strict=True)) for part in items]
    if isinstance(batch, (list, tuple)):
        items = zip(*(a_message_for_each_tensor(item, transfers) for item in batch), strict=False)
        return [type(batch)(part) for part in items]
    return [batch] * n


@mistake(
    "scatter",
    "Every device gets the whole batch, and all of them compute the same. Cut each tensor by chunk along dimension 0.",
)
def whole_batch_for_all(batch, transfers):
    return _scatter(batch, transfers, cut=lambda tensor, n: [tensor] * n)


@mistake(
    "scatter",
    "The part of place 0 is not sent. Send it as well, from place 0 to place 0; Transfers knows what crosses.",
)
def place_0_keeps_its_part(batch, transfers):
    return _scatter(batch, transfers, send=_send_to_others)


@mistake(
    "scatter",
    "The rows are shared out as evenly as possible, which is torch.tensor_split. torch.chunk makes all pieces of the "
    "same length but the last.",
)
def evenly(batch, transfers):
    return _scatter(batch, transfers, cut=torch.tensor_split)


def _fixed(tensor, n):
    size = -(-len(tensor) // n)
    return [tensor[k * size : (k + 1) * size] for k in range(n)]


@mistake(
    "scatter",
    "A batch that is too short gives empty parts, and messages for them. Make as many parts as chunk makes pieces.",
)
def empty_parts(batch, transfers):
    return _scatter(batch, transfers, cut=_fixed)


def _walk_to_lists(value, use):
    if isinstance(value, (list, tuple)):
        return [_walk_to_lists(item, use) for item in value]
    if isinstance(value, dict):
        return {key: _walk_to_lists(item, use) for key, item in value.items()}
    return _walk(value, use)


@mistake("scatter", "A tuple comes back as a list. Make each container of the batch's own type: type(value)(items).")
def tuples_become_lists(batch, transfers):
    return _scatter(batch, transfers, walk=_walk_to_lists)


def _walk_tensors(value, use):
    if isinstance(value, (list, tuple)):
        return type(value)([_walk_tensors(v, use) for v in value if isinstance(v, (torch.Tensor, list, tuple, dict))])
    if isinstance(value, dict):
        items = value.items()
        return {k: _walk_tensors(v, use) for k, v in items if isinstance(v, (torch.Tensor, list, tuple, dict))}
    return use(value)


@mistake("scatter", "What is no tensor is left out of the parts. Put it into every part as it is.")
def only_tensors(batch, transfers):
    return _scatter(batch, transfers, walk=_walk_tensors)


@mistake("scatter", "The parts are cut off from autograd. Send the pieces themselves, not what detach makes of them.")
def detached_parts(batch, transfers):
    return _scatter(batch, transfers, cut=lambda tensor, n: tensor.detach().chunk(n))


def _put(module, names, tensors):
    """`module`, with `tensors` in the places of its parameters and buffers of these names."""
    for name, tensor in zip(names, tensors, strict=True):
        owner, _, last = name.rpartition(".")
        owner = module.get_submodule(owner)
        (owner._parameters if last in owner._parameters else owner._buffers)[last] = tensor
    return module


def _replicate(module, transfers, n=None, send=_send, use=lambda copied: copied):
    """A right answer whose ways to send and to use a copy can be spoilt."""
    tensors = [*module.parameters(), *module.buffers()]
    replicas = []
    for place in range(len(transfers.devices) if n is None else n):
        copies = map(use, send(transfers, tensors, 0, place))
        replicas.append(copy.deepcopy(module, dict(zip(map(id, tensors), copies, strict=True))))
    return replicas


@mistake(
    "replicate",
    "The replicas are modules for themselves: nothing was sent, and their gradients stay with them. Put the copies "
    "that send returns in the places of the parameters.",
)
def deep_copies(module, transfers, n=None):
    return [copy.deepcopy(module).to(device) for device in transfers.devices[:n]]


@mistake(
    "replicate",
    "The copies became nn.Parameter, which starts a new graph: gradients end there. Keep what send returned, as "
    "deepcopy with a memo does.",
)
def new_parameters(module, transfers, n=None):
    def use(copied):
        return nn.Parameter(copied.detach(), copied.requires_grad) if copied.is_floating_point() else copied

    return _replicate(module, transfers, n, use=use)


@mistake(
    "replicate",
    "The copies are cut off from the module's parameters. Send the parameters themselves; detach nothing.",
)
def detached_copies(module, transfers, n=None):
    return _replicate(module, transfers, n, use=torch.Tensor.detach)


@mistake(
    "replicate",
    "Each parameter is a message of its own. Send all parameters and buffers of a replica as one list.",
)
def a_message_for_each_parameter(module, transfers, n=None):
    def send(transfers, tensors, source, target):
        return [transfers.send([tensor], source, target)[0] for tensor in tensors]

    return _replicate(module, transfers, n, send=send)


@mistake(
    "replicate",
    "The buffers are copied without being sent, and would stay on place 0. Add module.buffers() to the list.",
)
def buffers_not_sent(module, transfers, n=None):
    replicas = []
    for place in range(len(transfers.devices) if n is None else n):
        tensors = list(module.parameters())
        copies = transfers.send(tensors, 0, place)
        replicas.append(copy.deepcopy(module, dict(zip(map(id, tensors), copies, strict=True))))
    return replicas


@mistake(
    "replicate",
    "All replicas share the buffers of the module, so what one writes the others read. Send the buffers too.",
)
def shared_buffers(module, transfers, n=None):
    replicas = []
    for place in range(len(transfers.devices) if n is None else n):
        tensors = list(module.parameters())
        copies = transfers.send(tensors, 0, place)
        memo = dict(zip(map(id, tensors), copies, strict=True)) | {id(b): b for b in module.buffers()}
        replicas.append(copy.deepcopy(module, memo))
    return replicas


@mistake(
    "replicate",
    "A tied parameter became two copies. Send each tensor once: module.parameters() lists it once, the names of all "
    "submodules lead to it twice.",
)
def untied(module, transfers, n=None):
    replicas = []
    for place in range(len(transfers.devices) if n is None else n):
        named = [*module.named_parameters(remove_duplicate=False), *module.named_buffers()]
        copies = transfers.send([tensor for _, tensor in named], 0, place)
        replicas.append(_put(copy.deepcopy(module), [name for name, _ in named], copies))
    return replicas


@mistake(
    "replicate",
    "copy.copy copies the outermost module alone: its submodules are those of the module itself, which is changed. "
    "Every submodule needs a copy, as deepcopy makes it.",
)
def shallow_copies(module, transfers, n=None):
    replicas = []
    for place in range(len(transfers.devices) if n is None else n):
        names = [name for name, _ in (*module.named_parameters(), *module.named_buffers())]
        copies = transfers.send([*module.parameters(), *module.buffers()], 0, place)
        replicas.append(_put(copy.copy(module), names, copies))
    return replicas


@mistake(
    "replicate",
    "Place 0 gets the module itself, not a replica: what it changes, stays changed. Treat all places alike.",
)
def module_itself_at_place_0(module, transfers, n=None):
    rest = range(1, len(transfers.devices) if n is None else n)
    tensors = [*module.parameters(), *module.buffers()]
    memos = [dict(zip(map(id, tensors), transfers.send(tensors, 0, place), strict=True)) for place in rest]
    return [module, *(copy.deepcopy(module, memo) for memo in memos)]


@mistake(
    "replicate",
    "train() sets all submodules to one mode, also those that were in eval mode. Leave the modes as they were copied.",
)
def one_mode_for_all(module, transfers, n=None):
    return [replica.train(module.training) for replica in _replicate(module, transfers, n)]


@contextlib.contextmanager
def _modes(grad, casts):
    with torch.set_grad_enabled(grad), contextlib.ExitStack() as modes:
        for cast in casts:
            modes.enter_context(torch.autocast(*cast))
        yield


def _casts():
    return [(kind, torch.get_autocast_dtype(kind)) for kind in ("cpu", "cuda") if torch.is_autocast_enabled(kind)]


def _result(place, future):
    try:
        return future.result()
    except Exception as error:
        error.add_note(f"place {place}")
        raise


def _futures(pool, replicas, parts, grad=None, casts=None, call=lambda replica, part: replica(part)):
    """The calls of all replicas in a pool, in the modes of this thread unless others are given."""
    grad = torch.is_grad_enabled() if grad is None else grad
    casts = _casts() if casts is None else casts

    def run(replica, part):
        with _modes(grad, casts):
            return call(replica, part)

    return [pool.submit(run, *pair) for pair in zip(replicas, parts, strict=True)]


def _apply(replicas, parts, **changes):
    """A right answer, whose calls can be changed."""
    with ThreadPoolExecutor(len(replicas)) as pool:
        futures = _futures(pool, replicas, parts, **changes)
    return [_result(place, future) for place, future in enumerate(futures)]


@mistake(
    "parallel_apply",
    "The replicas run one after the other. Start all their threads before you wait for the first.",
)
def one_after_the_other(replicas, parts):
    with ThreadPoolExecutor(1) as pool:
        futures = _futures(pool, replicas, parts)
    return [_result(place, future) for place, future in enumerate(futures)]


@mistake(
    "parallel_apply",
    "The caller's torch.no_grad does not hold in the threads. Read torch.is_grad_enabled() before, and set it in each.",
)
def grad_mode_of_a_new_thread(replicas, parts):
    return _apply(replicas, parts, grad=True)


@mistake(
    "parallel_apply",
    "The caller's autocast does not hold in the threads. Read it before they start, and enter torch.autocast in each.",
)
def autocast_of_a_new_thread(replicas, parts):
    return _apply(replicas, parts, casts=[])


@mistake(
    "parallel_apply",
    "Autocast is carried over without its dtype. Pass torch.get_autocast_dtype, as the caller has it.",
)
def dtype_of_a_new_thread(replicas, parts):
    return _apply(replicas, parts, casts=[(kind,) for kind, _ in _casts()])


@mistake(
    "parallel_apply",
    "What a replica raises is lost in its thread, and None stands for its output. Keep the exception, and raise it in "
    "the caller.",
)
def exceptions_are_lost(replicas, parts):
    if len(replicas) != len(parts):
        raise ValueError("replicas and parts")
    with ThreadPoolExecutor(len(replicas)) as pool:
        futures = _futures(pool, replicas, parts)
    return [None if future.exception() else future.result() for future in futures]


@mistake(
    "parallel_apply",
    "The exception does not say in which replica it arose. Add a note to it: error.add_note(f'at place {place}').",
)
def nameless_exception(replicas, parts):
    with ThreadPoolExecutor(len(replicas)) as pool:
        futures = _futures(pool, replicas, parts)
    return [future.result() for future in futures]


@mistake(
    "parallel_apply",
    "The exception comes out while other replicas still run. Wait for all threads first, then raise.",
)
def others_still_run(replicas, parts):
    pool = ThreadPoolExecutor(len(replicas))
    try:
        return [_result(place, future) for place, future in enumerate(_futures(pool, replicas, parts))]
    finally:
        pool.shutdown(wait=False)


@mistake(
    "parallel_apply",
    "Of several exceptions the first in time comes out, by chance one or the other. Take that of the lowest place.",
)
def first_exception_in_time(replicas, parts):
    errors = []

    def call(pair, part):
        place, replica = pair
        try:
            return replica(part)
        except Exception as error:
            error.add_note(f"place {place}")
            errors.append(error)

    outputs = _apply(list(enumerate(replicas)), parts, call=call)
    if errors:
        raise errors[0]
    return outputs


@mistake(
    "parallel_apply",
    "A part that is a tuple is spread over several arguments. Hand it over as one: replica(part).",
)
def tuples_are_spread(replicas, parts):
    def call(replica, part):
        return replica(*part) if isinstance(part, tuple) else replica(part)

    return _apply(replicas, parts, call=call)


def _gather(outputs, transfers, send=_send):
    """A right answer whose way to send can be spoilt."""
    arrived = [send(transfers, [output], place, 0)[0] for place, output in enumerate(outputs)]
    return torch.cat([torch.atleast_1d(output) for output in arrived])


@mistake("gather", "torch.stack makes a new dimension. Put the outputs one behind the other: torch.cat.")
def stacked(outputs, transfers):
    return torch.stack([transfers.send([output], place, 0)[0] for place, output in enumerate(outputs)])


@mistake("gather", "Outputs without dimensions cannot be concatenated. Make each a vector of one number first.")
def no_losses(outputs, transfers):
    return torch.cat([transfers.send([output], place, 0)[0] for place, output in enumerate(outputs)])


@mistake(
    "gather",
    "Outputs without dimensions are averaged. They become a vector: the caller may take its mean, or not.",
)
def mean_of_losses(outputs, transfers):
    whole = _gather(outputs, transfers)
    return whole if outputs[0].dim() else whole.mean()


@mistake("gather", "The outputs are cut off from autograd, so nothing can be trained by them. Do not detach them.")
def detached_outputs(outputs, transfers):
    return _gather([output.detach() for output in outputs], transfers).requires_grad_()


@mistake("gather", "The output of place 0 is not sent. Send it as well, from place 0 to place 0.")
def place_0_keeps_its_output(outputs, transfers):
    return _gather(outputs, transfers, send=_send_to_others)


@mistake("gather", "Source and target are exchanged. The outputs go from place k to place 0: send([output], k, 0).")
def wrong_way(outputs, transfers):
    return _gather(outputs, transfers, send=lambda transfers, tensors, k, _: transfers.send(tensors, 0, k))


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
    return _gather(_apply(new_parameters(module, transfers, len(parts)), parts), transfers)


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


def _trained(module):
    return [p for p in module.parameters() if p.requires_grad]


def _leaf_replica(module, transfers, k, tensors=None, send=_send, thaw=False):
    """A replica whose parameters are leaves, from a message of `tensors`, else of all parameters and buffers."""
    tensors = [*module.parameters(), *module.buffers()] if tensors is None else tensors
    copies = [copied.clone() for copied in send(transfers, [t.detach() for t in tensors], 0, k)]
    for original, copied in zip(tensors, copies, strict=True):
        copied.requires_grad_(original.requires_grad or (thaw and copied.is_floating_point()))
    return copy.deepcopy(module, dict(zip(map(id, tensors), copies, strict=True)))


def _parts_and_replicas(module, batch, transfers, send=_send, **changes):
    parts = _scatter(batch, transfers, send=send)
    return parts, [_leaf_replica(module, transfers, k, send=send, **changes) for k in range(len(parts))]


def _finish(module, parts, replicas, targets, loss_fn, transfers, send=_send, reduced=sum, trained=_trained):
    """The right rest of a step, from the forward of the replicas on."""
    own = [replica(part) for replica, part in zip(replicas, parts, strict=True)]
    outputs = _gather([output.detach() for output in own], transfers, send=send).requires_grad_()
    loss = loss_fn(outputs, targets)
    cut = torch.autograd.grad(loss, outputs)[0].split([len(output) for output in own])
    cut = [send(transfers, [part], 0, k)[0] for k, part in enumerate(cut)]
    grads = [torch.autograd.grad(own[k], trained(replica), cut[k]) for k, replica in enumerate(replicas)]
    arrived = [send(transfers, list(g), k, 0) for k, g in enumerate(grads)]
    asked = {id(p) for p in trained(module)}
    names = [name for name, p in module.named_parameters() if id(p) in asked]
    return loss.detach(), dict(zip(names, map(reduced, zip(*arrived, strict=True)), strict=True))


def _step(module, batch, targets, loss_fn, transfers, send=_send, tensors=None):
    """A right answer whose way to send can be spoilt, and what it sends to replicas."""
    parts, replicas = _parts_and_replicas(module, batch, transfers, send=send, tensors=tensors)
    return _finish(module, parts, replicas, targets, loss_fn, transfers, send=send)


@mistake(
    "data_parallel_gradients",
    "The gradients are averaged over the devices. The loss is a mean over the whole batch already: sum them.",
)
def averaged(module, batch, targets, loss_fn, transfers):
    def reduced(column):
        return sum(column) / len(column)

    parts, replicas = _parts_and_replicas(module, batch, transfers)
    return _finish(module, parts, replicas, targets, loss_fn, transfers, reduced=reduced)


@mistake(
    "data_parallel_gradients",
    "Each device computes a loss of its own part. Gather the outputs, and call loss_fn once, on place 0.",
)
def a_loss_for_each_part(module, batch, targets, loss_fn, transfers):
    parts, replicas = _parts_and_replicas(module, (batch, targets), transfers)
    losses = [
        loss_fn(replica(inputs), wanted) * len(wanted) / len(targets)
        for replica, (inputs, wanted) in zip(replicas, parts, strict=True)
    ]
    loss = _gather([loss.detach() for loss in losses], transfers).sum()
    grads = [torch.autograd.grad(loss, _trained(replica)) for loss, replica in zip(losses, replicas, strict=True)]
    arrived = [transfers.send(list(g), k, 0) for k, g in enumerate(grads)]
    names = [name for name, p in module.named_parameters() if p.requires_grad]
    return loss, dict(zip(names, map(sum, zip(*arrived, strict=True)), strict=True))


@mistake(
    "data_parallel_gradients",
    "Autograd goes through the messages back to the module, so nobody sees what the way back sends. Detach what is "
    "sent, and send the gradients yourself.",
)
def autograd_does_it(module, batch, targets, loss_fn, transfers):
    parts = _scatter(batch, transfers)
    replicas = _replicate(module, transfers, len(parts))
    loss = loss_fn(_gather([r(part) for r, part in zip(replicas, parts, strict=True)], transfers), targets)
    names = [name for name, p in module.named_parameters() if p.requires_grad]
    return loss.detach(), dict(zip(names, torch.autograd.grad(loss, _trained(module)), strict=True))


@mistake("data_parallel_gradients", "Place 0 sends itself nothing. Serve it like every other place: five messages.")
def place_0_is_left_out(module, batch, targets, loss_fn, transfers):
    return _step(module, batch, targets, loss_fn, transfers, send=_send_to_others)


@mistake(
    "data_parallel_gradients",
    "The buffers of the module are not sent, and would stay on place 0. Send them with the parameters.",
)
def buffers_stay_behind(module, batch, targets, loss_fn, transfers):
    return _step(module, batch, targets, loss_fn, transfers, tensors=list(module.parameters()))


@mistake(
    "data_parallel_gradients",
    "The gradients are written into the module as well. Return them; what stands in grad is the caller's.",
)
def writes_grad(module, batch, targets, loss_fn, transfers):
    loss, gradients = _step(module, batch, targets, loss_fn, transfers)
    for name, gradient in gradients.items():
        module.get_parameter(name).grad = gradient
    return loss, gradients


@mistake(
    "data_parallel_gradients",
    "Frozen parameters get a gradient too, which costs time and messages. Give each copy its original's requires_grad.",
)
def thaws_the_frozen(module, batch, targets, loss_fn, transfers):
    parts, replicas = _parts_and_replicas(module, batch, transfers, thaw=True)
    return _finish(
        module, parts, replicas, targets, loss_fn, transfers, trained=lambda replica: list(replica.parameters())
    )


@mistake(
    "data_parallel_gradients", "The loss still has its history, and keeps all outputs alive. Return loss.detach()."
)
def loss_with_history(module, batch, targets, loss_fn, transfers):
    loss, gradients = _step(module, batch, targets, loss_fn, transfers)
    return loss.requires_grad_(), gradients


@mistake(
    "data_parallel_gradients",
    "Each device gets its part and its replica before the next one gets anything. Finish a step for all devices first.",
)
def device_by_device(module, batch, targets, loss_fn, transfers):
    parts, replicas = [], []
    for k, piece in enumerate(batch.chunk(len(transfers.devices))):
        parts += transfers.send([piece], 0, k)
        replicas.append(_leaf_replica(module, transfers, k))
    return _finish(module, parts, replicas, targets, loss_fn, transfers)


def _counts(n, parameters, batch, outputs, crossing=None, forward=None, backward=None):
    """The right counts, with some of the numbers replaced."""
    others = n - 1
    crossing = others if crossing is None else crossing
    return {
        "forward_messages": 3 * n,
        "forward_crossing": 3 * crossing,
        "forward_bytes": crossing * (parameters + (batch + outputs) // n) if forward is None else forward,
        "backward_messages": 2 * n,
        "backward_crossing": 2 * crossing,
        "backward_bytes": crossing * (parameters + outputs // n) if backward is None else backward,
    }


@mistake(
    "data_parallel_messages",
    "The messages from place 0 to place 0 leave no device. Only M - 1 places are somewhere else.",
)
def place_0_crosses(n, parameters, batch, outputs):
    return _counts(n, parameters, batch, outputs, crossing=n)


@mistake(
    "data_parallel_messages",
    "Every device is sent the whole batch. It gets one M-th of it, and returns one M-th of the outputs.",
)
def whole_batch_each(n, parameters, batch, outputs):
    others = n - 1
    forward, backward = others * (parameters + batch + outputs), others * (parameters + outputs)
    return _counts(n, parameters, batch, outputs, forward=forward, backward=backward)


@mistake(
    "data_parallel_messages",
    "The parameters are shared out like the batch. Every replica needs all of them, and has gradients for all.",
)
def parameters_are_cut(n, parameters, batch, outputs):
    others = n - 1
    forward, backward = others * (parameters + batch + outputs) // n, others * (parameters + outputs) // n
    return _counts(n, parameters, batch, outputs, forward=forward, backward=backward)


@mistake(
    "data_parallel_messages",
    "The parameters are sent once, as if one message reached all devices. Each replica gets a message of its own.",
)
def parameters_once(n, parameters, batch, outputs):
    others = n - 1
    once = parameters if others else 0
    forward, backward = once + others * (batch + outputs) // n, once + others * outputs // n
    return _counts(n, parameters, batch, outputs, forward=forward, backward=backward)


@mistake(
    "data_parallel_messages",
    "The backward sends gradients of the batch as well. Nobody needs them: the outputs' go out, the parameters' back.",
)
def gradients_of_the_batch(n, parameters, batch, outputs):
    backward = (n - 1) * (parameters + (batch + outputs) // n)
    return _counts(n, parameters, batch, outputs, backward=backward)


@mistake("data_parallel_messages", "Bytes are whole numbers, and / makes floats. Divide with //.")
def float_bytes(n, parameters, batch, outputs):
    others = n - 1
    forward, backward = others * (parameters + (batch + outputs) / n), others * (parameters + outputs / n)
    return _counts(n, parameters, batch, outputs, forward=forward, backward=backward)


def others(root):
    return [rank for rank in range(dist.get_world_size()) if rank != root]


@mistake(
    "broadcast_naive",
    "What is received goes into a new tensor, and `tensor = ...` only renames it inside the function: the caller's "
    "tensor is as before. Receive into `tensor` itself.",
)
def received_and_renamed(tensor, src):
    if dist.get_rank() == src:
        for other in others(src):
            dist.send(tensor, other)
    else:
        received = torch.empty_like(tensor)
        dist.recv(received, src)
        tensor = received
    return tensor


@mistake("broadcast_naive", "Rank 0 is always the source. Send from `src`, receive from `src`.")
def always_from_zero(tensor, src):
    received_in_place(tensor, 0)


def received_in_place(tensor, src):
    if dist.get_rank() == src:
        for other in others(src):
            dist.send(tensor, other)
    else:
        dist.recv(tensor, src)


@mistake("broadcast_naive", "The source sends to itself too, which torch refuses. Leave `src` out of the loop.")
def to_itself_too(tensor, src):
    if dist.get_rank() == src:
        for other in range(dist.get_world_size()):
            dist.send(tensor, other)
    else:
        dist.recv(tensor, src)


@mistake(
    "broadcast_naive",
    "The values are passed on from rank to rank. That is a chain; here the source itself sends to every other rank.",
)
def chain(tensor, src):
    pass_on(tensor, src)


@mistake("broadcast_tree", "The values are passed on from rank to rank: N - 1 rounds. Let all that have them send.")
def chain_and_no_tree(tensor, src):
    pass_on(tensor, src)


def pass_on(tensor, src):
    rank, world_size = dist.get_rank(), dist.get_world_size()
    if rank != src:
        dist.recv(tensor, (rank - 1) % world_size)
    if (rank + 1) % world_size != src:
        dist.send(tensor, (rank + 1) % world_size)


@mistake(
    "broadcast_naive",
    "The requests of isend are forgotten, so the function may return while its tensor is still being sent. Keep them "
    "and wait for each.",
)
def never_waited(tensor, src):
    if dist.get_rank() == src:
        for other in others(src):
            dist.isend(tensor, other)
    else:
        dist.recv(tensor, src)


def gathered(tensor, dst):
    """The tensors of all ranks in rank `dst`, its own first; elsewhere None."""
    if dist.get_rank() != dst:
        return dist.send(tensor, dst)
    parts = [tensor.clone()] + [torch.empty_like(tensor) for _ in others(dst)]
    for part, other in zip(parts[1:], others(dst), strict=True):
        dist.recv(part, other)
    return parts


@mistake(
    "reduce_naive",
    "`tensor = tensor + part` makes a new tensor, which the caller never sees. Write `tensor += part`.",
)
def summed_and_renamed(tensor, dst):
    parts = gathered(tensor, dst)
    if parts:
        tensor = sum(parts)
    return tensor


@mistake(
    "reduce_naive", "It is received straight into the tensor, so the last message is all that is left. Receive aside."
)
def received_on_top(tensor, dst):
    parts = gathered(tensor, dst)
    if parts:
        tensor.copy_(parts[-1])


@mistake("reduce_naive", "The values of `dst` itself are missing in the sum. Begin with them.")
def without_its_own(tensor, dst):
    parts = gathered(tensor, dst)
    if parts:
        tensor.copy_(sum(parts[1:]))


@mistake("reduce_naive", "That is the mean. A reduce gives the sum; who needs a mean divides afterwards.")
def mean(tensor, dst):
    parts = gathered(tensor, dst)
    if parts:
        tensor.copy_(sum(parts) / len(parts))


@mistake("reduce_naive", "Rank 0 always gets the sum. Let all send to `dst`.")
def always_to_zero(tensor, dst):
    parts = gathered(tensor, 0)
    if parts:
        tensor.copy_(sum(parts))


@mistake(
    "reduce_naive",
    "Every rank has the sum in the end: that is an all-reduce. The other ranks must keep their values.",
)
def all_get_it(tensor, dst):
    parts = gathered(tensor, dst)
    if parts:
        tensor.copy_(sum(parts))
    received_in_place(tensor, dst)


@mistake(
    "reduce_naive",
    "Partial sums go from rank to rank, and stay in tensors that should keep their values. Send each tensor to `dst`.",
)
def sum_in_a_chain(tensor, dst):
    rank, world_size = dist.get_rank(), dist.get_world_size()
    if rank != (dst + 1) % world_size:
        part = torch.empty_like(tensor)
        dist.recv(part, (rank - 1) % world_size)
        tensor += part
    if rank != dst:
        dist.send(tensor, (rank + 1) % world_size)


@mistake(
    "broadcast_tree",
    "The source itself sends to every other rank, N - 1 messages one after the other. Let the others help.",
)
def star(tensor, src):
    received_in_place(tensor, src)


def doubling(tensor, src, rounds, root=None, rename=False):
    """A right broadcast along a tree, with one idea to get wrong each."""
    rank, world_size = dist.get_rank(), dist.get_world_size()
    place = (rank - (src if root is None else root)) % world_size
    held = tensor.clone() if rename else tensor
    for k in range(rounds(world_size)):
        distance = 2**k
        if place < distance and place + distance < world_size:
            dist.send(held, (rank + distance) % world_size)
        elif distance <= place < 2 * distance:
            dist.recv(held, (rank - distance) % world_size)


def rounded_up(world_size):
    return math.ceil(math.log2(world_size))


@mistake(
    "broadcast_tree",
    "log2 of the ranks is rounded down, so with three ranks the third gets nothing. Round up: math.ceil.",
)
def rounds_rounded_down(tensor, src):
    doubling(tensor, src, lambda world_size: int(math.log2(world_size)))


@mistake("broadcast_tree", "The tree always begins at rank 0. Count places from `src`: (rank - src) % world_size.")
def tree_from_zero(tensor, src):
    doubling(tensor, src, rounded_up, root=0)


@mistake(
    "broadcast_tree",
    "What is received goes into a tensor of the function's own; the caller's is as before. Receive into `tensor`.",
)
def tree_of_copies(tensor, src):
    doubling(tensor, src, rounded_up, rename=True)


@mistake(
    "broadcast_tree",
    "A rank serves its short branches first and the longest last, so that one starts late. Turn the order round.",
)
def longest_branch_last(tensor, src):
    rank, world_size = dist.get_rank(), dist.get_world_size()
    place = (rank - src) % world_size
    if place:
        dist.recv(tensor, (rank - (place & -place)) % world_size)  # the lowest bit of a place leads to its parent
    distance = 1
    while distance < world_size and not place & distance:
        if place + distance < world_size:
            dist.send(tensor, (rank + distance) % world_size)
        distance *= 2


@mistake(
    "broadcast_tree",
    "Half of the ranks, `world_size / 2`, is a float, and no rank is called 1.0. Compute with `//` or `2**k`.",
)
def float_ranks(tensor, src):
    rank, distance = dist.get_rank(), dist.get_world_size() / 2
    if rank < distance:
        dist.send(tensor, rank + distance)
    else:
        dist.recv(tensor, rank - distance)


@mistake(
    "reduce_tree",
    "Half of the ranks, `world_size / 2`, is a float, and no rank is called 1.0. Compute with `//` or `2**k`.",
)
def float_ranks_of_a_sum(tensor, dst):
    rank, distance = dist.get_rank(), dist.get_world_size() / 2
    if rank < distance:
        dist.recv(torch.empty_like(tensor), rank + distance)
    else:
        dist.send(tensor, rank - distance)


def halving(tensor, dst, rounds=rounded_up, root=None, aside=True, own=False, rename=False):
    """A right reduce along a tree, with one idea to get wrong each."""
    rank, world_size = dist.get_rank(), dist.get_world_size()
    place = (rank - (dst if root is None else root)) % world_size
    total, part = tensor.clone() if aside else tensor, torch.empty_like(tensor)
    for k in reversed(range(rounds(world_size))):
        distance = 2**k
        if distance <= place < 2 * distance:
            dist.send(tensor if own else total, (rank - distance) % world_size)
        elif place < distance and place + distance < world_size:
            dist.recv(part, (rank + distance) % world_size)
            total += part
    if place == 0 and not rename:
        tensor.copy_(total)


@mistake(
    "reduce_tree",
    "Sums are gathered in the tensors of ranks that only pass them on. Add into a copy; only `dst` gets the sum.",
)
def sums_left_behind(tensor, dst):
    halving(tensor, dst, aside=False)


@mistake("reduce_tree", "A rank sends its own tensor and not the sum that it has gathered. Send what it has added up.")
def sends_its_own(tensor, dst):
    halving(tensor, dst, own=True)


@mistake("reduce_tree", "The sum stays in a tensor of the function's own. Write it into `tensor`: tensor.copy_(total).")
def sum_not_written_back(tensor, dst):
    halving(tensor, dst, rename=True)


@mistake(
    "reduce_tree", "log2 of the ranks is rounded down, so with three ranks the third is not added. Round up: math.ceil."
)
def reduce_rounded_down(tensor, dst):
    halving(tensor, dst, rounds=lambda world_size: int(math.log2(world_size)))


@mistake("reduce_tree", "The sum always ends in rank 0. Count places from `dst`: (rank - dst) % world_size.")
def tree_to_zero(tensor, dst):
    halving(tensor, dst, root=0)


@mistake(
    "reduce_tree",
    "Every rank sends to `dst` itself, which receives N - 1 messages one after the other. Let others add up as well.",
)
def star_of_sums(tensor, dst):
    parts = gathered(tensor, dst)
    if parts:
        tensor.copy_(sum(parts))


def ring(tensor, split=torch.tensor_split, first=0, second=1, gather=True, wait=True, back=True, mean=False):
    """A right ring, with one idea to get wrong each."""
    rank, world_size = dist.get_rank(), dist.get_world_size()
    flat = tensor.contiguous().view(-1)
    pieces, requests = split(flat, world_size), []

    def turn(sent):
        part = torch.empty_like(pieces[(sent - 1) % world_size])  # as long as what arrives, whoever adds it where
        requests.append(dist.isend(pieces[sent % world_size], (rank + 1) % world_size))
        dist.recv(part, (rank - 1) % world_size)
        if wait:
            requests[-1].wait()
        return part

    for step in range(world_size - 1):
        part = turn(rank - step)
        pieces[(rank - step - 1 + first) % world_size].add_(part)
    for step in range(world_size - 1 if gather else 0):
        part = turn(rank + second - step)
        pieces[(rank + second - step - 1) % world_size].copy_(part)
    if mean:
        flat.copy_(flat / world_size)
    if back:
        tensor.copy_(flat.view(tensor.shape))


@mistake(
    "ring_all_reduce",
    "The second phase is missing: each rank holds one finished piece. Send the finished pieces round once more.",
)
def no_all_gather(tensor):
    ring(tensor, gather=False)


@mistake("ring_all_reduce", "That is the mean. Give the sum; DDP divides by the world size afterwards.")
def ring_of_means(tensor):
    ring(tensor, mean=True)


@mistake(
    "ring_all_reduce",
    "The second phase begins with piece r, which is not finished in rank r. It begins with the finished one, r + 1.",
)
def begins_with_its_own_again(tensor):
    ring(tensor, second=0)


@mistake(
    "ring_all_reduce",
    "What arrives is added to the piece that has just been sent. It belongs to the one before: r - step - 1.",
)
def added_to_the_piece_just_sent(tensor):
    ring(tensor, first=1)


@mistake(
    "ring_all_reduce",
    "isend is never waited for: the function may return, and its caller write, while a piece is sent. Wait for it.",
)
def isend_never_waited_for(tensor):
    ring(tensor, wait=False)


@mistake(
    "ring_all_reduce",
    "A tensor that is not contiguous is copied, and the sum stays in the copy. Write it back: tensor.copy_(...).",
)
def sum_stays_in_the_copy(tensor):
    ring(tensor, back=False)


def pieces_of_equal_length(flat, world_size):
    length = len(flat) // world_size
    return [flat[i * length : (i + 1) * length] for i in range(world_size)]


@mistake(
    "ring_all_reduce",
    "All pieces have len // N numbers, and the rest at the end is never summed. Use tensor_split.",
)
def rest_forgotten(tensor):
    ring(tensor, split=pieces_of_equal_length)


@mistake(
    "ring_all_reduce",
    "Whole tensors go round the ring: right sums, N / 2 times the bytes. Cut the tensor into N pieces.",
)
def whole_tensors_round_the_ring(tensor):
    rank, world_size = dist.get_rank(), dist.get_world_size()
    passed = tensor.clone(memory_format=torch.contiguous_format)
    for _ in range(world_size - 1):
        arrived = torch.empty_like(passed)
        request = dist.isend(passed, (rank + 1) % world_size)
        dist.recv(arrived, (rank - 1) % world_size)
        request.wait()
        tensor += arrived
        passed = arrived


@mistake(
    "ring_all_reduce",
    "Every rank sends its whole tensor to every other one. Cut it into N pieces, and send to the next rank only.",
)
def everybody_to_everybody(tensor):
    own = tensor.clone(memory_format=torch.contiguous_format)
    requests = [dist.isend(own, other) for other in others(dist.get_rank())]
    for other in others(dist.get_rank()):
        part = torch.empty_like(own)
        dist.recv(part, other)
        tensor += part
    for request in requests:
        request.wait()


@mistake(
    "ring_all_reduce",
    "The tensor is reduced to rank 0 and broadcast from there, whole tensors over one link. Cut it into N pieces.",
)
def by_way_of_rank_zero(tensor):
    own = tensor.clone(memory_format=torch.contiguous_format)
    all_get_it(own, 0)
    tensor.copy_(own)


def lengths(n, world_size):
    return [n // world_size + (i < n % world_size) for i in range(world_size)]


@mistake("ring_bytes", "That is one phase. A ring has two, each of N - 1 steps.")
def one_phase(n_elements, element_size, world_size):
    pieces = lengths(n_elements, world_size)
    return [element_size * (n_elements - pieces[(r + 1) % world_size]) for r in range(world_size)]


@mistake("ring_bytes", "Each of the 2 (N - 1) messages is taken for a whole tensor. It is one piece, 1/N of it.")
def whole_tensors(n_elements, element_size, world_size):
    return [2 * (world_size - 1) * n_elements * element_size] * world_size


@mistake("ring_bytes", "Those are elements. Multiply by the bytes of an element.")
def elements(n_elements, element_size, world_size):
    return both_phases(n_elements, 1, world_size)


def both_phases(n_elements, element_size, world_size, first=1, second=2):
    pieces = lengths(n_elements, world_size)
    return [
        element_size * (2 * n_elements - pieces[(r + first) % world_size] - pieces[(r + second) % world_size])
        for r in range(world_size)
    ]


@mistake(
    "ring_bytes",
    "2 (N - 1) / N of the tensor is right if N divides its length. Else pieces differ: add up those that are sent.",
)
def equal_shares(n_elements, element_size, world_size):
    return [2 * (world_size - 1) * n_elements * element_size // world_size] * world_size


@mistake("ring_bytes", "Bytes are whole numbers; a division with / makes floats. Add up the lengths of the pieces.")
def float_shares(n_elements, element_size, world_size):
    return [2 * (world_size - 1) / world_size * n_elements * element_size] * world_size


@mistake("ring_bytes", "All pieces are taken for as long as the longest. The last ones are shorter by one element.")
def padded(n_elements, element_size, world_size):
    return [2 * (world_size - 1) * math.ceil(n_elements / world_size) * element_size] * world_size


@mistake(
    "ring_bytes",
    "The second phase is taken to leave out the same piece as the first. It begins with r + 1, so it leaves out r + 2.",
)
def same_piece_left_out_twice(n_elements, element_size, world_size):
    return both_phases(n_elements, element_size, world_size, second=1)


@mistake(
    "ring_bytes",
    "Piece r is left out, but it is the first that rank r sends. Count which pieces a rank sends in each phase.",
)
def own_piece_left_out(n_elements, element_size, world_size):
    return both_phases(n_elements, element_size, world_size, first=0, second=1)


def seconds(n_bytes, world_size, latency, bandwidth, depth=rounded_up, naive=2, tree=2, piece=True, starts=True):
    """A right prediction, with one idea to get wrong each."""
    whole = latency + n_bytes / bandwidth
    steps = 2 * (world_size - 1)
    part = n_bytes / world_size if piece else n_bytes
    return {
        "naive": naive * (world_size - 1) * whole,
        "tree": tree * depth(world_size) * whole,
        "ring": (steps if starts else min(steps, 2)) * latency + steps * part / bandwidth,
    }


@mistake("all_reduce_seconds", "The depth of the tree is not rounded: 1.58 rounds for three ranks. Round log2 up.")
def depth_not_rounded(n_bytes, world_size, latency, bandwidth):
    return seconds(n_bytes, world_size, latency, bandwidth, depth=math.log2)


@mistake("all_reduce_seconds", "The depth of the tree is rounded down, and the last ranks get nothing. Round log2 up.")
def depth_rounded_down(n_bytes, world_size, latency, bandwidth):
    return seconds(n_bytes, world_size, latency, bandwidth, depth=lambda n: int(math.log2(n)))


@mistake("all_reduce_seconds", "The broadcast is missing in naive: reduce and broadcast take N - 1 messages each.")
def naive_without_broadcast(n_bytes, world_size, latency, bandwidth):
    return seconds(n_bytes, world_size, latency, bandwidth, naive=1)


@mistake("all_reduce_seconds", "That is one way through the tree. Sums go to the root, and the result comes back.")
def one_way(n_bytes, world_size, latency, bandwidth):
    return seconds(n_bytes, world_size, latency, bandwidth, tree=1)


@mistake("all_reduce_seconds", "The ring is given whole tensors to send. A message of it is 1/N of the tensor.")
def ring_of_whole_tensors(n_bytes, world_size, latency, bandwidth):
    return seconds(n_bytes, world_size, latency, bandwidth, piece=False)


@mistake("all_reduce_seconds", "The ring pays its latency once a phase. Each of its 2 (N - 1) messages has its own.")
def latency_once_a_phase(n_bytes, world_size, latency, bandwidth):
    return seconds(n_bytes, world_size, latency, bandwidth, starts=False)


@mistake("all_reduce_seconds", "The bandwidth is taken for bits a second. It is bytes a second here.")
def bits(n_bytes, world_size, latency, bandwidth):
    return seconds(8 * n_bytes, world_size, latency, bandwidth)


@mistake("all_reduce_seconds", "Bytes are multiplied by the bandwidth. Bytes over bytes a second give seconds.")
def multiplied(n_bytes, world_size, latency, bandwidth):
    return seconds(n_bytes * bandwidth**2, world_size, latency, bandwidth)


class _Naive(nn.Module):
    """A right wrapper in pieces, so that each mistake can spoil one of them."""

    def __init__(self, module):
        super().__init__()
        self.module = module
        self.share()

    def share(self):
        for tensor in self.shared():
            dist.broadcast(tensor.detach(), src=0)

    def shared(self):
        return [*self.module.parameters(), *self.module.buffers()]

    def forward(self, *args, **kwargs):
        return self.module(*args, **kwargs)

    def trainable(self):
        return [p for p in self.module.parameters() if p.requires_grad]

    def average_gradients(self):
        for p in self.trainable():
            if p.grad is None:
                p.grad = torch.zeros_like(p)
            self.average(p.grad)

    def average(self, gradient):
        dist.all_reduce(gradient)
        gradient /= dist.get_world_size()


@mistake(
    "NaiveDDP", "Gradients are summed, not averaged: divide by world_size, or the learning rate is that much larger."
)
class SumOfRanks(_Naive):
    def average(self, gradient):
        dist.all_reduce(gradient)


@mistake("NaiveDDP", "Gradients are divided by world_size before the all-reduce and again after it. Once is enough.")
class DividedTwice(_Naive):
    def average(self, gradient):
        gradient /= dist.get_world_size()
        super().average(gradient)


@mistake(
    "NaiveDDP",
    "Each rank keeps the weights that it was made with. Broadcast all parameters and buffers in the constructor.",
)
class OwnStart(_Naive):
    def share(self):
        pass


@mistake("NaiveDDP", "Buffers stay those of the rank; only parameters are broadcast. Go through module.buffers() too.")
class BuffersForgotten(_Naive):
    def shared(self):
        return self.module.parameters()


@mistake(
    "NaiveDDP",
    "What is broadcast is the state_dict, which leaves out buffers that are not persistent. Take module.buffers().",
)
class OnlyTheStateDict(_Naive):
    def shared(self):
        return self.module.state_dict().values()


@mistake(
    "NaiveDDP",
    "Frozen parameters are not broadcast, but the model computes with them as well. Broadcast all parameters.",
)
class FrozenStayApart(_Naive):
    def shared(self):
        return [*self.trainable(), *self.module.buffers()]


@mistake(
    "NaiveDDP",
    "Frozen parameters are averaged too and get a gradient of zeros. Leave out those without requires_grad.",
)
class FrozenToo(_Naive):
    def trainable(self):
        return self.module.parameters()


@mistake(
    "NaiveDDP",
    "A tied parameter is averaged once for each of its names. module.parameters() gives it once.",
)
class TiedTwice(_Naive):
    def trainable(self):
        found = [p for layer in self.module.modules() for p in layer.parameters(recurse=False)]
        return [p for p in found if p.requires_grad]


@mistake(
    "NaiveDDP",
    "A rank makes no call for a parameter that it did not use, so its next call meets another parameter of the others. "
    "All ranks must make the same calls: send zeros for a gradient that is None.",
)
class UnusedLeftOut(_Naive):
    def trainable(self):
        return [p for p in super().trainable() if p.grad is not None]


@mistake(
    "NaiveDDP",
    "The mean is computed in a copy, and the gradient stays that of the rank. Write it back into p.grad.",
)
class MeanOfACopy(_Naive):
    def average(self, gradient):
        super().average(gradient.clone())


@mistake("NaiveDDP", "Rank 0 broadcasts its gradients, so the other ranks compute for nothing. Use all_reduce.")
class GradientsOfRank0(_Naive):
    def average(self, gradient):
        dist.broadcast(gradient, src=0)


@mistake("NaiveDDP", "The module is given its inputs, not the keyword arguments. Hand on *args and **kwargs.")
class WithoutKeywords(_Naive):
    def forward(self, *args, **kwargs):
        return self.module(*args)


@mistake("plan_buckets", "The buckets begin with the first parameter, whose gradient comes last. Begin with the last.")
def first_one_first(sizes, cap):
    return _filled(sizes, cap, range(len(sizes)))


def _filled(sizes, cap, order, fits=lambda held, size, cap: held + size <= cap):
    buckets, held = [], 0
    for i in order:
        if not buckets or not fits(held, sizes[i], cap):
            buckets.append([])
            held = 0
        buckets[-1].append(i)
        held += sizes[i]
    return buckets


@mistake("plan_buckets", "The places are counted from the last parameter. A place is the index in `sizes`.")
def counted_from_the_end(sizes, cap):
    return _filled(sizes[::-1], cap, range(len(sizes)))


@mistake("plan_buckets", "A bucket is closed before it holds exactly `cap` bytes. That much is allowed.")
def below_cap(sizes, cap):
    return _filled(sizes, cap, reversed(range(len(sizes))), lambda held, size, cap: held + size < cap)


@mistake(
    "plan_buckets",
    "A bucket is closed after the parameter with which it reaches `cap`, and so exceeds it. Ask before, not after.",
)
def closed_too_late(sizes, cap):
    return _filled(sizes, cap, reversed(range(len(sizes))), lambda held, size, cap: held < cap)


@mistake(
    "plan_buckets",
    "A small parameter is put into an earlier bucket that has room, and its gradient, which comes late, holds that up. "
    "Look at the last bucket only.",
)
def first_fit(sizes, cap):
    buckets = []
    for i in reversed(range(len(sizes))):
        fitting = [b for b in buckets if sum(sizes[j] for j in b) + sizes[i] <= cap]
        if fitting:
            fitting[0].append(i)
        else:
            buckets.append([i])
    return buckets


@mistake(
    "plan_buckets", "A large parameter closes a bucket that is still empty. Open a new one only behind a full one."
)
def empty_before_a_large_one(sizes, cap):
    buckets, held = [[]], 0
    for i in reversed(range(len(sizes))):
        if held + sizes[i] > cap:
            buckets.append([])
            held = 0
        buckets[-1].append(i)
        held += sizes[i]
    return buckets if sizes else []


@mistake(
    "plan_buckets", "The last bucket is never appended: it is not full when the loop ends. Append it after the loop."
)
def last_one_lost(sizes, cap):
    return _filled(sizes, cap, reversed(range(len(sizes))))[:-1]


class _Overlapped(nn.Module):
    """A right overlapped wrapper in pieces, so that each mistake can spoil one of them."""

    def __init__(self, module, bucket_bytes=2**20):
        super().__init__()
        self.module, self.sending, self.works, self.missing = module, True, {}, None
        self.share()
        trainable = [p for p in module.parameters() if p.requires_grad]
        plan = self.plan([p.nbytes for p in trainable], bucket_bytes)
        self.buckets = [[trainable[i] for i in places] for places in plan]
        self.flat = [torch.cat([p.detach().flatten() for p in bucket]) for bucket in self.buckets]
        for k, bucket in enumerate(self.buckets):
            for p in bucket:
                p.register_post_accumulate_grad_hook(lambda p, k=k: self.arrived(p, k))

    def share(self):
        for tensor in [*self.module.parameters(), *self.module.buffers()]:
            dist.broadcast(tensor.detach(), src=0)

    def plan(self, sizes, cap):
        return _filled(sizes, cap, reversed(range(len(sizes))))

    def forward(self, *args, **kwargs):
        return self.module(*args, **kwargs)

    def arrived(self, p, k):
        if not self.sending:
            return
        if self.missing is None:
            self.missing = [len(bucket) for bucket in self.buckets]
            torch.autograd.Variable._execution_engine.queue_callback(self.finish)
        self.missing[k] -= 1
        self.launch_ready()

    def launch_ready(self):
        while len(self.works) < len(self.buckets) and not self.missing[len(self.works)]:
            self.launch(len(self.works))

    def launch(self, k):
        for p, part in self.parts(k):
            if p.grad is None:
                part.zero_()
            else:
                part.copy_(p.grad.flatten())
        self.works[k] = self.send(self.flat[k])

    def parts(self, k):
        return zip(self.buckets[k], self.flat[k].split([p.numel() for p in self.buckets[k]]), strict=True)

    def send(self, flat):
        return dist.all_reduce(flat, async_op=True)

    def finish(self):
        for k in range(len(self.buckets)):
            if k not in self.works:
                self.launch(k)
        for k, work in self.works.items():
            work.wait()
            self.write_back(k)
        self.works, self.missing = {}, None

    def write_back(self, k):
        self.flat[k].div_(dist.get_world_size())
        for p, part in self.parts(k):
            p.grad = part.view_as(p).clone()

    @contextlib.contextmanager
    def no_sync(self):
        before, self.sending = self.sending, False
        try:
            yield
        finally:
            self.sending = before


@mistake(
    "OverlappedDDP",
    "Gradients are summed, not averaged over the ranks. Divide each bucket by world_size, once.",
)
class SumOfBuckets(_Overlapped):
    def write_back(self, k):
        for p, part in self.parts(k):
            p.grad = part.view_as(p).clone()


@mistake(
    "OverlappedDDP",
    "The ranks start from their own weights, because the constructor sends nothing. Broadcast from rank 0.",
)
class BucketsWithOwnStart(_Overlapped):
    def share(self):
        pass


@mistake(
    "OverlappedDDP",
    "The constructor broadcasts parameters alone, and each rank keeps its own buffers. Send module.buffers() as well.",
)
class BucketsWithoutBuffers(_Overlapped):
    def share(self):
        for p in self.module.parameters():
            dist.broadcast(p.detach(), src=0)


@mistake(
    "OverlappedDDP",
    "The mean arrives in the flat buffer and stays there: p.grad is still the rank's own. Make it a view of the "
    "buffer, or copy it back.",
)
class NeverWrittenBack(_Overlapped):
    def write_back(self, k):
        pass


@mistake(
    "OverlappedDDP",
    "All buckets are launched when backward is over: nothing overlaps. Launch a bucket when its last gradient comes.",
)
class AllAtTheEnd(_Overlapped):
    def launch_ready(self):
        pass


@mistake(
    "OverlappedDDP",
    "Each all-reduce is waited for where it is started, and backward stands still meanwhile. Pass async_op=True, and "
    "wait at the end.",
)
class WaitsAtOnce(_Overlapped):
    def send(self, flat):
        work = dist.all_reduce(flat, async_op=True)
        work.wait()
        return work


@mistake(
    "OverlappedDDP",
    "A bucket is launched when it is full, whatever its number. Where gradients come in another order on another rank, "
    "the buckets of two ranks are mixed: launch bucket k only after bucket k - 1.",
)
class OrderOfArrival(_Overlapped):
    def launch_ready(self):
        for k, missing in enumerate(self.missing):
            if missing == 0 and k not in self.works:
                self.launch(k)


@mistake(
    "OverlappedDDP",
    "Every parameter is sent by itself, in as many calls as there are parameters. Fill buckets up to bucket_bytes.",
)
class OneByOne(_Overlapped):
    def plan(self, sizes, cap):
        return [[i] for i in reversed(range(len(sizes)))]


@mistake(
    "OverlappedDDP",
    "The buckets begin with the first layer, whose gradients come last, so that all the others wait for it. Begin with "
    "the last parameter.",
)
class FirstLayerFirst(_Overlapped):
    def plan(self, sizes, cap):
        return _filled(sizes, cap, range(len(sizes)))


@mistake(
    "OverlappedDDP",
    "A bucket in which a gradient is missing is never sent, nor are those behind it. At the end of backward, launch "
    "what is left, with zeros for each gradient that is None.",
)
class IncompleteNeverSent(_Overlapped):
    def finish(self):
        for k, work in self.works.items():
            work.wait()
            self.write_back(k)
        self.works, self.missing = {}, None


@mistake(
    "OverlappedDDP",
    "Where a gradient is None, the buffer is sent with what it held before. Fill that part with zeros.",
)
class StaleBuffer(_Overlapped):
    def launch(self, k):
        for p, part in self.parts(k):
            if p.grad is not None:
                part.copy_(p.grad.flatten())
        self.works[k] = self.send(self.flat[k])


@mistake(
    "OverlappedDDP",
    "The hook divides p.grad each time it is called, so what has piled up before is divided again. Divide where a "
    "bucket is sent.",
)
class DividesOnEachCall(_Overlapped):
    def arrived(self, p, k):
        p.grad /= dist.get_world_size()
        super().arrived(p, k)

    def write_back(self, k):
        for p, part in self.parts(k):
            p.grad = part.view_as(p).clone()


@mistake(
    "OverlappedDDP",
    "After an exception inside of no_sync nothing is sent any more: the line behind the yield was not reached. Put it "
    "into a finally.",
)
class NoFinally(_Overlapped):
    @contextlib.contextmanager
    def no_sync(self):
        before, self.sending = self.sending, False
        yield
        self.sending = before


@mistake(
    "OverlappedDDP",
    "The end of an inner no_sync switches sending on within the outer one. Put back what was set before.",
)
class OnAfterTheInner(_Overlapped):
    @contextlib.contextmanager
    def no_sync(self):
        self.sending = False
        try:
            yield
        finally:
            self.sending = True


@mistake(
    "OverlappedDDP",
    "no_sync makes no difference: a backward inside of it sends its gradients. Let the hook return at once there.",
)
class AlwaysSends(_Overlapped):
    @contextlib.contextmanager
    def no_sync(self):
        yield


@mistake(
    "average_hook",
    "This is the published fault: the hook is given the parameter, so the weights are averaged. Take parameter.grad.",
)
def averages_the_weights(parameter):
    dist.all_reduce(parameter.detach())
    parameter.detach().div_(dist.get_world_size())


@mistake("average_hook", "The gradients are summed and not divided. Divide parameter.grad by world_size.")
def sum_of_gradients(parameter):
    dist.all_reduce(parameter.grad)


@mistake("average_hook", "The gradient is summed, but the parameter is divided. Divide parameter.grad.")
def divides_the_weights(parameter):
    dist.all_reduce(parameter.grad)
    parameter.detach().div_(dist.get_world_size())


@mistake("average_hook", "The mean is computed in a copy and thrown away. Work on parameter.grad in place.")
def mean_thrown_away(parameter):
    gradient = parameter.grad.clone()
    dist.all_reduce(gradient)
    gradient /= dist.get_world_size()


@mistake("average_hook", "The gradient is divided, but never summed over the ranks. Call dist.all_reduce on it.")
def divided_only(parameter):
    parameter.grad /= dist.get_world_size()


@mistake("average_hook", "Every rank gets the gradient of rank 0, which is not the mean. Use all_reduce.")
def gradient_of_rank_0(parameter):
    dist.broadcast(parameter.grad, src=0)


class Sharded(Sampler):
    """A right sampler, for mistakes that change one part of it."""

    def __init__(self, n_items, world_size, rank, shuffle=True, seed=0, drop_last=False):
        if not 0 <= rank < world_size:
            raise ValueError("no such rank")
        self.n_items, self.world_size, self.rank = n_items, world_size, rank
        self.shuffle, self.seed, self.drop_last, self.epoch = shuffle, seed, drop_last, 0

    def __len__(self):
        return (self.n_items if self.drop_last else self.n_items + self.world_size - 1) // self.world_size

    def permutation(self):
        rng = torch.Generator().manual_seed(self.seed + self.epoch)
        return torch.randperm(self.n_items, generator=rng).tolist()

    def order(self):
        return self.permutation() if self.shuffle else list(range(self.n_items))

    def fitted(self, order):
        total = len(self) * self.world_size
        while 0 < len(order) < total:
            order = order + order[: total - len(order)]
        return order[:total]

    def shard(self, order):
        return order[self.rank :: self.world_size]

    def __iter__(self):
        return iter(self.shard(self.fitted(self.order())))

    def set_epoch(self, epoch):
        self.epoch = epoch


@mistake(
    "ShardSampler",
    "Each rank gets a contiguous block of the order. Take strides: of the whole order the places rank, rank + "
    "world_size, rank + 2 * world_size and so on.",
)
class Blocks(Sharded):
    def shard(self, order):
        return order[self.rank * len(self) : (self.rank + 1) * len(self)]


@mistake(
    "ShardSampler",
    "Each rank draws a permutation of its own, so some samples come on two ranks and others on none. Leave the rank "
    "out of the seed: all ranks draw the same permutation.",
)
class OwnPermutation(Sharded):
    def permutation(self):
        rng = torch.Generator().manual_seed(self.seed + self.epoch + self.rank)
        return torch.randperm(self.n_items, generator=rng).tolist()


@mistake(
    "ShardSampler",
    "The rank's own items are shuffled, so a rank sees the same items in every epoch. Draw one permutation of all "
    "items first, the same on all ranks, and then take the strides.",
)
class ShuffledInside(Sharded):
    def __iter__(self):
        shard = self.shard(self.fitted(list(range(self.n_items))))
        if self.shuffle:
            rng = torch.Generator().manual_seed(self.seed + self.epoch)
            shard = [shard[i] for i in torch.randperm(len(shard), generator=rng).tolist()]
        return iter(shard)


@mistake(
    "ShardSampler",
    "The epoch plays no part in the order, so every epoch has the same batches. Keep it in set_epoch and seed the "
    "generator with seed + epoch.",
)
class ForgetsTheEpoch(Sharded):
    def set_epoch(self, epoch):
        pass


@mistake(
    "ShardSampler",
    "The generator goes on where the last iteration left it, so the order depends on how often somebody looked. Make "
    "the generator in __iter__, from seed + epoch.",
)
class KeptGenerator(Sharded):
    def __init__(self, *args, seed=0, **settings):
        super().__init__(*args, seed=seed, **settings)
        self.rng = torch.Generator().manual_seed(seed)

    def permutation(self):
        return torch.randperm(self.n_items, generator=self.rng).tolist()

    def set_epoch(self, epoch):
        self.rng.manual_seed(self.seed + epoch)


@mistake(
    "ShardSampler",
    "The global random numbers are seeded, which changes every other random number of the program. Give "
    "torch.randperm a generator of its own.",
)
class SeedsEverything(Sharded):
    def permutation(self):
        torch.manual_seed(self.seed + self.epoch)
        return torch.randperm(self.n_items).tolist()


@mistake(
    "ShardSampler",
    "Some ranks get one index more than others, and in its last step such a rank would wait for ever. Make the length "
    "of the order a multiple of world_size before you take the strides.",
)
class NoPadding(Sharded):
    def __len__(self):
        return len(range(self.rank, self.n_items, self.world_size)) if not self.drop_last else super().__len__()

    def fitted(self, order):
        return order if not self.drop_last else super().fitted(order)


@mistake(
    "ShardSampler",
    "The last index is repeated to fill the order up. It is repeated from its start, so that different samples count "
    "twice.",
)
class RepeatsTheLast(Sharded):
    def fitted(self, order):
        total = len(self) * self.world_size
        return (order + order[-1:] * (total - len(order)))[:total]


@mistake(
    "ShardSampler",
    "The order is repeated once at most, which is not enough where there are more ranks than twice the items. Repeat "
    "it until its length is reached.",
)
class PadsOnce(Sharded):
    def fitted(self, order):
        total = len(self) * self.world_size
        return (order + order)[:total]


@mistake(
    "ShardSampler",
    "The length is the number of all items. A sampler gives only the indices of one rank, and a DataLoader takes the "
    "number of its batches from that length.",
)
class LengthOfAll(Sharded):
    def __iter__(self):
        return iter(self.shard(self.fitted(self.order())))

    def fitted(self, order):
        total = super().__len__() * self.world_size
        return (order * self.world_size)[:total]

    def __len__(self):
        return self.n_items


def rows(x):
    """`x` as float tensor (values, C)."""
    return x.movedim(1, -1).reshape(-1, x.shape[1])


def summed(tensor):
    """The sum of the ranks' tensors."""
    tensor = tensor.clone()
    dist.all_reduce(tensor)
    return tensor


def sums_and_count(values):
    """(sums, count) over all ranks of a tensor (values, C), by one operation."""
    total = summed(torch.cat([values.sum(0), values.new_tensor([len(values)])]))
    return total[:-1], total[-1]


@mistake(
    "global_moments",
    "These are the moments of each rank's own shard: what a BatchNorm layer does that knows nothing of other ranks. "
    "Add up sums and counts over the ranks with dist.all_reduce.",
)
def own_shard(x):
    values = rows(x)
    return values.mean(0), values.var(0, correction=0)


@mistake(
    "global_moments",
    "The variance is the mean of the ranks' variances; it lacks how far the means of the ranks lie apart. Take the "
    "squared distances from the mean of all ranks.",
)
def variances_averaged(x):
    values = rows(x)
    total, n = sums_and_count(values)
    inside = (values - values.mean(0)).square().sum(0)
    return total / n, summed(inside) / n


@mistake(
    "global_moments",
    "The means of the ranks are averaged as if all had equally many samples. Add up sums and counts, and divide at the "
    "end.",
)
def mean_of_means(x):
    values = rows(x)
    mean = summed(values.mean(0)) / dist.get_world_size()
    both = summed(torch.stack([(values - mean).square().sum(0), torch.full_like(mean, len(values))]))
    return mean, both[0] / both[1]


@mistake(
    "global_moments",
    "The mean of the squares less the square of the mean loses all digits where the mean is large: at 1e4 the squares "
    "are 1e8, and the spacing of float32 there is 8. Square distances from the mean.",
)
def one_pass(x):
    values = rows(x)
    sums, n = sums_and_count(torch.cat([values, values.square()], 1))
    mean, square = (sums / n).chunk(2)
    return mean, square - mean.square()


@mistake(
    "global_moments",
    "The variance is divided by n - 1. A layer normalises with the biased variance: divide by n.",
)
def unbiased(x):
    values = rows(x)
    total, n = sums_and_count(values)
    return total / n, summed((values - total / n).square().sum(0)) / (n - 1)


@mistake(
    "global_moments",
    "Images keep their height and width: the moments are taken over axis 0 only. A channel has one mean and one "
    "variance, over all places of all images.",
)
def over_the_batch_only(x):
    values = x.reshape(len(x), x.shape[1:].numel())
    total, n = sums_and_count(values)
    squares = summed((values - total / n).square().sum(0))
    return (total / n).view(x.shape[1:]), (squares / n).view(x.shape[1:])


@mistake(
    "global_moments",
    "A rank without samples spoils all the others: the mean of nothing is nan, and nan times 0 is nan too. Send sums, "
    "which are 0 there, and not means.",
)
def nan_of_nothing(x):
    values = rows(x)
    n = values.new_tensor([len(values)])
    total = summed(torch.cat([values.mean(0) * n, n]))
    mean = total[:-1] / total[-1]
    return mean, summed((values - mean).square().sum(0)) / total[-1]


@mistake(
    "global_moments",
    "One operation for each number is many messages, and each of them waits for the slowest rank. Put the sums and the "
    "count into one tensor.",
)
def an_operation_each(x):
    values = rows(x)
    n = summed(values.new_tensor(len(values)))
    mean = summed(values.sum(0)) / n
    return mean, summed((values - mean).square().sum(0)) / n


@mistake(
    "shard_scale",
    "This is the share of the rank. DDP divides by world_size in addition, so the step would be too small by that "
    "factor: multiply it back in.",
)
def share_of_the_rank(n_local, n_total, world_size):
    return n_local / n_total


@mistake(
    "shard_scale",
    "The fraction is upside down: a rank with more samples must count more, not less.",
)
def upside_down(n_local, n_total, world_size):
    return n_total / (n_local * world_size)


@mistake(
    "shard_scale",
    "A factor of 1 leaves the mean of means: each rank has the same weight, however many samples it has. Which weight "
    "must a sample have?",
)
def trusts_the_mean(n_local, n_total, world_size):
    return 1.0


@mistake(
    "shard_scale",
    "DDP divides by world_size already, and this divides once more. Undo its division: multiply.",
)
def divided_twice(n_local, n_total, world_size):
    return n_local / n_total / world_size


@mistake(
    "shard_scale",
    "This is the number of samples. Right if the local loss is a mean that must become a sum, but the result is to be "
    "the mean over all: divide by n_total.",
)
def sum_instead_of_mean(n_local, n_total, world_size):
    return float(n_local * world_size)


@mistake(
    "weighted_mean",
    "This is the plain mean of the ranks' values: a rank with few samples counts as much as one with many. Send value "
    "times weight, and the weight.",
)
def plain_mean(value, weight):
    return summed(value).item() / dist.get_world_size()


@mistake(
    "weighted_mean",
    "The sum of value times weight is divided by the number of ranks. Divide it by the sum of the weights.",
)
def divided_by_ranks(value, weight):
    return (summed(value.double() * weight) / dist.get_world_size()).item()


@mistake(
    "weighted_mean",
    "This is the value of the rank itself. Nothing was asked of the others: use dist.all_reduce.",
)
def own_value(value, weight):
    return value.item()


@mistake(
    "weighted_mean",
    "Only rank 0 has the result: dist.reduce gives it to one rank. dist.all_reduce gives it to all.",
)
def only_on_rank_0(value, weight):
    sums = torch.stack([value.double() * weight if weight else value.double().new_zeros(()), 0 * value.double()])
    sums[1] = weight
    mine = sums.clone()
    dist.reduce(sums, dst=0)
    total, weights = (sums if dist.get_rank() == 0 else mine).tolist()
    return total / weights if weights else math.nan


@mistake(
    "weighted_mean",
    "A rank without samples makes the result nan everywhere, because nan times 0 is nan. Send 0 where the weight is 0.",
)
def nan_times_zero(value, weight):
    total, weights = summed(torch.stack([value.double() * weight, torch.full_like(value.double(), weight)])).tolist()
    return total / weights if weights else math.nan


@mistake(
    "weighted_mean",
    "The sums are float32, in which 16,777,216 + 1 is 16,777,216: large counts are rounded. Send float64.",
)
def rounded_counts(value, weight):
    sums = value.new_zeros(2)
    if weight:
        sums[0], sums[1] = value * weight, weight
    total, weights = summed(sums).tolist()
    return total / weights if weights else math.nan


@mistake(
    "weighted_mean",
    "Where all weights are 0 Python stops with an error: 0.0 / 0.0 is no number to it. Return math.nan there.",
)
def zero_by_zero(value, weight):
    sums = value.new_zeros(2, dtype=torch.float64)
    if weight:
        sums[0], sums[1] = value * weight, weight
    total, weights = summed(sums).tolist()
    return total / weights


@mistake(
    "device_of",
    "torch.cuda.device is a context manager, not a device, and model.to refuses it. The device is torch.device.",
)
def context_manager(local_rank, device_count):
    if local_rank >= device_count > 0:
        raise ValueError(f"local rank {local_rank}, {device_count} GPUs")
    return torch.cuda.device(local_rank) if device_count else torch.device("cpu")


@mistake(
    "device_of",
    "This is the name of a device, a string. It often works in its place, but has no .type and no .index: put "
    "torch.device around it.",
)
def name_of_the_device(local_rank, device_count):
    if local_rank >= device_count > 0:
        raise ValueError(f"local rank {local_rank}, {device_count} GPUs")
    return f"cuda:{local_rank}" if device_count else "cpu"


@mistake(
    "device_of",
    "Without its number, cuda is the current GPU, which is number 0 in every process: all of them would share it. Give "
    "the device the local rank.",
)
def current_gpu(local_rank, device_count):
    if local_rank >= device_count > 0:
        raise ValueError(f"local rank {local_rank}, {device_count} GPUs")
    return torch.device("cuda" if device_count else "cpu")


@mistake(
    "device_of",
    "On a machine without a GPU there is no cuda device. Return the CPU where device_count is 0.",
)
def always_cuda(local_rank, device_count):
    if local_rank >= device_count > 0:
        raise ValueError(f"local rank {local_rank}, {device_count} GPUs")
    return torch.device("cuda", local_rank)


@mistake(
    "device_of",
    "Two processes share a GPU where there are more processes than GPUs, and nobody is told. That is asked to be a "
    "ValueError.",
)
def counted_round(local_rank, device_count):
    return torch.device("cuda", local_rank % device_count) if device_count else torch.device("cpu")


@mistake(
    "device_of",
    "A process too many computes on the CPU, and all GPUs wait for it in every step. That is asked to be a ValueError.",
)
def falls_back_to_the_cpu(local_rank, device_count):
    return torch.device("cuda", local_rank) if local_rank < device_count else torch.device("cpu")


@mistake(
    "device_of",
    "Ranks count from 0, so with 2 GPUs the last one is number 1. Your comparison lets one process too many through: "
    "try >= instead of >.",
)
def one_too_many(local_rank, device_count):
    if local_rank > device_count > 0:
        raise ValueError(f"local rank {local_rank}, {device_count} GPUs")
    return torch.device("cuda", local_rank) if device_count else torch.device("cpu")


@mistake(
    "device_of",
    "The error does not say how many GPUs there are and which one was asked for. Put both numbers into its message.",
)
def error_without_numbers(local_rank, device_count):
    if local_rank >= device_count > 0:
        raise ValueError("more processes than GPUs")
    return torch.device("cuda", local_rank) if device_count else torch.device("cpu")


FACTS = {letter: letter in "ACDEIKM" for letter in "ABCDEFGHIJKLMN"}


@mistake(
    "ddp_facts",
    "A is true. DDP's constructor compares the shapes of the parameters and then sends those of rank 0, and the "
    "buffers, to all. Without it the means of the gradients would be taken at different weights.",
)
def every_rank_starts_elsewhere():
    return FACTS | {"A": False}


@mistake(
    "ddp_facts",
    "B is false: that is DataParallel. DDP computes on what its rank passes to it; the sampler gives each rank a "
    "batch of its own. Read again what the sampler of this unit is for.",
)
def divides_the_batch():
    return FACTS | {"B": True}


@mistake(
    "ddp_facts",
    "C is true. The exchange of a gradient begins as soon as backward has made it, and is over when backward returns. "
    "The optimizer finds the mean in p.grad and works alone.",
)
def step_synchronises():
    return FACTS | {"C": False}


@mistake(
    "ddp_facts",
    "D is true. DDP divides the sum by the number of ranks. Whoever divides once more takes steps that are too small; "
    "and with shards of different sizes it is a mean of means.",
)
def sum_of_shards():
    return FACTS | {"D": False}


@mistake(
    "ddp_facts",
    "E is true. All optimizers begin alike and get the same gradients, so they do the same. What is sent in a step are "
    "gradients and nothing else.",
)
def states_are_sent():
    return FACTS | {"E": False}


@mistake(
    "ddp_facts",
    "F is false. The loss is that of the rank's own samples; only gradients are averaged. For the loss of all ranks "
    "use a collective of your own, with weights.",
)
def loss_of_all():
    return FACTS | {"F": True}


@mistake(
    "ddp_facts",
    "G is false. Before a forward pass DDP sends the buffers of rank 0 to the others; no mean is taken. Read again the "
    "section on what normalisation sees.",
)
def statistics_are_averaged():
    return FACTS | {"G": True}


@mistake(
    "ddp_facts",
    "H is false. Operations are matched by their order on each rank, and an all-reduce ends nowhere before all ranks "
    "have come to it. DDP synchronises in backward; a barrier before the batch is only one more wait.",
)
def barrier_before_the_batch():
    return FACTS | {"H": True}


@mistake(
    "ddp_facts",
    "I is true. A download is not an operation between ranks, so nothing else makes the others wait for it. This is "
    "what a barrier is good for.",
)
def no_barrier_ever():
    return FACTS | {"I": False}


@mistake(
    "ddp_facts",
    "J is false. All ranks draw the same permutation, from seed + epoch, and take different places of it. Read again "
    "the section on who gets which sample.",
)
def ranks_shuffle_alone():
    return FACTS | {"J": True}


@mistake(
    "ddp_facts",
    "K is true. The order is filled up from its start until all ranks have equally many. For an accuracy take shards "
    "without padding, and put them together with their weights.",
)
def padding_is_harmless():
    return FACTS | {"K": False}


@mistake(
    "ddp_facts",
    "L is false. The others wait in their backward pass for the one that has stopped, until a time limit ends them. "
    "Make all shards equally long, or use ddp.join().",
)
def goes_on_without_it():
    return FACTS | {"L": True}


@mistake(
    "ddp_facts",
    "M is true. RANK counts over all machines, LOCAL_RANK on each, and WORLD_SIZE is the number of all processes. Read "
    "again the table of two machines.",
)
def rank_is_local():
    return FACTS | {"M": False}


@mistake(
    "ddp_facts",
    "N is false. At that address the ranks meet at the start and learn each other's addresses. The gradients go "
    "between the ranks directly, and every rank adds up a part of them.",
)
def gradients_go_to_the_master():
    return FACTS | {"N": True}


@mistake("ddp_facts", "The verdicts are words. True and False are values of their own in Python, without quotes.")
def facts_in_words():
    return {letter: str(verdict) for letter, verdict in FACTS.items()}


def _writer():
    return int(os.environ["RANK"]) == 0


def _train(options, set_epoch=True, writer=_writer, wrapped=False, momentum=True, own_loss=False, replace=os.replace):
    """A right answer in pieces, so that each mistake can spoil one of them."""
    rank, world_size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    dist.init_process_group("gloo")
    try:
        torch.manual_seed(options.seed)
        bare = options.make_model()
        model = DistributedDataParallel(bare)
        sampler = DistributedSampler(options.dataset, seed=options.seed)
        loader = DataLoader(options.dataset, options.batch_size // world_size, sampler=sampler)
        optimizer = torch.optim.SGD(model.parameters(), lr=options.lr, momentum=0.9)
        owner, step, losses = model if wrapped else bare, 0, []
        if os.path.exists(options.checkpoint):
            saved = torch.load(options.checkpoint)
            owner.load_state_dict(saved["model"])
            if momentum:
                optimizer.load_state_dict(saved["optimizer"])
            step = saved["step"]
        for epoch in range(step // len(loader), options.epochs):
            if set_epoch:
                sampler.set_epoch(epoch)
            done, total, count = step - epoch * len(loader), torch.zeros(()), 0
            for batch, (images, labels) in enumerate(loader):
                if batch < done:
                    continue
                torch.manual_seed(hash((options.seed, step, rank)))
                loss = F.cross_entropy(model(images), labels)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                step, total, count = step + 1, total + loss.detach() * len(labels), count + len(labels)
                if writer() and (step % options.save_every == 0 or step % len(loader) == 0):
                    state = {"model": owner.state_dict(), "optimizer": optimizer.state_dict(), "step": step}
                    torch.save(state, f"{options.checkpoint}.part{rank}")
                    replace(f"{options.checkpoint}.part{rank}", options.checkpoint)
            if own_loss:
                total *= world_size
            else:
                dist.all_reduce(total)
            losses.append(total.item() / (count * world_size))
            if rank == 0:
                options.report(epoch, losses[-1])
        return losses
    finally:
        dist.destroy_process_group()


@mistake(
    "train_ddp",
    "Every epoch comes in the same order: the sampler shuffles by its seed and its epoch, and does not know the epoch. "
    "Call sampler.set_epoch(epoch) before the loader is iterated.",
)
def without_set_epoch(options):
    return _train(options, set_epoch=False)


@mistake(
    "train_ddp",
    "The loss is that of one rank's samples. Sum it over all ranks with dist.all_reduce, on every rank, and divide by "
    "the samples of all.",
)
def loss_of_one_rank(options):
    return _train(options, own_loss=True)


@mistake(
    "train_ddp",
    "A process on each machine writes the checkpoint, because LOCAL_RANK 0, or no rank at all, was asked for. RANK 0 "
    "exists once: let that one write.",
)
def every_machine_writes(options):
    return _train(options, writer=lambda: os.environ["LOCAL_RANK"] == "0")


@mistake(
    "train_ddp",
    "The names in the checkpoint begin with module.: they are those of DistributedDataParallel, which a model alone "
    "cannot load. Save the state of the model that you wrapped.",
)
def names_of_the_wrapper(options):
    return _train(options, wrapped=True)


def _copy_over(source, target):
    shutil.copyfile(source, target)
    os.remove(source)


@mistake(
    "train_ddp",
    "The checkpoint is written over while it may be read, or while the process may die. Write a file beside it and "
    "put that one in its place with os.replace.",
)
def writes_over(options):
    return _train(options, replace=_copy_over)


@mistake(
    "train_ddp",
    "The second life begins with an optimizer that has forgotten its momentum. Load its state from the checkpoint too.",
)
def forgets_momentum(options):
    return _train(options, momentum=False)


def environment(node, local_rank, nodes, per_node, address, port, **other):
    """The right variables, some of them replaced."""
    right = {
        "MASTER_ADDR": address,
        "MASTER_PORT": port,
        "WORLD_SIZE": nodes * per_node,
        "RANK": node * per_node + local_rank,
        "LOCAL_RANK": local_rank,
        "LOCAL_WORLD_SIZE": per_node,
        "GROUP_RANK": node,
    }
    return {name: str(value) for name, value in (right | other).items()}


@mistake(
    "rank_environment",
    "MASTER_ADDR and MASTER_PORT are missing: nobody knows where to meet. WORLD_SIZE alone does not say it.",
)
def nowhere_to_meet(*args):
    return {name: value for name, value in environment(*args).items() if not name.startswith("MASTER")}


@mistake("rank_environment", "Numbers are given as int, and an environment holds only strings. Put str() around them.")
def numbers(*args):
    return {name: int(value) if value.isdecimal() else value for name, value in environment(*args).items()}


@mistake(
    "rank_environment",
    "RANK is counted on each node anew, so there are several ranks 0. Add the processes of the nodes before.",
)
def rank_of_the_node(node, local_rank, *rest):
    return environment(node, local_rank, *rest, RANK=local_rank)


@mistake(
    "rank_environment",
    "Ranks are dealt to the nodes in turn. The first per_node ranks are those of node 0: node * per_node + local_rank.",
)
def ranks_in_turn(node, local_rank, nodes, *rest):
    return environment(node, local_rank, nodes, *rest, RANK=local_rank * nodes + node)


@mistake(
    "rank_environment",
    "WORLD_SIZE is the number of machines. It is that of all processes: nodes * per_node.",
)
def world_of_machines(node, local_rank, nodes, *rest):
    return environment(node, local_rank, nodes, *rest, WORLD_SIZE=nodes)


@mistake(
    "rank_environment",
    "LOCAL_WORLD_SIZE is the number of all processes. It is that of one machine: per_node.",
)
def whole_world_on_a_node(node, local_rank, nodes, per_node, *rest):
    return environment(node, local_rank, nodes, per_node, *rest, LOCAL_WORLD_SIZE=nodes * per_node)


@mistake("rank_environment", "GROUP_RANK is the rank of the process. It is the number of the machine: node.")
def group_of_one(node, local_rank, nodes, per_node, *rest):
    return environment(node, local_rank, nodes, per_node, *rest, GROUP_RANK=node * per_node + local_rank)


@mistake("rank_environment", "LOCAL_RANK is the rank among all processes. It counts on its own machine: local_rank.")
def local_rank_of_all(node, local_rank, nodes, per_node, *rest):
    return environment(node, local_rank, nodes, per_node, *rest, LOCAL_RANK=node * per_node + local_rank)


@mistake(
    "update_plan",
    "`i % every == 0` holds for i = 0: an update follows the first micro-batch. Count those that are through, i + 1.",
)
def after_the_first(n_batches, every):
    return [i % every == 0 or i == n_batches - 1 for i in range(n_batches)]


@mistake(
    "update_plan",
    "The gradients of a short last group are never used. The last micro-batch of the epoch has an update too.",
)
def tail_dropped(n_batches, every):
    return [(i + 1) % every == 0 for i in range(n_batches)]


@mistake(
    "update_plan",
    "The numbers of the micro-batches with an update are listed. Say True or False for every micro-batch.",
)
def numbers_of_updates(n_batches, every):
    return [i for i in range(n_batches) if (i + 1) % every == 0 or i + 1 == n_batches]


@mistake("update_plan", "An update follows every micro-batch but each `every`-th: the condition is turned round.")
def turned_round(n_batches, every):
    return [not ((i + 1) % every == 0 or i + 1 == n_batches) for i in range(n_batches)]


@mistake("update_plan", "An epoch without micro-batches gets an update. Its plan is an empty list.")
def one_for_nothing(n_batches, every):
    return [(i + 1) % every == 0 for i in range(n_batches - 1)] + [True]


def inside(i, last, no_sync):
    """What the forward and backward pass of micro-batch i of a group belong in."""
    return contextlib.nullcontext() if last else no_sync()


def by_samples(targets, group):
    return len(targets) / sum(len(t) for _, t in group)


def accumulated(
    batches, optimizer, every, no_sync, loss, weight=by_samples, inside=inside, zero_grad=True, tail=True, count=1
):
    """The right loop, with one idea to get wrong each; `loss(inputs, targets)` is that of a micro-batch."""
    updates = 0
    for start in range(0, len(batches), every):
        group = batches[start : start + every]
        if len(group) < every and not tail:
            break
        if zero_grad:
            optimizer.zero_grad()
        for i, (inputs, targets) in enumerate(group):
            with inside(i, i == len(group) - 1, no_sync):
                (loss(inputs, targets) * weight(targets, group)).backward()
        optimizer.step()
        updates += count or len(group)
    return updates


@mistake(
    "accumulate",
    "This is the published loop: a step after the first micro-batch, no division, no tail. Form the groups first.",
)
def published(model, batches, loss_fn, optimizer, every, no_sync):
    updates = 0
    optimizer.zero_grad()
    for i, (inputs, targets) in enumerate(batches):
        loss_fn(model(inputs), targets).backward()
        if i % every == 0:
            optimizer.step()
            optimizer.zero_grad()
            updates += 1
    return updates


@mistake(
    "accumulate",
    "The means of the micro-batches are added: the gradient grows with `every`. Weight each with its share of samples.",
)
def sum_of_means(model, batches, loss_fn, optimizer, every, no_sync):
    return accumulated(
        batches, optimizer, every, no_sync, lambda x, y: loss_fn(model(x), y), weight=lambda targets, group: 1
    )


@mistake(
    "accumulate",
    "Each loss is divided by `every`, also in the short last group. Divide by what the group really holds.",
)
def divided_by_every(model, batches, loss_fn, optimizer, every, no_sync):
    return accumulated(
        batches, optimizer, every, no_sync, lambda x, y: loss_fn(model(x), y), weight=lambda targets, group: 1 / every
    )


@mistake(
    "accumulate",
    "Each micro-batch weighs the same, so samples of a small one weigh more. Weight it with its share of the samples.",
)
def mean_of_group_means(model, batches, loss_fn, optimizer, every, no_sync):
    return accumulated(
        batches, optimizer, every, no_sync, lambda x, y: loss_fn(model(x), y),
        weight=lambda targets, group: 1 / len(group),
    )  # fmt: skip


@mistake("accumulate", "A short last group has no update: its samples are wasted. Let the last slice be short.")
def short_group_dropped(model, batches, loss_fn, optimizer, every, no_sync):
    return accumulated(batches, optimizer, every, no_sync, lambda x, y: loss_fn(model(x), y), tail=False)


@mistake(
    "accumulate",
    "Gradients are sent after every micro-batch. Run all but the last of a group inside of `with no_sync():`.",
)
def always_sent(model, batches, loss_fn, optimizer, every, no_sync):
    return accumulated(
        batches, optimizer, every, no_sync, lambda x, y: loss_fn(model(x), y),
        inside=lambda i, last, no_sync: contextlib.nullcontext(),
    )  # fmt: skip


@mistake(
    "accumulate",
    "All micro-batches are inside of no_sync(), so nothing is ever sent. The last one of a group must be outside.",
)
def never_sent(model, batches, loss_fn, optimizer, every, no_sync):
    return accumulated(
        batches, optimizer, every, no_sync, lambda x, y: loss_fn(model(x), y),
        inside=lambda i, last, no_sync: no_sync(),
    )  # fmt: skip


@mistake(
    "accumulate",
    "The first micro-batch of a group is sent and the others are not. It is the last one that sends the whole sum.",
)
def first_is_sent(model, batches, loss_fn, optimizer, every, no_sync):
    return accumulated(
        batches, optimizer, every, no_sync, lambda x, y: loss_fn(model(x), y),
        inside=lambda i, last, no_sync: no_sync() if i else contextlib.nullcontext(),
    )  # fmt: skip


@mistake(
    "accumulate",
    "Only backward is inside of no_sync(), but DDP decides at the forward pass whether to send. Put both inside.",
)
def backward_alone(model, batches, loss_fn, optimizer, every, no_sync):
    updates = 0
    for start in range(0, len(batches), every):
        group = batches[start : start + every]
        optimizer.zero_grad()
        for i, (inputs, targets) in enumerate(group):
            loss = loss_fn(model(inputs), targets) * by_samples(targets, group)
            with inside(i, i == len(group) - 1, no_sync):
                loss.backward()
        optimizer.step()
        updates += 1
    return updates


@mistake(
    "accumulate",
    "The losses are added and one backward pass runs at the end, so all activations are kept. Go backward each time.",
)
def one_backward(model, batches, loss_fn, optimizer, every, no_sync):
    updates = 0
    for start in range(0, len(batches), every):
        group = batches[start : start + every]
        optimizer.zero_grad()
        total = 0.0
        for i, (inputs, targets) in enumerate(group):
            with inside(i, i == len(group) - 1, no_sync):
                total = total + loss_fn(model(inputs), targets) * by_samples(targets, group)
        total.backward()
        optimizer.step()
        updates += 1
    return updates


@mistake("accumulate", "Gradients are never set to zero, so each update holds all that came before. Call zero_grad().")
def never_zero(model, batches, loss_fn, optimizer, every, no_sync):
    return accumulated(batches, optimizer, every, no_sync, lambda x, y: loss_fn(model(x), y), zero_grad=False)


@mistake(
    "accumulate",
    "zero_grad() runs before every micro-batch, so only the last one of a group is left. Call it once a group.",
)
def zero_each_time(model, batches, loss_fn, optimizer, every, no_sync):
    def loss(inputs, targets):
        optimizer.zero_grad()
        return loss_fn(model(inputs), targets)

    return accumulated(batches, optimizer, every, no_sync, loss)


@mistake(
    "accumulate",
    "zero_grad() runs after updates only, so the first one holds what lay in grad before. Call it at the start too.",
)
def zero_afterwards(model, batches, loss_fn, optimizer, every, no_sync):
    def loss(inputs, targets):
        return loss_fn(model(inputs), targets)

    updates = 0
    for start in range(0, len(batches), every):
        updates += accumulated(batches[start : start + every], optimizer, every, no_sync, loss, zero_grad=False)
        optimizer.zero_grad()
    return updates


@mistake("accumulate", "The micro-batches are counted. Count the updates, one a group.")
def micro_batches_counted(model, batches, loss_fn, optimizer, every, no_sync):
    return accumulated(batches, optimizer, every, no_sync, lambda x, y: loss_fn(model(x), y), count=0)


@mistake("accumulate", "The loss is always cross-entropy. Call the loss_fn that you are given.")
def own_loss(model, batches, loss_fn, optimizer, every, no_sync):
    return accumulated(batches, optimizer, every, no_sync, lambda x, y: F.cross_entropy(model(x), y))


def lightning(model, loader, lr, epochs, zero_grad=True, **settings):
    """Losses (tensors) of a training by Lightning with the optimizer called by hand, and one idea to get wrong each."""
    import pytorch_lightning as pl

    class ByHand(pl.LightningModule):
        def __init__(self):
            super().__init__()
            self.model, self.losses, self.automatic_optimization = model, [], False

        def training_step(self, batch, batch_idx):
            inputs, labels = batch
            loss = F.cross_entropy(self.model(inputs), labels)
            if zero_grad:
                self.optimizers().zero_grad()
            self.manual_backward(loss)
            self.optimizers().step()
            self.losses.append(loss.detach())

        def configure_optimizers(self):
            return torch.optim.SGD(self.model.parameters(), lr)

    quiet = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False}
    here = {"accelerator": "cpu", "devices": dist.get_world_size(), "max_epochs": epochs}
    module = ByHand()
    pl.Trainer(**(quiet | here | settings)).fit(module, loader)
    return module.losses


@mistake(
    "lightning_fit",
    "Every rank trains on the whole data set. Leave use_distributed_sampler on: it gives each rank a share.",
)
def all_of_the_data(model, loader, lr, epochs):
    return [loss.item() for loss in lightning(model, loader, lr, epochs, use_distributed_sampler=False)]


@mistake(
    "lightning_fit",
    "The Trainer plans for fewer devices than there are ranks. Say devices=dist.get_world_size().",
)
def one_device(model, loader, lr, epochs):
    return [loss.item() for loss in lightning(model, loader, lr, epochs, devices=1)]


@mistake("lightning_fit", "The losses are tensors. Note loss.item(), a number.")
def tensors(model, loader, lr, epochs):
    return lightning(model, loader, lr, epochs)


@mistake(
    "lightning_fit",
    "The optimizer steps by hand here, and gradients pile up. Leave that to Lightning, or call zero_grad().",
)
def gradients_pile_up(model, loader, lr, epochs):
    return [loss.item() for loss in lightning(model, loader, lr, epochs, zero_grad=False)]


def efficiencies(ranks, seconds, weak, first=None, strong=None, power=1):
    """The right formula, with one idea to get wrong each."""
    n, seconds = torch.tensor(ranks), seconds.double()
    alone = seconds[ranks.index(1)] if first is None else first(seconds)
    speedup = (alone / seconds) ** power
    return speedup if weak else strong(speedup, n) if strong else speedup / n


@mistake("efficiency", "This is the speed-up. Strong scaling divides it by the number of ranks.")
def speedup_alone(ranks, seconds, weak=False):
    return efficiencies(ranks, seconds, True)


@mistake("efficiency", "Weak scaling is divided by the number of ranks too. There the ideal time is t1 itself.")
def always_strong(ranks, seconds, weak=False):
    return efficiencies(ranks, seconds, False)


@mistake("efficiency", "t1 is taken from the first place of the list. Look for the measurement on one rank.")
def first_in_the_list(ranks, seconds, weak=False):
    ranks.index(1)
    return efficiencies(ranks, seconds, weak, first=lambda seconds: seconds[0])


@mistake("efficiency", "The fraction is upside down: more time gives more efficiency. Divide t1 by the seconds.")
def ratio_upside_down(ranks, seconds, weak=False):
    return efficiencies(ranks, seconds, weak, power=-1, strong=lambda slowdown, n: slowdown * n)


@mistake("efficiency", "Values above 1 are cut off. They happen, and are worth a look: leave them.")
def cut_off(ranks, seconds, weak=False):
    return efficiencies(ranks, seconds, weak).clamp(max=1)


@mistake("efficiency", "The result has the precision of the seconds. Take seconds.double() first.")
def single_precision(ranks, seconds, weak=False):
    return efficiencies(ranks, seconds, weak).to(seconds.dtype)


@mistake("efficiency", "Without a measurement on one rank another one stands in for it. Raise a ValueError.")
def fewest_ranks(ranks, seconds, weak=False):
    return efficiencies(ranks, seconds, weak, first=lambda seconds: seconds[ranks.index(min(ranks))])


def line(ranks, seconds):
    """(intercept, slope) of the seconds against 1 / N."""
    slope, intercept = np.polyfit(1 / np.array(ranks), seconds.double().numpy(), 1)
    return float(intercept), float(slope)


@mistake("fit_serial_share", "s is not kept inside of [0, 1]. What is the best fit among those that may be?")
def unbounded(ranks, seconds):
    a, b = line(ranks, seconds)
    return a + b, a / (a + b)


@mistake(
    "fit_serial_share",
    "s is clipped and t1 stays that of the line outside. For the clipped s another t1 fits best: fit it anew.",
)
def clipped_afterwards(ranks, seconds):
    a, b = line(ranks, seconds)
    return a + b, max(a, 0.0) / (max(a, 0.0) + max(b, 0.0))


@mistake(
    "fit_serial_share",
    "a / (a + b) is clipped, but a + b is negative where the line is below 0 at N = 1. Look at the signs of a and b.",
)
def clipped_ratio(ranks, seconds):
    a, b = line(ranks, seconds)
    s = min(max(a / (a + b), 0.0), 1.0)
    x, y = 1 / np.array(ranks), seconds.double().numpy()
    u = s + (1 - s) * x
    return float(u @ y / (u @ u)), s


@mistake(
    "fit_serial_share",
    "A negative intercept or slope is put to 0 and the other stays. The other one has to be fitted anew.",
)
def other_one_stays(ranks, seconds):
    a, b = (max(c, 0.0) for c in line(ranks, seconds))
    return a + b, a / (a + b)


@mistake("fit_serial_share", "This is the share that divides. s is the serial one, the intercept's: a / (a + b).")
def parallel_share(ranks, seconds):
    a, b = (max(c, 0.0) for c in line(ranks, seconds))
    s = a / (a + b)
    x, y = 1 / np.array(ranks), seconds.double().numpy()
    u = s + (1 - s) * x
    return float(u @ y / (u @ u)), 1 - s


@mistake(
    "fit_serial_share",
    "t1 is the smallest number of ranks' time as it was measured. It is noisy like all: fit it with the others.",
)
def measured_t1(ranks, seconds):
    y, x = seconds.double().numpy(), 1 / np.array(ranks)
    t1 = y[ranks.index(min(ranks))]
    s = ((y / t1 - x) @ (1 - x)) / ((1 - x) @ (1 - x))
    return float(t1), float(min(max(s, 0.0), 1.0))


@mistake("fit_serial_share", "The line is fitted against N. Amdahl's law is a straight line in 1 / N.")
def line_in_n(ranks, seconds):
    b, a = np.polyfit(np.array(ranks), seconds.double().numpy(), 1)
    a, b = max(float(a), 0.0), max(float(b), 0.0)
    return a + b, a / (a + b)


@mistake(
    "fit_serial_share", "It computes in float32, where a fit loses half of its digits. Take seconds.double() first."
)
def float32_fit(ranks, seconds):
    x, y = 1 / torch.tensor(ranks, dtype=torch.float32), seconds.float()
    dx = x - x.mean()
    b = ((dx * y).sum() / (dx * dx).sum()).clamp(min=0)
    a = (y.mean() - b * x.mean()).clamp(min=0)
    u = a / (a + b) + b / (a + b) * x
    return (u @ y / (u @ u)).item(), (a / (a + b)).item()
