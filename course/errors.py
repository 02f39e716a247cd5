"""One clear sentence for what the user can mend: asked, found, what to do.  Leaves bugs to their tracebacks."""

import functools
import sys


class CourseError(Exception):
    """Something that the reader of the message can put right; the message is the whole sentence."""

    def _render_traceback_(self):  # Jupyter prints these lines instead of library frames
        return [f"{type(self).__name__}: {self}"]


def command(main):
    """`main`, as a command: a CourseError becomes its sentence on stderr and exit code 1, Ctrl-C exit code 130."""

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
