"""Known mistakes of exercise to_device, and right answers in other styles."""

import torch
from torch.utils import _pytree as pytree

from course.checks.engine import alternative, mistake


def move(batch, device, dictionary=dict, sequence=None, tensor=None):
    """A right `to_device` with one part to get wrong each."""

    def again(item):
        return move(item, device, dictionary, sequence, tensor)

    if isinstance(batch, torch.Tensor):
        return tensor(batch) if tensor else batch.to(device, non_blocking=True)
    if isinstance(batch, dict):
        return dictionary((key, again(value)) for key, value in batch.items())
    if isinstance(batch, (list, tuple)):
        items = [again(item) for item in batch]
        if sequence:
            return sequence(batch, items)
        return type(batch)(*items) if hasattr(batch, "_fields") else type(batch)(items)
    return batch


@mistake(
    "to_device",
    "The tensors are moved without non_blocking=True, so that the processor waits for each copy. Pass it to .to.",
)
def blocking(batch, device):
    return move(batch, device, tensor=lambda tensor: tensor.to(device))


@mistake(
    "to_device",
    "Only the outermost container is looked into. Let the function call itself for each item.",
)
def one_level(batch, device):
    def moved(item):
        return item.to(device, non_blocking=True) if isinstance(item, torch.Tensor) else item

    if isinstance(batch, dict):
        return {key: moved(value) for key, value in batch.items()}
    if isinstance(batch, (list, tuple)):
        items = [moved(item) for item in batch]
        return type(batch)(*items) if hasattr(batch, "_fields") else type(batch)(items)
    return moved(batch)


@mistake("to_device", "Tuples come back as lists. Make the same type again: type(batch)(items).")
def tuples_become_lists(batch, device):
    return move(batch, device, sequence=lambda batch, items: items)


@mistake(
    "to_device",
    "A named tuple comes back as a plain tuple and loses the names of its fields. Make it of type(batch): "
    "type(batch)(*items).",
)
def named_tuples_become_plain(batch, device):
    return move(batch, device, sequence=lambda batch, items: items if isinstance(batch, list) else tuple(items))


@mistake(
    "to_device",
    "A named tuple is made of one list of items, as a tuple is. It takes its fields one by one: type(batch)(*items).",
)
def named_tuple_of_one_list(batch, device):
    return move(batch, device, sequence=lambda batch, items: type(batch)(items))


@mistake(
    "to_device",
    "Dictionaries are handed through unmoved. Their values may be tensors: go over batch.items().",
)
def dictionaries_left_alone(batch, device):
    if isinstance(batch, torch.Tensor):
        return batch.to(device, non_blocking=True)
    if isinstance(batch, (list, tuple)):
        items = [dictionaries_left_alone(item, device) for item in batch]
        return type(batch)(*items) if hasattr(batch, "_fields") else type(batch)(items)
    return batch


@mistake(
    "to_device",
    "The moved tensors are written into the container that was given, which belongs to the caller. Make a new one.",
)
def dictionary_in_place(batch, device):
    if isinstance(batch, dict):
        for key in batch:
            batch[key] = dictionary_in_place(batch[key], device)
        return batch
    if isinstance(batch, (list, tuple)):
        items = [dictionary_in_place(item, device) for item in batch]
        return type(batch)(*items) if hasattr(batch, "_fields") else type(batch)(items)
    return batch.to(device, non_blocking=True) if isinstance(batch, torch.Tensor) else batch


@mistake(
    "to_device",
    "Numbers became tensors. What is no tensor is handed through as it is: ask isinstance(batch, torch.Tensor).",
)
def numbers_become_tensors(batch, device):
    if isinstance(batch, dict):
        return {key: numbers_become_tensors(value, device) for key, value in batch.items()}
    if isinstance(batch, (list, tuple)):
        items = [numbers_become_tensors(item, device) for item in batch]
        return type(batch)(*items) if hasattr(batch, "_fields") else type(batch)(items)
    if isinstance(batch, (int, float, torch.Tensor)):
        return torch.as_tensor(batch).to(device, non_blocking=True)
    return batch


@mistake(
    "to_device",
    "A tensor that is on the device already is copied. Without copy=True and clone(), .to returns the tensor itself.",
)
def always_copied(batch, device):
    return move(batch, device, tensor=lambda tensor: tensor.to(device, non_blocking=True, copy=True))


@alternative("to_device")
def by_pytree(batch, device):
    def moved(leaf):
        return leaf.to(device=device, non_blocking=True) if isinstance(leaf, torch.Tensor) else leaf

    return pytree.tree_map(moved, batch)


@alternative("to_device")
def by_match(batch, device):
    match batch:
        case torch.Tensor():
            if batch.device == torch.empty(0, device=device).device:  # "cuda" is not equal to "cuda:0"
                return batch
            return torch.empty_like(batch, device=device).copy_(batch, non_blocking=True)
        case dict():
            return dict(zip(batch, (by_match(value, device) for value in batch.values()), strict=True))
        case tuple() if hasattr(batch, "_make"):
            return batch._make(by_match(item, device) for item in batch)
        case tuple():
            return tuple(by_match(item, device) for item in batch)
        case list():
            return [by_match(item, device) for item in batch]
        case _:
            return batch
