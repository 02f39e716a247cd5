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
from collections.abc import Iterator
from pathlib import Path

from course.errors import CourseError
from course.system.folders import ROOT
from instructor.jail.zygote import Room

NOBODY = 65534
# what a learner's code may read, where it exists, beside Python, torch and the course package;
# nothing else of ours
READABLE = ("/usr", "/etc/ld.so.cache", "/etc/passwd", "/etc/group", "/etc/fonts", "/etc/localtime")
COURSE = str(ROOT / "course")
GPU_DEVICES = ("nvidia", "dri", "kfd")  # beginnings of names in /dev


def refuse_without_bubblewrap() -> None:
    """Raise CourseError that says what to install if bubblewrap is missing or not permitted
    here.
    """
    if not shutil.which("bwrap"):
        raise CourseError(
            "grading runs learners' code under bubblewrap; looked for `bwrap`, found none. Install it (Debian, Ubuntu: "
            "apt install bubblewrap; Fedora: dnf install bubblewrap), or give --unsafe to run it with your own rights."
        )
    # refused in a chroot, whose jails would leak
    inside = ["true"] if os.getuid() else ["unshare", "--user", "true"]
    with hosts() as descriptor:
        tried = subprocess.run(
            [*walls(descriptor), *inside], pass_fds=[descriptor], capture_output=True, text=True
        )
    if tried.returncode:
        raise CourseError(
            f"grading runs learners' code under bubblewrap, which is not permitted here: {tried.stderr.strip()[:200]}. "
            "Allow user namespaces (docs/hub.md has a container's options), grade on the host, or give --unsafe to run "
            "learners' code with your own rights."
        )


@contextlib.contextmanager
def hosts() -> Iterator[int]:
    """A descriptor of what stands in a jail's /etc/hosts: the names that ranks call each other
    by.
    """
    descriptor = os.memfd_create("hosts")
    try:
        os.write(descriptor, b"127.0.0.1 localhost jail\n::1 localhost jail\n")
        os.lseek(descriptor, 0, os.SEEK_SET)
        yield descriptor
    finally:
        os.close(descriptor)


def walls(hosts: int, room: Room | None = None, cuda: bool = False) -> list[str]:
    """The bubblewrap command line up to the program; as root without a user namespace, which the
    jail then makes.
    """
    room = room or Room()
    call = ["bwrap", "--as-pid-1", "--new-session", "--clearenv", "--hostname", "jail"]
    call += [
        "--unshare-pid",
        "--unshare-net",
        "--unshare-ipc",
        "--unshare-uts",
        "--unshare-cgroup-try",
    ]
    if os.getuid():
        call += ["--unshare-user", "--disable-userns", "--uid", str(NOBODY), "--gid", str(NOBODY)]
    else:
        call += ["--cap-drop", "ALL"]
    for name in ("bin", "sbin", "lib", "lib64"):
        call += ["--symlink", f"usr/{name}", f"/{name}"]
    call += [
        "--dev",
        "/dev",
        "--proc",
        "/proc",
        "--perms",
        "0444",
        "--ro-bind-data",
        str(hosts),
        "/etc/hosts",
    ]
    for place in ("/tmp", "/dev/shm"):  # before what may lie in them: a course folder in /tmp
        call += ["--perms", "1777", "--size", str(room.disk), "--tmpfs", place]
    call += [*_mounts(), *_covers(room.covered)]
    if cuda:
        for device in sorted(Path("/dev").iterdir()):
            if device.name.startswith(GPU_DEVICES):
                call += ["--dev-bind", str(device), str(device)]
        call += ["--ro-bind-try", "/sys", "/sys"]
    else:
        # NVIDIA's driver names its threads there, or does not start
        call += [
            "--remount-ro",
            "/proc",
        ]
    return [*call, "--remount-ro", "/dev", "--remount-ro", "/", "--chdir", "/tmp"]


def _mounts():
    """What is mounted to be read."""
    call, mounted, made = [], [], {Path("/tmp")}
    # a user's own, or those of another place
    packages = [path for path in sys.path if path.endswith("-packages")]
    for path in sorted({*READABLE, *packages, sys.prefix, sys.base_prefix, COURSE}, key=len):
        if not os.path.exists(path) or any(path.startswith(f"{other}/") for other in mounted):
            continue
        for parent in reversed(
            Path(path).parents[:-1]
        ):  # bubblewrap would make them for the owner only
            if parent not in made and not any(
                f"{parent}/".startswith(f"{other}/") for other in mounted
            ):
                made.add(parent)
                call += ["--perms", "0755", "--dir", str(parent)]
        mounted.append(path)
        call += ["--ro-bind", path, path]
    return call


def _covers(paths):
    """What stands in the place of files and folders whose text is not to be read."""
    call = []
    for path in paths:
        folder = os.path.isdir(path)
        call += (
            ["--perms", "0555", "--tmpfs", path, "--remount-ro", path]
            if folder
            else ["--ro-bind", "/dev/null", path]
        )
    return call
