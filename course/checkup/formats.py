"""Seconds and bytes as a reader wants them."""

import math

FAR = 5.0  # times as fast: bounds from here on are not told apart
BYTE_UNITS = ("B", "kB", "MB", "GB", "TB")


def duration(seconds: float) -> str:
    """Text "12.3 ms" or "1.60 s"."""
    return f"{1000 * seconds:.3g} ms" if seconds < 1 else f"{seconds:.3g} s"


def at_most(bound: float) -> str:
    """Text "1.30x", or "5x or more".

    Beyond FAR less than a fifth of the time is left, and how fast that gets where nothing waits any
    more (warm caches, threads that are awake) decides the gain.
    """
    return f"{bound:.2f}x" if bound < FAR else f"{FAR:.0f}x or more"


def size(n_bytes: float) -> str:
    """Text "12.3 MB"."""
    power = min(4, int(math.log(max(1, n_bytes), 1000)))
    return f"{n_bytes / 1000**power:.3g} {BYTE_UNITS[power]}"
