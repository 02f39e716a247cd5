"""Seconds and bytes as a reader wants them."""

import math

BYTE_UNITS = ("B", "kB", "MB", "GB", "TB")


def duration(seconds: float) -> str:
    """Text "12.3 ms" or "1.60 s"."""
    return f"{1000 * seconds:.3g} ms" if seconds < 1 else f"{seconds:.3g} s"


def size(n_bytes: float) -> str:
    """Text "12.3 MB"."""
    power = min(4, int(math.log(max(1, n_bytes), 1000)))
    return f"{n_bytes / 1000**power:.3g} {BYTE_UNITS[power]}"
