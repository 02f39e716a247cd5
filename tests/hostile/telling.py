"""Texts of the learner's own, which may hold a hidden input, in what the report of a hidden check says."""
# ruff: noqa: F821, F841, B018

from hostile.attack import cell


@cell()
def tells_by_an_error_of_the_course():
    """The message of a CourseError is shown as it is."""
    from course.errors import CourseError

    def linear_warmup(*args):
        raise CourseError(f"BREACH {args}")


@cell()
def tells_by_the_name_of_a_type():
    """The name of an exception's type is part of the report."""

    def linear_warmup(*args):
        raise type(f"BREACH_{args[0]}", (Exception,), {})("told")


@cell()
def tells_by_a_description():
    """An exception that brings its own description, as those of another process do."""

    def linear_warmup(*args):
        error = ValueError("told")
        error.described = f"BREACH {args}"
        raise error


@cell()
def tells_by_a_repr():
    """What is no function is shown."""

    class linear_warmup:
        def __repr__(self):
            return "BREACH"

    linear_warmup = linear_warmup()


@cell()
def tells_by_a_number():
    """An error whose kind is the engine's own, with a text of the learner's."""
    from course.engine.stops import LimitReached, NoReturn

    def linear_warmup(*args):
        raise (NoReturn if args[0] else LimitReached)(f"BREACH {args}")


@cell()
def tells_by_printing():
    """What is printed stands at the end of a report."""

    def linear_warmup(*args):
        print("BREACH", args)
        return -1.0
