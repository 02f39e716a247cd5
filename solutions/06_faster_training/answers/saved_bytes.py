"""Known mistakes of exercise saved_bytes of unit 06, and right answers in other styles."""

import torch

from course.engine.known_answers import alternative, mistake

KEEP = "storages[storage.data_ptr()] = storage"
MISTAKES = {
    "counted_each_time": (
        "A storage that two operations keep counts twice. Count each storage once, by its data_ptr().",
        (KEEP, "storages[len(storages)] = storage"),
        ("if place not", "if storage.data_ptr() not"),
    ),
    "values_of_the_view": (
        "A view counts with its own values only, but it keeps its whole storage alive. Count the storage, once.",
        (KEEP, "storages[storage.data_ptr()] = tensor"),
        ("storage.nbytes()", "storage.nbytes"),
    ),
    "with_parameters": (
        "Parameters count, too. They stay in memory in any case: leave the module's own storages out.",
        (" if place not in owned", ""),
    ),
    "with_buffers": (
        "The parameters are left out, but the module's buffers (as of BatchNorm) still count.",
        ("(*module.parameters(), *module.buffers())", "module.parameters()"),
    ),
    "elements": (
        "Elements are counted, not bytes. A float32 has 4 bytes, a float64 has 8.",
        (KEEP, "storages[storage.data_ptr()] = storage.nbytes() // tensor.element_size()"),
        ("sum(storage.nbytes()", "sum(storage"),
    ),
    "addresses_alone": (
        "Addresses are kept, but not the storages: the next tensor may get the address of one that was freed, and is "
        "not counted. Keep the storage itself.",
        (KEEP, "storages[storage.data_ptr()] = storage.nbytes()"),
        ("sum(storage.nbytes()", "sum(storage"),
    ),
    "parameters_subtracted": (
        "All parameters are subtracted, even those that autograd did not keep. Leave out storages.",
        (
            " if place not in owned)",
            ") - sum(parameter.nbytes for parameter in module.parameters())",
        ),
    ),
}


@mistake(
    "Parameters are left out by their identity, but autograd keeps views of them, as a transposed weight. Compare "
    "storages."
)
def parameters_by_identity(call, module):
    owned = {id(tensor) for tensor in (*module.parameters(), *module.buffers())}
    storages = {}

    def pack(tensor):
        storage = tensor.untyped_storage()
        if id(tensor) not in owned:
            storages[storage.data_ptr()] = storage
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        call()
    return sum(storage.nbytes() for storage in storages.values())


@alternative
def a_set_of_places(call, module):
    seen, total = (
        {t.untyped_storage().data_ptr() for t in [*module.parameters(), *module.buffers()]},
        0,
    )

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


@alternative
def a_dictionary_of_storages(call, module):
    kept = {}
    with torch.autograd.graph.saved_tensors_hooks(
        lambda t: kept.setdefault(t.untyped_storage().data_ptr(), t) is None or t, lambda t: t
    ):
        call()
    for own in (*module.parameters(), *module.buffers()):
        kept.pop(own.untyped_storage().data_ptr(), None)
    return sum(t.untyped_storage().nbytes() for t in kept.values())
