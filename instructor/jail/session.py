"""What a process in a jail serves: a learner's cells, and the probes on the answers that they
define.

    Learner(channel, snapshot, limits).serve()       # {"do": "cell" | "check"}

Holds nothing that is secret. Each check runs in a fork of the learner's process with an empty
folder for this check alone: an answer that hangs or dies takes nothing with it. In a jail, what a
check adds to /tmp and /dev/shm goes with its fork.
"""

import contextlib
import errno
import os
import shutil
import signal
import socket
import tempfile
import time
import warnings
from collections.abc import Callable
from types import FrameType
from typing import Any

import torch

from course import checks
from course.engine.judge import Judge
from course.engine.limits import Limits
from course.engine.outcome import Outcome
from course.engine.stops import LimitReached, Raised, Stop
from course.engine.wire import LONGEST_TEXT, pack, text_bytes, unpack
from instructor.jail.forbidden import Forbidden
from instructor.jail.limits import (
    FACTS_BYTES_MAX,
    RESTORED_NAME_CHARACTERS,
    RESTORED_NAMES_MAX,
    SharedLimits,
)
from instructor.jail.shell import CellOutput, Output, error_output, make_shell
from instructor.jail.tamper import Snapshot
from instructor.jail.transport import ConnectionLost, Frames, TimedOut

FAR_TOO_MUCH = "your code gave far more bytes than this check asks for."

Message = dict[str, Any]


class NoProcess(Exception):
    """No process could be started for a check."""

    def __init__(self, error: OSError) -> None:
        super().__init__(str(error))
        self.are_too_many = error.errno == errno.EAGAIN  # else there is no memory for one more


def current_device() -> torch.device:
    """The device that the grader checks on."""
    return torch.device(os.environ["COURSE_DEVICE"])


def as_message(outcome: Outcome) -> Message:
    """An Outcome as plain data."""
    return {
        "facts": outcome.facts,
        "raised": outcome.raised.to_plain() if outcome.raised else None,
        "printed": outcome.printed,
        "refused": outcome.refused,
    }


