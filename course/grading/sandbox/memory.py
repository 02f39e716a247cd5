"""The memory of a jail, wherever it is held: by its processes, in its files, or in the system on their behalf.

    memory = Memory(namespace, first, folders)     # of the jail whose processes live there
    memory.exceeds(limit)                          # asked ten times a second, from outside

A process's own pages, and those it shares with the zygote, are counted as Linux tells them.  What belongs to no process
is counted as what it may take at most: shared mappings whose pages a process has let go or left to a child, sockets,
and files that are empty.  Sources: proc_pid_status(5), proc_pid_maps(5), socket(7).
"""

import contextlib
import functools
import os
import signal
from collections.abc import Iterable, Iterator
from pathlib import Path

SLOW = 5  # looks from one at what belongs to no process to the next
FEW = 128  # sockets that are not counted: ranks and workers have them, and hold little in them
FILE = 2048  # bytes that the system keeps of a file in memory, beside what is in it
MANY = 32  # processes: an exact look at fewer is over within a third of a second and stops none of them
ROUNDS = 20  # times that new processes are looked for while all are stopped


class Memory:
    """What the processes of a process namespace hold.

    Args:
        namespace: as /proc/<number>/ns/pid names it.
        first: number, seen from here, of its first process, which is the grader's own; None if there is none.
        folders: where its files in memory lie.
    """

    def __init__(self, namespace: str, first: int | None, folders: Iterable[str]):
        self.namespace, self.first, self.folders = namespace, str(first), list(folders)
        self.looks, self.elsewhere = 0, 0

    def exceeds(self, limit: int) -> bool:
        """Whether all of it together is more than `limit` bytes.

        Which pages are shared with the zygote takes 10 ms per process to read, so it is read where the sum with them
        is too large.  More than MANY processes are stopped meanwhile: hundreds that sleep must not hide one that grows.
        Nothing that a task asks starts so many, so no honest check is stopped while it times something.
        """
        numbers = processes_in(self.namespace)
        if not self.looks % SLOW:
            self._look_elsewhere(numbers)
        self.looks += 1
        if self._sum(numbers, "status", "RssAnon:", "RssShmem:") <= limit:
            return False
        with self._stopped() if len(numbers) > MANY else contextlib.nullcontext(numbers) as numbers:
            self._look_elsewhere(numbers)  # what was held half a second ago ends no jail
            return self._sum(numbers, "smaps_rollup", "Pss_Anon:", "Pss_Shmem:") > limit

    def _look_elsewhere(self, numbers):
        self.elsewhere = _mapped(numbers) + _in_sockets(numbers)

    def _sum(self, numbers, file, own, shared):
        found = [_kilobytes(f"/proc/{number}/{file}", own, shared) for number in numbers]
        own, shared = (sum(each) * 1024 for each in zip((0, 0), *found, strict=True))
        return own + max(shared, sum(map(_used, self.folders)) + self.elsewhere)  # files that are mapped count in both

    @contextlib.contextmanager
    def _stopped(self) -> Iterator[list[str]]:
        """Stop every process but the first, also those that come meanwhile; give their numbers.

        Afterwards those go on that this has stopped: one that had stopped itself stays as it is.
        """
        stopped = set()
        try:
            for _ in range(ROUNDS):
                inside = [number for number in processes_in(self.namespace) if number != self.first]
                new = {number for number in inside if number not in stopped and not _stands(number)}
                if not new:
                    break
                _signal(new, signal.SIGSTOP)
                stopped |= new
            yield inside
        finally:
            _signal(stopped, signal.SIGCONT)


def processes_in(namespace: str) -> list[str]:
    """The numbers of all processes that live in a process namespace, as /proc/<number>/ns/pid names it."""
    return [
        number for number in os.listdir("/proc") if number.isdecimal() and _link(f"/proc/{number}/ns/pid") == namespace
    ]


def _signal(numbers, kind):
    for number in numbers:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(int(number), kind)


def _stands(number):
    """Whether a process is stopped, or gone."""
    try:
        state = Path(f"/proc/{number}/stat").read_text(errors="replace").rpartition(")")[2].split()[0]
    except OSError:
        return True
    return state in "Tt"


def _link(path):
    try:
        return os.readlink(path)
    except OSError:  # gone, or of another user
        return None


def _used(folder):
    """Bytes of the files in a folder that is in memory."""
    try:
        space = os.statvfs(folder)
    except OSError:
        return 0
    return (space.f_blocks - space.f_bfree) * space.f_frsize + (space.f_files - space.f_ffree) * FILE


def _mapped(numbers):
    """Bytes of the shared mappings without a file of these processes: what is there, or where Linux does not tell that
    (it tells root) all that may be there."""
    found = {}
    for number in numbers:
        for span, offset, inode in _unnamed(number):
            begin, end = (int(place, 16) for place in span.split("-"))
            try:
                size = os.stat(f"/proc/{number}/map_files/{begin:x}-{end:x}").st_blocks * 512
            except OSError:
                size = int(offset, 16) + end - begin
            found[inode] = max(size, found.get(inode, 0))
    return sum(found.values())


def _unnamed(number):
    """(addresses, offset, inode) of each mapping of a process that is shared and has no file."""
    with contextlib.suppress(OSError), open(f"/proc/{number}/maps", errors="replace") as lines:
        for line in lines:
            if line.endswith("/dev/zero (deleted)\n"):
                span, rights, offset, _, inode, *_ = line.split()
                if "s" in rights:
                    yield span, offset, inode


def _in_sockets(numbers):
    """Bytes that the sockets of these processes may hold, beyond a few."""
    found = set()
    for number in numbers:
        with contextlib.suppress(OSError):
            found |= {_link(f"/proc/{number}/fd/{name}") for name in os.listdir(f"/proc/{number}/fd")}
    sockets = sum(str(link).startswith("socket:") for link in found)
    return max(0, sockets - FEW) * _socket_bytes()


@functools.cache
def _socket_bytes():
    """Bytes that a socket may hold in both directions: twice what a program may ask for."""
    try:
        return 2 * sum(int(Path(f"/proc/sys/net/core/{way}mem_max").read_text()) for way in "rw")
    except OSError:
        return 2**20


def _kilobytes(path, *fields):
    """The number in the line of each field; 0 where there is none."""
    try:
        with open(path, errors="replace") as lines:  # a process chooses its own name
            found = {line.split()[0]: int(line.split()[1]) for line in lines if line.startswith(fields)}
    except OSError:
        found = {}
    return [found.get(field, 0) for field in fields]
