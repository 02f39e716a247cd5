"""How a process moves into a jail and gives up all that it does not need there.

Namespaces, user, system calls, limits. Called by a fork of the zygote (server.py), in this order:
open_proc, prefer_for_oom, enter, map_user together with become_nobody, keep_only, restrict. The
room is made by bubblewrap.py; its /proc can only be read, so what is written there is written
through the system's own, opened before.
"""

import ctypes
import errno
import os
import resource
import socket
import struct
from typing import Any

from instructor.jail.limits import ProcessLimits

NOBODY = 65534
CHANNEL = 200  # the descriptor of the connection with the grader
DESCRIPTORS = 1024  # those that a zygote may have open
NAMESPACES = {
    "mount": 0x00020000,
    "uts": 0x04000000,
    "ipc": 0x08000000,
    "user": 0x10000000,
    "pid": 0x20000000,
    "net": 0x40000000,
}

# commands of prctl
DIE_WITH_PARENT = 1
DUMPABLE = 4
SECCOMP = 22
SUBREAPER = 36
NO_NEW_PRIVILEGES = 38

# the language of seccomp's filters
LOAD = 0x20
JUMP_IF_EQUAL = 0x15
JUMP_IF_AT_LEAST = 0x35
RETURN = 0x06
ALLOW = 0x7FFF0000
FAIL = 0x00050000
# where in what a filter sees a system call's parts lie
CALL_NUMBER = 0
MACHINE = 4
FIRST_ARGUMENT = 16

# the kind of machine as a filter sees it, and the numbers there of prctl, memfd_create,
# memfd_secret, shmget and msgget
NUMBERS = {
    "x86_64": (0xC000003E, 157, 319, 447, 29, 68),
    "aarch64": (0xC00000B7, 167, 279, 447, 194, 186),
}
OTHER_NUMBERS = 0x40000000  # from here on calls have other numbers, those of x32
CAPABILITIES = 0x20080522  # version 3 of capset's structures


def call(name: str, *arguments: Any) -> None:
    """Call a function of libc.  Raises: OSError if it fails."""
    libc = ctypes.CDLL(None, use_errno=True)
    if getattr(libc, name)(*arguments) == -1:
        number = ctypes.get_errno()
        raise OSError(number, f"{name}: {os.strerror(number)}")


def die_with_parent(signal_number: int) -> None:
    """Have this process killed by that signal when its parent ends."""
    call("prctl", DIE_WITH_PARENT, signal_number, 0, 0, 0)


def adopt_orphans() -> None:
    """Make processes that this one's children leave behind children of this one."""
    call("prctl", SUBREAPER, 1, 0, 0, 0)


def open_proc() -> int:
    """A descriptor of /proc as it is here, which a process can still use when it is in a jail."""
    return os.open("/proc", os.O_PATH | os.O_DIRECTORY)


def _write(proc: int, path: str, text: str) -> None:
    descriptor = os.open(path, os.O_WRONLY, dir_fd=proc)
    try:
        os.write(descriptor, text.encode())
    finally:
        os.close(descriptor)


def prefer_for_oom(proc: int) -> None:
    """Make Linux end this process and its children first where memory runs out.

    Only root may undo it.
    """
    _write(proc, "self/oom_score_adj", "1000")


def enter(room: int) -> None:
    """Make children of this process live in the namespaces of a process.

    Args:
        room: descriptor that names that process.
    """
    flags = sum(NAMESPACES.values())
    if not os.getuid():  # root made the room without a user namespace
        flags -= NAMESPACES["user"]
    call("setns", room, flags)
    os.chdir("/tmp")


def map_user(proc: int, number: int) -> None:
    """From outside, make nobody the only user of the new user namespace of process `number`."""
    user = f"{NOBODY} {NOBODY} 1"
    for file, text in (("setgroups", "deny"), ("uid_map", user), ("gid_map", user)):
        _write(proc, f"{number}/{file}", text)


def become_nobody(proc: int, outside: socket.socket) -> None:
    """Become the user nobody in a user namespace of this process alone.

    Args:
        outside: connection with the process that maps the user (`map_user`).
    """
    os.setgroups([])
    call("unshare", NAMESPACES["user"])
    outside.send(b"ready")
    outside.recv(100)
    _write(proc, "sys/user/max_user_namespaces", "0")  # in this namespace and all below: none
    os.setresgid(NOBODY, NOBODY, NOBODY)
    os.setresuid(NOBODY, NOBODY, NOBODY)


def keep_only(descriptor: int) -> int:
    """Close every descriptor but this one, which becomes CHANNEL; return CHANNEL.

    The standard streams lead nowhere.
    """
    os.dup2(descriptor, CHANNEL)
    for number in range(3):
        os.dup2(os.open("/dev/null", os.O_RDWR), number)
    os.closerange(3, CHANNEL)
    os.closerange(CHANNEL + 1, DESCRIPTORS)
    return CHANNEL


def restrict(limits: ProcessLimits, jailed: bool, cuda: bool) -> None:
    """Give up capabilities, new privileges and hidden memory, and take on the `limits`."""
    call("prctl", NO_NEW_PRIVILEGES, 1, 0, 0, 0)
    call("prctl", DUMPABLE, 1, 0, 0, 0)  # or its own /proc/self/io would not be its own
    if jailed:
        call("capset", (ctypes.c_uint32 * 2)(CAPABILITIES, 0), (ctypes.c_uint32 * 6)())
        refuse_hidden_memory(cuda)
    set_limits(limits)


def refuse_hidden_memory(cuda: bool) -> None:
    """From now on refuse memory that belongs to no process and no folder.

    Also refused is to hide a process from the grader. With `cuda` memfd_create stays: NVIDIA's
    driver does not start without it.
    """
    if os.uname().machine not in NUMBERS:
        return
    machine, prctl, *refused = NUMBERS[os.uname().machine]
    refused = refused[cuda:]  # memfd_create is the first
    n = len(refused)
    # calls of another kind of machine (int 0x80) have other numbers: refused, all of them
    steps = [
        (LOAD, 0, 0, MACHINE),
        (JUMP_IF_EQUAL, 0, n + 6, machine),
        (LOAD, 0, 0, CALL_NUMBER),
        (JUMP_IF_AT_LEAST, n + 4, 0, OTHER_NUMBERS),
    ]
    for place, number in enumerate(refused):
        steps.append((JUMP_IF_EQUAL, n + 3 - place, 0, number))
    steps += [
        (JUMP_IF_EQUAL, 0, 2, prctl),
        (LOAD, 0, 0, FIRST_ARGUMENT),
        (JUMP_IF_EQUAL, 1, 0, DUMPABLE),
        (RETURN, 0, 0, ALLOW),
        (RETURN, 0, 0, FAIL | errno.ENOSYS),
    ]
    program = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *step) for step in steps))
    pointer = struct.pack("HxxxxxxP", len(steps), ctypes.addressof(program))
    header = ctypes.create_string_buffer(pointer)
    call("prctl", SECCOMP, 2, header, 0, 0)


def set_limits(limits: ProcessLimits) -> None:
    """Set what each process from this one on may use."""
    values = {
        resource.RLIMIT_FSIZE: limits.file_bytes,
        resource.RLIMIT_NPROC: limits.processes,
        resource.RLIMIT_NOFILE: limits.descriptors,
        resource.RLIMIT_CORE: 0,
        resource.RLIMIT_MSGQUEUE: 0,
    }
    if limits.address_space_bytes:
        values[resource.RLIMIT_AS] = limits.address_space_bytes
    for kind, value in values.items():
        resource.setrlimit(kind, (value, value))
