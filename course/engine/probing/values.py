"""Plain values as facts: what kind of number was returned, and several values under names."""


def number_kind(value):
    """The words "a number" for an int or a float, of which a task accepts either; else the name of
    the type.
    """
    return (
        "a number"
        if isinstance(value, (int, float)) and not isinstance(value, bool)
        else type(value).__name__
    )


def numbered(name, values):
    """{"name 1": value, "name 2": ...}, so that a report says which of several values differs."""
    return {f"{name} {i}": value for i, value in enumerate(values, 1)}


def type_names(values):
    """The names of the types in a list, each once; of anything else the name of its own type."""
    return (
        sorted({type(v).__name__ for v in values})
        if isinstance(values, list)
        else type(values).__name__
    )
