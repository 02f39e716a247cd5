"""What runs inside a jail: a learner's cells, then the probes on the learner's answers.  Holds nothing that is secret.

    python -m course.grading.sandbox.server DESCRIPTOR         started by zygote.Zygote, which says what to fork

The zygote imports what a learner may want and forks.  The fork moves into the room that bubblewrap made, becomes the
user nobody without any capability, and serves one submission: cells, in an IPython shell, and checks, each in a fork of
its own, so that an answer that hangs or dies takes nothing with it.
"""

import base64
import contextlib
import ctypes
import errno
import gc
import importlib
import json
import os
import resource
import select
import signal
import socket
import struct
import sys
import tempfile
import time
import traceback
from dataclasses import replace
from multiprocessing import forkserver, util
from pathlib import Path
from unittest import mock

import torch

from course.checks.engine import Outcome
from course.checks.limits import LimitReached, Raised, describe, run_answer
from course.checks.wire import HEAD, WireError, pack
from course.grading.sandbox.remote import Gone, Link, Remote, Server
from course.grading.sandbox.tamper import Snapshot
from course.grading.sandbox.usage import right_answer

NOBODY = 65534
NAMESPACES = dict(mount=0x00020000, uts=0x04000000, ipc=0x08000000, user=0x10000000, pid=0x20000000, net=0x40000000)
DIE_WITH_PARENT = 1  # prctl
NO_NEW_PRIVILEGES = 38
DUMPABLE = 4
SECCOMP = 22
SUBREAPER = 36
LOAD, JUMP_IF_EQUAL, RETURN = 0x20, 0x15, 0x06  # of the language of seccomp's filters
ALLOW, FAIL = 0x7FFF0000, 0x00050000
HIDDEN_MEMORY = {"x86_64": (319, 29), "aarch64": (279, 194)}  # the numbers of memfd_create and shmget
CAPABILITIES = 0x20080522  # version 3 of capset's structures
LARGE_PAGE, COLLAPSE = 2**21, 25  # the latter: of madvise, Linux 6.1
SHOWN = 100_000  # bytes of text that a cell may print; what goes beyond is cut
PICTURE = 2_000_000  # bytes of one picture
FLOOD = 20_000_000  # bytes after which a cell is ended
IMPORTS = """matplotlib.pyplot matplotlib_inline.backend_inline numpy PIL.Image torch torchvision.transforms.v2
             torchvision.io torch.distributed torch.utils.data tqdm cloudpickle IPython.core.interactiveshell
             course.distributed course.loaders course.copies course.models course.training course.metrics
             course.usage""".split()


def main():
    """The zygote: imports, says that it is ready, and forks as it is asked to."""
    server = socket.socket(fileno=int(sys.argv[1]))
    folder = Path(__file__).parents[2]
    ours = [
        f"course.{part}.{path.stem}"
        for part in ("checks", "datasets", "plots")
        for path in (folder / part).glob("[!_]*.py")
    ]
    gc.disable()  # it would look through all that is imported, again and again
    for name in (*IMPORTS, *sorted(ours)):
        importlib.import_module(name)
    _in_large_pages()
    global before
    before = Snapshot()
    _call("prctl", SUBREAPER, 1, 0, 0, 0)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGCHLD, collect)
    gc.freeze()  # nor do forks look through it, which would copy it
    gc.enable()
    server.send(b"ready")
    serve(server)


