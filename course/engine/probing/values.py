"""Plain values as facts: what kind of number was returned, and several values under names."""

from collections.abc import Iterable
from typing import Any


def number_kind(value: Any) -> str:
    """The words "a number" for an int or a float, which tasks accept alike; else the type."""
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    return "a number" if is_number else type(value).__name__


def numbered(name: str, values: Iterable[Any]) -> dict[str, Any]:
    """{"name 1": value, "name 2": ...}, so that a report says which of several values differs."""
    return {f"{name} {number}": value for number, value in enumerate(values, 1)}


def type_names(values: Any) -> list[str] | str:
    """The names of the types in a list, each once; of anything else the name of its own type."""
    if not isinstance(values, list):
        return type(values).__name__
    return sorted({type(value).__name__ for value in values})
