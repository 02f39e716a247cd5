"""Known mistakes of exercise seconds_per_pass, and right answers in other styles."""

import itertools
import time

import torch

from course.engine.known_answers import alternative

MISTAKES = {
    "one_batch_too_many": (
        "A batch is drawn before the loop asks whether it has enough: one too many. Count first or take n with islice.",
        ("loader, n_batches)", "loader, n_batches + 1)"),
    ),
    "two_batches_too_many": (
        "The test i > n_batches comes after the draw and counts from 0: two batches too many. Take n with islice.",
        ("loader, n_batches)", "loader, n_batches + 2)"),
    ),
    "whole_loader": (
        "The whole loader is drawn. Draw its first n_batches batches, and no more.",
        ("itertools.islice(loader, n_batches)", "loader"),
    ),
    "warm_up_counted": (
        "The passes to warm up are in the result too. Make them, and keep only the passes after them.",
        ("seconds[warmup:]", "seconds"),
    ),
    "one_iterator_for_all": (
        "One iterator serves all passes, so the workers start once and a later pass continues where the last one "
        "stopped. Call iter(loader) in every pass.",
        ("    def one_pass", "    loader = iter(loader)\n\n    def one_pass"),
    ),
    "start_left_out": (
        "The clock is read after iter(loader), so the start of the workers is not counted. Read it before.",
        ("start = now()", "batches = iter(loader)\n        start = now()"),
        ("islice(loader", "islice(batches"),
    ),
    "not_waited_for_at_the_end": (
        "The clock is read while work is still queued. Call synchronize before the second reading too.",
        ("stop = now()", "stop = clock()"),
    ),
    "not_waited_for_at_the_start": (
        "Work that was queued before the pass is counted as part of it. Call synchronize before the first reading too.",
        ("start = now()", "start = clock()"),
    ),
    "never_waited_for": (
        "synchronize is never called, and a GPU only queues its work. Call it before both readings of the clock.",
        ("        if synchronize is not None:\n            synchronize()\n", ""),
    ),
    "short_loader_looks_fast": (
        "A loader that ends early is timed as if nothing were wrong. Count the batches and compare with n_batches.",
        ("found < n_batches", "False"),
    ),
    "seconds_of_a_batch": (
        "The seconds are divided by the number of batches. Return the time of the whole pass.",
        ("stop - start", "(stop - start) / n_batches"),
    ),
    "all_passes_at_once": (
        "All passes are timed together, so each has the same seconds and no spread is left. Read the clock in each.",
        ("        start = now()\n", ""),
        ("        stop = now()\n", ""),
        ("        return stop - start\n", ""),
        (
            "    seconds = [one_pass() for _ in range(warmup + repeats)]\n",
            "    for _ in range(warmup):\n        one_pass()\n    start = now()\n    for _ in range(repeats):\n"
            "        one_pass()\n",
        ),
        ("seconds[warmup:]", "[(now() - start) / repeats] * repeats"),
    ),
    "stop_iteration_let_through": (
        "The StopIteration of next() goes through to the caller. Catch it, and raise a ValueError that says how many "
        "batches were asked for and found.",
        (
            "found = sum(1 for _ in itertools.islice(loader, n_batches))",
            "batches = iter(loader)\n        found = len([next(batches) for _ in range(n_batches)])",
        ),
    ),
    "length_asked_for": (
        "This asks for the loader's len, which some loaders lack and some do not keep to. Count what you draw.",
        ("found < n_batches", "min(found, len(loader)) < n_batches"),
    ),
}


@alternative
def next_in_a_loop(
    loader, n_batches, repeats=5, warmup=1, synchronize=None, clock=time.perf_counter
):
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


@alternative
def a_generator_of_times(
    loader, n_batches, repeats=5, warmup=1, synchronize=None, clock=time.perf_counter
):
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

    return torch.tensor(
        list(itertools.islice(passes(), warmup, warmup + repeats)), dtype=torch.float64
    )