def _in_large_pages():
    """None; where Linux can, what this process has made lies in pages of 2 MB: a fork copies a list of few."""
    for line in Path("/proc/self/maps").read_text().splitlines():
        where, rights, *_, name = f"{line} -".split()[:6]
        begin, end = (int(number, 16) for number in where.split("-"))
        begin, end = -(-begin // LARGE_PAGE) * LARGE_PAGE, end // LARGE_PAGE * LARGE_PAGE
        if rights == "rw-p" and name in ("-", "[heap]") and begin < end:
            ctypes.CDLL(None).madvise(ctypes.c_void_p(begin), ctypes.c_size_t(end - begin), COLLAPSE)


def collect(*_):
    """None; no process that ended waits for this one, or its jail would not end either."""
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


def serve(server):
    """None once the other end is closed; until then it forks as it is asked to there."""
    while True:
        text, descriptors, _, _ = socket.recv_fds(server, 10_000, 8)
        if not text:
            return
        request = json.loads(text)
        try:
            answer = {
                "pid": {"zygote": branch, "reference": reference}.get(request["role"], fork)(request, descriptors)
            }
        except OSError as error:
            answer = {"error": str(error)}
        for descriptor in descriptors:
            os.close(descriptor)
        server.send(json.dumps(answer).encode())


def branch(request, descriptors):
    """The process number of a fork of this process that serves as it does, at the descriptor given."""

    def run(wire):
        _call("prctl", SUBREAPER, 1, 0, 0, 0)
        serve(wire)

    return _beside(run, descriptors[0])


def reference(request, descriptors):
    """The process number of a fork that says there what checks expect: alone it ever loads a solution."""

    def run(wire):
        _call("prctl", DIE_WITH_PARENT, signal.SIGKILL, 0, 0, 0)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        os.environ["COURSE_SOLUTIONS"] = request["solutions"]
        _start_ranks_by_fork()
        link = Link(wire)
        with contextlib.suppress(Gone):
            while True:
                asked = link.receive()
                exercise = getattr(importlib.import_module(f"course.checks.{asked['unit'][3:]}"), asked["exercise"])
                try:
                    link.send(right_answer(exercise, _device(), asked["seed"]))
                except Exception as error:
                    link.send({"error": f"{type(error).__name__}: {error}"})

    return _beside(run, descriptors[0])


def _beside(run, descriptor):
    """The process number of a fork, outside of all jails, that does `run(the socket)` and ends."""
    child = os.fork()
    if not child:
        try:
            os.closerange(3, descriptor)
            os.closerange(descriptor + 1, 1024)
            run(socket.socket(fileno=descriptor))
        finally:
            os._exit(0)
    return child


def fork(request, descriptors):
    """The process number, as seen from here, of a new process that does what `request` says.  Raises: OSError."""
    read, write = os.pipe()
    first = os.fork()
    if not first:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        try:
            os.close(read)
            if request["jailed"]:
                _enter(descriptors.pop())
            _second(request, descriptors, write)
        except BaseException as error:
            os.write(write, json.dumps({"error": f"{type(error).__name__}: {error}"[:500]}).encode())
        finally:
            os._exit(1)
    os.close(write)
    with os.fdopen(read) as file:
        answer = json.loads(file.readline() or '{"error": "it ended"}')
    if "error" in answer:
        raise OSError(answer["error"])
    return answer["pid"]


def _call(name, *arguments):
    libc = ctypes.CDLL(None, use_errno=True)
    if getattr(libc, name)(*arguments) == -1:
        number = ctypes.get_errno()
        raise OSError(number, f"{name}: {os.strerror(number)}")


def _enter(room):
    """None; children of this process will live in the namespaces of the process that the descriptor `room` names."""
    asked = NAMESPACES if os.getuid() else {name: flag for name, flag in NAMESPACES.items() if name != "user"}
    _call("setns", room, sum(asked.values()))
    os.chdir("/tmp")


def _second(request, descriptors, write):
    """Forks the process that stays, which alone is inside the process namespace; never returns."""
    root = request["jailed"] and os.getuid() == 0  # with a user namespace of bubblewrap's the user is nobody already
    theirs, ours = socket.socketpair()
    second = os.fork()
    (ours if second else theirs).close()  # so that neither waits for the other in vain
    if second:
        if root:
            number = int(theirs.recv(100))  # as the room sees it
            for file, text in (
                ("setgroups", "deny"),
                ("uid_map", f"{NOBODY} {NOBODY} 1"),
                ("gid_map", f"{NOBODY} {NOBODY} 1"),
            ):
                Path(f"/proc/{number}/{file}").write_text(text)
            theirs.send(b"mapped")
        os.write(write, json.dumps({"pid": second}).encode())
        os._exit(0)
    os.setsid()
    os.setpgid(0, 0) if not request["jailed"] and os.getpgid(0) != os.getpid() else None
    if root:
        os.setgroups([])
        _call("unshare", NAMESPACES["user"])
        ours.send(str(os.getpid()).encode())
        ours.recv(100)
        Path("/proc/sys/user/max_user_namespaces").write_text("0")  # in this namespace and all below: none
        os.setresgid(NOBODY, NOBODY, NOBODY)
        os.setresuid(NOBODY, NOBODY, NOBODY)
    channel = os.dup2(descriptors[0], 200)
    for number in range(3):
        os.dup2(os.open("/dev/null", os.O_RDWR), number)
    os.closerange(3, 200)
    os.closerange(201, 1024)
    if request["jailed"]:
        _call("capset", (ctypes.c_uint32 * 2)(CAPABILITIES, 0), (ctypes.c_uint32 * 6)())
    _call("prctl", NO_NEW_PRIVILEGES, 1, 0, 0, 0)
    if request["jailed"]:
        _refuse_hidden_memory()
    _call("prctl", DUMPABLE, 1, 0, 0, 0)  # or its own /proc/self/io would not be its own
    Path("/proc/self/oom_score_adj").write_text("1000")  # where memory runs out, Linux takes this process first
    _limit(request["room"])
    folder = request.get("folder", "/tmp")
    os.chdir(folder)
    os.environ.update(
        HOME=folder, TMPDIR=folder, COURSE_DATA=f"{folder}/data", MPLCONFIGDIR=folder, PATH="/usr/bin:/bin",
        USER="nobody", GLOO_SOCKET_IFNAME="lo", COURSE_SOLUTIONS="/nowhere")  # fmt: skip
    sys.path[:0] = [""]
    tempfile.tempdir = folder  # whatever the zygote found
    signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        {"learner": Learner, "probe": Prober}[request["role"]](Channel(channel)).serve()
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(0)


def _refuse_hidden_memory():
    """None; from now on no memory can be had that belongs to no process and no folder, where no limit would see it."""
    calls = HIDDEN_MEMORY.get(os.uname().machine, ())
    steps = [(LOAD, 0, 0, 0)]  # the number of the call
    for number, after in zip(calls, reversed(range(len(calls))), strict=True):
        steps.append((JUMP_IF_EQUAL, after + 1, 0, number))
    steps += [(RETURN, 0, 0, ALLOW), (RETURN, 0, 0, FAIL | errno.ENOSYS)]
    program = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *step) for step in steps))
    header = ctypes.create_string_buffer(struct.pack("HxxxxxxP", len(steps), ctypes.addressof(program)))
    _call("prctl", SECCOMP, 2, header, 0, 0)


