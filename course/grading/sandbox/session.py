"""What a process in a jail serves: a learner's cells and the probes on the answers, or isolated probes.

    Learner(channel, snapshot).serve()       # {"do": "cell" | "copy" | "check" | "lend"}
    Prober(channel).serve()                  # probes whose answers are in a learner's process

Holds nothing that is secret.  Each check runs in a fork of the learner's process, so that an answer that hangs or dies
takes nothing with it.
"""

import contextlib
import importlib
import os
import signal
import socket
import time
from dataclasses import replace
from multiprocessing import forkserver

import torch

from course.checks.engine import Exercise, Outcome
from course.checks.limits import LimitReached, Raised, describe, run_answer
from course.checks.wire import WireError
from course.grading.sandbox.answer_server import Server
from course.grading.sandbox.link import Answering, Link
from course.grading.sandbox.remote import Remote
from course.grading.sandbox.shell import CellOutput, error_output, make_shell
from course.grading.sandbox.taken import Taken
from course.grading.sandbox.tamper import Snapshot
from course.grading.sandbox.transport import ConnectionLost, Frames, TimedOut

PATCHED = "Patched"  # the kind of what is raised where an answer changed what is not its own


def exercise_named(unit: str, name: str, limit: float) -> Exercise:
    """The Exercise, which takes no more than `limit` seconds."""
    found = getattr(importlib.import_module(f"course.checks.{unit[3:]}"), name)
    found.limits = replace(found.limits, seconds=limit)
    return found


def current_device() -> torch.device:
    """The device that the grader checks on."""
    return torch.device(os.environ["COURSE_DEVICE"])


def as_message(outcome: Outcome) -> dict:
    """An Outcome as plain data."""
    raised = outcome.raised and [outcome.raised.kind, outcome.raised.text]
    return {"facts": outcome.facts, "raised": raised, "printed": outcome.printed, "refused": outcome.refused}


class Prober:
    """Runs probes whose answers are in a learner's process: {"unit": ..., "exercise": ...} and a socket to it."""

    def __init__(self, channel: Answering):
        self.channel = channel

    def serve(self) -> None:
        while True:
            request = self.channel.receive()
            with socket.socket(fileno=self.channel.descriptors[0]) as stream:
                self.channel.send(as_message(self.look(Link(stream), **request)))

    def look(self, link: Link, unit: str, exercise: str, seed: int, is_class: bool, limit: float) -> Outcome:
        """The Outcome of a probe on the answer at the other end of `link`."""
        try:
            if refused := link.receive()["refused"]:
                return Outcome(refused=refused)
            answer = Remote(link, is_class)
            outcome = exercise_named(unit, exercise, limit).outcome(answer, current_device(), seed)
            with contextlib.suppress(ConnectionLost):
                link.send({"end": True})
            said = link.receive()
            outcome.printed = str(said.get("printed", ""))
            stopped = said.get("stopped") and Raised(*map(str, said["stopped"]))
            if stopped and stopped.kind == PATCHED:
                return Outcome(raised=stopped)
            if stopped and outcome.raised:  # which a rank sees as a lost connection
                outcome.raised = stopped
            return outcome
        except (ConnectionLost, WireError, TypeError, LookupError, AttributeError) as error:
            return Outcome(raised=Raised(type(error).__name__, f"your code's process gave no answer: {error}"))


