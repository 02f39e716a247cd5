"""The one framing of messages between the grader, its zygote, jails and the processes in them.

    8 bytes: the length | that many bytes

Descriptors may go along with a frame if its reader takes them. This module does not import torch,
so that a zygote starts immediately.
"""

import select
import socket
import time
from collections.abc import Sequence
from typing import Any

from instructor.jail.limits import FRAME_BYTES_MAX, FRAME_DESCRIPTORS_MAX, FRAME_READ_BYTES

HEAD_BYTES = 8  # of a length


class ConnectionLost(Exception):
    """The other end of a connection is closed; why, and in whose words, the caller knows."""

    def __init__(self) -> None:
        super().__init__("the other end of the connection is closed")


class TimedOut(Exception):
    """Nothing, or not all of a frame, came in time."""


class TooLong(Exception):
    """A frame is longer than its reader takes; the frame was not read."""

    def __init__(self, size: int) -> None:
        super().__init__(f"a message of {size:,} bytes")
        self.size = size


class Frames:
    """Frames over a stream socket.

    Args:
        patience: seconds that sending may take; None waits forever.
        takes_descriptors: whether those that come along are kept, in `self.descriptors`; else Linux
            closes them.
    """

    def __init__(
        self, stream: socket.socket, patience: float | None = None, takes_descriptors: bool = False
    ) -> None:
        self.socket = stream
        self.takes_descriptors = takes_descriptors
        self.descriptors: list[int] = []
        self.socket.settimeout(patience)

    def send(self, data: bytes, descriptors: Sequence[int] = ()) -> None:
        """Send one frame.  Raises: ConnectionLost."""
        head = len(data).to_bytes(HEAD_BYTES, "little")
        try:
            if descriptors:
                socket.send_fds(self.socket, [head], descriptors)
                self.socket.sendall(data)
            else:
                self.socket.sendall(head + data)
        except OSError:
            raise ConnectionLost from None

    def receive(self, deadline: float | None = None, bytes_max: int = FRAME_BYTES_MAX) -> bytearray:
        """The bytes of the next frame.

        Args:
            deadline: the time.monotonic() by which all of it must be there.
            bytes_max: the longest frame that is read.

        Raises: ConnectionLost, TimedOut, TooLong.
        """
        head = self._exactly(HEAD_BYTES, deadline, self.takes_descriptors)
        size = int.from_bytes(head, "little")
        if size > bytes_max:
            raise TooLong(size)
        return self._exactly(size, deadline)

    def _exactly(
        self, size: int, deadline: float | None, with_descriptors: bool = False
    ) -> bytearray:
        data = bytearray()
        while len(data) < size:
            self._wait(deadline)
            missing = size - len(data)
            try:
                piece = (
                    self._read_with_descriptors(missing)
                    if with_descriptors
                    else (self.socket.recv(min(FRAME_READ_BYTES, missing)))
                )
            except OSError:
                piece = b""
            if not piece:
                raise ConnectionLost
            with_descriptors = False
            data += piece
        return data

    def _wait(self, deadline: float | None) -> None:
        """Wait until there is something to read.

        Raises: TimedOut, also if a byte comes each moment.
        """
        if deadline is None:
            return
        left = deadline - time.monotonic()
        if left <= 0 or not readable(self.socket, left):
            raise TimedOut

    def _read_with_descriptors(self, size: int) -> bytes:
        piece, descriptors, _, _ = socket.recv_fds(self.socket, size, FRAME_DESCRIPTORS_MAX)
        self.descriptors = list(descriptors)
        return piece

    def close(self) -> None:
        """Close the connection."""
        self.socket.close()


def readable(stream: Any, seconds: float) -> bool:
    """Whether a socket or pipe has something to read, or its end, within so many seconds."""
    ready, _, _ = select.select([stream], [], [], max(0, seconds))
    return bool(ready)
