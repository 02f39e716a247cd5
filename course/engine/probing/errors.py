"""What a call raises, as plain words: for facts such as "an empty batch raises ValueError"."""

from course.errors import CourseError

NOTHING = "nothing"  # the word for a call that raises no exception


class Stuck(CourseError):
    """An answer waits for something that never comes, or leaves something running. No helper here
    swallows it.
    """


def raised(call, *args, **options):
    """The exception that `call(*args, **options)` raises, or None."""
    try:
        call(*args, **options)
    except Stuck:
        raise
    except Exception as error:
        return error
    return None


def raised_at_all(call, *args, **options):
    """As `raised`, but KeyboardInterrupt, SystemExit and GeneratorExit count too."""
    try:
        call(*args, **options)
    except Stuck:
        raise
    except BaseException as error:
        return error
    return None


def type_name(error, none=NOTHING):
    """The name of an exception's type; `none` for None."""
    return none if error is None else type(error).__name__


def error_name(call, *args, none=NOTHING, **options):
    """The name of the type of the exception that the call raises; `none` if it raises none."""
    return type_name(raised(call, *args, **options), none)


def error_kind(call, *args, **options):
    """As `error_name`, but OSError and everything derived from it (FileNotFoundError, ...) is
    "OSError".
    """
    error = raised(call, *args, **options)
    return "OSError" if isinstance(error, OSError) else type_name(error)


def error_and_message(call, *args, none=NOTHING, **options):
    """(name of the type, message) of the exception that the call raises; (`none`, "") if it raises
    none.
    """
    error = raised(call, *args, **options)
    try:
        return type_name(error, none), "" if error is None else str(error)
    finally:
        # its traceback holds this frame: a cycle that would keep the answer's files open until a
        # collection
        del error


def error_text(call, *args, **options):
    """The exception that the call raises as "ValueError: its message", or "nothing"."""
    name, message = error_and_message(call, *args, **options)
    return name if name == NOTHING else f"{name}: {message}"


def outcome(call, *args, **options):
    """(what the call returns, "") or, if it raises an exception, (the name of its type, its
    message).
    """
    try:
        return call(*args, **options), ""
    except Stuck:
        raise
    except Exception as error:
        return type(error).__name__, str(error)
