"""Known mistakes of exercise segments, and right answers in other styles."""

import math

from course.checks.known_answers import alternative

BEST = "min(kept, key=kept.get)"
MISTAKES = {
    "always_the_root": (
        "The square root of the number of blocks holds if a block keeps as much as its input. Compare all.",
        (BEST, "math.isqrt(n_blocks)"),
    ),
    "nearest_to_the_root": (
        "The square root of the number of blocks, rounded, holds if a block keeps as much as its input. Compare all.",
        (BEST, "round(math.sqrt(n_blocks))"),
    ),
    "root_rounded_up": (
        "The square root of the number of blocks, rounded up, holds if a block keeps as much as its input. Compare "
        "all.",
        (BEST, "math.ceil(math.sqrt(n_blocks))"),
    ),
    "rounded_down": (
        "n // k blocks is the size of the smallest segment. The largest one decides: round up.",
        ("math.ceil(n_blocks / k)", "n_blocks // k"),
    ),
    "divisors_only": (
        "Only numbers of segments that divide the number of blocks are tried. Any number up to n will do.",
        ("n_blocks + 1)", "n_blocks + 1) if n_blocks % k == 0"),
    ),
    "most_segments": (
        "Where two numbers of segments keep equally much, the larger is returned. Return the fewer segments.",
        ("range(1, n_blocks + 1)", "range(n_blocks, 0, -1)"),
    ),
    "no_inputs": (
        "The inputs of the other segments are missing. Each keeps its own until backward reaches it.",
        ("(k - 1) * input_bytes + ", ""),
    ),
    "own_input_twice": (
        "The segment that is computed again counts twice: its input is one of what its blocks keep.",
        ("(k - 1)", "k"),
    ),
}


@alternative
def pairs_in_order(n_blocks, input_bytes, block_bytes):
    sizes = (((k - 1) * input_bytes + math.ceil(n_blocks / k) * block_bytes, k) for k in range(1, n_blocks + 1))
    kept, k = min(sizes)
    return k, kept


@alternative
def by_length_of_the_longest(n_blocks, input_bytes, block_bytes):
    best = None
    for longest in range(n_blocks, 0, -1):
        k = (n_blocks + longest - 1) // longest
        kept = (k - 1) * input_bytes + (n_blocks + k - 1) // k * block_bytes
        if best is None or kept < best[1]:
            best = k, kept
    return best