def _limit(room):
    kinds = {"file": resource.RLIMIT_FSIZE, "processes": resource.RLIMIT_NPROC, "descriptors": resource.RLIMIT_NOFILE}
    if room["address_space"]:
        kinds["address_space"] = resource.RLIMIT_AS
    for name, kind in kinds.items():
        resource.setrlimit(kind, (room[name], room[name]))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


class Channel(Link):
    """Messages of plain data with the grader, who may send a descriptor with one."""

    def __init__(self, descriptor):
        super().__init__(socket.socket(fileno=descriptor))
        self.descriptors, self.id = [], None

    def receive(self):
        message = super().receive()
        self.id = message.pop("id")
        return message

    def send(self, message):
        super().send(message | {"id": self.id})

    def _exactly(self, size):
        if size != HEAD:
            return super()._exactly(size)
        data, descriptors, _, _ = socket.recv_fds(self.socket, size, 4)
        self.descriptors = list(descriptors)
        return data + super()._exactly(size - len(data)) if data else super()._exactly(size)


class Prober:
    """Runs probes whose answers are in a learner's process: {"unit": ..., "exercise": ...} and a socket to it."""

    def __init__(self, channel):
        self.channel = channel
        _start_ranks_by_fork()

    def serve(self):
        while True:
            request = self.channel.receive()
            with socket.socket(fileno=self.channel.descriptors[0]) as wire:
                self.channel.send(as_message(self.look(Link(wire), **request)))

    def look(self, link, unit, exercise, seed, is_class, limit):
        """The Outcome of a probe on the answer at the other end of `link`."""
        try:
            if refused := link.receive()["refused"]:
                return Outcome(refused=refused)
            outcome = _exercise(unit, exercise, limit).outcome(Remote(link, is_class), _device(), seed)
            link.send({"end": True})
            outcome.printed = str(link.receive().get("printed", ""))
            return outcome
        except (Gone, WireError, TypeError, KeyError, AttributeError) as error:
            return Outcome(raised=Raised(type(error).__name__, f"your code's process gave no answer: {error}"))


