"""Whether other programs keep the machine busy, so that a time limit may be too short."""

import os

BUSY_PER_CORE = 2.0  # processes that wait or run, per core, above which a machine is busy
PATIENCE = 2.5  # factor of time limits on a busy machine


def is_busy() -> bool:
    """True if more than BUSY_PER_CORE processes per core want to run; False if it is unknown."""
    if not hasattr(os, "getloadavg"):
        return False
    return os.getloadavg()[0] > BUSY_PER_CORE * (os.cpu_count() or 1)
