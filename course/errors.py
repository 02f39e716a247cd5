"""Errors that the user can fix, as one sentence: what was asked, what was found, what to do.

Bugs keep their tracebacks.
"""

import functools
import sys
from collections.abc import Callable
from typing import Any


class CourseError(Exception):
    """An error that the reader of the message can fix; the message is a complete sentence."""

    def _render_traceback_(self):  # Jupyter prints these lines instead of library frames
        return [f"{type(self).__name__}: {self}"]


class RankError(CourseError):
    """A rank hangs, died, or raised what cannot be pickled.

    The message says which rank, where and why.
    """


def command(main: Callable[..., Any]) -> Callable[..., Any]:
    """`main` as a command, which ends with an exit code instead of a traceback.

    A CourseError becomes its sentence on stderr and exit code 1, Ctrl-C exit code 130.
    """

    @functools.wraps(main)
    def run(*args, **kwargs):
        try:
            return main(*args, **kwargs)
        except CourseError as error:
            sys.exit(f"error: {error}")
        except KeyboardInterrupt:
            print("\nstopped", file=sys.stderr)
            sys.exit(130)

    return run
