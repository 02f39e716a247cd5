"""The process that has imported torch and all that a learner's code may want, and forks into jails
(client.py).

    with Zygote() as zygote:                # starts to import; this module imports no torch, so
        that it starts at once zygote.fork({...}, descriptors)     # waits until it is ready

It runs nothing of anybody's and knows nothing that is secret.
"""

import contextlib
import json
import math
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from course.errors import CourseError
from course.system.folders import ROOT
from instructor.jail.transport import ConnectionLost, Frames, TimedOut

START = 60  # seconds for a zygote to import, or a jail to answer the first time, on a busy machine


@dataclass(frozen=True)
class Room:
    """What all processes of one jail may use together (memory, disk), or each of them (the rest),
    and for how long.
    """

    memory: int = 4 * 2**30  # bytes, files in /tmp included
    disk: int = 2**30  # bytes in /tmp, and as many in /dev/shm
    # bytes of one file; unit 04 makes one of 64 GB with holes, which takes no room
    file: int = 2**37
    processes: int = 256  # threads count too
    descriptors: int = 1024
    # of a process: unit 04 maps that file whole; 0 sets no limit (CUDA maps far more yet)
    address_space: int = 2**37
    message: int = 64_000_000  # bytes of one message
    said: int = 400_000_000  # bytes of all messages together
    cell_seconds: float = 60  # of a cell of the learner's
    # of the calls of an answer, where its exercise does not allow less
    answer_seconds: float = math.inf
    patience: float = 20  # seconds that either may take beyond its limit on a busy machine
    submission_seconds: float = 600  # of all code of a submission
    # files and folders that are empty inside: the text of what a part's tasks forbid
    covered: tuple[str, ...] = ()


class JailError(Exception):
    """The learner's process is gone, or had to be ended; the message is a plain reason for the
    learner.
    """


class EndedByItself(JailError):
    """The learner's process is gone, and the grader did not end it."""

    def __init__(self):
        super().__init__(
            "its process ended by itself (sys.exit, os._exit, a crash, or a signal that it sent)."
        )


class Zygote:
    """A process that has imported all that a learner's code may want, and forks into jails. A
    context manager.

    `branch` is what another zygote's `branch()` gave: then this one is a fork of that one, and
    shares its memory.
    """

    def __init__(
        self, unsafe: bool = False, cuda: bool = False, branch: socket.socket | None = None
    ):
        self.unsafe, self.cuda, self.process = unsafe, cuda, None
        if branch:
            self.connection = Frames(branch)
        else:
            self.start()

    def start(self) -> None:
        """Start a new process, which imports everything from now on."""
        ours, theirs = socket.socketpair()
        self.connection = Frames(ours)
        call = [sys.executable, "-P", "-m", "instructor.jail.server", str(theirs.fileno())]
        quiet = dict(stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        # in sessions of their own: a Ctrl-C for the grader is none for them, which would look like
        # a learner's fault
        self.process = subprocess.Popen(
            call,
            cwd="/",
            env=self._environment(),
            pass_fds=[theirs.fileno()],
            start_new_session=True,
            **quiet,
        )
        theirs.close()
        self.ready = False

    def _environment(self):
        clean = {
            name: os.environ[name]
            for name in ("PATH", "LANG", "CUDA_VISIBLE_DEVICES")
            if name in os.environ
        }
        # a cluster's module may have its packages there
        folders = os.environ.get("PYTHONPATH", "").split(os.pathsep)
        return clean | {
            "PYTHONPATH": os.pathsep.join(
                [str(ROOT), *(path for path in folders if path.endswith("-packages"))]
            ),
            "OMP_NUM_THREADS": "1",
            "OPENBLAS_NUM_THREADS": "1",
            "MKL_NUM_THREADS": "1",
            "MPLBACKEND": "module://matplotlib_inline.backend_inline",
            "MPLCONFIGDIR": tempfile.gettempdir(),
            "COURSE_SCALE": "smoke",
            "COURSE_DEVICE": "cuda" if self.cuda else "cpu",
            "COURSE_ANSWERS": "off",  # answers do not travel between the parts of a submission
        }

    def wait(self) -> None:
        """Wait until everything is imported. Raises: CourseError with the words of the process if
        it could not.
        """
        if not self.process or self.ready:
            return
        try:
            self._answer()
        except (ConnectionLost, TimedOut):
            self.process.kill()
            words = self.process.stderr.read().decode(errors="replace").strip().splitlines()
            raise CourseError(
                f"the process that runs learners' code did not start: {words[-1] if words else 'no words'}"
            ) from None
        self.ready = True

    def branch(self) -> socket.socket | None:
        """A socket for another Zygote, in this process or in a fork of it, or None if the process
        is gone.
        """
        with contextlib.suppress(OSError):
            return self._beside({"role": "zygote"})

    def reference(self, solutions: Path) -> socket.socket:
        """A socket to a process that says what checks expect, by the masters in `solutions`.
        Raises: OSError.
        """
        return self._beside({"role": "reference", "solutions": str(solutions)})

    def _beside(self, request):
        self.wait()
        ours, theirs = socket.socketpair()
        try:
            with theirs:
                if "pid" in self._ask(request, [theirs.fileno()]):
                    return ours
        except (ConnectionLost, TimedOut):
            pass
        ours.close()
        raise OSError("the process that forks has ended, or cannot")

    def fork(self, request: dict, descriptors: Sequence[int]) -> int:
        """Fork a process into the jail that `request` and `descriptors` describe; return its outer
        process number.

        Raises: JailError if there is none.
        """
        for attempt in range(2):
            self.wait()
            with contextlib.suppress(ConnectionLost, TimedOut):  # it is gone: somebody killed it
                answer = self._ask(request, descriptors)
                if "pid" in answer:
                    return answer["pid"]
                if attempt:
                    raise JailError(
                        f"no process could be started for this submission ({answer['error']})."
                    )
            self.close()
            self.start()
        raise JailError("no process could be started for this submission.")

    def _ask(self, request, descriptors):
        self.connection.send(json.dumps(request).encode(), descriptors)
        return self._answer()

    def _answer(self):
        return json.loads(self.connection.receive(time.monotonic() + START))

    def close(self) -> None:
        """End the process, or let it end if it is a branch."""
        self.connection.close()
        if self.process:
            self.process.kill()
            self.process.wait()
            self.process.stderr.close()

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self.close()
