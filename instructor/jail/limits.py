"""The numbers of a jail: what it may use, and how long the grader waits for it.

`JailLimits` goes with each jail; an instructor sets its numbers in nbgrader_config.py
(instructor/grading/limits.py). The constants below it are nobody's to set. Numbers that Linux
defines stand where they are used (isolation.py, memory.py, server.py).
"""

from dataclasses import dataclass, field
from typing import Any

START_SECONDS = 60  # for a zygote to import, or a jail to answer first, on a busy machine
FORK_TRIES = 2  # a zygote that has ended is started again, and asked once more
MEMORY_POLL_SECONDS = 0.1  # between two measurements of a jail's memory
FRAME_BYTES_MAX = 100_000_000  # of a message between the grader and its zygote
FRAME_READ_BYTES = 2**20  # of one read from a socket
FRAME_DESCRIPTORS_MAX = 8  # that go along with one frame
FACTS_BYTES_MAX = 32_000_000  # of all that a probe finds; no right answer gives a tenth
RESTORED_NAMES_MAX = 10  # of what was put back before a check, that are told
RESTORED_NAME_CHARACTERS = 60  # of each
ERROR_NAME_CHARACTERS = 200  # of the type of an exception in a cell
ERROR_TEXT_CHARACTERS = 2000  # of its message
ERROR_LINES = 5  # of the cell, the last that led to it


@dataclass(frozen=True)
class SharedLimits:
    """What all processes of one jail may use together."""

    memory_bytes: int = 4 * 2**30  # files in /tmp included
    disk_bytes: int = 2**30  # in /tmp, and as many in /dev/shm
    message_bytes: int = 64_000_000  # of one message to the grader
    all_messages_bytes: int = 400_000_000  # of all messages together
    cell_text_characters: int = 100_000  # that a cell may print; what goes beyond is cut
    cell_printed_characters: int = 20_000_000  # after which a cell is stopped
    picture_bytes: int = 2_000_000  # of one picture, in base64


@dataclass(frozen=True)
class ProcessLimits:
    """What each process in a jail may use, as Linux counts it (setrlimit)."""

    file_bytes: int = 2**37  # unit 04 makes a file of 64 GB with holes, which takes no space
    processes: int = 256  # of the jail's user; threads count too
    descriptors: int = 1024
    # unit 04 maps that file whole; 0 sets no limit (CUDA maps far more yet)
    address_space_bytes: int = 2**37


@dataclass(frozen=True)
class JailLimits:
    """What one jail may use: all its processes together, and each of them."""

    shared: SharedLimits = field(default_factory=SharedLimits)
    per_process: ProcessLimits = field(default_factory=ProcessLimits)

    @classmethod
    def from_dict(cls, groups: dict[str, dict[str, Any]]) -> "JailLimits":
        """The JailLimits of which `groups` is dataclasses.asdict."""
        return cls(SharedLimits(**groups["shared"]), ProcessLimits(**groups["per_process"]))
