"""Known mistakes of exercise batches_drawn, and right answers in other styles."""

import itertools

import torch

from course.checks.known_answers import alternative

MISTAKES = {
    "counted_after_the_yield": (
        "The generator counts after its yield, so the last batch of a pass is missed. Count before.",
        (
            "return self\n\n        def __next__(self):\n            self.drawn += 1\n            return self.drawn\n",
            "while True:\n                yield 0\n                self.drawn += 1\n",
        ),
    ),
    "shared_generator_counts_late": (
        "The generator counts after its yield, so the very last batch is missed. Count before.",
        (
            "return self\n\n        def __next__(self):\n            self.drawn += 1\n            return self.drawn\n",
            "while True:\n                yield 0\n                self.drawn += 1\n",
        ),
        ("    timing(loader", "    timing(iter(loader)"),
    ),
    "loader_just_long_enough": (
        "The loader holds n_batches batches, so that nobody can draw more from it. Let it never come to an end.",
        (
            "return self\n\n        def __next__(self):\n            self.drawn += 1\n            return self.drawn\n",
            "for i in range(n_batches):\n                self.drawn += 1\n                yield i\n",
        ),
    ),
    "one_to_spare": (
        "A loader with one batch to spare cannot show how many too many are drawn. Let it never come to an end.",
        (
            "return self\n\n        def __next__(self):\n            self.drawn += 1\n            return self.drawn\n",
            "for i in range(n_batches + 1):\n                self.drawn += 1\n                yield i\n",
        ),
    ),
    "last_pass_only": (
        "Every new pass starts the count again. Add up all passes: set it to 0 once, not in __iter__.",
        ("return self\n", "self.drawn = 0\n            return self\n"),
    ),
    "error_swallowed": (
        "An error of the timing function is caught, and half a measurement passes for one. Let it through.",
        (
            "    timing(loader, n_batches)\n",
            "    try:\n        timing(loader, n_batches)\n    except Exception:\n        pass\n",
        ),
    ),
    "what_was_asked_for": (
        "This is the number that timing was asked for, not the number it drew. Count in the loader.",
        ("return loader.drawn", "return n_batches"),
    ),
    "iterators_counted": (
        "Iterators are counted, not batches: __iter__ is called once per pass. Count where a batch is yielded.",
        ("return self\n", "self.drawn += 1\n            return itertools.repeat(0)\n"),
    ),
}


@alternative
def generator_that_counts_before(timing, n_batches):
    count = itertools.count()

    class Loader:
        def __iter__(self):
            for _ in count:  # shared: the number of all batches so far
                yield torch.zeros(1)

    timing(Loader(), n_batches)
    return next(count)


@alternative
def old_protocol_of_sequences(timing, n_batches):
    asked = []

    class Loader:
        def __getitem__(self, i):
            asked.append(i)
            return i

    timing(Loader(), n_batches)
    return len(asked)
