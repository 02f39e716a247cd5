"""A room without doors for a learner's code: *bubblewrap* makes it, a fork of a process with torch imported moves in.

    zygote = Zygote()                       # one process, which has imported torch; it runs nothing of anybody's
    with Jail(zygote, "learner") as jail:   # a new room: no network, no course solutions, user nobody, an empty /tmp
        jail.send({...}); answer = jail.receive(seconds=20)

What comes out of a jail is plain data (checks/wire.py).  Limits: memory of all its processes together, their number,
the size of a file and of all files, and the bytes of what it says.  Whatever happens inside, leaving the block kills
every process in it.  `unsafe` leaves the walls out and keeps the rest.
"""

import contextlib
import json
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import asdict
from pathlib import Path

from course.checks.wire import WireError, pack, unpack
from course.errors import CourseError
from course.grading.sandbox.usage import Usage
from course.grading.sandbox.zygote import ROOT, START, JailError, Room, readable

NOBODY = 65534
LOOK = 0.1  # seconds between two looks at the memory of a jail
# what a learner's code may read, where it exists, beside Python, torch and the course package; nothing else of ours
READABLE = ("/usr", "/etc/ld.so.cache", "/etc/passwd", "/etc/group", "/etc/fonts", "/etc/localtime")
GPU_DEVICES = ("nvidia", "dri", "kfd")  # beginnings of names in /dev


def refuse_without_bubblewrap():
    """None.  Raises: CourseError that says what to install if bubblewrap is missing or not permitted here."""
    if not shutil.which("bwrap"):
        raise CourseError(
            "grading runs learners' code under bubblewrap; looked for `bwrap`, found none. Install it (Debian, Ubuntu: "
            "apt install bubblewrap; Fedora: dnf install bubblewrap), or give --unsafe to run it with your own rights."
        )
    with _hosts() as hosts:
        tried = subprocess.run([*_walls(hosts), "true"], pass_fds=[hosts], capture_output=True, text=True)
    if tried.returncode:
        raise CourseError(
            f"grading runs learners' code under bubblewrap, which is not permitted here: {tried.stderr.strip()[:200]}. "
            "Allow user namespaces (in a container: run it with --security-opt seccomp=unconfined, or grade on the "
            "host), or give --unsafe to run learners' code with your own rights."
        )


@contextlib.contextmanager
def _hosts():
    """A descriptor of what stands in a jail's /etc/hosts: the names that ranks call each other by."""
    descriptor = os.memfd_create("hosts")
    try:
        os.write(descriptor, b"127.0.0.1 localhost jail\n::1 localhost jail\n")
        os.lseek(descriptor, 0, os.SEEK_SET)
        yield descriptor
    finally:
        os.close(descriptor)


def _walls(hosts, room=None, cuda=False):
    """The bubblewrap command line up to the program; as root without a user namespace, which the jail then makes."""
    room = room or Room()
    call = ["bwrap", "--as-pid-1", "--new-session", "--clearenv", "--hostname", "jail"]
    call += ["--unshare-pid", "--unshare-net", "--unshare-ipc", "--unshare-uts", "--unshare-cgroup-try"]
    if os.getuid():
        call += ["--unshare-user", "--disable-userns", "--uid", str(NOBODY), "--gid", str(NOBODY)]
    else:
        call += ["--cap-drop", "ALL"]
    for name in ("bin", "sbin", "lib", "lib64"):
        call += ["--symlink", f"usr/{name}", f"/{name}"]
    call += ["--dev", "/dev", "--proc", "/proc", "--perms", "0444", "--ro-bind-data", str(hosts), "/etc/hosts"]
    for place in ("/tmp", "/dev/shm"):  # before what may lie in them: a course folder in /tmp
        call += ["--perms", "1777", "--size", str(room.disk), "--tmpfs", place]
    mounted, made = [], {Path("/tmp")}
    packages = [path for path in sys.path if path.endswith("-packages")]  # a user's own, or those of another place
    for path in sorted({*READABLE, *packages, sys.prefix, sys.base_prefix, str(ROOT / "course")}, key=len):
        if not os.path.exists(path) or any(path.startswith(f"{other}/") for other in mounted):
            continue
        for parent in reversed(Path(path).parents[:-1]):  # bubblewrap would make them for the owner only
            if parent not in made and not any(f"{parent}/".startswith(f"{other}/") for other in mounted):
                made.add(parent)
                call += ["--perms", "0755", "--dir", str(parent)]
        mounted.append(path)
        call += ["--ro-bind", path, path]
    if cuda:
        for device in sorted(Path("/dev").iterdir()):
            if device.name.startswith(GPU_DEVICES):
                call += ["--dev-bind", str(device), str(device)]
        call += ["--ro-bind-try", "/sys", "/sys"]
    return [*call, "--remount-ro", "/dev", "--remount-ro", "/", "--chdir", "/tmp"]


