"""How one value differs from the expected one, as data: compare.py finds it, report.py words it."""

from dataclasses import dataclass
from enum import Enum
from typing import Any


class Kind(Enum):
    """In what two values differ; the comment says what `yours` and `expected` of it hold."""

    LAW = "law"  # False and True: what should hold of the answer does not
    VALUE = "value"  # the values; where the keys of two dicts differ, the lists of keys
    SHAPE = "shape"  # tuples of int
    DTYPE = "dtype"  # torch.dtypes
    DEVICE = "device"  # torch.devices
    LAYOUT = "layout"  # torch.layouts


@dataclass(frozen=True)
class Difference:
    """The first place where a value differs from the expected one.

    Attributes:
        path: the way to it from the value of the fact: an int for a place in a list or a tuple, a
            str for a key of a dict.
        index: of the first number that differs in a tensor; () elsewhere.
        n_wrong, n_values: how many numbers of that tensor differ, and how many it has.
    """

    kind: Kind
    yours: Any
    expected: Any
    path: tuple[int | str, ...] = ()
    index: tuple[int, ...] = ()
    n_wrong: int = 1
    n_values: int = 1
