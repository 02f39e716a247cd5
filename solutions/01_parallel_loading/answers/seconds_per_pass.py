"""Known mistakes of exercise seconds_per_pass, and right answers in other styles."""

import itertools
import time
from contextlib import suppress

import numpy
import torch

from course.checks.engine import alternative, mistake


def timed(loader, n_batches, synchronize, clock, draw=None):
    """(seconds, batches found) of one correct pass, or of one that draws its batches by `draw(batches)`."""
    wait = synchronize or (lambda: None)
    wait()
    start = clock()
    batches = iter(loader)
    found = sum(1 for _ in (draw(batches) if draw else itertools.islice(batches, n_batches)))
    wait()
    return clock() - start, found


def refused_if_short(found, n_batches):
    if found < n_batches:
        raise ValueError(f"asked for {n_batches} batches, found {found}")


def collected(one_pass, n_batches, repeats, warmup):
    """The result made of `one_pass()`, which gives (seconds, batches found)."""
    seconds = []
    for _ in range(warmup + repeats):
        taken, found = one_pass()
        refused_if_short(found, n_batches)
        seconds.append(taken)
    return torch.tensor(seconds[warmup:], dtype=torch.float64)


@mistake(
    "seconds_per_pass",
    "A batch is drawn before the loop asks whether it has enough: one too many. Count first, or take n with islice.",
)
def one_batch_too_many(loader, n_batches, repeats=5, warmup=1, synchronize=None, clock=time.perf_counter):
    def draw(batches):
        for i, batch in enumerate(batches):
            if i == n_batches:
                break
            yield batch

    return collected(lambda: timed(loader, n_batches, synchronize, clock, draw), n_batches, repeats, warmup)


@mistake(
    "seconds_per_pass",
    "The test i > n_batches comes after the draw and counts from 0: two batches too many. Take n with islice.",
)
def two_batches_too_many(loader, n_batches, repeats=5, warmup=1, synchronize=None, clock=time.perf_counter):
    def draw(batches):
        for i, batch in enumerate(batches):
            if i > n_batches:
                break
            yield batch

    return collected(lambda: timed(loader, n_batches, synchronize, clock, draw), n_batches, repeats, warmup)


@mistake("seconds_per_pass", "The whole loader is drawn. Asked for are its first n_batches batches, and no more.")
def whole_loader(loader, n_batches, repeats=5, warmup=1, synchronize=None, clock=time.perf_counter):
    return collected(lambda: timed(loader, n_batches, synchronize, clock, iter), n_batches, repeats, warmup)


@mistake(
    "seconds_per_pass",
    "The passes to warm up are in the result too. Make them, and keep only the passes after them.",
)
def warm_up_counted(loader, n_batches, repeats=5, warmup=1, synchronize=None, clock=time.perf_counter):
    return collected(lambda: timed(loader, n_batches, synchronize, clock), n_batches, warmup + repeats, 0)


@mistake(
    "seconds_per_pass",
    "One iterator serves all passes, so the workers start once and a later pass goes on where the last one stopped. "
    "Call iter(loader) in every pass.",
)
def one_iterator_for_all(loader, n_batches, repeats=5, warmup=1, synchronize=None, clock=time.perf_counter):
    batches = iter(loader)
    return collected(lambda: timed(batches, n_batches, synchronize, clock), n_batches, repeats, warmup)


@mistake(
    "seconds_per_pass",
    "The clock is read after iter(loader), so the start of the workers is not counted. Read it before.",
)
def start_left_out(loader, n_batches, repeats=5, warmup=1, synchronize=None, clock=time.perf_counter):
    wait = synchronize or (lambda: None)

    def one_pass():
        batches = iter(loader)
        wait()
        start = clock()
        found = sum(1 for _ in itertools.islice(batches, n_batches))
        wait()
        return clock() - start, found

    return collected(one_pass, n_batches, repeats, warmup)


@mistake(
    "seconds_per_pass",
    "The clock is read while work is still queued. Call synchronize before the second reading too.",
)
def not_waited_for_at_the_end(loader, n_batches, repeats=5, warmup=1, synchronize=None, clock=time.perf_counter):
    def one_pass():
        if synchronize:
            synchronize()
        return timed(loader, n_batches, None, clock)

    return collected(one_pass, n_batches, repeats, warmup)


@mistake(
    "seconds_per_pass",
    "Work that was queued before the pass is counted as part of it. Call synchronize before the first reading too.",
)
def not_waited_for_at_the_start(loader, n_batches, repeats=5, warmup=1, synchronize=None, clock=time.perf_counter):
    def one_pass():
        start = clock()
        batches = iter(loader)
        found = sum(1 for _ in itertools.islice(batches, n_batches))
        if synchronize:
            synchronize()
        return clock() - start, found

    return collected(one_pass, n_batches, repeats, warmup)


