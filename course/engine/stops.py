"""Why a probe ended before its end, as data: limits.py and the grader find it, report.py words it.

describe(error, answer)        # an exception -> Raised: the Stop, its type, message and line
"""

import linecache
import re
import traceback
from dataclasses import asdict, dataclass
from enum import Enum
from types import CodeType
from typing import Any

from course.errors import CourseError

MESSAGE_LENGTH = 300  # characters of an exception's message that are kept
# what is believed of another process: characters of each text, and the largest number
TEXT_LENGTH_MAX = 2_000
KIND_LENGTH_MAX = 100
NUMBER_MAX = 10**9


class Stop(Enum):
    """Why a probe ended; the comment says what `Raised.message` holds."""

    RAISED = "raised"  # an exception of the answer or of Python: its message
    NOT_WRITTEN = "not written"  # the answer's own NotImplementedError(): ""
    HELPER_NOT_WRITTEN = "helper not written"  # that of what it calls: the name of this
    LIMIT = "limit"  # of time or output: a sentence
    BUSY = "busy"  # other work kept the processors busy: a sentence
    ASKED_FOR_INPUT = "asked for input"  # a sentence
    INPUT_CHANGED = "input changed"  # a sentence
    RETURNED_NONE = "returned None"  # a sentence
    SETTING_CHANGED = "setting changed"  # a sentence
    REFUSED = "refused"  # a CourseError of a probe or of the course: its sentence
    GPU_LOST = "gpu lost"  # the process cannot use the GPU any more: ""
    PROCESS_ENDED = "process ended"  # the one that the answer ran in: ""
    PATCHED = "patched"  # the answer changed a name that is not its own: this name
    UNNAMED = "unnamed"  # an exception of which nothing is believed: ""


@dataclass(frozen=True)
class Raised:
    """What ended a probe, as plain data.

    Attributes:
        kind: name of the exception's type; "" where there was none.
        message: see Stop.
        rank: the rank that raised it, where ranks ran.
        line, source: number and text of the line of the answer's cell; None and "" if unknown.
        is_after: whether the check raised it, when the answer had returned.
    """

    stop: Stop
    kind: str = ""
    message: str = ""
    rank: int | None = None
    line: int | None = None
    source: str = ""
    is_after: bool = False

    @property
    def comparable_message(self) -> str:
        """Python's message without quoted names and numbers, which differ among answers.

        "" where the course wrote the message. A number after "=" stays: it names the case of the
        probe, as in "src=1".
        """
        if self.stop is not Stop.RAISED:
            return ""
        return re.sub(r"'[^']*'|`[^`]*`|(?<!=)\b\d+", "", self.message)

    def to_plain(self) -> dict[str, str | int | bool | None]:
        """This as a dict of plain data, for `from_plain` in another process."""
        return asdict(self) | {"stop": self.stop.value}

    @classmethod
    def from_plain(cls, data: Any) -> "Raised | None":
        """The Raised that `data` describes, with its texts cut; None if it describes none.

        `data` may come from a process that runs a learner's code, so it may be anything.
        """
        if not isinstance(data, dict):
            return None
        stop = data.get("stop")
        rank = data.get("rank")
        line = data.get("line")
        kind = _cut(data.get("kind"), KIND_LENGTH_MAX)
        message = _cut(data.get("message"), TEXT_LENGTH_MAX)
        source = _cut(data.get("source"), TEXT_LENGTH_MAX)
        if not isinstance(stop, str) or stop not in {known.value for known in Stop}:
            return None
        if kind is None or message is None or source is None:
            return None
        if not all(number is None or _is_small(number) for number in (rank, line)):
            return None
        is_after = data.get("is_after") is True
        return cls(Stop(stop), kind, message, rank, line, source, is_after)


class LimitReached(BaseException):
    """The answer ran too long or printed too much.

    A BaseException, so `except Exception` does not catch it.
    """


class MachineBusy(LimitReached):
    """Other work kept the processors busy for too long; nothing is known about the answer."""


class AskedForInput(Exception):
    """The answer asked for keyboard input."""


