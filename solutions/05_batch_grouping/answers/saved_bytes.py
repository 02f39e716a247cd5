"""Known mistakes of exercise saved_bytes, and right answers in other styles."""

import torch
from torch.autograd.graph import saved_tensors_hooks

from course.checks.known_answers import alternative

MISTAKES = {
    "counted_each_time": (
        "A storage that is saved twice counts twice. Keep the addresses that you have counted.",
        ("[storage.data_ptr()]", "[storage.data_ptr(), len(storages)]"),
        ("if address", "if address[0]"),
    ),
    "values_of_the_view": (
        "A view counts with its own values alone. It keeps its whole storage alive: count that, once.",
        ("()] = storage", "()] = tensor.numel() * tensor.element_size()"),
        ("storage.nbytes() for", "storage for"),
    ),
    "known_ones_count": (
        "The tensors in `known` are counted, too. Leave out every storage that one of them lies in.",
        (" if address not in left_out", ""),
    ),
    "elements_instead_of_bytes": (
        "Elements are counted, not bytes. A float32 has 4 of them, a float64 has 8.",
        ("()] = storage", "()] = storage.nbytes() // tensor.element_size()"),
        ("storage.nbytes() for", "storage for"),
    ),
    "four_bytes_each": (
        "Every element counts as 4 bytes. Ask the storage for its bytes: nbytes().",
        ("()] = storage", "()] = 4 * (storage.nbytes() // tensor.element_size())"),
        ("storage.nbytes() for", "storage for"),
    ),
    "called_twice": (
        "`call` is made twice. Once is enough, inside the block with the hooks.",
        ("    storages =", "    call()\n    storages ="),
    ),
    "address_of_the_view": (
        "tensor.data_ptr() is the tensor's own: two views count twice. Ask tensor.untyped_storage().data_ptr().",
        ("[storage.data_ptr()]", "[tensor.data_ptr()]"),
        ("if address", "if storage.data_ptr()"),
    ),
    "addresses_alone": (
        "Addresses are kept, but not the storages: the next tensor may get the address of one that was freed, and is "
        "not counted. Keep the storage itself.",
        ("()] = storage", "()] = storage.nbytes()"),
        ("storage.nbytes() for", "storage for"),
    ),
    "known_subtracted": (
        "The bytes of `known` are subtracted, whether or not they were saved. Leave out storages that were.",
        (" if address not in left_out)", ") - sum(tensor.untyped_storage().nbytes() for tensor in known)"),
    ),
    "known_by_the_object": (
        "A known tensor counts where it is saved as another object, such as a view. Compare storages, not tensors.",
        ("        storages[", "        if not any(tensor is one for one in known):\n            storages["),
        (" if address not in left_out", ""),
    ),
}


@alternative
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


@alternative
def kept_by_number(call, known=()):
    kept = []
    with saved_tensors_hooks(lambda t: kept.append(t.detach()) or len(kept) - 1, lambda i: kept[i]):
        result = call()
    places = {t.untyped_storage().data_ptr(): t.untyped_storage().nbytes() for t in kept}
    del result
    return sum(places[place] for place in places.keys() - {t.untyped_storage().data_ptr() for t in known})
