"""The zygote's own program: it imports what a learner may want, and forks as it is asked to.

    python -m instructor.jail.server DESCRIPTOR         started by zygote.Zygote, which says what to
    fork

A fork moves into the room that bubblewrap made (isolation.py) and serves one notebook there
(session.py). Other forks
stay outside: branches of the zygote, and the processes that say what checks expect (reference.py).
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
from pathlib import Path

from course.parallel import distributed
from course.system.folders import ROOT
from instructor.jail import isolation, reference
from instructor.jail.session import Learner, current_device
from instructor.jail.tamper import Snapshot
from instructor.jail.transport import ConnectionLost, Frames

LARGE_PAGE, COLLAPSE = 2**21, 25  # the latter: of madvise, Linux 6.1
IMPORTS = """matplotlib.pyplot matplotlib_inline.backend_inline numpy PIL.Image torch torchvision.transforms.v2
             torchvision.io torch.distributed torch.utils.data tqdm cloudpickle IPython.core.interactiveshell
             course.parallel.distributed course.loading.loaders course.loading.copies course.training.models
             course.training.recommender_loop course.training.metrics course.measure.usage""".split()


def main() -> None:
    """Import, say that this is ready, and fork as asked."""
    connection = Frames(socket.socket(fileno=int(sys.argv[1])), takes_descriptors=True)
    gc.disable()  # it would look through all that is imported, again and again
    for name in (*IMPORTS, *sorted(_ours())):
        importlib.import_module(name)
    _in_large_pages()
    snapshot = Snapshot()
    isolation.adopt_orphans()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGCHLD, collect)
    gc.freeze()  # nor do forks look through it, which would copy it
    gc.enable()
    connection.send(json.dumps({"ready": True}).encode())
    Server(connection, snapshot).serve()


def _ours():
    """The names of the modules and packages of checks, datasets and plots."""
    for part in ("checks", "datasets", "plots"):
        folder = ROOT / "course" / part
        for path in (
            *folder.glob("[!_]*.py"),
            *(package.parent for package in folder.glob("*/__init__.py")),
        ):
            yield f"course.{part}.{path.stem}"


def _in_large_pages():
    """Move what this process has made into pages of 2 MB, where Linux can: a fork copies a list of
    few.
    """
    for line in Path("/proc/self/maps").read_text().splitlines():
        where, rights, *_, name = f"{line} -".split()[:6]
        begin, end = (int(number, 16) for number in where.split("-"))
        begin, end = -(-begin // LARGE_PAGE) * LARGE_PAGE, end // LARGE_PAGE * LARGE_PAGE
        if rights == "rw-p" and name in ("-", "[heap]") and begin < end:
            ctypes.CDLL(None).madvise(
                ctypes.c_void_p(begin), ctypes.c_size_t(end - begin), COLLAPSE
            )


def collect(*_) -> None:
    """Collect every child that has ended: one that waits for it would keep its jail from ending,
    too.
    """
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


class Server:
    """Forks as it is asked to at the other end of `connection`."""

    def __init__(self, connection: Frames, snapshot: Snapshot):
        self.connection, self.snapshot = connection, snapshot
        self.roles = {"zygote": self.branch, "reference": self.reference}

    def serve(self) -> None:
        """Serve until the other end is closed."""
        with contextlib.suppress(ConnectionLost):
            while True:
                request = json.loads(self.connection.receive())
                descriptors = self.connection.descriptors
                try:
                    answer = {
                        "pid": self.roles.get(request.get("role"), self.fork)(request, descriptors)
                    }
                except OSError as error:
                    answer = {"error": str(error)}
                for descriptor in descriptors:
                    os.close(descriptor)
                self.connection.send(json.dumps(answer).encode())

    def branch(self, request: dict, descriptors: list[int]) -> int:
        """The process number of a fork of this process that serves as it does, at the descriptor
        given.
        """

        def run(stream):
            isolation.adopt_orphans()
            Server(Frames(stream, takes_descriptors=True), self.snapshot).serve()

        return _beside(run, descriptors[0])

    def reference(self, request: dict, descriptors: list[int]) -> int:
        """The process number of a fork that says there what checks expect: alone it ever loads a
        solution.
        """

        def run(stream):
            isolation.die_with_parent(signal.SIGKILL)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            os.environ["COURSE_SOLUTIONS"] = request["solutions"]
            _start_by_fork()
            reference.serve(Frames(stream), current_device())

        return _beside(run, descriptors[0])

    def fork(self, request: dict, descriptors: list[int]) -> int:
        """The process number, as seen from here, of a new process that does what `request` says.
        Raises: OSError.
        """
        read, write = os.pipe()
        first = os.fork()
        if not first:
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            try:
                os.close(read)
                proc = isolation.open_proc()
                isolation.prefer_for_oom(proc)
                if request["jailed"]:
                    isolation.enter(descriptors.pop())
                self._fork_inside(request, descriptors, write, proc)
            except BaseException as error:
                os.write(
                    write, json.dumps({"error": f"{type(error).__name__}: {error}"[:500]}).encode()
                )
            finally:
                os._exit(1)
        os.close(write)
        with os.fdopen(read) as file:
            answer = json.loads(file.readline() or '{"error": "it ended"}')
        if "error" in answer:
            raise OSError(answer["error"])
        return answer["pid"]

    def _fork_inside(self, request, descriptors, write, proc):
        """Fork the process that stays, which alone is inside the process namespace; never
        return.
        """
        # with a user namespace of bubblewrap's it is nobody already
        maps_user = request["jailed"] and os.getuid() == 0
        theirs, ours = socket.socketpair()
        second = os.fork()
        (ours if second else theirs).close()  # so that neither waits for the other in vain
        if second:
            if maps_user:
                theirs.recv(100)
                isolation.map_user(proc, second)
                theirs.send(b"mapped")
            os.write(write, json.dumps({"pid": second}).encode())
            os._exit(0)
        os.setsid()
        if not request["jailed"] and os.getpgid(0) != os.getpid():
            os.setpgid(0, 0)
        if maps_user:
            isolation.become_nobody(proc, ours)
        channel = isolation.keep_only(descriptors[0])
        isolation.restrict(request["room"], request["jailed"], request["cuda"])
        _settle(request.get("folder", "/tmp"))
        try:
            temporary = ("/tmp", "/dev/shm") if request["jailed"] else ()
            Learner(Frames(socket.socket(fileno=channel)), self.snapshot, temporary).serve()
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(0)


def _beside(run, descriptor):
    """The process number of a fork, outside of all jails, that does `run(the socket)` and ends."""
    child = os.fork()
    if not child:
        try:
            os.closerange(3, descriptor)
            os.closerange(descriptor + 1, isolation.DESCRIPTORS)
            run(socket.socket(fileno=descriptor))
        finally:
            os._exit(0)
    return child


def _settle(folder):
    """Make `folder` the place where everything is written."""
    _start_by_fork()
    os.chdir(folder)
    os.environ.update(
        HOME=folder, TMPDIR=folder, COURSE_DATA=f"{folder}/data", MPLCONFIGDIR=folder, PATH="/usr/bin:/bin",
        USER="nobody", GLOO_SOCKET_IFNAME="lo", COURSE_SOLUTIONS="/nowhere")  # fmt: skip
    sys.path[:0] = [""]
    tempfile.tempdir = folder  # whatever the zygote found
    signal.signal(signal.SIGINT, signal.default_int_handler)


def _start_by_fork():
    """Make ranks and workers forks of who starts them: they have torch imported, and one thread of
    OpenMP.
    """
    distributed.start_ranks_by("fork")
    multiprocessing.set_start_method("fork", force=True)


if __name__ == "__main__":
    main()
