"""The zygote's own program: it imports what a learner may want, and forks as it is asked to.

    python -m instructor.jail.server DESCRIPTOR    # started by zygote.Zygote, which says what to do

A fork moves into the room that bubblewrap made (isolation.py) and serves one notebook there
(session.py). Other forks stay outside: branches of the zygote, and the processes that say what
checks expect (reference.py).
"""

import contextlib
import ctypes
import gc
import importlib
import json
import multiprocessing
import os
import signal
import socket
import sys
import tempfile
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NoReturn

from course.parallel import distributed
from course.system.folders import ROOT
from instructor.jail import isolation, reference
from instructor.jail.limits import JailLimits
from instructor.jail.session import Learner, current_device
from instructor.jail.tamper import Snapshot
from instructor.jail.transport import ConnectionLost, Frames

LARGE_PAGE_BYTES = 2**21
COLLAPSE = 25  # of madvise, Linux 6.1
IMPORTS = """matplotlib.pyplot matplotlib_inline.backend_inline numpy PIL.Image torch
             torchvision.transforms.v2 torchvision.io torch.distributed torch.utils.data tqdm
             cloudpickle IPython.core.interactiveshell course.parallel.distributed
             course.loading.loaders course.loading.copies course.training.models
             course.training.recommender_loop course.training.metrics
             course.measure.usage""".split()

Request = dict[str, Any]


def main() -> None:
    """Import, say that this is ready, and fork as asked."""
    connection = Frames(socket.socket(fileno=int(sys.argv[1])), takes_descriptors=True)
    gc.disable()  # it would look through all that is imported, again and again
    for name in (*IMPORTS, *sorted(_own_modules())):
        importlib.import_module(name)
    _move_into_large_pages()
    snapshot = Snapshot()
    isolation.adopt_orphans()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGCHLD, collect)
    gc.freeze()  # nor do forks look through it, which would copy it
    gc.enable()
    connection.send(json.dumps({"ready": True}).encode())
    Server(connection, snapshot).serve()


def _own_modules() -> Iterator[str]:
    """The names of the modules and packages of checks, datasets and plots."""
    for part in ("checks", "datasets", "plots"):
        folder = ROOT / "course" / part
        packages = (file.parent for file in folder.glob("*/__init__.py"))
        for path in (*folder.glob("[!_]*.py"), *packages):
            yield f"course.{part}.{path.stem}"


