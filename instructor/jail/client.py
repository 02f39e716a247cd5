"""A sealed room for a learner's code: bubblewrap makes it, a fork of the zygote moves in.

    zygote = Zygote()             # one process, which has imported torch; it runs nobody's code
    with Jail(zygote) as jail:    # no network, no solutions, user nobody, an empty /tmp
        jail.send({...})
        answer = jail.receive(seconds=20)

What comes out of a jail is plain data (engine/wire.py). limits.py says what a jail may use.
Whatever happens inside, leaving the block kills every process in it. `unsafe` leaves the walls out
and keeps the rest.
"""

import contextlib
import json
import os
import secrets
import signal
import socket
import subprocess
import tempfile
import threading
import time
from collections.abc import Sequence
from dataclasses import asdict, replace
from typing import IO, Any

from course.engine.wire import WireError, pack, unpack
from instructor.jail.bubblewrap import hosts, walls
from instructor.jail.errors import EndedByItself, JailError
from instructor.jail.limits import MEMORY_POLL_SECONDS, START_SECONDS, JailLimits
from instructor.jail.memory import Memory
from instructor.jail.transport import ConnectionLost, Frames, TimedOut, TooLong, readable
from instructor.jail.zygote import Zygote

FOLDERS_IN_MEMORY = ("/tmp", "/dev/shm")
BWRAP_ERROR_BYTES = 500  # of what bubblewrap says, that an error repeats


