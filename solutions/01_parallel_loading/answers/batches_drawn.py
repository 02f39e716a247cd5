"""Known mistakes of exercise batches_drawn, and right answers in other styles."""

import itertools

import torch

from course.checks.engine import alternative, mistake


@mistake("batches_drawn", "The generator counts after its yield, so the last batch of a pass is missed. Count before.")
def counted_after_the_yield(timing, n_batches):
    class Loader:
        drawn = 0

        def __iter__(self):
            while True:
                yield 0
                self.drawn += 1

    loader = Loader()
    timing(loader, n_batches)
    return loader.drawn


@mistake("batches_drawn", "The generator counts after its yield, so the very last batch is missed. Count before.")
def shared_generator_counts_late(timing, n_batches):
    drawn = 0

    def batches():
        nonlocal drawn
        while True:
            yield 0
            drawn += 1

    timing(batches(), n_batches)
    return drawn


@mistake(
    "batches_drawn",
    "The loader holds n_batches batches, so that nobody can draw more from it. Let it never come to an end.",
)
def loader_just_long_enough(timing, n_batches):
    class Loader:
        drawn = 0

        def __iter__(self):
            for i in range(n_batches):
                self.drawn += 1
                yield i

    loader = Loader()
    timing(loader, n_batches)
    return loader.drawn


@mistake(
    "batches_drawn",
    "A loader with one batch to spare cannot show how many too many are drawn. Let it never come to an end.",
)
def one_to_spare(timing, n_batches):
    class Loader:
        drawn = 0

        def __iter__(self):
            for i in range(n_batches + 1):
                self.drawn += 1
                yield i

    loader = Loader()
    timing(loader, n_batches)
    return loader.drawn


@mistake(
    "batches_drawn", "Every new pass starts the count again. Add up all passes: set it to 0 once, not in __iter__."
)
def last_pass_only(timing, n_batches):
    class Loader:
        drawn = 0

        def __iter__(self):
            self.drawn = 0
            return self

        def __next__(self):
            self.drawn += 1
            return 0

    loader = Loader()
    timing(loader, n_batches)
    return loader.drawn


@mistake(
    "batches_drawn", "An error of the timing function is caught, and half a measurement passes for one. Let it through."
)
def error_swallowed(timing, n_batches):
    class Loader:
        drawn = 0

        def __iter__(self):
            return self

        def __next__(self):
            self.drawn += 1
            return 0

    loader = Loader()
    try:
        timing(loader, n_batches)
    except Exception:
        pass
    return loader.drawn


@mistake("batches_drawn", "This is the number that timing was asked for, not the number it drew. Count in the loader.")
def what_was_asked_for(timing, n_batches):
    timing(itertools.repeat(0), n_batches)
    return n_batches


@mistake(
    "batches_drawn",
    "Iterators are counted, not batches: __iter__ is called once per pass. Count where a batch is handed out.",
)
def iterators_counted(timing, n_batches):
    class Loader:
        passes = 0

        def __iter__(self):
            self.passes += 1
            return itertools.repeat(0)

    loader = Loader()
    timing(loader, n_batches)
    return loader.passes


@alternative("batches_drawn")
def generator_that_counts_before(timing, n_batches):
    count = itertools.count()

    class Loader:
        def __iter__(self):
            for _ in count:  # shared: the number of all batches so far
                yield torch.zeros(1)

    timing(Loader(), n_batches)
    return next(count)


@alternative("batches_drawn")
def old_protocol_of_sequences(timing, n_batches):
    asked = []

    class Loader:
        def __getitem__(self, i):
            asked.append(i)
            return i

    timing(Loader(), n_batches)
    return len(asked)


@alternative("batches_drawn")
def one_iterator_a_pass(timing, n_batches):
    class Pass:
        def __init__(self):
            self.drawn = 0

        def __iter__(self):
            return self

        def __next__(self):
            self.drawn += 1
            return [0]

    class Loader(list):
        def __iter__(self):
            self.append(Pass())
            return self[-1]

    loader = Loader()
    timing(loader, n_batches)
    return sum(loader[i].drawn for i in range(len(loader)))
