"""What a process in a jail serves: a learner's cells, and the probes on the answers that they
define.

    Learner(channel, snapshot).serve()       # {"do": "cell" | "check"}

Holds nothing that is secret. Each check runs in a fork of the learner's process with an empty
folder of its own: an answer that hangs or dies takes nothing with it. In a jail, what a check adds
to /tmp and /dev/shm goes with its fork.
"""

import contextlib
import os
import shutil
import signal
import socket
import tempfile
import time
import warnings

import torch

from course import checks
from course.engine.judge import Judge
from course.engine.limits import LimitReached, Limits
from course.engine.outcome import Outcome
from course.engine.stops import Raised, Stop
from course.engine.wire import LONGEST_TEXT, pack, text_bytes, unpack
from instructor.jail.forbidden import Forbidden
from instructor.jail.shell import CellOutput, error_output, make_shell
from instructor.jail.tamper import Snapshot
from instructor.jail.transport import ConnectionLost, Frames, TimedOut

FACTS = 32_000_000  # bytes of all that a probe may find; no right answer gives a tenth
NAMES, NAME = 10, 60  # of what is put back: how many are told, characters of each


def current_device() -> torch.device:
    """The device that the grader checks on."""
    return torch.device(os.environ["COURSE_DEVICE"])


def as_message(outcome: Outcome) -> dict:
    """An Outcome as plain data."""
    return {
        "facts": outcome.facts,
        "raised": outcome.raised.to_plain() if outcome.raised else None,
        "printed": outcome.printed,
        "refused": outcome.refused,
    }