class InputChanged(Exception):
    """The answer changed a tensor that it was given."""


class NoReturn(Exception):
    """The answer returned None where a value was asked for."""


class LeftBehind(Exception):
    """The answer changed a global setting of torch."""


# of exceptions whose message is a sentence for the learner; a subclass before its base
_STOPS: dict[type[BaseException], Stop] = {
    MachineBusy: Stop.BUSY,
    LimitReached: Stop.LIMIT,
    AskedForInput: Stop.ASKED_FOR_INPUT,
    InputChanged: Stop.INPUT_CHANGED,
    NoReturn: Stop.RETURNED_NONE,
    LeftBehind: Stop.SETTING_CHANGED,
    CourseError: Stop.REFUSED,
}


def describe(error: BaseException, answer: Any) -> Raised:
    """The exception that ended a probe of `answer`, as Raised."""
    kind = type(error).__name__
    if isinstance(error, NotImplementedError) and not error.args:
        return _not_written(error, answer)
    for type_, stop in _STOPS.items():
        if isinstance(error, type_):
            return Raised(stop, kind, str(error))
    rank = getattr(error, "rank", None)  # parallel.distributed sets it, and `frames`
    line, source = _line_of(error, answer)
    return Raised(
        Stop.RAISED,
        kind,
        _message_of(error),
        rank=rank if _is_small(rank) else None,
        line=line,
        source=source,
        is_after=line is None and _is_after(error, answer),
    )


def _message_of(error: BaseException) -> str:
    """The message of `error` on one line, cut to MESSAGE_LENGTH."""
    try:
        message = " ".join(str(error).split())
    except Exception:  # the learner's own __str__
        return "(its message cannot be shown)"
    if len(message) > MESSAGE_LENGTH:
        return message[:MESSAGE_LENGTH] + " ..."
    return message


def _not_written(error: BaseException, answer: Any) -> Raised:
    """Whose NotImplementedError() ended a probe: the answer's own, or that of what it calls."""
    kind = type(error).__name__
    frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
    raised_in = frames[-1].f_code.co_qualname
    name = getattr(answer, "__qualname__", None)
    is_own = name is None or hasattr(error, "frames") or f"{raised_in}.".startswith(f"{name}.")
    if is_own:
        return Raised(Stop.NOT_WRITTEN, kind)
    return Raised(Stop.HELPER_NOT_WRITTEN, kind, raised_in.removeprefix("<locals>."))


def _line_of(error: BaseException, answer: Any) -> tuple[int | None, str]:
    """(number, text) of the last line of the answer's cell that `error` passed, or (None, "")."""
    code = _code_of(answer)
    if code is None:
        return None, ""
    frames = getattr(error, "frames", None)
    if not frames:
        walked = traceback.walk_tb(error.__traceback__)
        frames = [(frame.f_code.co_filename, line) for frame, line in walked]
    lines = [line for path, line in frames if path == code.co_filename and _is_small(line)]
    if not lines:
        return None, ""
    return lines[-1], linecache.getline(code.co_filename, lines[-1]).strip()


def _is_after(error: BaseException, answer: Any) -> bool:
    """Whether no code of the answer raised `error`, which passed no line of its cell.

    A worker process writes its traceback into the message, or into that of the cause.
    """
    code = _code_of(answer)
    if code is None:
        return False
    texts = [*error.args, getattr(error.__cause__, "tb", "")]
    return not any(isinstance(text, str) and code.co_filename in text for text in texts)


def _code_of(answer: Any) -> CodeType | None:
    """The code of a function, or of the first function of a class."""
    members = vars(answer).values() if isinstance(answer, type) else [answer]
    for member in members:
        code = getattr(member, "__code__", None)
        if isinstance(code, CodeType):
            return code
    return None


def _cut(text: Any, length: int) -> str | None:
    """The first `length` characters of a text; None if it is none."""
    return text[:length] if isinstance(text, str) else None


def _is_small(number: Any) -> bool:
    return type(number) is int and 0 <= number <= NUMBER_MAX
