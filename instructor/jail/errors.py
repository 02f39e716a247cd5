"""Why a learner's process is gone, as sentences for the learner."""


class JailError(Exception):
    """The learner's process is gone or had to be ended; the message is a plain reason."""


class EndedByItself(JailError):
    """The learner's process is gone, and the grader did not end it."""

    def __init__(self) -> None:
        super().__init__(
            "its process ended by itself (sys.exit, os._exit, a crash, or a signal that it sent)."
        )
