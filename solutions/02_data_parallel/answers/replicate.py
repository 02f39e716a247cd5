"""Known mistakes of exercise replicate, and right answers in other styles."""

import copy

import torch
from torch import nn

from course.checks.engine import alternative, mistake


def _send(transfers, tensors, source, target):
    return transfers.send(tensors, source, target)


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
    "state_dict() holds new tensors, not the parameters themselves, so deepcopy does not find those in the memo and "
    "makes parameters of its own, where gradients end. Take module.parameters() and module.buffers().",
)
def memo_of_the_state_dict(module, transfers, n=None):
    tensors = list(module.state_dict().values())
    copies = [transfers.send(tensors, 0, place) for place in range(len(transfers.devices) if n is None else n)]
    return [copy.deepcopy(module, dict(zip(map(id, tensors), sent, strict=True))) for sent in copies]


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


@alternative("replicate")
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


@alternative("replicate")
def copies_put_in_by_name(module, transfers, n=None):
    def replica(place):
        new = copy.deepcopy(module)
        pairs = {}
        for old_part, new_part in zip(module.modules(), new.modules(), strict=True):
            for table in ("_parameters", "_buffers"):
                for name, tensor in getattr(old_part, table).items():
                    if tensor is not None:
                        pairs.setdefault(id(tensor), (tensor, []))[1].append((getattr(new_part, table), name))
        arrived = transfers.send([tensor for tensor, _ in pairs.values()], 0, place)
        for copied, (_, holders) in zip(arrived, pairs.values(), strict=True):
            for table, name in holders:
                table[name] = copied
        return new

    return [replica(place) for place in range(n or len(transfers.devices))]
