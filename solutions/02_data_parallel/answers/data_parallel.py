"""Known mistakes of exercise data_parallel, and right answers in other styles."""

import copy
import itertools
import threading
from concurrent.futures import ThreadPoolExecutor

import torch
from torch.func import functional_call
from torch.utils import _pytree as pytree

from course.engine.known_answers import alternative

MISTAKES = {
    "a_replica_for_every_device": (
        "The module is sent to all devices, also to those without a part. Replicate it for len(parts) places.",
        ("transfers, len(parts))", "transfers)[: len(parts)]"),
    ),
    "gradients_stay_in_the_replicas": (
        "The gradients stay in the replicas, which are thrown away. A replica needs copies that autograd "
        "traces back to the module.",
        (
            "    return",
            "    for copied in [p for replica in replicas for p in replica.parameters()]:\n"
            "        copied.detach_().requires_grad_()\n    return",
        ),
    ),
    "place_0_without_messages": (
        "Place 0 computes with the module itself, so it has no message, and may change the "
        "module. Give place 0 a replica.",
        (
            "    parts =",
            "    wire, transfers = transfers, copy.copy(transfers)\n"
            "    transfers.send = lambda tensors, a, b: tensors if a == b else wire.send(tensors, a, b)\n    parts =",
        ),
    ),
    "one_module_for_all_places": (
        "All places compute with one module, the original, and the replicas that were sent are not used. A call may "
        "change the module, and on real devices its parameters lie elsewhere: give each place its replica.",
        ("apply(replicas,", "apply([module] * len(parts),"),
    ),
    "never_replicated": (
        "The module is never replicated: all places call the original, and each call may change it. Call replicate "
        "first.",
        ("replicate(module, transfers, len(parts))", "[module] * len(parts)"),
    ),
    "outputs_are_not_sent": (
        "The outputs are put together where they are, as if all devices were one. Send each to place 0.",
        (
            "gather(parallel_apply(replicas, parts), transfers)",
            "torch.cat([torch.atleast_1d(o) for o in parallel_apply(replicas, parts)])",
        ),
    ),
    "tensors_only": (
        "A batch that is a dict or a tuple is not cut. Use scatter, which walks through it.",
        (
            "scatter(batch, transfers)",
            "[transfers.send([piece], 0, k)[0] for k, piece in enumerate(batch.chunk(len(transfers.devices)))]",
        ),
    ),
    "no_graph": (
        "The outputs are cut off from autograd, so nothing can be trained by them. Detach nothing.",
        (
            "return gather(parallel_apply(replicas, parts), transfers)",
            "with torch.no_grad():\n        outputs = parallel_apply(replicas, parts)\n"
            "    return gather(outputs, transfers).requires_grad_(torch.is_grad_enabled())",
        ),
    ),
}


def _scatter(batch, transfers):
    leaves, form = pytree.tree_flatten(batch)
    where = [i for i, leaf in enumerate(leaves) if torch.is_tensor(leaf)]
    parts = []
    for place, pieces in enumerate(
        zip(*(leaves[i].chunk(len(transfers.devices)) for i in where), strict=True)
    ):
        arrived = dict(zip(where, transfers.send(list(pieces), 0, place), strict=True))
        parts.append(
            pytree.tree_unflatten([arrived.get(i, leaf) for i, leaf in enumerate(leaves)], form)
        )
    return parts


def _entered_modes():
    """A function that puts the calling thread into the modes that this one has now."""
    grad = torch.is_grad_enabled()
    casts = [
        (k, torch.is_autocast_enabled(k), torch.get_autocast_dtype(k)) for k in ("cpu", "cuda")
    ]

    def enter():
        torch.set_grad_enabled(grad)
        for kind, on, dtype in casts:
            torch.set_autocast_enabled(kind, on)
            torch.set_autocast_dtype(kind, dtype)

    return enter


def attribute_by_attribute(module, transfers, n):
    """As torch does it: a shallow copy of each submodule, the copies as plain attributes, no parameters listed."""
    everything = list(dict.fromkeys([*module.parameters(), *module.buffers()]))
    replicas = []
    for place in range(n):
        sent = dict(zip(everything, transfers.send(everything, 0, place), strict=True))
        twins = {original: original.__new__(type(original)) for original in module.modules()}
        for original, twin in twins.items():
            twin.__dict__ = original.__dict__ | {
                "_parameters": {},
                "_buffers": dict(original._buffers),
            }
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


@alternative
def steps_of_others(module, batch, transfers):
    parts = _scatter(batch, transfers)
    replicas = attribute_by_attribute(module, transfers, len(parts))
    with ThreadPoolExecutor(len(parts), initializer=_entered_modes()) as pool:
        futures = [
            pool.submit(replica, part) for replica, part in zip(replicas, parts, strict=True)
        ]
    return one_after_the_other([future.result() for future in futures], transfers)


@alternative
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
