"""The walls of a jail: the command line of *bubblewrap* that makes a room with its own files,
processes and network.

What a learner's code may read there: the system, Python and its packages, and course/, which is
what a class gets. Nothing of instructor/ and solutions/, of the inbox or the gradebook is mounted.
"""

import contextlib
import os
import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

from course.errors import CourseError
from course.system.folders import ROOT
from instructor.jail.limits import JailLimits

NOBODY = 65534
# what a learner's code may read if it exists, in addition to Python, torch and the course package;
# nothing else of ours
READABLE = ("/usr", "/etc/ld.so.cache", "/etc/passwd", "/etc/group", "/etc/fonts", "/etc/localtime")
COURSE = str(ROOT / "course")
GPU_DEVICES = ("nvidia", "dri", "kfd")  # beginnings of names in /dev
OWN_SPACES = ("pid", "net", "ipc", "uts", "cgroup-try")  # what the room does not share


def refuse_without_bubblewrap() -> None:
    """Raise CourseError that says what to do if bubblewrap is missing or not permitted here."""
    if not shutil.which("bwrap"):
        raise CourseError(
            "grading runs learners' code under bubblewrap; looked for `bwrap`, found none. Install "
            "it (Debian, Ubuntu: apt install bubblewrap; Fedora: dnf install bubblewrap), or give "
            "--unsafe to run it with your own rights."
        )
    # refused in a chroot, whose jails would leak
    inside = ["true"] if os.getuid() else ["unshare", "--user", "true"]
    with hosts() as descriptor:
        call = [*walls(descriptor), *inside]
        tried = subprocess.run(call, pass_fds=[descriptor], capture_output=True, text=True)
    if tried.returncode:
        why = tried.stderr.strip()[:200]
        raise CourseError(
            f"grading runs learners' code under bubblewrap, which is not permitted here: {why}. "
            "Allow user namespaces (docs/hub.md has a container's options), grade on the host, or "
            "give --unsafe to run learners' code with your own rights."
        )


@contextlib.contextmanager
def hosts() -> Iterator[int]:
    """A descriptor of a jail's /etc/hosts: the names that ranks call each other by."""
    descriptor = os.memfd_create("hosts")
    try:
        os.write(descriptor, b"127.0.0.1 localhost jail\n::1 localhost jail\n")
        os.lseek(descriptor, 0, os.SEEK_SET)
        yield descriptor
    finally:
        os.close(descriptor)


def walls(
    hosts: int, limits: JailLimits | None = None, covered: Iterable[str] = (), cuda: bool = False
) -> list[str]:
    """The bubblewrap command line up to the program.

    As root it makes no user namespace: the process that moves in does that.

    Args:
        hosts: descriptor of the text for /etc/hosts.
        covered: files and folders that are empty inside.
    """
    limits = limits or JailLimits()
    call = ["bwrap", "--as-pid-1", "--new-session", "--clearenv", "--hostname", "jail"]
    call += [f"--unshare-{space}" for space in OWN_SPACES]
    if os.getuid():
        call += ["--unshare-user", "--disable-userns", "--uid", str(NOBODY), "--gid", str(NOBODY)]
    else:
        call += ["--cap-drop", "ALL"]
    for name in ("bin", "sbin", "lib", "lib64"):
        call += ["--symlink", f"usr/{name}", f"/{name}"]
    call += ["--dev", "/dev", "--proc", "/proc"]
    call += ["--perms", "0444", "--ro-bind-data", str(hosts), "/etc/hosts"]
    size = str(limits.shared.disk_bytes)
    for folder in ("/tmp", "/dev/shm"):  # before what may lie in them: a course folder in /tmp
        call += ["--perms", "1777", "--size", size, "--tmpfs", folder]
    call += [*_mounts(), *_covers(covered)]
    call += _gpu_devices() if cuda else ["--remount-ro", "/proc"]
    return [*call, "--remount-ro", "/dev", "--remount-ro", "/", "--chdir", "/tmp"]


def _gpu_devices() -> list[str]:
    """The mounts for a GPU; /proc stays writable, or NVIDIA's driver could not name its threads."""
    call = []
    for device in sorted(Path("/dev").iterdir()):
        if device.name.startswith(GPU_DEVICES):
            call += ["--dev-bind", str(device), str(device)]
    return [*call, "--ro-bind-try", "/sys", "/sys"]


def _mounts() -> list[str]:
    """What is mounted to be read."""
    call: list[str] = []
    mounted: list[str] = []
    made = {Path("/tmp")}
    # a user's own, or those of another place
    packages = [path for path in sys.path if path.endswith("-packages")]
    for path in sorted({*READABLE, *packages, sys.prefix, sys.base_prefix, COURSE}, key=len):
        if not os.path.exists(path) or _is_below(path, mounted):
            continue
        # bubblewrap would make its parents for the owner only
        for parent in reversed(Path(path).parents[:-1]):
            if parent not in made and not _is_below(f"{parent}/", mounted):
                made.add(parent)
                call += ["--perms", "0755", "--dir", str(parent)]
        mounted.append(path)
        call += ["--ro-bind", path, path]
    return call


def _is_below(path: str, folders: list[str]) -> bool:
    return any(path.startswith(f"{folder}/") for folder in folders)


def _covers(paths: Iterable[str]) -> list[str]:
    """What stands in the place of files and folders whose text is not to be read."""
    call = []
    for path in paths:
        if os.path.isdir(path):
            call += ["--perms", "0555", "--tmpfs", path, "--remount-ro", path]
        else:
            call += ["--ro-bind", "/dev/null", path]
    return call