class Jail:
    """One room and the process in it, for one submission.  A context manager that ends all that was started inside.

    Args:
        role: "learner" (runs cells, has the answers) or "probe" (runs probes, which reach an answer by messages).
    """

    def __init__(self, zygote, role, room=None):
        self.zygote, self.role, self.room = zygote, role, room or Room()
        if zygote.cuda:
            self.room = Room(**asdict(self.room) | {"address_space": 0})
        self.reason, self.said, self.pid, self.holder, self.first, self.temporary = None, 0, None, None, None, None
        self.ending = threading.Lock()

    def __enter__(self):
        self.channel, theirs = socket.socketpair()
        try:
            self._move_in(theirs)
        except BaseException:
            self.__exit__()
            raise
        finally:
            theirs.close()
        self.watch = threading.Thread(target=self._watch, daemon=True)
        self.watch.start()
        return self

    def _move_in(self, theirs):
        request = {"role": self.role, "room": asdict(self.room), "jailed": not self.zygote.unsafe}
        descriptors = [theirs.fileno()]
        if self.zygote.unsafe:
            self.temporary = tempfile.TemporaryDirectory(prefix="unsafe-", ignore_cleanup_errors=True)
            self.pid = self.zygote.fork(request | {"folder": self.temporary.name}, descriptors)
            return
        # The room itself: bubblewrap with a `cat` as its first process, which says when the room is ready and takes all
        # others with it when it ends.  It does so when this process is gone, however that came: its input is closed
        # then.  (--die-with-parent leaves a process behind if bubblewrap is killed while it makes the room.)
        info = os.memfd_create("info")  # no pipe: bubblewrap would die writing to one that nobody reads any more
        pipes = dict(stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        with _hosts() as hosts:
            call = [*_walls(hosts, self.room, self.zygote.cuda), "--info-fd", str(info), "cat"]
            self.holder = subprocess.Popen(call, pass_fds=[info, hosts], start_new_session=True, **pipes)
        with os.fdopen(info, "rb") as file:
            self.holder.stdin.write(b"\n")
            self.holder.stdin.flush()
            if not readable(self.holder.stdout, START) or self.holder.stdout.read1(1) != b"\n":
                raise JailError(f"bubblewrap made no room: {self.holder.stderr.read1(500).decode(errors='replace')}")
            file.seek(0)
            self.first = os.pidfd_open(json.load(file)["child-pid"])
        self.pid = self.zygote.fork(request, [*descriptors, self.first])
        self.namespace = os.readlink(f"/proc/{self.pid}/ns/pid")

    def __exit__(self, *error):
        self.end()
        self.channel.close()
        if self.first is not None:
            os.close(self.first)
        if self.holder:
            self.holder.wait()
            for pipe in (self.holder.stdin, self.holder.stdout, self.holder.stderr):
                pipe.close()
        if self.temporary:
            self.temporary.cleanup()

    def end(self, reason=None):
        """None; every process inside is gone.  `reason`, a sentence, is what `receive` says from now on."""
        with self.ending:  # the watch may ask for it, too
            if self.reason:
                return
            self.reason = reason or "it was ended."
            if self.holder:
                self.holder.stdin.close()
                if self.first is not None:  # the room is made, so bubblewrap itself may be killed, too
                    with contextlib.suppress(ProcessLookupError):
                        signal.pidfd_send_signal(self.first, signal.SIGKILL)
                    self.holder.kill()
            elif self.pid:
                for signalled in (os.killpg, os.kill):
                    try:
                        signalled(self.pid, signal.SIGKILL)
                    except ProcessLookupError:
                        pass

    def send(self, message, descriptors=()):
        """None; `message`, a dict, and `descriptors` are with the process.  Raises: JailError if it takes none."""
        self.asked = secrets.token_hex(8)  # what a learner's code has sent before it was asked is no answer
        data = pack(message | {"id": self.asked})
        self.channel.settimeout(START)
        try:
            socket.send_fds(self.channel, [len(data).to_bytes(8, "little")], descriptors)
            self.channel.sendall(data)
        except OSError:
            raise JailError(self._why()) from None

    def receive(self, seconds, deadline=None):
        """The next message of the process, a dict of plain data of `self.size` bytes.  Raises: JailError.

        Args:
            deadline: where several messages have `seconds` together, the time.monotonic() of their end.
        """
        deadline = deadline or time.monotonic() + seconds
        self.size = size = int.from_bytes(self._exactly(8, deadline, seconds), "little")
        self.said += size
        if size > self.room.message or self.said > self.room.said:
            self.end(
                f"it sent more than {(self.room.message if size > self.room.message else self.room.said):,} bytes."
            )
            raise JailError(self.reason)
        try:
            message = unpack(self._exactly(size, deadline, seconds))
        except WireError as error:
            self.end(f"it sent what is no plain data ({error}).")
            raise JailError(self.reason) from None
        if not isinstance(message, dict) or message.get("id") != self.asked:
            self.end("it sent what it was not asked for.")
            raise JailError(self.reason)
        return message

    def _exactly(self, size, deadline, seconds):
        data = bytearray()
        while len(data) < size:
            left = deadline - time.monotonic()
            if left <= 0 or not readable(self.channel, left):  # the former: something may come all the time
                self.end(f"it gave no answer within {seconds:g} seconds.")
                raise JailError(self.reason)
            try:
                piece = self.channel.recv(min(2**20, size - len(data)))
            except OSError:
                piece = b""
            if not piece:
                raise JailError(self._why())
            data += piece
        return data

    def _why(self):
        """The reason why the process is gone: ours, if we ended it."""
        return self.reason or "its process ended by itself (sys.exit, os._exit, a crash, or a signal that it sent)."

    def _watch(self):
        while not self.reason and not self.zygote.unsafe:
            if self._memory() > self.room.memory:
                self.end(f"it took more than {self.room.memory / 2**30:.1f} GiB of memory.")
            time.sleep(LOOK)

    def _memory(self):
        """Bytes of all processes and files inside: what they share with the zygote does not count.

        To read which pages are shared takes 10 ms a process, so it is done where the sum with them is too large.
        """
        files = sum(_used(f"/proc/{self.pid}/root{place}") for place in ("/tmp", "/dev/shm"))
        inside = self._inside()

        def total(file, own, shared):
            found = [_kilobytes(f"/proc/{number}/{file}", own, shared) for number in inside]
            own, shared = (sum(each) * 1024 for each in zip((0, 0), *found, strict=True))
            return own + max(shared, files)  # files that are mapped count in both

        quick = total("status", "RssAnon:", "RssShmem:")
        return quick if quick < self.room.memory else total("smaps_rollup", "Pss_Anon:", "Pss_Shmem:")

    def usage(self):
        """The Usage of all processes inside until now, or None where there are no walls to tell whose they are."""
        return None if self.zygote.unsafe else Usage(self._inside())

    def _inside(self):
        return [number for number in os.listdir("/proc") if number.isdecimal() and self._lives_here(number)]

    def _lives_here(self, number):
        try:
            return os.readlink(f"/proc/{number}/ns/pid") == self.namespace
        except OSError:  # gone, or of another user
            return False


def _used(folder):
    try:
        space = os.statvfs(folder)
    except OSError:
        return 0
    return (space.f_blocks - space.f_bfree) * space.f_frsize


def _kilobytes(path, *fields):
    """The number in the line of each field; 0 where there is none."""
    try:
        with open(path, errors="replace") as lines:  # a process chooses its own name
            found = {line.split()[0]: int(line.split()[1]) for line in lines if line.startswith(fields)}
    except OSError:
        found = {}
    return [found.get(field, 0) for field in fields]
