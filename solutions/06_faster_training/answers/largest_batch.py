"""Known mistakes of exercise largest_batch, and right answers in other styles."""

import torch

from course.engine.known_answers import alternative, mistake

ALIVE = (
    "The error is alive when the next trial begins, and with its traceback the tensors of the failed step. It was "
    "kept, or that trial starts inside `except`: leave the block first."
)
MISTAKES = {
    "doubles_only": (
        "It stops at a power of two. Bisect between the last that fits and the first that does not.",
        ("while bad - good > 1", "while bad > limit and 2 * good <= limit"),
    ),
    "one_by_one": (
        "It goes up one by one, with a trial for each size. Double, then bisect.",
        ("while bad - good > 1", "while bad - good > 1 and good < 2000"),
        ("max(1, 2 * good)", "good + 1"),
    ),
    "bisects_at_once": (
        "It bisects from the limit on, far above what fits. Begin with 1 and double.",
        ("min(max(1, 2 * good), limit) if bad > limit else ", ""),
    ),
    "one_too_large": (
        "It returns the smallest batch that does not fit. Return the largest that does.",
        ("return good", "return min(bad, limit)"),
    ),
    "stops_too_early": (
        "It stops while one size is untried. Continue while bad - good > 1.",
        ("bad - good > 1", "bad - good > 2"),
    ),
    "beyond_the_limit": (
        "Sizes above the limit are tried. Cut the doubled size off at the limit.",
        ("limit + 1", "math.inf"),
        ("while bad - good > 1", "while bad - good > 1 and good < limit"),
        ("min(max(1, 2 * good), limit) if bad > limit", "max(1, 2 * good) if bad == math.inf"),
        ("return good", "return min(good, limit)"),
    ),
    "below_the_limit": (
        "The limit itself is never tried. It may fit.",
        ("        try:", "        if n == limit > 1:\n            return False\n        try:"),
    ),
    "catches_every_runtime_error": (
        "Every RuntimeError counts as out of memory, so a wrong shape looks like a small memory.",
        ("raise\n", "pass\n"),
    ),
    "catches_everything": (
        "Every exception counts as out of memory, and hides bugs. Catch only out-of-memory errors.",
        ("except RuntimeError", "except Exception"),
        ("raise\n", "pass\n"),
    ),
    "goes_by_the_text": (
        "Any error whose text says 'out of memory' is caught. It must be a RuntimeError as well.",
        ("except RuntimeError", "except Exception"),
    ),
    "new_class_alone": (
        "Only torch.OutOfMemoryError is caught. A RuntimeError that says 'out of memory' is one too.",
        (' and "out of memory" not in str(error)', ""),
    ),
    "keeps_the_error": (
        ALIVE,
        ("def fits(n)", "def fits(n, errors=[])"),
        ("return False", "return errors.append(error)"),
    ),
    "returns_nothing": (
        "It returns 0 if not even one sample fits. Raise ValueError: nobody can train with a batch of 0.",
        ("good == 0", "False"),
    ),
    "tries_twice": (
        "Some sizes are tried twice. Keep what doubling has found out.",
        ("bad = n", "good, bad = 0, n"),
    ),
}


@mistake(ALIVE)
def goes_on_inside_except(trial, limit=65_536):
    def between(good, bad):
        if bad - good <= 1:
            return good
        n = min(max(1, 2 * good), limit) if bad > limit else (good + bad) // 2
        try:
            trial(n)
        except RuntimeError as error:
            if not isinstance(error, torch.OutOfMemoryError) and "out of memory" not in str(error):
                raise
            return between(good, n)
        return between(n, bad)

    found = between(0, limit + 1)
    if not found:
        raise ValueError("not even one fits")
    return found


@alternative
def two_loops(trial, limit=65_536):
    def fits(n):
        failed = False
        try:
            trial(n)
        except torch.OutOfMemoryError:
            failed = True
        except RuntimeError as error:
            if "out of memory" not in str(error):
                raise
            failed = True
        return not failed

    if not fits(1):
        raise ValueError("a batch of one does not fit")
    low, high = 1, None
    while high is None and low < limit:
        n = min(2 * low, limit)
        if fits(n):
            low = n
        else:
            high = n
    while high is not None and high - low > 1:
        middle = (low + high) // 2
        if fits(middle):
            low = middle
        else:
            high = middle
    return low


@alternative
def by_recursion(trial, limit=65_536):
    fits = {}

    def try_once(n):
        try:
            fits[n] = trial(n) is None or True
        except RuntimeError as error:
            fits[n] = False
            if not isinstance(error, torch.OutOfMemoryError) and "out of memory" not in str(error):
                raise

    def between(low, high):
        if high - low == 1:
            return low
        middle = (low + high) // 2
        try_once(middle)
        return between(middle, high) if fits[middle] else between(low, middle)

    n = 1
    try_once(n)
    while fits[n] and n < limit:
        n = min(2 * n, limit)
        try_once(n)
    if n == 1 and not fits[1]:
        raise ValueError("not even a single sample fits")
    return (
        n
        if fits[n]
        else between(
            n // 2 if n < limit or fits.get(n // 2) else max(k for k in fits if fits[k]), n
        )
    )