class Jail:
    """One room and the process in it, for one part of a submission.

    A context manager: leaving it ends all that was started inside.

    Args:
        covered: files and folders that are empty inside: the text of what a part's tasks forbid.
    """

    def __init__(
        self, zygote: Zygote, limits: JailLimits | None = None, covered: Sequence[str] = ()
    ) -> None:
        self.zygote = zygote
        self.limits = limits or JailLimits()
        if zygote.cuda:
            per_process = replace(self.limits.per_process, address_space_bytes=0)
            self.limits = replace(self.limits, per_process=per_process)
        self.covered = covered
        self.size = 0  # bytes of the latest message
        self.received = 0  # bytes of all messages
        self.asked = ""  # the id of the latest request
        self.reason: str | None = None  # why the jail was ended, a sentence
        self.pid: int | None = None  # of the learner's process
        self.holder: subprocess.Popen[bytes] | None = None  # bubblewrap
        self.first: int | None = None  # descriptor of the first process in the room
        self.temporary: tempfile.TemporaryDirectory[str] | None = None  # without walls
        self.ending = threading.Lock()

    def __enter__(self) -> "Jail":
        ours, theirs = socket.socketpair()
        self.frames = Frames(ours, patience=START_SECONDS)
        try:
            if self.zygote.unsafe:
                self._start_without_walls(theirs)
            else:
                self._move_in(theirs)
        except BaseException:
            self.__exit__()
            raise
        finally:
            theirs.close()
        self.watch = threading.Thread(target=self._watch, daemon=True)
        self.watch.start()
        return self

    def _request(self) -> dict[str, Any]:
        return {
            "limits": asdict(self.limits),
            "jailed": not self.zygote.unsafe,
            "cuda": self.zygote.cuda,
        }

    def _start_without_walls(self, theirs: socket.socket) -> None:
        self.temporary = tempfile.TemporaryDirectory(prefix="unsafe-", ignore_cleanup_errors=True)
        request = self._request() | {"folder": self.temporary.name}
        self.pid = self.zygote.fork(request, [theirs.fileno()])

    def _move_in(self, theirs: socket.socket) -> None:
        first = self._make_room()
        self.first = os.pidfd_open(first)
        self.pid = self.zygote.fork(self._request(), [theirs.fileno(), self.first])
        folders = [f"/proc/{first}/root{folder}" for folder in FOLDERS_IN_MEMORY]
        self.memory = Memory([first, self.pid], folders)

    def _make_room(self) -> int:
        """Start bubblewrap; return the process number of the room's first process.

        That is a `cat`, which says when the room is ready and takes all others with it when it
        ends: when its input is closed, so also if this process dies. (--die-with-parent leaves a
        process behind if bubblewrap is killed while it makes the room.)
        """
        # no pipe: bubblewrap would die writing to one that nobody reads any more
        info = os.memfd_create("info")
        with os.fdopen(info, "rb") as file, hosts() as names:
            room = walls(names, self.limits, self.covered, self.zygote.cuda)
            self.holder = subprocess.Popen(
                [*room, "--info-fd", str(info), "cat"],
                pass_fds=[info, names],
                start_new_session=True,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
            )
            _wait_for_echo(self.holder)
            file.seek(0)
            return int(json.load(file)["child-pid"])

    def __exit__(self, *error: object) -> None:
        self.end()
        self.frames.close()
        if self.first is not None:
            os.close(self.first)
        if self.holder:
            self.holder.wait()
            for pipe in (self.holder.stdin, self.holder.stdout, self.holder.stderr):
                _opened(pipe).close()
        if self.temporary:
            self.temporary.cleanup()

    def end(self, reason: str | None = None) -> None:
        """Kill every process in the jail.

        Args:
            reason: the sentence that `receive` says from now on.
        """
        with self.ending:  # the watch may ask for it, too
            if self.reason:
                return
            self.reason = reason or "it was ended."
            if self.holder:
                self._end_room(self.holder)
            elif self.pid:
                for kill in (os.killpg, os.kill):
                    with contextlib.suppress(ProcessLookupError):
                        kill(self.pid, signal.SIGKILL)

    def _end_room(self, holder: subprocess.Popen[bytes]) -> None:
        _opened(holder.stdin).close()
        if self.first is None:  # bubblewrap still makes the room: killed now, it leaves a process
            return
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(self.first, signal.SIGKILL)
        holder.kill()

    def send(self, message: dict[str, Any]) -> None:
        """Send `message` to the process.  Raises: JailError if it takes none."""
        # what a learner's code has sent before it was asked is no answer
        self.asked = secrets.token_hex(8)
        try:
            self.frames.send(pack(message | {"id": self.asked}))
        except ConnectionLost:
            raise self._gone() from None

    def receive(self, seconds: float, deadline: float | None = None) -> dict[str, Any]:
        """The next message of the process, plain data of `self.size` bytes.  Raises: JailError.

        Args:
            deadline: where several messages have `seconds` together, the time.monotonic() of their
                end.
        """
        shared = self.limits.shared
        left = shared.all_messages_bytes - self.received
        try:
            data = self.frames.receive(
                deadline or time.monotonic() + seconds, min(shared.message_bytes, left)
            )
            message = unpack(data)
        except ConnectionLost:
            raise self._gone() from None
        except TimedOut:
            raise self._ended(f"it gave no answer within {seconds:g} seconds.") from None
        except TooLong as error:
            is_one = error.size > shared.message_bytes
            limit = shared.message_bytes if is_one else shared.all_messages_bytes
            raise self._ended(f"it sent more than {limit:,} bytes.") from None
        except WireError as error:
            raise self._ended(f"it sent something other than plain data ({error}).") from None
        self.size = len(data)
        self.received += self.size
        if not isinstance(message, dict) or message.get("id") != self.asked:
            raise self._ended("it sent what it was not asked for.")
        return message

    def _ended(self, reason: str) -> JailError:
        """The JailError to raise now that the jail is ended for this reason."""
        self.end(reason)
        return JailError(self.reason)

    def _gone(self) -> JailError:
        """The JailError to raise where the process is gone."""
        return JailError(self.reason) if self.reason else EndedByItself()

    def _watch(self) -> None:
        limit = self.limits.shared.memory_bytes
        while not self.reason and not self.zygote.unsafe:
            if self.memory.exceeds(limit):
                self.end(f"it took more than {limit / 2**30:.1f} GiB of memory.")
            time.sleep(MEMORY_POLL_SECONDS)


def _opened(pipe: IO[bytes] | None) -> IO[bytes]:
    """A pipe of a process that was started with one."""
    assert pipe is not None, "the process was started without this pipe"
    return pipe


def _wait_for_echo(holder: subprocess.Popen[bytes]) -> None:
    """Wait until the room's first process answers.

    Raises: JailError if bubblewrap made no room.
    """
    given = _opened(holder.stdin)
    given.write(b"\n")
    given.flush()
    shown = _opened(holder.stdout)
    if not readable(shown, START_SECONDS) or shown.read(1) != b"\n":
        why = os.read(_opened(holder.stderr).fileno(), BWRAP_ERROR_BYTES)
        raise JailError(f"bubblewrap made no room: {why.decode(errors='replace')}")
