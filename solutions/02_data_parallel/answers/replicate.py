"""Known mistakes of exercise replicate, and right answers in other styles."""

import copy

from course.checks.known_answers import alternative, mistake

MISTAKES = {
    "new_parameters": (
        "The copies became nn.Parameter, which starts a new graph: gradients end there. Keep what send returned, as "
        "deepcopy with a memo does.",
        ("copies[i]", "nn.Parameter(copies[i].detach(), copies[i].requires_grad)"),
    ),
    "detached_copies": (
        "The copies are cut off from the module's parameters. Send the parameters themselves; detach nothing.",
        ("copies[i]", "copies[i].detach()"),
    ),
    "a_message_for_each_parameter": (
        "Each parameter is sent as a separate message. Send all parameters and buffers of a replica as one list.",
        ("transfers.send(tensors, 0, place)", "[transfers.send([tensor], 0, place)[0] for tensor in tensors]"),
    ),
    "memo_of_the_state_dict": (
        "state_dict() holds new tensors, not the parameters themselves, so deepcopy does not find those in the memo "
        "and makes new parameters, where gradients end. Use module.parameters() and module.buffers().",
        ("[*module.parameters(), *module.buffers()]", "list(module.state_dict().values())"),
    ),
    "buffers_not_sent": (
        "The buffers are copied without being sent, and would stay on place 0. Add module.buffers() to the list.",
        (", *module.buffers()", ""),
    ),
    "shared_buffers": (
        "All replicas share the buffers of the module, so what one writes the others read. Send the buffers too.",
        (", *module.buffers()", ""),
        ("enumerate(tensors)}", "enumerate(tensors)} | {id(b): b for b in module.buffers()}"),
    ),
    "module_itself_at_place_0": (
        "Place 0 gets the module itself, not a replica: what it changes, stays changed. Treat all places alike.",
        ("replicas = []", "replicas = [module]"),
        ("in range(", "in range(1, "),
    ),
    "one_mode_for_all": (
        "train() sets all submodules to one mode, also those that were in eval mode. Leave the "
        "modes as they were copied.",
        ("(module, memo)", "(module, memo).train(module.training)"),
    ),
}


def _put(module, names, tensors):
    """`module`, with `tensors` in the places of its parameters and buffers of these names."""
    for name, tensor in zip(names, tensors, strict=True):
        owner, _, last = name.rpartition(".")
        owner = module.get_submodule(owner)
        (owner._parameters if last in owner._parameters else owner._buffers)[last] = tensor
    return module


@mistake(
    "The replicas are modules for themselves: nothing was sent, and their gradients stay with them. Put the copies "
    "that send returns in the places of the parameters.",
)
def deep_copies(module, transfers, n=None):
    return [copy.deepcopy(module).to(device) for device in transfers.devices[:n]]


@mistake(
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


@alternative
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


@alternative
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
