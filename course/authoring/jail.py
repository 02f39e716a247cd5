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
import math
import os
import secrets
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import asdict, dataclass
from pathlib import Path

from course.checks.wire import WireError, pack, unpack
from course.errors import CourseError

ROOT = Path(__file__).parents[2]
NOBODY = 65534
LOOK = 0.1  # seconds between two looks at the memory of a jail
START = 60  # seconds for a zygote to import, or a jail to answer the first time, on a busy machine
# what a learner's code may read, where it exists, beside Python, torch and the course package; nothing else of ours
READABLE = ("/usr", "/etc/ld.so.cache", "/etc/passwd", "/etc/group", "/etc/fonts", "/etc/localtime")
GPU_DEVICES = ("nvidia", "dri", "kfd")  # beginnings of names in /dev


@dataclass(frozen=True)
class Room:
    """What all processes of one jail may use together (memory, disk), or each of them (the rest), and for how long."""

    memory: int = 4 * 2**30  # bytes, files in /tmp included
    disk: int = 2**30  # bytes in /tmp, and as many in /dev/shm
    file: int = 2**37  # bytes of one file; unit 04 makes one of 64 GB with holes, which takes no room
    processes: int = 256  # threads count too
    descriptors: int = 1024
    address_space: int = 2**37  # of a process: unit 04 maps that file whole; 0 sets no limit (CUDA maps far more yet)
    message: int = 64_000_000  # bytes of one message
    said: int = 400_000_000  # bytes of all messages together
    cell_seconds: float = 60  # of a cell of the learner's
    answer_seconds: float = math.inf  # of the calls of an answer, where its exercise does not allow less
    patience: float = 20  # seconds that either may take beyond its limit on a busy machine


class JailError(Exception):
    """The learner's process is gone, or had to be ended; the message is a plain reason for the learner."""


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


class Zygote:
    """A process that has imported all that a learner's code may want, and forks into jails.  A context manager.

    `branch` is what another zygote's `branch()` gave: then this one is a fork of that one, and shares its memory.
    """

    def __init__(self, unsafe=False, cuda=False, branch=None):
        self.unsafe, self.cuda, self.socket, self.process = unsafe, cuda, branch, None
        if not branch:
            self.start()

    def start(self):
        """None; a new process imports everything from now on."""
        self.socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        clean = {name: os.environ[name] for name in ("PATH", "LANG", "CUDA_VISIBLE_DEVICES") if name in os.environ}
        clean |= {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1",
                  "MPLBACKEND": "module://matplotlib_inline.backend_inline", "MPLCONFIGDIR": tempfile.gettempdir(),
                  "COURSE_SCALE": "smoke", "COURSE_DEVICE": "cuda" if self.cuda else "cpu"}  # fmt: skip
        call = [sys.executable, "-P", "-m", "course.authoring.kernel", str(theirs.fileno())]
        quiet = dict(stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        # in sessions of their own: a Ctrl-C for the grader is none for them, which would look like a learner's fault
        self.process = subprocess.Popen(
            call, cwd="/", env=clean, pass_fds=[theirs.fileno()], start_new_session=True, **quiet
        )
        theirs.close()
        self.ready = False

    def wait(self):
        """None; everything is imported.  Raises: CourseError with the words of the process if it could not."""
        if not self.process or self.ready:
            return
        if not _readable(self.socket, START) or self.socket.recv(100) != b"ready":
            self.process.kill()
            words = self.process.stderr.read().decode(errors="replace").strip().splitlines()
            raise CourseError(
                f"the process that runs learners' code did not start: {words[-1] if words else 'no words'}"
            )
        self.ready = True

    def branch(self):
        """A socket for another Zygote, in this process or in a fork of it, or None if the process is gone."""
        self.wait()
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs, contextlib.suppress(OSError):
            socket.send_fds(self.socket, [json.dumps({"role": "zygote"}).encode()], [theirs.fileno()])
            if self.socket.recv(10_000):
                return ours
        ours.close()
        return None

    def fork(self, request, descriptors):
        """The outer process number of a new process in the jail that `request` and `descriptors` say.

        Raises: JailError if there is none.
        """
        for attempt in range(2):
            self.wait()
            try:
                socket.send_fds(self.socket, [json.dumps(request).encode()], descriptors)
                if _readable(self.socket, START):
                    answer = json.loads(self.socket.recv(10_000) or b'{"error": "it ended"}')
                    if "pid" in answer:
                        return answer["pid"]
                    if attempt:
                        raise JailError(f"no process could be started for this submission ({answer['error']}).")
            except OSError:  # it is gone: somebody killed it
                pass
            self.close()
            self.start()
        raise JailError("no process could be started for this submission.")

    def close(self):
        """None; the process has ended, or is about to if it is a branch."""
        self.socket.close()
        if self.process:
            self.process.kill()
            self.process.wait()
            self.process.stderr.close()

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self.close()


class Jail:
    """One room and the process in it, for one submission.  A context manager that ends all that was started inside.

    Args:
        role: "learner" (runs cells, has the answers) or "probe" (runs probes, which reach an answer by messages).
    """

    def __init__(self, zygote, role, room=None):
        self.zygote, self.role, self.room = zygote, role, room or Room()
        if zygote.cuda:
            self.room = Room(**asdict(self.room) | {"address_space": 0})
        self.reason, self.said, self.holder, self.first, self.temporary = None, 0, None, None, None
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
            if not _readable(self.holder.stdout, START) or self.holder.stdout.read1(1) != b"\n":
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
            elif hasattr(self, "pid"):
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
            if left <= 0 or not _readable(self.channel, left):  # the former: something may come all the time
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
        time.sleep(0)
        return self.reason or "its process ended by itself (sys.exit, os._exit, a crash, or a signal that it sent)."

    def _watch(self):
        while not self.reason and not self.zygote.unsafe:
            if self._memory() > self.room.memory:
                self.end(f"it took more than {self.room.memory / 2**30:.1f} GiB of memory.")
            time.sleep(LOOK)

    def _memory(self):
        """Bytes of all processes and files inside: what they share with the zygote does not count."""
        files = sum(_used(f"/proc/{self.pid}/root{place}") for place in ("/tmp", "/dev/shm"))
        inside = [number for number in os.listdir("/proc") if number.isdecimal() and self._lives_here(number)]

        def total(file, own, shared):
            own, shared = (
                sum(_kilobytes(f"/proc/{n}/{file}", field) for n in inside) * 1024 for field in (own, shared)
            )
            return own + max(shared, files)  # files that are mapped count in both

        quick = total("status", "RssAnon:", "RssShmem:")
        return quick if quick < self.room.memory else total("smaps_rollup", "Pss_Anon:", "Pss_Shmem:")

    def _lives_here(self, number):
        try:
            return os.readlink(f"/proc/{number}/ns/pid") == self.namespace
        except OSError:  # gone, or of another user
            return False


def _readable(stream, seconds):
    return bool(select.select([stream], [], [], max(0, seconds))[0])


def _used(folder):
    try:
        space = os.statvfs(folder)
    except OSError:
        return 0
    return (space.f_blocks - space.f_bfree) * space.f_frsize


def _kilobytes(path, field):
    try:
        with open(path) as lines:
            return next((int(line.split()[1]) for line in lines if line.startswith(field)), 0)
    except OSError:
        return 0
