"""Known mistakes of exercise to_device, and right answers in other styles."""

import copy

import torch
from torch.utils import _pytree as pytree

from course.engine.known_answers import alternative

MISTAKES = {
    "blocking": (
        "The tensors are moved without non_blocking=True, so that the processor waits for each copy. Pass it to .to.",
        (", non_blocking=True)", ")"),
    ),
    "one_level": (
        "Only the outermost container is looked into. Let the function call itself for each item.",
        (
            "to_device(value, device)",
            "value.to(device, non_blocking=True) if torch.is_tensor(value) else value",
        ),
        (
            "moved = [to_device(item, device) for item in batch]",
            "moved = [item.to(device, non_blocking=True) if torch.is_tensor(item) else item for item in batch]",
        ),
    ),
    "tuples_become_lists": (
        "Tuples come back as lists. Make the same type again: type(batch)(items).",
        ("type(batch)(moved)", "moved"),
    ),
    "namedtuple_like_a_tuple": (
        "A namedtuple is a tuple too, but its constructor takes one argument per field. Write type(batch)(*items).",
        (
            '    if isinstance(batch, tuple) and hasattr(batch, "_fields"):  # a namedtuple\n'
            "        return type(batch)(*(to_device(item, device) for item in batch))\n",
            "",
        ),
    ),
    "namedtuple_becomes_a_tuple": (
        "A namedtuple comes back as a plain tuple, without its names. Make the same type: type(batch)(*items).",
        (
            "return type(batch)(*(to_device(item, device) for item in batch))",
            "return tuple(to_device(item, device) for item in batch)",
        ),
    ),
    "every_dictionary_a_dict": (
        "An OrderedDict comes back as a plain dict. Start from copy.copy(batch), which keeps the type.",
        ("moved = copy.copy(batch)", "moved = dict(batch)"),
    ),
    "dictionaries_left_alone": (
        "Dictionaries are returned unmoved. Their values may be tensors: go over batch.items().",
        ("moved[key] = to_device(value, device)", "moved[key] = value"),
    ),
    "dictionary_in_place": (
        "The moved tensors are written into the container that was given, which belongs to the caller. Make a new one.",
        ("moved = copy.copy(batch)", "moved = batch"),
    ),
    "numbers_become_tensors": (
        "Numbers became tensors. Return anything that is not a tensor unchanged: ask isinstance(batch, torch.Tensor).",
        ("batch, torch.Tensor", "batch, (int, float, torch.Tensor)"),
        ("batch.to(", "torch.as_tensor(batch).to("),
    ),
    "always_copied": (
        "A tensor already on the device is copied. Without copy=True and clone(), .to returns the tensor itself.",
        ("non_blocking=True)", "non_blocking=True, copy=True)"),
    ),
}


@alternative
def by_pytree(batch, device):
    def moved(leaf):
        return leaf.to(device=device, non_blocking=True) if isinstance(leaf, torch.Tensor) else leaf

    return pytree.tree_map(moved, batch)


@alternative
def by_match(batch, device):
    match batch:
        case torch.Tensor():
            if (
                batch.device == torch.empty(0, device=device).device
            ):  # "cuda" is not equal to "cuda:0"
                return batch
            return torch.empty_like(batch, device=device).copy_(batch, non_blocking=True)
        case dict():
            moved = copy.copy(batch)
            moved.update(
                zip(batch, (by_match(value, device) for value in batch.values()), strict=True)
            )
            return moved
        case tuple():
            items = tuple(by_match(item, device) for item in batch)
            return type(batch)._make(items) if hasattr(batch, "_make") else items
        case list():
            return [by_match(item, device) for item in batch]
        case _:
            return batch
