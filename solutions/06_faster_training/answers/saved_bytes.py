"""Known mistakes of exercise saved_bytes of unit 06, and right answers in other styles."""

import itertools

import torch
from torch.autograd.graph import saved_tensors_hooks

from course.checks.engine import alternative, mistake


def _owned(module):
    return {t.untyped_storage().data_ptr() for t in itertools.chain(module.parameters(), module.buffers())}


def _kept(call):
    """Detached tensors that autograd keeps, in order."""
    kept = []
    with saved_tensors_hooks(lambda t: kept.append(t.detach()) or t.detach(), lambda t: t):
        call()
    return kept


@mistake("saved_bytes", "What two operations keep counts twice. Count each storage once, by its data_ptr().")
def counted_each_time(call, module):
    owned = _owned(module)
    storages = [t.untyped_storage() for t in _kept(call)]
    return sum(s.nbytes() for s in storages if s.data_ptr() not in owned)


@mistake("saved_bytes", "A view counts with its own values. It keeps its whole storage alive: count that, once.")
def values_of_the_view(call, module):
    owned, sizes = _owned(module), {}
    for t in _kept(call):
        sizes[t.untyped_storage().data_ptr()] = t.numel() * t.element_size()
    return sum(size for place, size in sizes.items() if place not in owned)


@mistake("saved_bytes", "Parameters count, too. They stay in memory in any case: leave the module's own storages out.")
def with_parameters(call, module):
    return sum({t.untyped_storage().data_ptr(): t.untyped_storage().nbytes() for t in _kept(call)}.values())


@mistake("saved_bytes", "The parameters are left out, but the module's buffers (as of BatchNorm) still count.")
def with_buffers(call, module):
    owned = {p.untyped_storage().data_ptr() for p in module.parameters()}
    storages = {t.untyped_storage().data_ptr(): t.untyped_storage().nbytes() for t in _kept(call)}
    return sum(size for place, size in storages.items() if place not in owned)


@mistake("saved_bytes", "Elements are counted, not bytes. A float32 has 4 bytes, a float64 has 8.")
def elements(call, module):
    owned, sizes = _owned(module), {}
    for t in _kept(call):
        sizes[t.untyped_storage().data_ptr()] = t.untyped_storage().nbytes() // t.element_size()
    return sum(size for place, size in sizes.items() if place not in owned)


@mistake("saved_bytes", "All parameters are subtracted, also those that autograd did not keep. Leave out storages.")
def parameters_subtracted(call, module):
    storages = {t.untyped_storage().data_ptr(): t.untyped_storage().nbytes() for t in _kept(call)}
    return sum(storages.values()) - sum(p.numel() * p.element_size() for p in module.parameters())


@alternative("saved_bytes")
def a_set_of_places(call, module):
    seen, total = {t.untyped_storage().data_ptr() for t in [*module.parameters(), *module.buffers()]}, 0

    def pack(tensor):
        nonlocal total
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in seen:
            seen.add(storage.data_ptr())
            held.append(storage)
            total += storage.nbytes()
        return tensor

    held = []
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        result = call()
    del result
    return total


@alternative("saved_bytes")
def a_dictionary_of_storages(call, module):
    storages = {}
    with saved_tensors_hooks(
        lambda t: storages.setdefault(t.untyped_storage().data_ptr(), t) is None or t, lambda t: t
    ):
        call()
    return sum(t.untyped_storage().nbytes() for place, t in storages.items() if place not in _owned(module))
