"""Files that are no notebooks, or none of the learner's own."""
# ruff: noqa: F821, F841, B018

import json
import os
import socket

from hostile.attack import UNIT, by_id, extra, file


@file(0, "could not be read.*no notebook")
def empty(place, honest):
    """Nothing in the file."""
    return b""


@file(0, "no notebook")
def not_json(place, honest):
    """Python instead of a notebook."""
    return "import os\nos._exit(0)\n"


@file(0, "no notebook")
def binary(place, honest):
    """Bytes that are no text."""
    return bytes(range(256)) * 100


@file(0, "no notebook")
def utf_16(place, honest):
    """Text in another encoding."""
    return json.dumps(honest).encode("utf-16")


@file()
def byte_order_mark(place, honest):
    """A mark in front, as some editors put it: still a notebook."""
    return b"\xef\xbb\xbf" + json.dumps(honest).encode()


@file(0, "no notebook")
def deep_json(place, honest):
    """A nest that a parser falls into."""
    return "[" * 1_000_000


@file(0, "no notebook")
def deep_json_in_a_cell(place, honest):
    """A nest in the metadata of a cell."""
    honest["cells"][1]["metadata"] = "HERE"
    return json.dumps(honest).replace('"HERE"', '{"a":' * 100_000 + "1" + "}" * 100_000)


@file(0, "at most")
def huge_json(place, honest):
    """More bytes than anybody needs."""
    return json.dumps(honest) + " " * 60_000_000


@file(0, "no notebook|at most")
def many_small_things(place, honest):
    """A file that takes 25 times its size in memory."""
    return b'{"cells": 1, "x": [' + b'{"":0},' * 2_700_000 + b"0]}"


@file(0, "no notebook")
def number_too_long(place, honest):
    """An integer with more digits than Python reads."""
    return '{"cells": ' + "1" * 100_000 + "}"


@file(0, "no notebook")
def json_list(place, honest):
    """A list instead of an object."""
    return json.dumps(honest["cells"])


@file(0, "no notebook")
def notebook_of_version_3(place, honest):
    """The format of 2013, where cells lie in worksheets."""
    return {"nbformat": 3, "nbformat_minor": 0, "metadata": {}, "worksheets": [{"cells": honest["cells"]}]}


@file()
def notebook_of_version_99(place, honest):
    """A format that does not exist."""
    return honest | {"nbformat": 99, "nbformat_minor": -1}


@file()
def cells_of_every_kind(place, honest):
    """Cells that are none, sources that are none, ids that are none."""
    odd = [None, 3, [], "cell", {}, {"source": 5}, {"source": ["a", 1], "metadata": []}]
    odd += [extra("1 / 0", nbgrader=name) for name in (None, 3, {"grade_id": {}}, {"grade_id": ["x"]})]
    odd += [{**extra("pass"), "id": {}}, {**extra("pass"), "cell_type": None}, extra("pass", tags="experiment")]
    honest["cells"] = [*odd, *honest["cells"], *odd]
    return honest


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


@file(0, "no ordinary file|links are not followed")
def link_to_passwd(place, honest):
    """A link to a file of the machine."""
    place.symlink_to("/etc/passwd")


@file(0, "links are not followed")
def link_to_another_learner(place, honest):
    """A link to the work of somebody else."""
    place.symlink_to(place.parents[2] / "a_honest" / UNIT / place.name)


@file(None)
def folder_linked_to_another_learner(place, honest):
    """The same with the whole folder."""
    place.parent.rmdir()
    place.parent.symlink_to(place.parents[2] / "a_honest" / UNIT)


@file(0, "no ordinary file")
def named_pipe(place, honest):
    """A file that nobody writes to, so that reading waits for ever."""
    os.mkfifo(place)


@file(0, "no ordinary file|cannot be read")
def unix_socket(place, honest):
    """A file that is a socket."""
    here = os.getcwd()
    os.chdir(place.parent)  # a socket's path is short
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(place.name)
    os.chdir(here)


@file(0, "Is a directory")
def folder_as_notebook(place, honest):
    """A folder with the notebook's name."""
    place.mkdir()


@file(0)  # its note is that of every part that is not handed in
def folder_without_notebook(place, honest):
    """Nothing handed in but the folder."""


@file()
def several_notebooks(place, honest):
    """More notebooks, with other names and in other places: the one with the right name counts."""
    text = json.dumps(honest).replace("def ", "1 / 0\\ndef ")
    for other in ("copy.ipynb", "nbgrader_config.py", "sitecustomize.py", "torch.py"):
        (place.parent / other).write_text(text)
    (place.parents[1] / place.name).write_text(text)
    return honest


@file()
def own_time(place, honest):
    """A time of its own making, as nbgrader reads it from the submission."""
    (place.parent / "timestamp.txt").write_text("2000-01-01 00:00:00 UTC")
    return honest