class Learner:
    """Serves one notebook: {"do": "cell"} runs a cell, "check" a probe on one of its names, "lend" gives one away.

    "copy" makes the process that the next probe will run in.
    """

    def __init__(self, channel: Answering, snapshot: Snapshot):
        self.channel, self.snapshot, self.copy, self.asked, self.output = channel, snapshot, None, None, None
        self.is_copy, self.taken = False, None
        self.shell = make_shell(self._show)

    def serve(self) -> None:
        alone = os.getpid()
        while True:
            request = self.channel.receive()
            if request["do"] == "cell":
                self.end_copy()
                self.cell(request["source"], request["seconds"])
            elif request["do"] == "copy":
                self.end_copy()  # what an earlier probe has made it hold would not count
                self.asked = request["exercise"]
                self.make_copy()
                self.channel.send({"made": bool(self.copy)})
            else:
                self.channel.send_packed(self.answered(request))
            if os.getpid() != alone:  # the learner's code forked: only one of the two goes on
                return

    def _show(self, output):
        if self.output:
            self.output.flush()
        self._send(output)

    def _send(self, output):
        self.channel.send({"output": output})

    def cell(self, source: str, seconds: float) -> None:
        """Run a cell; send its outputs one by one, like a kernel's, and then that it is done."""
        alone = os.getpid()
        self.output = CellOutput(self._send)
        error = self._error_of(source, seconds)
        if error is not None:
            self._show(error_output(error))
        self.output.close()
        self.output = None
        if os.getpid() == alone:
            self.channel.send({"done": error is None})

    def _error_of(self, source, seconds):
        """What ended the cell, or None."""

        def late(signum, frame):
            raise LimitReached(f"this cell took more than {seconds:g} seconds and was stopped.")

        before = signal.signal(signal.SIGALRM, late)
        signal.setitimer(signal.ITIMER_REAL, seconds, 1)
        try:
            with contextlib.redirect_stdout(self.output.stdout), contextlib.redirect_stderr(self.output.stderr):
                result = self.shell.run_cell(source, store_history=True, silent=False)
            return result.error_before_exec or result.error_in_exec
        except BaseException as caught:
            return caught
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, before)

    def answered(self, request: dict) -> bytes:
        """The bytes of the answer to a request to look at an answer, by a copy of this process where one can be made.

        Threads do not survive a fork and CUDA does not either: where there are any, this process looks by itself.
        """
        if self.asked != request["exercise"]:  # or a visible check could tell what a hidden one before it asked
            self.end_copy()
        self.asked = request["exercise"]
        self.make_copy()
        if not self.copy:
            with contextlib.suppress(ConnectionLost):  # the probe's process ended, which its jail says
                return self.look(request)[0]
            return b""
        try:
            data, is_fit = self.copy.ask(
                request | {"id": self.channel.id}, self.channel.descriptors, request["seconds"]
            )
        except ConnectionLost:
            raised = Raised("ProcessEnded", "your code ended the process that it ran in.")
        except TimedOut:
            reason = f"your code did not end within {request['seconds']:g} seconds and could not be stopped gently."
            raised = Raised("LimitReached", reason)
        else:
            if not is_fit:
                self.end_copy()
            return data
        self.end_copy()
        return self.channel.pack(as_message(Outcome(raised=raised)))

    def make_copy(self) -> None:
        """Make a copy of this process if there can be one and there is none."""
        if len(os.listdir("/proc/self/task")) > 1 or current_device().type != "cpu":
            self.end_copy()
        elif not self.copy:
            self.copy = Copy(self)

    def end_copy(self) -> None:
        """End the copy, and with it all that probes have left behind."""
        if self.copy:
            self.copy.end()
        self.copy = None

    def look(self, request: dict) -> tuple[bytes, bool]:
        """(the bytes of the answer to `request`, whether this process may look at more), by this process itself."""
        self.snapshot.restore()
        answer = self.shell.user_ns.get(request["answer"])
        exercise = exercise_named(request["unit"], request["exercise"], request["limit"])
        taken = self.taken or Taken(exercise.forbids)
        self.snapshot.allowed = [*taken.refusing, *(code for _, code, _ in taken.codes)]
        found = {"check": self._check, "lend": self._lend}[request["do"]](exercise, answer, request)
        if self.is_copy:  # which looks at one exercise and ends
            self.taken = taken
        else:
            taken.give_back()
            self.snapshot.allowed = []
        return self.channel.pack(found), not found["raised"]

    def _check(self, exercise, answer, request):
        """What the exercise's probe gave on `answer`, here."""
        outcome = exercise.outcome(answer, current_device(), request["seed"], is_class=request["is_class"])
        if patched := self._patched():
            outcome = Outcome(raised=patched)
        return as_message(outcome)

    def _patched(self):
        """What is said of an answer that changed what is not its own, else None."""
        changed = self.snapshot.changed()
        return Raised(PATCHED, f"your code changed {changed[0]}, which is not its own.") if changed else None

    def _lend(self, exercise, answer, request):
        """What ended the answer; it has served a probe in another process, at the other end of the descriptor given."""
        with socket.socket(fileno=self.channel.descriptors[0]) as stream:
            link = Link(stream, takes_descriptors=True)
            link.send({"refused": exercise.refusal(answer, request["is_class"])})
            server = Server(link, answer, lambda error: describe(error, answer).text, self.snapshot.restore)
            raised, printed = run_answer(server.run, answer, exercise.limits)
            raised = self._patched() or raised
            raised = raised and [raised.kind, raised.text]
            with contextlib.suppress(ConnectionLost):
                link.send({"printed": printed, "stopped": raised})
        return {"raised": raised or server.is_busy()}


class Copy:
    """A fork of the learner's process, which looks at answers: one that hangs or dies takes nothing else with it."""

    def __init__(self, learner: Learner):
        ours, theirs = socket.socketpair()
        self.link, self.process = Link(ours), os.fork()
        if not self.process:
            try:
                learner.channel.close()  # the grader is none of an answer's business
                self.link.close()
                learner.channel, learner.is_copy = Answering(theirs), True
                # its parent's serves it, and is no child of its own
                forkserver._forkserver.ensure_running = lambda: None
                self._serve(learner)
            finally:
                os._exit(0)
        theirs.close()

    def _serve(self, learner):
        alone, is_fit = os.getpid(), True
        while is_fit:
            data, is_fit = learner.look(learner.channel.receive())
            if os.getpid() != alone:  # the learner's code forked
                return
            learner.channel.send_packed(data + bytes([is_fit]))

    def ask(self, request: dict, descriptors: list[int], seconds: float) -> tuple[bytes, bool]:
        """(the bytes of its answer, whether it is there for more).  Raises: ConnectionLost, TimedOut."""
        try:
            self.link.send(request, descriptors)
        finally:
            for descriptor in descriptors:
                os.close(descriptor)
        data = Frames.receive(self.link, time.monotonic() + seconds)
        return bytes(data[:-1]), bool(data[-1])

    def end(self) -> None:
        """Kill the process."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.process, signal.SIGKILL)
        os.waitpid(self.process, 0)
        self.link.close()