def _exercise(unit, name, limit):
    """The Exercise, which takes no more than `limit` seconds."""
    found = getattr(importlib.import_module(f"course.checks.{unit[3:]}"), name)
    found.limits = replace(found.limits, seconds=limit)
    return found


def _device():
    return torch.device(os.environ["COURSE_DEVICE"])


class Learner:
    """Serves one submission: {"do": "cell"} runs a cell, "check" a probe on one of its names, "lend" gives one away.

    "copy" makes the process that the next probe will run in.
    """

    def __init__(self, channel):
        self.channel, self.streams, self.copy, self.asked = channel, {}, None, None
        _start_ranks_by_fork()
        self.shell = _shell(self._show)

    def serve(self):
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
                self.channel.send_bytes(self.answered(request))
            if os.getpid() != alone:  # the learner's code forked: only one of the two goes on
                return

    def _show(self, output):
        for stream in self.streams.values():
            stream.flush()
        self.channel.send({"output": output})

    def cell(self, source, seconds):
        """None; the outputs of the cell have been sent one by one, like a kernel's, and then that it is done."""
        alone = os.getpid()
        self.left = SHOWN
        self.streams = {kind: _Printed(self, kind) for kind in ("stdout", "stderr")}

        def late(signum, frame):
            raise LimitReached(f"this cell took more than {seconds:g} seconds and was stopped.")

        before = signal.signal(signal.SIGALRM, late)
        signal.setitimer(signal.ITIMER_REAL, seconds, 1)
        try:
            with contextlib.redirect_stdout(self.streams["stdout"]), contextlib.redirect_stderr(self.streams["stderr"]):
                result = self.shell.run_cell(source, store_history=True, silent=False)
            error = result.error_before_exec or result.error_in_exec
        except BaseException as caught:
            error = caught
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, before)
        if error is not None:
            self._show(_error(error))
        for stream in self.streams.values():
            stream.flush()
        self.streams = {}
        if os.getpid() == alone:
            self.channel.send({"done": error is None})

    def answered(self, request):
        """The bytes of the answer to a request to look at an answer, by a copy of this process where one can be made.

        Threads do not survive a fork and CUDA does not either: where there are any, this process looks by itself.
        """
        if self.asked != request["exercise"]:  # or a visible check could tell what a hidden one before it asked
            self.end_copy()
        self.asked = request["exercise"]
        self.make_copy()
        if not self.copy:
            with contextlib.suppress(Gone):  # the probe's process ended, which its jail says
                return self.look(request)[0]
            return b""
        data, is_fit = self.copy.ask(request | {"id": self.channel.id}, self.channel.descriptors, request["seconds"])
        if not is_fit:
            self.end_copy()
        if data:
            return data
        reason = "your code ended the process that it ran in."
        if data is None:
            reason = f"your code did not end within {request['seconds']:g} seconds and could not be stopped gently."
        outcome = Outcome(raised=Raised("LimitReached" if data is None else "ProcessEnded", reason))
        return pack(as_message(outcome) | {"id": self.channel.id})

    def make_copy(self):
        """None; there is a copy if there can be one."""
        if len(os.listdir("/proc/self/task")) > 1 or _device().type != "cpu":
            self.end_copy()
        elif not self.copy:
            self.copy = _Copy(self)

    def end_copy(self):
        """None; what probes have left behind is gone."""
        if self.copy:
            self.copy.end()
        self.copy = None

    def look(self, request):
        """(the bytes of the answer to `request`, whether this process may look at more), by this process itself."""
        before.restore()
        answer = self.shell.user_ns.get(request["answer"])
        exercise = _exercise(request["unit"], request["exercise"], request["limit"])
        told = {"check": self._check, "lend": self._lend}[request["do"]](exercise, answer, request)
        return pack(told | {"id": self.channel.id}), not told["raised"]

    def _check(self, exercise, answer, request):
        """What the exercise's probe gave on `answer`, here."""
        outcome = exercise.outcome(answer, _device(), request["seed"], is_class=request["is_class"])
        if changed := before.changed():
            outcome = Outcome(raised=Raised("Patched", f"your code changed {changed[0]}, which is not its own."))
        return as_message(outcome)

    def _lend(self, exercise, answer, request):
        """What ended the answer; it has served a probe in another process, at the other end of the descriptor given."""
        with socket.socket(fileno=self.channel.descriptors[0]) as wire:
            link = Link(wire)
            link.send({"refused": exercise.refusal(answer, request["is_class"])})
            server = Server(link, answer, lambda error: describe(error, answer).text)
            raised, printed = run_answer(server.run, answer, exercise.limits)
            raised = raised and [raised.kind, raised.text]
            with contextlib.suppress(Gone):
                link.send({"printed": printed, "stopped": raised})
        return {"raised": raised}


