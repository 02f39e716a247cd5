"""The process that has imported torch and all that a learner's code may want, and forks into jails.

    with Zygote() as zygote:                  # starts to import
        zygote.fork({...}, descriptors)       # waits until it is ready

client.py moves its forks into jails. It runs nothing of anybody's and knows nothing that is secret.
This module does not import torch, so that the process starts immediately.
"""

import contextlib
import json
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from course.errors import CourseError
from course.system.folders import ROOT
from instructor.jail.errors import JailError
from instructor.jail.limits import FORK_TRIES, START_SECONDS
from instructor.jail.transport import ConnectionLost, Frames, TimedOut

# of the grader's environment; some machines have NVIDIA's driver in LD_LIBRARY_PATH
KEPT_VARIABLES = ("PATH", "LANG", "LD_LIBRARY_PATH", "CUDA_VISIBLE_DEVICES")


class Zygote:
    """A process that has imported all that a learner's code may want, and forks into jails.

    A context manager: leaving it ends the process.

    Args:
        branch: what another zygote's `branch()` gave: then this one is a fork of that one, and
            shares its memory.
    """

    def __init__(
        self, unsafe: bool = False, cuda: bool = False, branch: socket.socket | None = None
    ) -> None:
        self.unsafe = unsafe
        self.cuda = cuda
        self.process: subprocess.Popen[bytes] | None = None
        if branch:
            self.connection = Frames(branch)
        else:
            self.start()

    def start(self) -> None:
        """Start a new process, which imports everything from now on."""
        ours, theirs = socket.socketpair()
        self.connection = Frames(ours)
        # in a new session: a Ctrl-C for the grader must not reach it, because that would look like
        # a learner's fault
        self.process = subprocess.Popen(
            [sys.executable, "-P", "-m", "instructor.jail.server", str(theirs.fileno())],
            cwd="/",
            env=self._environment(),
            pass_fds=[theirs.fileno()],
            start_new_session=True,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
        )
        theirs.close()
        self.ready = False

    def _environment(self) -> dict[str, str]:
        kept = {name: os.environ[name] for name in KEPT_VARIABLES if name in os.environ}
        # a cluster's module may have its packages there
        folders = os.environ.get("PYTHONPATH", "").split(os.pathsep)
        packages = [path for path in folders if path.endswith("-packages")]
        return kept | {
            "PYTHONPATH": os.pathsep.join([str(ROOT), *packages]),
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
        """Wait until everything is imported.

        Raises: CourseError with the words of the process if it could not.
        """
        if not self.process or self.ready:
            return
        try:
            self._answer()
        except (ConnectionLost, TimedOut):
            self.process.kill()
            raise CourseError(
                f"the process that runs learners' code did not start: {_last_line(self.process)}"
            ) from None
        self.ready = True

    def branch(self) -> socket.socket | None:
        """A socket for another Zygote, here or in a fork, or None if the process is gone."""
        with contextlib.suppress(OSError):
            return self._fork_outside({"role": "zygote"})
        return None

    def reference(self, solutions: Path) -> socket.socket:
        """A socket to a process that says what checks expect, by the masters in `solutions`.

        Raises: OSError.
        """
        return self._fork_outside({"role": "reference", "solutions": str(solutions)})

    def _fork_outside(self, request: dict[str, Any]) -> socket.socket:
        """Return a socket to a fork outside all jails.  Raises: OSError."""
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

    def fork(self, request: dict[str, Any], descriptors: Sequence[int]) -> int:
        """Fork a process into the jail that `request` and `descriptors` describe.

        Returns: its process number, as seen from here. Raises: JailError if there is none.
        """
        why = ""
        for attempt in range(FORK_TRIES):
            if attempt:
                self.close()
                self.start()
            self.wait()
            with contextlib.suppress(ConnectionLost, TimedOut):  # it is gone: somebody killed it
                answer = self._ask(request, descriptors)
                if "pid" in answer:
                    return int(answer["pid"])
                why = f" ({answer['error']})"
        raise JailError(f"no process could be started for this submission{why}.")

    def _ask(self, request: dict[str, Any], descriptors: Sequence[int]) -> dict[str, Any]:
        self.connection.send(json.dumps(request).encode(), descriptors)
        return self._answer()

    def _answer(self) -> dict[str, Any]:
        answer: dict[str, Any] = json.loads(
            self.connection.receive(time.monotonic() + START_SECONDS)
        )
        return answer

    def close(self) -> None:
        """End the process, or let it end if it is a branch."""
        self.connection.close()
        if self.process:
            self.process.kill()
            self.process.wait()
            if self.process.stderr:
                self.process.stderr.close()

    def __enter__(self) -> "Zygote":
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


def _last_line(process: subprocess.Popen[bytes]) -> str:
    """The last line that a process wrote on stderr."""
    text = process.stderr.read().decode(errors="replace") if process.stderr else ""
    lines = text.strip().splitlines()
    return lines[-1] if lines else "no words"