def _move_into_large_pages() -> None:
    """Move what this process has made into pages of 2 MB, where Linux can.

    A fork then copies a short list of pages.
    """
    madvise = ctypes.CDLL(None).madvise
    for line in Path("/proc/self/maps").read_text().splitlines():
        where, rights, *_, name = f"{line} -".split()[:6]
        first, last = (int(number, 16) for number in where.split("-"))
        begin = -(-first // LARGE_PAGE_BYTES) * LARGE_PAGE_BYTES
        end = last // LARGE_PAGE_BYTES * LARGE_PAGE_BYTES
        if rights == "rw-p" and name in ("-", "[heap]") and begin < end:
            madvise(ctypes.c_void_p(begin), ctypes.c_size_t(end - begin), COLLAPSE)


def collect(*_: object) -> None:
    """Collect every child that has ended, or it would keep its jail from ending, too."""
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


class Server:
    """Forks as it is asked to at the other end of `connection`."""

    def __init__(self, connection: Frames, snapshot: Snapshot) -> None:
        self.connection = connection
        self.snapshot = snapshot
        self.roles = {"zygote": self.branch, "reference": self.reference}

    def serve(self) -> None:
        """Serve until the other end is closed."""
        with contextlib.suppress(ConnectionLost):
            while True:
                request = json.loads(self.connection.receive())
                descriptors = self.connection.descriptors
                answer = self._answer(request, descriptors)
                for descriptor in descriptors:
                    os.close(descriptor)
                self.connection.send(json.dumps(answer).encode())

    def _answer(self, request: Request, descriptors: list[int]) -> dict[str, Any]:
        start = self.roles.get(request.get("role", ""), self.fork)
        try:
            return {"pid": start(request, descriptors)}
        except OSError as error:
            return {"error": str(error)}

    def branch(self, request: Request, descriptors: list[int]) -> int:
        """Fork a process that serves as this one does, at the descriptor given.

        Returns: its process number.
        """

        def run(stream: socket.socket) -> None:
            isolation.adopt_orphans()
            Server(Frames(stream, takes_descriptors=True), self.snapshot).serve()

        return _fork_outside(run, descriptors[0])

    def reference(self, request: Request, descriptors: list[int]) -> int:
        """Fork a process that says, at the descriptor given, what checks expect.

        It alone ever loads a solution. Returns: its process number.
        """

        def run(stream: socket.socket) -> None:
            isolation.die_with_parent(signal.SIGKILL)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            os.environ["COURSE_SOLUTIONS"] = request["solutions"]
            _start_by_fork()
            reference.serve(Frames(stream), current_device())

        return _fork_outside(run, descriptors[0])

    def fork(self, request: Request, descriptors: list[int]) -> int:
        """Fork a process that moves into a jail and serves a notebook there.

        Returns: its process number, as seen from here. Raises: OSError.
        """
        read, write = os.pipe()
        if not os.fork():
            self._fork_once_more(request, descriptors, read, write)
        os.close(write)
        with os.fdopen(read) as file:
            answer = json.loads(file.readline() or '{"error": "it ended"}')
        if "error" in answer:
            raise OSError(answer["error"])
        return int(answer["pid"])

    def _fork_once_more(
        self, request: Request, descriptors: list[int], read: int, write: int
    ) -> NoReturn:
        """In a first fork, which only enters the jail: fork the process that stays there."""
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        try:
            os.close(read)
            proc = isolation.open_proc()
            isolation.prefer_for_oom(proc)
            if request["jailed"]:
                isolation.enter(descriptors.pop())
            self._fork_inside(request, descriptors, write, proc)
        except BaseException as error:
            text = f"{type(error).__name__}: {error}"[:500]
            os.write(write, json.dumps({"error": text}).encode())
        finally:
            os._exit(1)

    def _fork_inside(
        self, request: Request, descriptors: list[int], write: int, proc: int
    ) -> NoReturn:
        """Fork the process that stays, which alone is inside the process namespace."""
        # with a user namespace of bubblewrap's it is nobody already
        maps_user = request["jailed"] and os.getuid() == 0
        theirs, ours = socket.socketpair()
        second = os.fork()
        if second:
            ours.close()  # so that neither waits for the other in vain
            if maps_user:
                theirs.recv(100)
                isolation.map_user(proc, second)
                theirs.send(b"mapped")
            os.write(write, json.dumps({"pid": second}).encode())
            os._exit(0)
        theirs.close()
        os.setsid()
        if not request["jailed"] and os.getpgid(0) != os.getpid():
            os.setpgid(0, 0)
        if maps_user:
            isolation.become_nobody(proc, ours)
        self._serve_learner(request, descriptors[0])

    def _serve_learner(self, request: Request, descriptor: int) -> NoReturn:
        channel = isolation.keep_only(descriptor)
        limits = JailLimits.from_dict(request["limits"])
        isolation.restrict(limits.per_process, request["jailed"], request["cuda"])
        _settle(request.get("folder", "/tmp"))
        try:
            temporary = ("/tmp", "/dev/shm") if request["jailed"] else ()
            frames = Frames(socket.socket(fileno=channel))
            Learner(frames, self.snapshot, limits.shared, temporary).serve()
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(0)


def _fork_outside(run: Callable[[socket.socket], None], descriptor: int) -> int:
    """Fork outside all jails to do `run(the socket)` and end; return the process number."""
    child = os.fork()
    if not child:
        try:
            os.closerange(3, descriptor)
            os.closerange(descriptor + 1, isolation.DESCRIPTORS)
            run(socket.socket(fileno=descriptor))
        finally:
            os._exit(0)
    return child


def _settle(folder: str) -> None:
    """Make `folder` the place where everything is written."""
    _start_by_fork()
    os.chdir(folder)
    os.environ |= {
        "HOME": folder,
        "TMPDIR": folder,
        "COURSE_DATA": f"{folder}/data",
        "MPLCONFIGDIR": folder,
        "PATH": "/usr/bin:/bin",
        "USER": "nobody",
        "GLOO_SOCKET_IFNAME": "lo",
        "COURSE_SOLUTIONS": "/nowhere",
        "COURSE_GRADING": "1",
    }
    sys.path[:0] = [""]
    tempfile.tempdir = folder  # whatever the zygote found
    signal.signal(signal.SIGINT, signal.default_int_handler)


def _start_by_fork() -> None:
    """Make ranks and workers forks of who starts them.

    So they have torch imported, and one thread of OpenMP.
    """
    distributed.start_ranks_by("fork")
    multiprocessing.set_start_method("fork", force=True)


if __name__ == "__main__":
    main()
