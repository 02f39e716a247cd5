"""Files that are no notebooks, or none of the learner's own."""
# ruff: noqa: F821, F841, B018

from hostile.attack import UNIT, by_id, extra, file


@file(0, "not a notebook|at most")
def many_small_things(place, honest):
    """A file that takes 25 times its size in memory."""
    return b'{"cells": 1, "x": [' + b'{"":0},' * 2_700_000 + b"0]}"


@file()
def lone_surrogates(place, honest):
    """Halves of characters, which no file can hold, and characters that end a string in C."""
    honest["cells"].insert(3, extra("print('a\0b')"))
    honest["cells"].insert(3, extra("print('\ud800')  # \udfff"))
    by_id(honest)["linear_warmup"]["source"] = "linear_warmup = lambda *a, **k: '\ud800'"
    return honest


@file(None)
def folder_linked_to_another_learner(place, honest):
    """A link to the folder of another learner."""
    place.parent.rmdir()
    place.parent.symlink_to(place.parents[2] / "a_honest" / UNIT)
