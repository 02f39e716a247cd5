"""A room without doors for a learner's code: *bubblewrap* makes it, a fork of a process with torch
imported moves in.

    zygote = Zygote()                       # one process, which has imported torch; it runs nothing
    of anybody's
    with Jail(zygote) as jail:   # a new room: no network, no course solutions, user nobody, an
        empty /tmp jail.send({...}); answer = jail.receive(seconds=20)

What comes out of a jail is plain data (checks/wire.py). Limits: memory of all its processes
together, their number, the size of a file and of all files, and the bytes of what it says. Whatever
happens inside, leaving the block kills every process in it.  `unsafe` leaves the walls out and
keeps the rest.
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
from dataclasses import asdict

from course.engine.wire import WireError, pack, unpack
from instructor.jail.bubblewrap import hosts, walls
from instructor.jail.memory import Memory
from instructor.jail.transport import ConnectionLost, Frames, TimedOut, TooLong, readable
from instructor.jail.zygote import START, EndedByItself, JailError, Room, Zygote

LOOK = 0.1  # seconds between two looks at the memory of a jail


class Jail:
    """One room and the process in it, for one part of a submission.

    A context manager: leaving it ends all that was started inside.
    """

    def __init__(self, zygote: Zygote, room: Room | None = None):
        self.zygote, self.room = zygote, room or Room()
        if zygote.cuda:
            self.room = Room(**asdict(self.room) | {"address_space": 0})
        self.reason, self.said, self.pid, self.holder, self.first, self.temporary = (
            None,
            0,
            None,
            None,
            None,
            None,
        )
        self.ending = threading.Lock()

    def __enter__(self):
        ours, theirs = socket.socketpair()
        self.frames = Frames(ours, patience=START)
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
        request = {
            "room": asdict(self.room),
            "jailed": not self.zygote.unsafe,
            "cuda": self.zygote.cuda,
        }
        descriptors = [theirs.fileno()]
        if self.zygote.unsafe:
            self.temporary = tempfile.TemporaryDirectory(
                prefix="unsafe-", ignore_cleanup_errors=True
            )
            self.pid = self.zygote.fork(request | {"folder": self.temporary.name}, descriptors)
            return
        # The room itself: bubblewrap with a `cat` as its first process, which says when the room is
        # ready and takes all others with it when it ends.  It does so when this process is gone,
        # however that came: its input is closed then.  (--die-with-parent leaves a process behind
        # if bubblewrap is killed while it makes the room.)
        # no pipe: bubblewrap would die writing to one that nobody reads any more
        info = os.memfd_create("info")
        pipes = dict(stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        with hosts() as names:
            call = [*walls(names, self.room, self.zygote.cuda), "--info-fd", str(info), "cat"]
            self.holder = subprocess.Popen(
                call, pass_fds=[info, names], start_new_session=True, **pipes
            )
        with os.fdopen(info, "rb") as file:
            self.holder.stdin.write(b"\n")
            self.holder.stdin.flush()
            if not readable(self.holder.stdout, START) or self.holder.stdout.read1(1) != b"\n":
                raise JailError(
                    f"bubblewrap made no room: {self.holder.stderr.read1(500).decode(errors='replace')}"
                )
            file.seek(0)
            first = json.load(file)["child-pid"]
            self.first = os.pidfd_open(first)
        self.pid = self.zygote.fork(request, [*descriptors, self.first])
        self.memory = Memory(
            [first, self.pid], [f"/proc/{first}/root{place}" for place in ("/tmp", "/dev/shm")]
        )

    def __exit__(self, *error):
        self.end()
        self.frames.close()
        if self.first is not None:
            os.close(self.first)
        if self.holder:
            self.holder.wait()
            for pipe in (self.holder.stdin, self.holder.stdout, self.holder.stderr):
                pipe.close()
        if self.temporary:
            self.temporary.cleanup()

    def end(self, reason: str | None = None) -> None:
        """Kill every process in the jail; `reason`, a sentence, is what `receive` says from now
        on.
        """
        with self.ending:  # the watch may ask for it, too
            if self.reason:
                return
            self.reason = reason or "it was ended."
            if self.holder:
                self.holder.stdin.close()
                if (
                    self.first is not None
                ):  # the room is made, so bubblewrap itself may be killed, too
                    with contextlib.suppress(ProcessLookupError):
                        signal.pidfd_send_signal(self.first, signal.SIGKILL)
                    self.holder.kill()
            elif self.pid:
                for signalled in (os.killpg, os.kill):
                    with contextlib.suppress(ProcessLookupError):
                        signalled(self.pid, signal.SIGKILL)

    def send(self, message: dict) -> None:
        """Send `message` to the process.  Raises: JailError if it takes none."""
        # what a learner's code has sent before it was asked is no answer
        self.asked = secrets.token_hex(8)
        try:
            self.frames.send(pack(message | {"id": self.asked}))
        except ConnectionLost:
            raise self._gone() from None

    def receive(self, seconds: float, deadline: float | None = None) -> dict:
        """The next message of the process, plain data of `self.size` bytes.  Raises: JailError.

        Args:
            deadline: where several messages have `seconds` together, the time.monotonic() of their
                end.
        """
        room, left = self.room, self.room.said - self.said
        try:
            data = self.frames.receive(
                deadline or time.monotonic() + seconds, min(room.message, left)
            )
            message = unpack(data)
        except ConnectionLost:
            raise self._gone() from None
        except TimedOut:
            raise self._ended(f"it gave no answer within {seconds:g} seconds.") from None
        except TooLong as error:
            limit = room.message if error.size > room.message else room.said
            raise self._ended(f"it sent more than {limit:,} bytes.") from None
        except WireError as error:
            raise self._ended(f"it sent something other than plain data ({error}).") from None
        self.size = len(data)
        self.said += self.size
        if not isinstance(message, dict) or message.get("id") != self.asked:
            raise self._ended("it sent what it was not asked for.")
        return message

    def _ended(self, reason):
        """The JailError to raise now that the jail is ended for this reason."""
        self.end(reason)
        return JailError(self.reason)

    def _gone(self):
        """The JailError to raise where the process is gone."""
        return JailError(self.reason) if self.reason else EndedByItself()

    def _watch(self):
        while not self.reason and not self.zygote.unsafe:
            if self.memory.exceeds(self.room.memory):
                self.end(f"it took more than {self.room.memory / 2**30:.1f} GiB of memory.")
            time.sleep(LOOK)
