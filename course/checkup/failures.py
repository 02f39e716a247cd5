"""What went wrong inside the check-up: a line of the report each, never its end."""

import functools
from collections.abc import Callable
from typing import Any

MESSAGE_MAX = 80  # characters of an error's message


def in_words(error: BaseException) -> str:
    """Text "ValueError: the first line of its message"."""
    lines = str(error).splitlines()
    message = lines[0][:MESSAGE_MAX] if lines else ""
    return f"{type(error).__name__}: {message}" if message else type(error).__name__


class Failures(dict[str, str]):
    """{what could not be looked at or tried: the reason}."""

    def note(self, what: str, error: BaseException) -> None:
        """Note the first error of a look."""
        self.setdefault(what, in_words(error))

    def guarded(self, what: str, function: Callable[..., Any]) -> Callable[..., Any]:
        """`function`, whose errors are noted; it then returns None."""

        @functools.wraps(function)
        def guarded(*args: Any, **kwargs: Any) -> Any:
            try:
                return function(*args, **kwargs)
            except Exception as error:  # a stranger's objects may fail in any way
                self.note(what, error)
                return None

        return guarded

    def look(self, what: str, function: Callable[..., Any], *args: Any, default: Any = None) -> Any:
        """What `function` returns, or `default` if it raises, which is noted."""
        try:
            return function(*args)
        except Exception as error:
            self.note(what, error)
            return default
