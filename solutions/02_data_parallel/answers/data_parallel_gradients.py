"""Known mistakes of exercise data_parallel_gradients, and right answers in other styles."""

import copy
import itertools

import torch
from torch.func import functional_call

from course.checks.engine import alternative, mistake


def _send(transfers, tensors, source, target):
    return transfers.send(tensors, source, target)


def _send_to_others(transfers, tensors, source, target):
    return tensors if source == target else transfers.send(tensors, source, target)


def _scatter(batch, transfers, send=_send):
    """The right parts of a tensor, whose way to send can be spoilt."""
    return [send(transfers, [piece], 0, k)[0] for k, piece in enumerate(batch.chunk(len(transfers.devices)))]


def _replicate(module, transfers, n=None, send=_send, use=lambda copied: copied):
    """A right answer whose ways to send and to use a copy can be spoilt."""
    tensors = [*module.parameters(), *module.buffers()]
    replicas = []
    for place in range(len(transfers.devices) if n is None else n):
        copies = map(use, send(transfers, tensors, 0, place))
        replicas.append(copy.deepcopy(module, dict(zip(map(id, tensors), copies, strict=True))))
    return replicas


def _gather(outputs, transfers, send=_send):
    """A right answer whose way to send can be spoilt."""
    arrived = [send(transfers, [output], place, 0)[0] for place, output in enumerate(outputs)]
    return torch.cat([torch.atleast_1d(output) for output in arrived])


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


@alternative("data_parallel_gradients")
def functional_calls(module, batch, targets, loss_fn, transfers):
    everything = dict([*module.named_parameters(), *module.named_buffers()])
    trained = [name for name, tensor in everything.items() if tensor.requires_grad]
    parts = [transfers.send([p], 0, k).pop() for k, p in enumerate(batch.chunk(len(transfers.devices)))]
    with torch.no_grad():
        states = [transfers.send(list(everything.values()), 0, k) for k, _ in enumerate(parts)]
    states = [dict(zip(everything, state, strict=True)) for state in states]
    for state, name in itertools.product(states, trained):
        state[name] = state[name].detach().requires_grad_()
    results = [functional_call(module, state, (part,)) for state, part in zip(states, parts, strict=True)]
    whole = torch.cat([transfers.send([r.detach()], k, 0).pop() for k, r in enumerate(results)]).requires_grad_()
    loss = loss_fn(whole, targets)
    (wanted,) = torch.autograd.grad(loss, [whole])
    wanted = [transfers.send([w], 0, k).pop() for k, w in enumerate(wanted.chunk(len(transfers.devices)))]
    back = [
        torch.autograd.grad([result], [state[name] for name in trained], [pull])
        for result, state, pull in zip(results, states, wanted, strict=True)
    ]
    total = [0] * len(trained)
    for k, gradients in enumerate(back):
        arrived = transfers.send(gradients, k, 0)
        total = [a + b for a, b in zip(total, arrived, strict=True)]
    return loss.detach(), dict(zip(trained, total, strict=True))


@alternative("data_parallel_gradients")
def backward_in_each_replica(module, batch, targets, loss_fn, transfers):
    places = range(len(batch.chunk(len(transfers.devices))))
    inputs = [transfers.send([batch.chunk(len(transfers.devices))[k]], 0, k)[0].detach() for k in places]
    replicas = []
    for k in places:
        copies = iter(transfers.send([*module.parameters(), *module.buffers()], 0, k))
        replica = copy.deepcopy(module).requires_grad_(False)
        replica.zero_grad()
        for parameter, original in zip(replica.parameters(), module.parameters(), strict=True):
            parameter.data = next(copies).data
            parameter.requires_grad = original.requires_grad
        for buffer in replica.buffers():
            buffer.copy_(next(copies))
        replicas.append(replica)
    outputs = [replica(part) for replica, part in zip(replicas, inputs, strict=True)]
    whole = torch.cat([transfers.send([outputs[k].data], k, 0)[0] for k in places])
    whole.requires_grad = True
    loss = loss_fn(whole, targets)
    loss.backward()
    stops = list(itertools.accumulate((len(output) for output in outputs), initial=0))
    sent = [transfers.send([whole.grad[stops[k] : stops[k + 1]]], 0, k)[0] for k in places]
    for k in places:
        outputs[k].backward(sent[k])
    gradients = {}
    for k in places:
        named = {name: p.grad for name, p in replicas[k].named_parameters() if p.grad is not None}
        for name, gradient in zip(named, transfers.send(list(named.values()), k, 0), strict=True):
            gradients[name] = gradients[name] + gradient if name in gradients else gradient
    return loss.detach().clone(), gradients
