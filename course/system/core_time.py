"""How long this thread has computed, and how long it has waited for a core."""

from typing import NamedTuple

SCHEDSTAT = (
    "/proc/thread-self/schedstat"  # Linux: nanoseconds on a core and in its queue, and turns
)


class CoreTime(NamedTuple):
    """Seconds since the thread began."""

    ran: float
    queued: float  # it could have run, and other threads had the cores


def core_time() -> CoreTime | None:
    """The CoreTime of the calling thread; None where the system does not tell."""
    try:
        with open(SCHEDSTAT) as file:
            ran, queued, _ = file.read().split()
    except (OSError, ValueError):
        return None
    return CoreTime(int(ran) / 1e9, int(queued) / 1e9)
