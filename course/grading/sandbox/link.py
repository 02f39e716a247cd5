"""Messages of plain data (checks/wire.py) over frames (transport.py): what comes out of a jail is never a pickle."""

from course.checks.wire import WireError, pack, unpack
from course.grading.sandbox.transport import Frames, TooLong


class Link(Frames):
    """Sends and receives plain data."""

    def send(self, message) -> None:
        """Send `message`.  Raises: ConnectionLost."""
        super().send(pack(message))

    def receive(self, deadline: float | None = None):
        """The next message.  Raises: ConnectionLost, TimedOut, WireError."""
        try:
            return unpack(super().receive(deadline))
        except TooLong as error:
            raise WireError(str(error)) from None


class Answering(Link):
    """The end of a connection that answers: each answer carries the id of its request, so that no other is one."""

    id = None

    def receive(self, deadline: float | None = None) -> dict:
        message = super().receive(deadline)
        self.id = message.pop("id")
        return message

    def send(self, message: dict) -> None:
        super().send(message | {"id": self.id})

    def pack(self, message: dict) -> bytes:
        """`message`, an answer to the latest request, as the bytes of a frame."""
        return pack(message | {"id": self.id})

    def send_packed(self, data: bytes) -> None:
        """Send an answer that `pack` made, here or in a fork of this process."""
        Frames.send(self, data)
