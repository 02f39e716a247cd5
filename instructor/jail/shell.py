"""A learner's IPython shell without a kernel: what its cells show goes to whoever started it, in
small pieces.
"""

import base64
import sys
import traceback

from course.engine.limits import LimitReached

SHOWN = 100_000  # bytes of text that a cell may print; what goes beyond is cut
PICTURE = 2_000_000  # bytes of one picture
FLOOD = 20_000_000  # bytes after which a cell is ended


def error_output(error: BaseException) -> dict:
    """The output of a cell that failed: what stands last in a traceback, in plain text."""
    try:
        text = str(error)
    except BaseException:  # the learner's own __str__
        text = "(its message cannot be shown)"
    frames = [
        f
        for f in traceback.extract_tb(error.__traceback__)
        if f.filename.startswith("<ipython-input")
    ]
    lines = [f"line {f.lineno}: {f.line}" for f in frames]
    name = type(error).__name__[:200]
    return {"output_type": "error", "ename": name, "evalue": text[:2000],
            "traceback": [*lines[-5:], f"{name}: {text[:2000]}"]}  # fmt: skip


class Printed:
    """What a cell prints: sent on in pieces, cut after SHOWN bytes, ended after FLOOD.

    Args:
        cell: the CellOutput that it belongs to.
        name: "stdout" or "stderr".
    """

    encoding, errors = "utf-8", "replace"

    def __init__(self, cell: "CellOutput", name: str):
        self.cell, self.name, self.buffer_, self.seen = cell, name, [], 0

    def write(self, text):
        text = str(text)
        if not self.cell.is_open:  # a logging handler kept it after its cell
            return sys.stdout.write(text)
        self.seen += len(text)
        if self.cell.left > 0:
            piece = text[: self.cell.left]
            self.cell.left -= len(piece)
            self.buffer_.append(piece)
            if self.cell.left <= 0:
                self.buffer_.append("\n... the rest is cut: this cell printed more than is kept.\n")
                self.cell.left = 1
                self.flush()
                self.cell.left = 0
        if self.seen > FLOOD:
            raise LimitReached(f"this cell printed more than {FLOOD:,} characters and was stopped.")
        return len(text)

    def flush(self):
        if self.buffer_ and self.cell.is_open:
            text, self.buffer_ = "".join(self.buffer_), []
            self.cell.send({"output_type": "stream", "name": self.name, "text": text})

    def isatty(self):
        return False

    def writable(self):
        return True

    def fileno(self):
        return 1 if self.name == "stdout" else 2


class CellOutput:
    """The two streams of one cell while it runs; once closed, what is still written to them goes
    nowhere.
    """

    def __init__(self, send):
        self.send, self.left, self.is_open = send, SHOWN, True
        self.stdout, self.stderr = Printed(self, "stdout"), Printed(self, "stderr")

    def flush(self) -> None:
        self.stdout.flush()
        self.stderr.flush()

    def close(self) -> None:
        self.flush()
        self.is_open = False


def _bundle(data):
    """What is sent on of an output's {kind: value}."""
    safe = {}
    for kind, value in data.items():
        if kind == "text/plain":
            safe[kind] = str(value)[:SHOWN]
        elif kind in ("image/png", "image/jpeg") and len(value) < PICTURE:
            safe[kind] = value if isinstance(value, str) else base64.b64encode(value).decode()
    return safe


def make_shell(show):
    """An IPython shell whose pictures and results go to `show(output)`."""
    from IPython.core.displayhook import DisplayHook
    from IPython.core.displaypub import DisplayPublisher
    from IPython.core.interactiveshell import InteractiveShell
    from traitlets.config import Config

    class Publisher(DisplayPublisher):
        def publish(self, data, metadata=None, **kwargs):
            show({"output_type": "display_data", "data": _bundle(data)})

        def clear_output(self, wait=False):
            pass

    class Hook(DisplayHook):
        def write_output_prompt(self):
            pass

        def write_format_data(self, format_dict, md_dict=None):
            show({"output_type": "execute_result", "data": _bundle(format_dict)})

        def finish_displayhook(self):
            pass

    class Shell(InteractiveShell):
        def enable_gui(self, gui=None):
            pass

    settings = {"HistoryManager": {"enabled": False, "hist_file": ":memory:"},
                "InteractiveShell": {"colors": "NoColor", "cache_size": 0}}  # fmt: skip
    shell = Shell.instance(
        config=Config(settings), display_pub_class=Publisher, displayhook_class=Hook
    )
    shell.showtraceback = shell.showsyntaxerror = shell.showindentationerror = lambda *a, **k: None
    shell.enable_matplotlib("inline")
    return shell
