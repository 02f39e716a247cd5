"""Whether an object can be sent to a process that was not forked."""

import io
import pickle
import sys
import types


class _Pickler(pickle.Pickler):
    """Treats what is defined at the top level of a module as importable, even if no such module is: as in a test."""

    def reducer_override(self, thing):
        if not isinstance(thing, (type, types.FunctionType)) or "<" in thing.__qualname__:
            return NotImplemented
        found = thing.__module__ in sys.modules
        return NotImplemented if found else (str, (thing.__qualname__,))


def can_be_pickled(thing):
    """True if `thing` can be pickled; a function or class from inside another function cannot."""
    try:
        _Pickler(io.BytesIO()).dump(thing)
    except Exception:
        return False
    return True
