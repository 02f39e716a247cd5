"""Known mistakes of exercise Ceiling, and right answers in other styles."""

import itertools

from course.engine.known_answers import alternative

MISTAKES = {
    "one_too_many": (
        "The source is asked for n + 1 batches. itertools.islice stops after n without asking again.",
        (
            "        for batch in itertools.islice(source, n):\n",
            "        for k, batch in enumerate(source):\n            if k == n:\n                break\n",
        ),
    ),
    "everything_kept": (
        "The whole source is drawn and kept. Keep its first n batches only.",
        ("itertools.islice(source, n)", "source"),
    ),
    "asks_again": (
        "Each pass draws batches from the source again, so nothing is free. Keep them when you first draw them.",
        (
            "        for k in range(self.length):\n",
            "        self.__init__(self.source, self.n, self.stage)\n        for k in range(self.length):\n",
        ),
        (
            "        self.length = len(source)\n",
            "        self.length = len(source)\n        self.source, self.n, self.stage = source, n, stage\n",
        ),
    ),
    "one_pass": (
        "All passes share one iterator, which is empty after the first. Start again in each __iter__.",
        (
            "        for k in range(self.length):\n            yield self.kept[k % len(self.kept)]\n",
            "        return self.batches\n",
        ),
        (
            "        self.kept = []\n",
            "        self.kept = []\n"
            "        self.batches = (self.kept[k % len(self.kept)] for k in range(self.length))\n",
        ),
    ),
    "one_cycle": (
        "All passes share one cycle, so a pass starts where the last one ended. Start with the first batch in each "
        "__iter__.",
        (
            "            yield self.kept[k % len(self.kept)]\n",
            "            yield next(self.batches)\n",
        ),
        (
            "        self.kept = []\n",
            "        self.kept = []\n        self.batches = itertools.cycle(self.kept)\n",
        ),
    ),
    "only_n": (
        "A pass ends after n batches. Repeat them until there are as many as the source has.",
        ("self.length = len(source)", "self.length = min(n, len(source))"),
    ),
    "one_batch": (
        "Only the first batch is replayed. Replay all n, one after the other.",
        ("self.kept[k % len(self.kept)]", "self.kept[0]"),
    ),
    "stage_each_time": (
        "The stage runs whenever a batch is served, so its cost stays. Keep what it returned.",
        (
            "            self.kept.append(batch if stage is None else stage(batch))\n",
            "            self.kept.append(batch)\n        self.stage = stage\n",
        ),
        (
            "            yield self.kept[k % len(self.kept)]\n",
            "            batch = self.kept[k % len(self.kept)]\n"
            "            yield batch if self.stage is None else self.stage(batch)\n",
        ),
    ),
    "stage_forgotten": (
        "The stage is not used. Keep stage(batch), not the batch.",
        ("batch if stage is None else stage(batch)", "batch"),
    ),
}


@alternative
class Endless:
    """Keeps the batches when they are first asked for."""

    def __init__(self, source, n, stage=None):
        self.source, self.n, self.stage, self.kept = source, n, stage or (lambda batch: batch), None

    def __len__(self):
        return len(self.source)

    def __iter__(self):
        if self.kept is None:
            self.kept = [self.stage(batch) for batch in itertools.islice(self.source, self.n)]
        return itertools.islice(itertools.cycle(self.kept), len(self))


@alternative
class AList:
    """Draws by next, and serves items by number."""

    def __init__(self, source, n, stage=None):
        batches = iter(source)
        kept = []
        while len(kept) < n:
            batch = next(batches)
            kept.append(stage(batch) if stage else batch)
        times = -(-len(source) // n)
        self.batches = (kept * times)[: len(source)]

    def __len__(self):
        return len(self.batches)

    def __getitem__(self, k):
        return self.batches[k]