@mistake(
    "seconds_per_pass",
    "synchronize is never called, and a GPU only queues its work. Call it before both readings of the clock.",
)
def never_waited_for(loader, n_batches, repeats=5, warmup=1, synchronize=None, clock=time.perf_counter):
    return collected(lambda: timed(loader, n_batches, None, clock), n_batches, repeats, warmup)


@mistake(
    "seconds_per_pass",
    "A loader that ends early is timed as if nothing were wrong. Count the batches and compare with n_batches.",
)
def short_loader_looks_fast(loader, n_batches, repeats=5, warmup=1, synchronize=None, clock=time.perf_counter):
    return collected(lambda: (timed(loader, n_batches, synchronize, clock)[0], n_batches), n_batches, repeats, warmup)


@mistake(
    "seconds_per_pass",
    "The seconds are divided by the number of batches. Here the time of the whole pass is asked for.",
)
def seconds_of_a_batch(loader, n_batches, repeats=5, warmup=1, synchronize=None, clock=time.perf_counter):
    return collected(lambda: timed(loader, n_batches, synchronize, clock), n_batches, repeats, warmup) / n_batches


@mistake(
    "seconds_per_pass",
    "All passes are timed at once, so that each has the same seconds and no spread is left. Read the clock in each.",
)
def all_passes_at_once(loader, n_batches, repeats=5, warmup=1, synchronize=None, clock=time.perf_counter):
    collected(lambda: timed(loader, n_batches, synchronize, clock), n_batches, warmup, 0)
    start = clock()
    collected(lambda: timed(loader, n_batches, synchronize, lambda: 0.0), n_batches, repeats, 0)
    return torch.full((repeats,), (clock() - start) / repeats, dtype=torch.float64)


@mistake(
    "seconds_per_pass",
    "The StopIteration of next() goes through to the caller. Catch it, and raise a ValueError that says how many "
    "batches were asked for and found.",
)
def stop_iteration_let_through(loader, n_batches, repeats=5, warmup=1, synchronize=None, clock=time.perf_counter):
    def draw(batches):
        return [next(batches) for _ in range(n_batches)]

    return collected(lambda: timed(loader, n_batches, synchronize, clock, draw), n_batches, repeats, warmup)


@mistake(
    "seconds_per_pass",
    "This asks for the loader's len, which some loaders lack and some do not keep to. Count what you draw.",
)
def length_asked_for(loader, n_batches, repeats=5, warmup=1, synchronize=None, clock=time.perf_counter):
    refused_if_short(len(loader), n_batches)
    return collected(lambda: timed(loader, n_batches, synchronize, clock), n_batches, repeats, warmup)


@alternative("seconds_per_pass")
def next_in_a_loop(loader, n_batches, repeats=5, warmup=1, synchronize=None, clock=time.perf_counter):
    synchronize = synchronize or (lambda: None)
    seconds = torch.zeros(repeats, dtype=torch.float64)
    for i in range(-warmup, repeats):
        synchronize()
        start = clock()
        batches = iter(loader)
        for found in range(n_batches):
            try:
                next(batches)
            except StopIteration:
                raise ValueError(f"wanted {n_batches}, got {found}") from None
        synchronize()
        elapsed = clock() - start
        del batches
        if i >= 0:
            seconds[i] = elapsed
    return seconds


@alternative("seconds_per_pass")
def a_generator_of_times(loader, n_batches, repeats=5, warmup=1, synchronize=None, clock=time.perf_counter):
    def passes():
        while True:
            if synchronize:
                synchronize()
            times, found = [clock()], 0
            batches = iter(loader)
            for found, _ in zip(range(1, n_batches + 1), batches, strict=False):  # noqa: B007
                pass
            if synchronize:
                synchronize()
            times.append(clock())
            batches = None
            if found != n_batches:
                raise ValueError(f"{found} of {n_batches} batches")
            yield times[1] - times[0]

    return torch.tensor(list(itertools.islice(passes(), warmup, warmup + repeats)), dtype=torch.float64)


@alternative("seconds_per_pass")
def time_and_count(loader, n_batches, repeats=5, warmup=1, synchronize=None, clock=time.perf_counter):
    out = []

    def measure():
        synchronize is None or synchronize()
        begin = clock()
        iterator = iter(loader)
        n = 0
        while n < n_batches:
            with suppress(StopIteration):
                next(iterator)
                n += 1
                continue
            break
        synchronize is None or synchronize()
        return clock() - begin, n

    for _ in range(warmup + repeats):
        t, n = measure()
        if n < n_batches:
            raise ValueError("the loader has only " + str(n) + " batches, not " + str(n_batches))
        out += [t]
    return torch.from_numpy(numpy.asarray(out[warmup:], dtype=numpy.float64))
