"""Probe of exercise batches_drawn."""

import itertools

from course.checks.engine import exercise
from course.checks.probing.errors import error_name


def _timings():
    """{what it does: a timing function}, more or less faithful to what it is asked for; they run beside the answer."""

    def exact(loader, n):
        batches = iter(loader)
        for _ in range(n):
            next(batches)

    def breaks_late(loader, n):
        for i, _ in enumerate(loader):
            if i == n:
                break

    def breaks_later(loader, n):
        for i, _ in enumerate(loader):
            if i > n:
                break

    return {
        "one pass that is exact": exact,
        "one batch too many": breaks_late,
        "two batches too many": breaks_later,
        "no batch at all": lambda loader, n: iter(loader),
        "five exact passes": lambda loader, n: [exact(loader, n) for _ in range(5)],
        "twenty times as many: your loader never ends": lambda loader, n: list(itertools.islice(loader, 20 * n)),
    }


@exercise()
def batches_drawn(answer, device, seed):
    """The learner's count for timing functions that we know."""
    n, asked, timings = 10 + seed % 7, [], _timings()
    drawn = answer(lambda loader, n_batches: asked.append(n_batches), n)
    yield "returns a whole number", type(drawn).__name__
    yield "calls timing once, with the loader and n_batches", asked
    exact = timings["one pass that is exact"]
    yield "the same timing twice: each call starts from 0", [answer(exact, n), answer(exact, n)]
    for text, timing in timings.items():
        yield text, answer(timing, n)

    def fails(loader, n_batches):
        next(iter(loader))
        raise ZeroDivisionError("of the timing function")

    yield "an exception of timing is not caught", error_name(answer, fails, n, none="no error")
