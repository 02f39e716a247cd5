"""A learner's IPython shell without a kernel; it sends what its cells show in small pieces."""

import base64
import sys
import traceback
from collections.abc import Callable
from typing import Any

from IPython.core.displayhook import DisplayHook
from IPython.core.displaypub import DisplayPublisher
from IPython.core.interactiveshell import InteractiveShell
from traitlets.config import Config

from course.engine.limits import LimitReached
from instructor.jail.limits import (
    ERROR_LINES,
    ERROR_NAME_CHARACTERS,
    ERROR_TEXT_CHARACTERS,
    SharedLimits,
)

CUT = "\n... the rest is cut: this cell printed more than is kept.\n"
PICTURES = ("image/png", "image/jpeg")

Output = dict[str, Any]  # of a cell, with nbformat's fields


def error_output(error: BaseException) -> Output:
    """The output of a cell that failed: what stands last in a traceback, in plain text."""
    try:
        text = str(error)
    except BaseException:  # the learner's own __str__
        text = "(its message cannot be shown)"
    text = text[:ERROR_TEXT_CHARACTERS]
    name = type(error).__name__[:ERROR_NAME_CHARACTERS]
    lines = []
    for frame in traceback.extract_tb(error.__traceback__):
        if frame.filename.startswith("<ipython-input"):
            lines.append(f"line {frame.lineno}: {frame.line}")
    return {
        "output_type": "error",
        "ename": name,
        "evalue": text,
        "traceback": [*lines[-ERROR_LINES:], f"{name}: {text}"],
    }


class Printed:
    """What a cell prints: sent on in pieces, cut where it is too long, ended where it never ends.

    Args:
        cell: the CellOutput that it belongs to.
        name: "stdout" or "stderr".
    """

    encoding = "utf-8"
    errors = "replace"

    def __init__(self, cell: "CellOutput", name: str) -> None:
        self.cell = cell
        self.name = name
        self.pieces: list[str] = []
        self.characters = 0  # printed so far

    def write(self, text: object) -> int:
        """Keep `text` for `flush`.  Raises: LimitReached after far too many characters."""
        text = str(text)
        if not self.cell.is_open:  # a logging handler kept it after its cell
            return sys.stdout.write(text)
        self.characters += len(text)
        if self.cell.left > 0:
            self._keep(text)
        most = self.cell.limits.cell_printed_characters
        if self.characters > most:
            raise LimitReached(f"this cell printed more than {most:,} characters and was stopped.")
        return len(text)

    def _keep(self, text: str) -> None:
        piece = text[: self.cell.left]
        self.cell.left -= len(piece)
        self.pieces.append(piece)
        if self.cell.left <= 0:
            self.pieces.append(CUT)
            self.flush()

    def flush(self) -> None:
        """Send what was written since the last time."""
        if self.pieces and self.cell.is_open:
            text = "".join(self.pieces)
            self.pieces = []
            self.cell.send({"output_type": "stream", "name": self.name, "text": text})

    def isatty(self) -> bool:
        """False: nobody is at the other end."""
        return False

    def writable(self) -> bool:
        """True, as of any stream that is written to."""
        return True

    def fileno(self) -> int:
        """The descriptor that a program would use for this stream."""
        return 1 if self.name == "stdout" else 2


class CellOutput:
    """The two streams of one cell while it runs.

    What is written to them later goes to the process's stdout, which in a jail leads nowhere.
    """

    def __init__(self, send: Callable[[Output], None], limits: SharedLimits) -> None:
        self.send = send
        self.limits = limits
        self.left = limits.cell_text_characters  # that both streams may still print
        self.is_open = True
        self.stdout = Printed(self, "stdout")
        self.stderr = Printed(self, "stderr")

    def flush(self) -> None:
        """Send what both streams hold."""
        self.stdout.flush()
        self.stderr.flush()

    def close(self) -> None:
        """Send what is left; the cell has ended."""
        self.flush()
        self.is_open = False


def _bundle(data: dict[str, Any], limits: SharedLimits) -> dict[str, str]:
    """What is sent on of an output's {kind: value}."""
    safe = {}
    for kind, value in data.items():
        if kind == "text/plain":
            safe[kind] = str(value)[: limits.cell_text_characters]
        elif kind in PICTURES and len(value) < limits.picture_bytes:
            safe[kind] = value if isinstance(value, str) else base64.b64encode(value).decode()
    return safe


class Publisher(DisplayPublisher):
    """Sends the pictures of a cell to `show`."""

    show: Callable[[Output], None]
    limits: SharedLimits

    def publish(self, data: dict[str, Any], *args: Any, **options: Any) -> None:
        """Send one output."""
        self.show({"output_type": "display_data", "data": _bundle(data, self.limits)})

    def clear_output(self, wait: bool = False) -> None:
        """Keep what was sent."""


class Hook(DisplayHook):
    """Sends the result of a cell to `show`."""

    show: Callable[[Output], None]
    limits: SharedLimits

    def write_output_prompt(self) -> None:
        """Write nothing: the result says which cell it is of."""

    def write_format_data(self, format_dict: dict[str, Any], md_dict: Any = None) -> None:
        """Send the result."""
        self.show({"output_type": "execute_result", "data": _bundle(format_dict, self.limits)})

    def finish_displayhook(self) -> None:
        """Nothing is left to write."""


class Shell(InteractiveShell):
    """IPython's shell, whose own ways to show an error are off: `error_output` is sent."""

    def enable_gui(self, gui: Any = None) -> None:
        """There is no window."""

    def showtraceback(self, *args: Any, **options: Any) -> None:
        """Show nothing."""

    def showsyntaxerror(self, *args: Any, **options: Any) -> None:
        """Show nothing."""

    def showindentationerror(self) -> None:
        """Show nothing."""


def make_shell(show: Callable[[Output], None], limits: SharedLimits) -> Shell:
    """An IPython shell whose pictures and results go to `show(output)`."""
    settings = {
        "HistoryManager": {"enabled": False, "hist_file": ":memory:"},
        "InteractiveShell": {"colors": "NoColor", "cache_size": 0},
    }
    shell = Shell.instance(
        config=Config(settings), display_pub_class=Publisher, displayhook_class=Hook
    )
    senders: tuple[Any, ...] = (shell.display_pub, shell.displayhook)
    for sender in senders:
        sender.show = show
        sender.limits = limits
    shell.enable_matplotlib("inline")
    return shell
