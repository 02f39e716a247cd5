"""Files that are no notebooks, or none of the learner's own."""
# ruff: noqa: F821, F841, B018

import json

from hostile.attack import UNIT, by_id, extra, file


@file()
def byte_order_mark(place, honest):
    """A mark in front, as some editors put it: still a notebook."""
    return b"\xef\xbb\xbf" + json.dumps(honest).encode()


@file(0, "at most")
def huge_json(place, honest):
    """More bytes than anybody needs."""
    return json.dumps(honest) + " " * 60_000_000


@file(0, "not a notebook|at most")
def many_small_things(place, honest):
    """A file that takes 25 times its size in memory."""
    return b'{"cells": 1, "x": [' + b'{"":0},' * 2_700_000 + b"0]}"


@file()
def notebook_of_version_99(place, honest):
    """A format that does not exist."""
    return honest | {"nbformat": 99, "nbformat_minor": -1}


@file()
def lone_surrogates(place, honest):
    """Halves of characters, which no file can hold."""
    honest["cells"].insert(3, extra("print('\ud800')  # \udfff"))
    by_id(honest)["linear_warmup"]["source"] = "linear_warmup = lambda *a, **k: '\ud800'"
    return honest


@file()
def nul_bytes(place, honest):
    """Characters that end a string in C."""
    honest["cells"].insert(3, extra("print('a\0b')"))
    return honest


@file(None)
def folder_linked_to_another_learner(place, honest):
    """The same with the whole folder."""
    place.parent.rmdir()
    place.parent.symlink_to(place.parents[2] / "a_honest" / UNIT)


@file()
def own_time(place, honest):
    """A time of its own making, as nbgrader reads it from the submission."""
    (place.parent / "timestamp.txt").write_text("2000-01-01 00:00:00 UTC")
    return honest
