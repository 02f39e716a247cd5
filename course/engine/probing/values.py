"""Plain values as facts: what kind of number was returned, and several values under names."""

from collections.abc import Iterable
from typing import Any

import numpy

# a task that asks for one of these is content with a subclass, and with NumPy's number of its kind
_ACCEPTED = {
    "bool": (bool, numpy.bool_),
    "int": (int, numpy.integer),
    "float": (float, numpy.floating),
    "tuple": (tuple,),
    "list": (list,),
    "dict": (dict,),
}


def type_word(value: Any) -> str:
    """The name of a value's type; a named tuple is a "tuple", a Counter a "dict", as Python has it.

    So is numpy.float64 a "float": tasks accept what can stand in the place of what they ask for.
    """
    for word, kinds in _ACCEPTED.items():
        if isinstance(value, kinds):
            return word
    return type(value).__name__


def number_kind(value: Any) -> str:
    """The words "a number" for an int or a float, which tasks accept alike; else `type_word`."""
    word = type_word(value)
    return "a number" if word in ("int", "float") else word


def numbered(name: str, values: Iterable[Any]) -> dict[str, Any]:
    """{"name 1": value, "name 2": ...}, so that a report says which of several values differs."""
    return {f"{name} {number}": value for number, value in enumerate(values, 1)}


def type_names(values: Any) -> list[str] | str:
    """The names of the types in a list, each once; of anything else the name of its own type."""
    if not isinstance(values, list):
        return type_word(values)
    return sorted({type_word(value) for value in values})