class _Copy:
    """A fork of the learner's process, which looks at answers: one that hangs or dies takes nothing else with it."""

    def __init__(self, learner):
        self.socket, theirs = socket.socketpair()
        self.process = os.fork()
        if not self.process:
            try:
                os.close(learner.channel.socket.fileno())  # the grader is none of an answer's business
                self.socket.close()
                learner.channel = Channel(theirs.detach())
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
            learner.channel.send_bytes(data + bytes([is_fit]))

    def ask(self, request, descriptors, seconds):
        """(the bytes of its answer, whether it is there for more); b"" if it ended, None if it takes too long."""
        data, deadline = pack(request), time.monotonic() + seconds
        try:
            socket.send_fds(self.socket, [len(data).to_bytes(HEAD, "little")], descriptors)
            self.socket.sendall(data)
        except OSError:
            return b"", False
        finally:
            for descriptor in descriptors:
                os.close(descriptor)
        data, wanted = bytearray(), HEAD
        while len(data) < wanted:
            if not select.select([self.socket], [], [], max(0, deadline - time.monotonic()))[0]:
                return None, False
            piece = self.socket.recv(min(2**20, wanted - len(data)))
            if not piece:
                return b"", False
            data += piece
            if len(data) == HEAD == wanted:
                wanted += int.from_bytes(data, "little")
        return bytes(data[HEAD:-1]), bool(data[-1])

    def end(self):
        """None; the process is gone."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.process, signal.SIGKILL)
        os.waitpid(self.process, 0)
        self.socket.close()


def as_message(outcome):
    """An Outcome as plain data."""
    raised = outcome.raised and [outcome.raised.kind, outcome.raised.text]
    return {"facts": outcome.facts, "raised": raised, "printed": outcome.printed, "refused": outcome.refused}


def _start_ranks_by_fork():
    """None; multiprocessing's fork server, which starts the ranks of run_ranks, is a fork that has torch imported."""

    def fork_instead(path, arguments, descriptors):
        number = os.fork()
        if number:
            return number
        try:
            os.close(200)  # the grader is none of its business
            exec(arguments[-1], {})
        finally:
            os._exit(0)

    with mock.patch.object(util, "spawnv_passfds", fork_instead):
        forkserver.ensure_running()