class Learner:
    """Serves one notebook: {"do": "cell"} runs a cell, "check" a probe on one of its names.

    Args:
        channel: the connection with the grader.
        temporary: the folders that belong to this notebook alone: each check leaves them as it
            found them.
    """

    def __init__(
        self,
        channel: Frames,
        snapshot: Snapshot,
        limits: SharedLimits | None = None,
        temporary: tuple[str, ...] = (),
    ) -> None:
        self.channel = channel
        self.snapshot = snapshot
        self.limits = limits or SharedLimits()
        self.temporary = temporary
        self.output: CellOutput | None = None
        self.id: str | None = None  # of the current request
        self.restored: list[str] = []  # names that were put back before this check
        self.known: set[str] = set()  # names that were put back before any
        self.is_clean = True  # nothing of the learner's has run here since all was put back
        self.shell = make_shell(self._show, self.limits)

    def serve(self) -> None:
        """Answer requests until the grader closes the connection.  Raises: ConnectionLost."""
        this_process = os.getpid()
        while os.getpid() == this_process:  # the learner's code may fork: only one continues
            request = unpack(self.channel.receive())
            self.id = request["id"]  # each answer carries it, so that no other is one
            if request["do"] == "cell":
                self.cell(request["source"], request["seconds"])
            else:
                self.channel.send(self.answered(request))

    def _show(self, output: Output) -> None:
        if self.output:
            self.output.flush()
        self._send(output)

    def _send(self, output: Output) -> None:
        self.channel.send(self._packed({"output": output}))

    def _packed(self, message: Message) -> bytes:
        return pack(message | {"id": self.id, "restored": self.restored})

    def _packed_outcome(self, outcome: Outcome) -> bytes:
        return self._packed(as_message(outcome))

    def cell(self, source: str, seconds: float) -> None:
        """Run a cell; send its outputs one by one, like a kernel's, and then that it is done."""
        this_process = os.getpid()
        self.is_clean = False
        output = CellOutput(self._send, self.limits)
        self.output = output
        error = self._error_of(source, seconds, output)
        if error is not None:
            self._show(error_output(error))
        output.close()
        self.output = None
        if os.getpid() == this_process:
            self.channel.send(self._packed({"done": error is None}))

    def _error_of(self, source: str, seconds: float, output: CellOutput) -> BaseException | None:
        """What ended the cell, or None."""

        def late(signum: int, frame: FrameType | None) -> None:
            raise LimitReached(f"this cell took more than {seconds:g} seconds and was stopped.")

        before = signal.signal(signal.SIGALRM, late)
        signal.setitimer(signal.ITIMER_REAL, seconds, 1)
        try:
            with (
                contextlib.redirect_stdout(output.stdout),
                contextlib.redirect_stderr(output.stderr),
            ):
                result = self.shell.run_cell(source, store_history=True, silent=False)
            error: BaseException | None = result.error_before_exec or result.error_in_exec
            return error
        except BaseException as caught:
            return caught
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, before)

    def answered(self, request: Message) -> bytes:
        """The packed answer to a request to check, from a fork of this process.

        This process itself runs the check where it cannot be forked: with CUDA, which does not
        survive a fork; without memory for a fork; where a fork did not end, or could not start,
        while there are threads of the learner's, which do not survive a fork either. If there are
        too many processes for one more, the answer is {"no process": True}.
        """
        self.restored = [] if self.is_clean else self._put_back(request["unit"])
        if current_device().type != "cpu":
            return self.check(request)
        before = self._left()
        folder = tempfile.mkdtemp(prefix="check-")
        seconds = request["seconds"]
        try:
            return _in_fork(lambda: self._check_in(folder, request), seconds)
        except ConnectionLost:
            return self._packed_outcome(Outcome(raised=Raised(Stop.PROCESS_ENDED)))
        except NoProcess as error:
            if _has_threads() or not error.are_too_many:
                return self.check(request)
            return self._packed({"no process": True})
        except TimedOut:
            if _has_threads():
                return self.check(request)
            reason = (
                f"your code did not end within {seconds:g} seconds and could not be stopped gently."
            )
            return self._packed_outcome(_too_much(reason))
        finally:
            for path in {folder, *self._left() - before}:
                _remove(path)

    def _left(self) -> set[str]:
        """The paths of what is in the temporary folders."""
        return {entry.path for folder in self.temporary for entry in os.scandir(folder)}

    def _put_back(self, unit: str) -> list[str]:
        """Put back what the learner's cells changed; return the names that were not told before."""
        self.snapshot.forget_units_but(unit)
        changed = [name[:RESTORED_NAME_CHARACTERS] for name in self.snapshot.changed()]
        new = [name for name in changed if name not in self.known]
        self.known.update(changed)
        self.snapshot.restore()
        self.is_clean = True
        if len(new) > RESTORED_NAMES_MAX:
            return [*new[:RESTORED_NAMES_MAX], "..."]
        return new

    def _check_in(self, folder: str, request: Message) -> bytes:
        self.channel.close()  # the grader is none of an answer's business
        os.chdir(folder)
        os.environ["TMPDIR"] = folder
        tempfile.tempdir = folder
        return self.check(request)

    def check(self, request: Message) -> bytes:
        """The packed answer to `request`, by this process itself."""
        self.is_clean = False
        exercise = checks.exercise(request["unit"], request["exercise"])
        forbidden = Forbidden(exercise.forbids)
        self.snapshot.allowed = forbidden.stand_ins()
        answer = self.shell.user_ns.get(request["answer"])
        judge = Judge(exercise, current_device(), request["seed"])
        outcome = judge.outcome(answer, request["is_class"], Limits(request["limit"]))
        if changed := self.snapshot.changed():
            outcome = Outcome(raised=Raised(Stop.PATCHED, message=changed[0]))
        forbidden.give_back()
        self.snapshot.allowed = []
        data = self._packed_outcome(outcome)
        if len(data) > FACTS_BYTES_MAX or text_bytes(data) > LONGEST_TEXT:
            return self._packed_outcome(_too_much(FAR_TOO_MUCH))
        return data


def _too_much(reason: str) -> Outcome:
    """The Outcome of an answer that took too long or gave too much."""
    return Outcome(raised=Raised(Stop.LIMIT, LimitReached.__name__, reason))


def _has_threads() -> bool:
    """Whether this process has more threads than its own."""
    return len(os.listdir("/proc/self/task")) > 1


def _remove(path: str) -> None:
    """Remove a file, a link, or a folder with all that is in it."""
    if os.path.isdir(path) and not os.path.islink(path):
        shutil.rmtree(path, ignore_errors=True)
    else:
        with contextlib.suppress(FileNotFoundError):
            os.remove(path)


def _in_fork(make: Callable[[], bytes], seconds: float) -> bytes:
    """What `make()` gives in a fork of this process.

    Raises: ConnectionLost if that ends without, TimedOut, NoProcess.
    """
    ours, theirs = socket.socketpair()
    try:
        # Python warns of a fork where there are threads
        with warnings.catch_warnings(action="ignore"):
            process = os.fork()
    except OSError as error:
        ours.close()
        theirs.close()
        raise NoProcess(error) from None
    if not process:
        _send_made(make, theirs)
    theirs.close()
    with ours:
        try:
            return bytes(Frames(ours).receive(time.monotonic() + seconds))
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process, signal.SIGKILL)
            os.waitpid(process, 0)


def _send_made(make: Callable[[], bytes], connection: socket.socket) -> None:
    """In a fork: send what `make()` gives, and end this process."""
    try:
        os.setsid()  # so that what it starts ends with it
        this_process = os.getpid()
        data = make()
        if os.getpid() == this_process:  # the learner's code may have forked
            Frames(connection).send(data)
    finally:
        os._exit(0)
