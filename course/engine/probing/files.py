"""Files that an answer holds open or leaves in a folder."""

import contextlib
import os

DESCRIPTORS = "/dev/fd"  # the folder of a process's open files, where the system has one


def open_descriptors(path: str | os.PathLike[str]) -> list[int]:
    """The numbers by which this process holds a file open; none where the system does not tell."""
    stat = os.stat(path)
    found: list[int] = []
    if not os.path.isdir(DESCRIPTORS):
        return found
    for number in map(int, os.listdir(DESCRIPTORS)):
        with contextlib.suppress(OSError):  # the handle that listed the folder
            if os.path.samestat(os.fstat(number), stat):
                found.append(number)
    return found