def _error(error):
    """The output of a cell that failed: what stands last in a traceback, in plain text."""
    try:
        text = str(error)
    except BaseException:  # the learner's own __str__
        text = "(its message cannot be shown)"
    frames = [f for f in traceback.extract_tb(error.__traceback__) if f.filename.startswith("<ipython-input")]
    lines = [f"line {f.lineno}: {f.line}" for f in frames]
    name = type(error).__name__[:200]
    return {"output_type": "error", "ename": name, "evalue": text[:2000],
            "traceback": [*lines[-5:], f"{name}: {text[:2000]}"]}  # fmt: skip


class _Printed:
    """What a cell prints: sent on in pieces, cut after SHOWN bytes, ended after FLOOD."""

    encoding, errors = "utf-8", "replace"

    def __init__(self, learner, name):
        self.learner, self.name, self.buffer_, self.seen = learner, name, [], 0

    def write(self, text):
        text = str(text)
        if self not in self.learner.streams.values():  # a logging handler kept it after its cell
            return sys.stdout.write(text)
        self.seen += len(text)
        if self.learner.left > 0:
            piece = text[: self.learner.left]
            self.learner.left -= len(piece)
            self.buffer_.append(piece)
            if self.learner.left <= 0:
                self.buffer_.append("\n... the rest is cut: this cell printed more than is kept.\n")
                self.learner.left = 1
                self.flush()
                self.learner.left = 0
        if self.seen > FLOOD:
            raise LimitReached(f"this cell printed more than {FLOOD:,} characters and was stopped.")
        return len(text)

    def flush(self):
        if self.buffer_ and self in self.learner.streams.values():
            text, self.buffer_ = "".join(self.buffer_), []
            self.learner.channel.send({"output": {"output_type": "stream", "name": self.name, "text": text}})

    def isatty(self):
        return False

    def writable(self):
        return True

    def fileno(self):
        return 1 if self.name == "stdout" else 2


def _shell(show):
    """An IPython shell whose pictures and results go to `show(output)`."""
    from IPython.core.displayhook import DisplayHook
    from IPython.core.displaypub import DisplayPublisher
    from IPython.core.interactiveshell import InteractiveShell
    from traitlets.config import Config

    def bundle(data):
        kept = {}
        for kind, value in data.items():
            if kind == "text/plain":
                kept[kind] = str(value)[:SHOWN]
            elif kind in ("image/png", "image/jpeg") and len(value) < PICTURE:
                kept[kind] = value if isinstance(value, str) else base64.b64encode(value).decode()
        return kept

    class Publisher(DisplayPublisher):
        def publish(self, data, metadata=None, **kwargs):
            show({"output_type": "display_data", "data": bundle(data)})

        def clear_output(self, wait=False):
            pass

    class Hook(DisplayHook):
        def write_output_prompt(self):
            pass

        def write_format_data(self, format_dict, md_dict=None):
            show({"output_type": "execute_result", "data": bundle(format_dict)})

        def finish_displayhook(self):
            pass

    class Shell(InteractiveShell):
        def enable_gui(self, gui=None):
            pass

    config = Config()
    config.HistoryManager.enabled = False
    config.HistoryManager.hist_file = ":memory:"
    config.InteractiveShell.colors = "NoColor"
    config.InteractiveShell.cache_size = 0
    shell = Shell.instance(config=config, display_pub_class=Publisher, displayhook_class=Hook)
    shell.showtraceback = shell.showsyntaxerror = shell.showindentationerror = lambda *a, **k: None
    shell.enable_matplotlib("inline")
    return shell


if __name__ == "__main__":
    main()
