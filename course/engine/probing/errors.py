"""What a call raises, as plain words: for facts such as "an empty batch raises ValueError"."""

from collections.abc import Callable
from typing import Any

from course.engine.stops import NoReturn
from course.errors import CourseError

NOTHING = "nothing"  # the word for a call that raises no exception
Call = Callable[..., Any]


class Stuck(CourseError):
    """An answer waits for something that never comes, or leaves something running.

    No helper here swallows it.
    """


def raised(call: Call, *args: Any, **options: Any) -> Exception | None:
    """The exception that `call(*args, **options)` raises, or None."""
    try:
        call(*args, **options)
    except Stuck:
        raise
    except Exception as error:
        return error
    return None


def type_name(error: BaseException | None, none: str = NOTHING) -> str:
    """The name of an exception's type; `none` for None."""
    if isinstance(error, NoReturn):  # the engine's own word for an answer that gives None
        return f"{none}, and returns None"
    return none if error is None else type(error).__name__


def error_name(call: Call, *args: Any, none: str = NOTHING, **options: Any) -> str:
    """The name of the type of the exception that the call raises; `none` if it raises none."""
    return type_name(raised(call, *args, **options), none)


def error_kind(call: Call, *args: Any, **options: Any) -> str:
    """As `error_name`, but OSError and its subclasses (FileNotFoundError, ...) are "OSError"."""
    error = raised(call, *args, **options)
    return "OSError" if isinstance(error, OSError) else type_name(error)


def error_and_message(
    call: Call, *args: Any, none: str = NOTHING, **options: Any
) -> tuple[str, str]:
    """(name of the type, message) of the exception that the call raises, or (`none`, "")."""
    error = raised(call, *args, **options)
    try:
        return type_name(error, none), "" if error is None else str(error)
    finally:
        # its traceback holds this frame: a cycle that would keep the answer's files open until a
        # collection
        del error


def error_text(call: Call, *args: Any, **options: Any) -> str:
    """The exception that the call raises as "ValueError: its message", or "nothing"."""
    name, message = error_and_message(call, *args, **options)
    return name if name == NOTHING else f"{name}: {message}"


def outcome(call: Call, *args: Any, **options: Any) -> tuple[Any, str]:
    """(what the call returns, ""), or (the type's name, the message) of the exception it raises."""
    try:
        return call(*args, **options), ""
    except Stuck:
        raise
    except Exception as error:
        return type(error).__name__, str(error)
