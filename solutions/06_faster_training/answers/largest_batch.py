"""Known mistakes of exercise largest_batch, and right answers in other styles."""

import torch

from course.checks.engine import alternative, mistake

ALIVE = (
    "The error is alive when the next trial begins, and with its traceback the tensors of the failed step. It was "
    "kept, or that trial starts inside of `except`: leave the block first."
)


def _is_memory(error):
    return isinstance(error, torch.OutOfMemoryError) or "out of memory" in str(error)


def _fits(trial, n):
    try:
        trial(n)
    except RuntimeError as error:
        if not _is_memory(error):
            raise
        return False
    return True


def _search(fits, limit):
    good, bad = 0, limit + 1
    while bad - good > 1:
        n = min(max(1, 2 * good), limit) if bad > limit else (good + bad) // 2
        good, bad = (n, bad) if fits(n) else (good, n)
    if not good:
        raise ValueError("not even one fits")
    return good


@mistake("largest_batch", "It stops at a power of two. Bisect between the last that fits and the first that does not.")
def doubles_only(trial, limit=65_536):
    n = 1
    if not _fits(trial, n):
        raise ValueError("not even one fits")
    while 2 * n <= limit and _fits(trial, 2 * n):
        n *= 2
    return n


@mistake("largest_batch", "It goes up one by one, with a trial for each size. Double, then bisect.")
def one_by_one(trial, limit=65_536):
    n = 0
    while n < limit and _fits(trial, n + 1):
        n += 1
        if n > 2000:
            return n
    if not n:
        raise ValueError("not even one fits")
    return n


@mistake("largest_batch", "It bisects from the limit on, far above what fits. Begin with 1 and double.")
def bisects_at_once(trial, limit=65_536):
    good, bad = 0, limit + 1
    while bad - good > 1:
        n = (good + bad) // 2
        good, bad = (n, bad) if _fits(trial, n) else (good, n)
    if not good:
        raise ValueError("not even one fits")
    return good


@mistake("largest_batch", "It returns the smallest batch that does not fit. Return the largest that does.")
def one_too_large(trial, limit=65_536):
    found = _search(lambda n: _fits(trial, n), limit)
    return min(limit, found + 1)


@mistake("largest_batch", "It stops while one size is untried. Go on while bad - good > 1.")
def stops_too_early(trial, limit=65_536):
    good, bad = 0, limit + 1
    while bad - good > 2:
        n = min(max(1, 2 * good), limit) if bad > limit else (good + bad) // 2
        good, bad = (n, bad) if _fits(trial, n) else (good, n)
    if not good:
        raise ValueError("not even one fits")
    return good


@mistake("largest_batch", "Sizes above the limit are tried. Cut the doubled size off at the limit.")
def beyond_the_limit(trial, limit=65_536):
    good, bad = 0, None
    while bad is None and good < limit:
        n = max(1, 2 * good)
        good, bad = (n, bad) if _fits(trial, n) else (good, n)
    while bad is not None and bad - good > 1:
        n = (good + bad) // 2
        good, bad = (n, bad) if _fits(trial, n) else (good, n)
    if not good:
        raise ValueError("not even one fits")
    return min(good, limit)


@mistake("largest_batch", "The limit itself is never tried. It may fit.")
def below_the_limit(trial, limit=65_536):
    return _search(lambda n: n < limit and _fits(trial, n), limit) if limit > 1 else 1


@mistake("largest_batch", "Every RuntimeError counts as out of memory, so a wrong shape looks like a small memory.")
def catches_every_runtime_error(trial, limit=65_536):
    def fits(n):
        try:
            trial(n)
        except RuntimeError:
            return False
        return True

    return _search(fits, limit)


@mistake("largest_batch", "Every exception counts as out of memory, and hides bugs. Catch out-of-memory errors alone.")
def catches_everything(trial, limit=65_536):
    def fits(n):
        try:
            trial(n)
        except Exception:
            return False
        return True

    return _search(fits, limit)


@mistake("largest_batch", "Any error whose text says 'out of memory' is caught. It must be a RuntimeError as well.")
def goes_by_the_text(trial, limit=65_536):
    def fits(n):
        try:
            trial(n)
        except Exception as error:
            if not _is_memory(error):
                raise
            return False
        return True

    return _search(fits, limit)


@mistake("largest_batch", "Only torch.OutOfMemoryError is caught. A RuntimeError that says 'out of memory' is one too.")
def new_class_alone(trial, limit=65_536):
    def fits(n):
        try:
            trial(n)
        except torch.OutOfMemoryError:
            return False
        return True

    return _search(fits, limit)


@mistake("largest_batch", ALIVE)
def keeps_the_error(trial, limit=65_536):
    errors = []

    def fits(n):
        try:
            trial(n)
        except RuntimeError as error:
            errors.append(error)
            if not _is_memory(error):
                raise
            return False
        return True

    return _search(fits, limit)


@mistake("largest_batch", ALIVE)
def goes_on_inside_except(trial, limit=65_536):
    def between(good, bad):
        if bad - good <= 1:
            return good
        n = min(max(1, 2 * good), limit) if bad > limit else (good + bad) // 2
        try:
            trial(n)
        except RuntimeError as error:
            if not _is_memory(error):
                raise
            return between(good, n)
        return between(n, bad)

    found = between(0, limit + 1)
    if not found:
        raise ValueError("not even one fits")
    return found


@mistake(
    "largest_batch", "It returns 0 if not even one sample fits. Raise ValueError: nobody can train with a batch of 0."
)
def returns_nothing(trial, limit=65_536):
    good, bad = 0, limit + 1
    while bad - good > 1:
        n = min(max(1, 2 * good), limit) if bad > limit else (good + bad) // 2
        good, bad = (n, bad) if _fits(trial, n) else (good, n)
    return good


@mistake("largest_batch", "Sizes are tried again that have been tried before. Keep what doubling has found out.")
def tries_twice(trial, limit=65_536):
    n = 1
    while n < limit and _fits(trial, n):
        n = min(2 * n, limit)
    good, bad = 0, n + 1
    for guess in (n, n // 2):
        if good < guess < bad and _fits(trial, guess):
            good = guess
        elif good < guess < bad:
            bad = guess
    while bad - good > 1:
        middle = (good + bad) // 2
        good, bad = (middle, bad) if _fits(trial, middle) else (good, middle)
    if not good:
        raise ValueError("not even one fits")
    return good


@alternative("largest_batch")
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


@alternative("largest_batch")
def by_recursion(trial, limit=65_536):
    fits = {}

    def try_once(n):
        try:
            fits[n] = trial(n) is None or True
        except RuntimeError as error:
            fits[n] = False
            if not _is_memory(error):
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
    return n if fits[n] else between(n // 2 if n < limit or fits.get(n // 2) else max(k for k in fits if fits[k]), n)
