"""Known mistakes of exercise segments, and right answers in other styles."""

import math

from course.checks.engine import alternative, mistake


def _kept_in(k, n_blocks, input_bytes, block_bytes):
    """(k, bytes) of k segments."""
    return k, (k - 1) * input_bytes + math.ceil(n_blocks / k) * block_bytes


@mistake(
    "segments", "The square root of the number of blocks holds if a block keeps as much as its input. Compare all."
)
def always_the_root(n_blocks, input_bytes, block_bytes):
    return _kept_in(math.isqrt(n_blocks), n_blocks, input_bytes, block_bytes)


@mistake(
    "segments",
    "The square root of the number of blocks, rounded, holds if a block keeps as much as its input. Compare all.",
)
def nearest_to_the_root(n_blocks, input_bytes, block_bytes):
    return _kept_in(round(math.sqrt(n_blocks)), n_blocks, input_bytes, block_bytes)


@mistake(
    "segments",
    "The square root of the number of blocks, rounded up, holds if a block keeps as much as its input. Compare all.",
)
def root_rounded_up(n_blocks, input_bytes, block_bytes):
    return _kept_in(math.ceil(math.sqrt(n_blocks)), n_blocks, input_bytes, block_bytes)


@mistake("segments", "n // k blocks is the size of the smallest segment. The largest one decides: round up.")
def rounded_down(n_blocks, input_bytes, block_bytes):
    kept = {k: (k - 1) * input_bytes + n_blocks // k * block_bytes for k in range(1, n_blocks + 1)}
    best = min(kept, key=kept.get)
    return best, kept[best]


@mistake("segments", "Only numbers of segments that divide the number of blocks are tried. Any number up to n will do.")
def divisors_only(n_blocks, input_bytes, block_bytes):
    kept = {k: (k - 1) * input_bytes + n_blocks // k * block_bytes for k in range(1, n_blocks + 1) if n_blocks % k == 0}
    best = min(kept, key=kept.get)
    return best, kept[best]


@mistake(
    "segments", "Where two numbers of segments keep equally much, the larger is returned. Return the fewer segments."
)
def most_segments(n_blocks, input_bytes, block_bytes):
    kept = {k: (k - 1) * input_bytes + -(-n_blocks // k) * block_bytes for k in range(n_blocks, 0, -1)}
    best = min(kept, key=kept.get)
    return best, kept[best]


@mistake("segments", "The inputs of the other segments are missing. Each keeps its own until backward reaches it.")
def no_inputs(n_blocks, input_bytes, block_bytes):
    return n_blocks, block_bytes


@mistake("segments", "The segment that is computed again counts twice: its input is one of what its blocks keep.")
def own_input_twice(n_blocks, input_bytes, block_bytes):
    kept = {k: k * input_bytes + math.ceil(n_blocks / k) * block_bytes for k in range(1, n_blocks + 1)}
    best = min(kept, key=kept.get)
    return best, kept[best]


@alternative("segments")
def pairs_in_order(n_blocks, input_bytes, block_bytes):
    sizes = (((k - 1) * input_bytes + math.ceil(n_blocks / k) * block_bytes, k) for k in range(1, n_blocks + 1))
    kept, k = min(sizes)
    return k, kept


@alternative("segments")
def by_length_of_the_longest(n_blocks, input_bytes, block_bytes):
    best = None
    for longest in range(n_blocks, 0, -1):
        k = (n_blocks + longest - 1) // longest
        kept = (k - 1) * input_bytes + (n_blocks + k - 1) // k * block_bytes
        if best is None or kept < best[1]:
            best = k, kept
    return best
