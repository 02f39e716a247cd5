"""Known mistakes of exercise saved_bytes, and right answers in other styles."""

import torch
from torch.autograd.graph import saved_tensors_hooks

from course.checks.engine import alternative, mistake


def _storages(call):
    found = {}

    def pack(tensor):
        found[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage()
        return tensor.detach()

    with saved_tensors_hooks(pack, lambda tensor: tensor):
        call()
    return found


def _places(known):
    return {tensor.untyped_storage().data_ptr() for tensor in known}


@mistake("saved_bytes", "A storage that is saved twice counts twice. Keep the addresses that you have counted.")
def counted_each_time(call, known=()):
    sizes = []

    def pack(tensor):
        if tensor.untyped_storage().data_ptr() not in _places(known):
            sizes.append(tensor.untyped_storage().nbytes())
        return tensor.detach()

    with saved_tensors_hooks(pack, lambda tensor: tensor):
        call()
    return sum(sizes)


@mistake("saved_bytes", "A view counts with its own values alone. It keeps its whole storage alive: count that, once.")
def values_of_the_view(call, known=()):
    found = {}

    def pack(tensor):
        found[tensor.untyped_storage().data_ptr()] = tensor.numel() * tensor.element_size()
        return tensor.detach()

    with saved_tensors_hooks(pack, lambda tensor: tensor):
        call()
    return sum(size for place, size in found.items() if place not in _places(known))


@mistake("saved_bytes", "The tensors in `known` are counted, too. Leave out every storage that one of them lies in.")
def known_ones_count(call, known=()):
    return sum(storage.nbytes() for storage in _storages(call).values())


@mistake("saved_bytes", "Elements are counted, not bytes. A float32 has 4 of them, a float64 has 8.")
def elements_instead_of_bytes(call, known=()):
    found = {}

    def pack(tensor):
        found[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes() // tensor.element_size()
        return tensor.detach()

    with saved_tensors_hooks(pack, lambda tensor: tensor):
        call()
    return sum(size for place, size in found.items() if place not in _places(known))


@mistake("saved_bytes", "Every element counts as 4 bytes. Ask the storage for its bytes: nbytes().")
def four_bytes_each(call, known=()):
    found = {}

    def pack(tensor):
        storage = tensor.untyped_storage()
        found[storage.data_ptr()] = 4 * (storage.nbytes() // tensor.element_size())
        return tensor.detach()

    with saved_tensors_hooks(pack, lambda tensor: tensor):
        call()
    return sum(size for place, size in found.items() if place not in _places(known))


@mistake("saved_bytes", "`call` is made twice. Once is enough, inside the block with the hooks.")
def called_twice(call, known=()):
    call()
    return sum(storage.nbytes() for place, storage in _storages(call).items() if place not in _places(known))


@alternative("saved_bytes")
def a_list_of_tensors(call, known=()):
    kept = []

    def pack(tensor):
        kept.append(tensor.detach())
        return kept[-1]

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda kept_one: kept_one):
        call()
    seen, total = {t.untyped_storage().data_ptr() for t in known}, 0
    for tensor in kept:
        if tensor.untyped_storage().data_ptr() not in seen:
            seen.add(tensor.untyped_storage().data_ptr())
            total += len(tensor.untyped_storage())
    return total


@alternative("saved_bytes")
def kept_by_number(call, known=()):
    kept = []
    with saved_tensors_hooks(lambda t: kept.append(t.detach()) or len(kept) - 1, lambda i: kept[i]):
        result = call()
    places = {t.untyped_storage().data_ptr(): t.untyped_storage().nbytes() for t in kept}
    del result
    return sum(places[place] for place in places.keys() - {t.untyped_storage().data_ptr() for t in known})


@mistake(
    "saved_bytes",
    "tensor.data_ptr() is where the tensor's own first value lies, so two views count twice. Ask the storage: "
    "tensor.untyped_storage().data_ptr().",
)
def address_of_the_view(call, known=()):
    found = {}

    def pack(tensor):
        found[tensor.data_ptr()] = tensor.untyped_storage()
        return tensor.detach()

    with saved_tensors_hooks(pack, lambda tensor: tensor):
        call()
    return sum(storage.nbytes() for storage in found.values() if storage.data_ptr() not in _places(known))


@mistake(
    "saved_bytes",
    "The bytes of `known` are subtracted, whether or not they were saved. Leave out storages that were.",
)
def known_subtracted(call, known=()):
    return sum(storage.nbytes() for storage in _storages(call).values()) - sum(
        tensor.untyped_storage().nbytes() for tensor in known
    )


@mistake(
    "saved_bytes",
    "A known tensor counts where it is saved as another tensor object, such as a view. Compare storages, not tensors.",
)
def known_by_the_object(call, known=()):
    found = {}

    def pack(tensor):
        if not any(tensor is one for one in known):
            found[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage()
        return tensor.detach()

    with saved_tensors_hooks(pack, lambda tensor: tensor):
        call()
    return sum(storage.nbytes() for storage in found.values())