class Learner:
    """Serves one notebook: {"do": "cell"} runs a cell, "check" a probe on one of its names.

    `temporary` are the folders that belong to this notebook alone: each check leaves them as it
    found them.
    """

    def __init__(self, channel: Frames, snapshot: Snapshot, temporary: tuple[str, ...] = ()):
        self.channel, self.snapshot, self.output, self.id = channel, snapshot, None, None
        self.temporary = temporary
        # names that were put back before this check, and before any
        self.restored, self.known = (
            [],
            set(),
        )
        self.is_clean = True  # nothing of the learner's has run here since all was put back
        self.shell = make_shell(self._show)

    def serve(self) -> None:
        alone = os.getpid()
        while os.getpid() == alone:  # the learner's code may fork: only one of the two goes on
            request = unpack(self.channel.receive())
            self.id = request["id"]  # each answer carries it, so that no other is one
            if request["do"] == "cell":
                self.cell(request["source"], request["seconds"])
            else:
                self.channel.send(self.answered(request))

    def _show(self, output):
        if self.output:
            self.output.flush()
        self._send(output)

    def _send(self, output):
        self.channel.send(self._packed({"output": output}))

    def _packed(self, message):
        return pack(message | {"id": self.id, "restored": self.restored})

    def cell(self, source: str, seconds: float) -> None:
        """Run a cell; send its outputs one by one, like a kernel's, and then that it is done."""
        alone, self.is_clean = os.getpid(), False
        self.output = CellOutput(self._send)
        error = self._error_of(source, seconds)
        if error is not None:
            self._show(error_output(error))
        self.output.close()
        self.output = None
        if os.getpid() == alone:
            self.channel.send(self._packed({"done": error is None}))

    def _error_of(self, source, seconds):
        """What ended the cell, or None."""

        def late(signum, frame):
            raise LimitReached(f"this cell took more than {seconds:g} seconds and was stopped.")

        before = signal.signal(signal.SIGALRM, late)
        signal.setitimer(signal.ITIMER_REAL, seconds, 1)
        try:
            with (
                contextlib.redirect_stdout(self.output.stdout),
                contextlib.redirect_stderr(self.output.stderr),
            ):
                result = self.shell.run_cell(source, store_history=True, silent=False)
            return result.error_before_exec or result.error_in_exec
        except BaseException as caught:
            return caught
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, before)

    def answered(self, request: dict) -> bytes:
        """The packed answer to a request to check, from a fork of this process.

        CUDA does not survive a fork, so there this process looks by itself; so it does where it
        cannot fork any more, and where a fork did not end that may have waited for a thread of the
        learner's, which did not survive either.
        """
        self.restored = [] if self.is_clean else self._put_back(request["unit"])
        if current_device().type != "cpu":
            return self.check(request)
        before = self._left()
        folder = tempfile.mkdtemp(prefix="check-")
        try:
            return _in_fork(lambda: self._check_in(folder, request), request["seconds"])
        except ConnectionLost:
            raised = Raised(Stop.PROCESS_ENDED)
        except TimedOut:
            if len(os.listdir("/proc/self/task")) > 1:  # threads
                return self.check(request)
            reason = f"your code did not end within {request['seconds']:g} seconds and could not be stopped gently."
            raised = Raised(Stop.LIMIT, LimitReached.__name__, reason)
        finally:
            for path in {folder, *self._left() - before}:
                _remove(path)
        return self._packed(as_message(Outcome(raised=raised)))

    def _left(self):
        """The paths of what is in the temporary folders."""
        return {entry.path for place in self.temporary for entry in os.scandir(place)}

    def _put_back(self, unit):
        """Put back what the learner's cells changed; return the names that were not told before."""
        self.snapshot.forget_units_but(unit)
        changed = [name[:NAME] for name in self.snapshot.changed()]
        new = [name for name in changed if name not in self.known]
        self.known.update(changed)
        self.snapshot.restore()
        self.is_clean = True
        return new[:NAMES] + ["..."] * (len(new) > NAMES)

    def _check_in(self, folder, request):
        self.channel.close()  # the grader is none of an answer's business
        os.chdir(folder)
        os.environ["TMPDIR"] = tempfile.tempdir = folder
        return self.check(request)

    def check(self, request: dict) -> bytes:
        """The packed answer to `request`, by this process itself."""
        self.is_clean = False
        exercise = checks.exercise(request["unit"], request["exercise"])
        forbidden = Forbidden(exercise.forbids)
        self.snapshot.allowed = [*forbidden.refusing, *(code for _, code, _ in forbidden.codes)]
        answer = self.shell.user_ns.get(request["answer"])
        judge = Judge(exercise, current_device(), request["seed"])
        outcome = judge.outcome(answer, request["is_class"], Limits(request["limit"]))
        if changed := self.snapshot.changed():
            outcome = Outcome(raised=Raised(Stop.PATCHED, message=changed[0]))
        forbidden.give_back()
        self.snapshot.allowed = []
        data = self._packed(as_message(outcome))
        if len(data) > FACTS or text_bytes(data) > LONGEST_TEXT:
            reason = "your code gave far more bytes than this check asks for."
            outcome = Outcome(raised=Raised(Stop.LIMIT, LimitReached.__name__, reason))
            data = self._packed(as_message(outcome))
        return data


def _remove(path):
    """Remove a file, a link, or a folder with all that is in it."""
    if os.path.isdir(path) and not os.path.islink(path):
        shutil.rmtree(path, ignore_errors=True)
    else:
        with contextlib.suppress(FileNotFoundError):
            os.remove(path)


def _in_fork(make, seconds):
    """What `make()`, bytes, gives in a fork of this process. Raises: ConnectionLost if that ends
    without, TimedOut.
    """
    ours, theirs = socket.socketpair()
    try:
        with warnings.catch_warnings(
            action="ignore"
        ):  # Python warns of a fork where there are threads
            process = os.fork()
    except OSError:  # there is no room for one more
        raise TimedOut from None
    if not process:
        os.setsid()  # so that what it starts ends with it
        alone = os.getpid()
        try:
            data = make()
            if os.getpid() == alone:  # the learner's code may have forked
                Frames(theirs).send(data)
        finally:
            os._exit(0)
    theirs.close()
    with ours:
        try:
            return bytes(Frames(ours).receive(time.monotonic() + seconds))
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process, signal.SIGKILL)
            os.waitpid(process, 0)
