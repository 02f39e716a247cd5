"""The one framing of messages between the grader, its zygote, jails and the processes in them.

    8 bytes: the length | that many bytes

Descriptors may go along with a frame to whoever is willing to take them. Imports no torch, so that
a zygote starts at once.
"""

import select
import socket
import time
from collections.abc import Sequence

HEAD = 8  # bytes of a length
LARGEST = 100_000_000  # bytes of a frame
PIECE = 2**20  # bytes of one read
DESCRIPTORS = 8  # that go along with one frame


class ConnectionLost(Exception):
    """The process at the other end is gone."""

    def __init__(self):
        super().__init__("your code ended the process that it ran in.")


class TimedOut(Exception):
    """Nothing, or not all of a frame, came in time."""


class TooLong(Exception):
    """A frame is longer than its reader takes; the frame was not read."""

    def __init__(self, size: int):
        super().__init__(f"a message of {size:,} bytes")
        self.size = size


class Frames:
    """Frames over a stream socket.

    Args:
        patience: seconds that sending may take; None waits for ever.
        takes_descriptors: whether those that come along are kept, in `self.descriptors`; else Linux
            closes them.
    """

    def __init__(
        self, stream: socket.socket, patience: float | None = None, takes_descriptors: bool = False
    ):
        self.socket, self.takes_descriptors, self.descriptors = stream, takes_descriptors, []
        self.socket.settimeout(patience)

    def send(self, data: bytes, descriptors: Sequence[int] = ()) -> None:
        """Send one frame.  Raises: ConnectionLost."""
        head = len(data).to_bytes(HEAD, "little")
        try:
            if descriptors:
                socket.send_fds(self.socket, [head], descriptors)
                self.socket.sendall(data)
            else:
                self.socket.sendall(head + data)
        except OSError:
            raise ConnectionLost from None

    def receive(self, deadline: float | None = None, largest: int = LARGEST) -> bytearray:
        """The next frame.

        Args:
            deadline: the time.monotonic() by which all of it must be there.

        Raises: ConnectionLost, TimedOut, TooLong.
        """
        head = self._exactly(HEAD, deadline, self.takes_descriptors)
        size = int.from_bytes(head, "little")
        if size > largest:
            raise TooLong(size)
        return self._exactly(size, deadline)

    def _exactly(self, size, deadline, with_descriptors=False):
        data = bytearray()
        while len(data) < size:
            left = deadline - time.monotonic() if deadline is not None else None
            if left is not None and (
                left <= 0 or not readable(self.socket, left)
            ):  # something may come all the time
                raise TimedOut
            try:
                if with_descriptors:
                    piece, descriptors, _, _ = socket.recv_fds(
                        self.socket, size - len(data), DESCRIPTORS
                    )
                    self.descriptors, with_descriptors = list(descriptors), False
                else:
                    piece = self.socket.recv(min(PIECE, size - len(data)))
            except OSError:
                piece = b""
            if not piece:
                raise ConnectionLost
            data += piece
        return data

    def close(self) -> None:
        self.socket.close()


def readable(stream, seconds: float) -> bool:
    """Whether there is something to read, or its end, within so many seconds."""
    return bool(select.select([stream], [], [], max(0, seconds))[0])
