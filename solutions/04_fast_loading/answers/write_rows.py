"""Known mistakes of exercise write_rows, and right answers in other styles."""

import os
import shutil
import tempfile
from pathlib import Path

import numpy as np
import torch

from course.engine.known_answers import alternative, mistake

OPEN = 'np.memmap(path, np.float32, "c")'
MISTAKES = {
    "in_place": (
        "The rows go straight into `path`, so after a failure half a file has its name. Write under another name and "
        "rename.",
        ("with open(unfinished", "with open(path"),
        ("    unfinished.replace(path)\n", ""),
    ),
    "all_parts_in_memory": (
        "All parts are in memory before the first one is written. Write each part when it comes.",
        ("in parts:", "in list(parts):"),
    ),
    "all_parts_before_the_file": (
        "All parts are in memory before the file is opened. Open it first, and write each part when it comes.",
        ("    unfinished = Path", "    parts = list(parts)\n    unfinished = Path"),
    ),
    "appended": (
        "The file of an unfinished try is kept, and the rows come after it. Open the file with mode wb.",
        ('"wb"', '"ab"'),
    ),
    "read_back": (
        "The file is read into memory, all of it. Map it: np.memmap.",
        (OPEN, "np.fromfile(path, np.float32)"),
    ),
    "shared_mapping": (
        'What somebody writes into the tensor changes the file. Map a private copy: mode "c" of np.memmap.',
        (OPEN, OPEN.replace('"c"', '"r+"')),
    ),
    "read_only_mapping": (
        "The memory may not be written, so an in-place operation on the tensor ends the process. Map a private copy: "
        'mode "c" of np.memmap.',
        (OPEN, OPEN.replace('"c"', '"r"')),
    ),
    "one_long_row": (
        "The tensor has one axis. Give it the columns of the parts: view(-1, columns).",
        (".view(-1, part.shape[1])", ""),
    ),
}


@mistake(
    "The unfinished file lies in the folder for temporary files. A move from another disk is a copy, which can be cut "
    "off. Write next to `path`, and rename."
)
def in_the_folder_for_temporary_files(path, parts):
    with tempfile.NamedTemporaryFile(delete=False) as file:
        for part in parts:
            file.write(part)
    shutil.move(file.name, path)
    return torch.from_numpy(np.memmap(path, np.float32, "c")).view(-1, part.shape[1])


@alternative
def temporary_file_of_python(path, parts):
    with tempfile.NamedTemporaryFile(dir=Path(path).parent, delete=False) as file:
        n = 0
        for part in parts:
            part.tofile(file)
            n += len(part)
    os.replace(file.name, path)
    return torch.from_file(
        str(path), shared=False, size=n * part.shape[1], dtype=torch.float32
    ).view(n, -1)


@alternative
def bytes_and_a_mapping_of_torch(path, parts):
    half = f"{path}.half"
    columns = 0
    with open(half, "wb", buffering=0) as file:
        for part in parts:
            columns = part.shape[1]
            file.write(part.tobytes())
        size = file.tell() // 4
    os.rename(half, path)
    table = torch.from_file(str(path), False, size, dtype=torch.float32)
    return table.reshape(size // columns, columns)
