"""Laws as facts that differ between seeds: what a law was tried on is part of the fact.

    yield "no batch comes twice", tried(len({*batches}) == len(batches), lengths)

A bare True is the same at every seed, so that anybody could know it before the check runs. This
fact also holds what the check drew from its seed, if the answer keeps the law.
"""

from typing import Any

TRIED_ON = "tried on"
FOUND = "found"


def tried(value: Any, on: Any) -> dict[str, Any] | bool:
    """What a probe yields of a law, or of a count that is the same at every seed.

    Args:
        value: whether the law holds, or the count, or names.
        on: plain data that the probe drew from its seed and that every right answer shares; never
            what the answer computed.

    Returns: False if the law does not hold; else a dict with `on`, and with a value that is no
        bool.
    """
    if value is False:
        return False
    return {TRIED_ON: on} if value is True else {FOUND: value, TRIED_ON: on}
