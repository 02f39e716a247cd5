"""Probe of exercise fit_workers."""

import math
import random

import torch

from course.checks.engine import exercise


def _seconds(workers, work, overhead, last=math.inf):
    """Seconds per batch on a line in 1 / w, that of `last` workers for all who are more."""
    return torch.tensor([work / min(w, last) + overhead for w in workers], dtype=torch.float64)


def _raised_at_the_end(workers, work, overhead, share):
    """Seconds on a line, the last one raised so that the best line misses by `share` of the sum of the squares."""
    seconds = _seconds(workers, work, overhead)
    x = 1 / torch.tensor(workers, dtype=torch.float64)
    apart = x - x.mean()
    leverage = 1 / len(x) + apart[-1] ** 2 / apart.square().sum()
    seconds[-1] += (share * seconds.square().sum() / (1 - leverage)).sqrt()
    return seconds


def _named(model):
    """What came back, with a name for each place."""
    return dict(zip(("floor", "work", "overhead"), model, strict=False))


@exercise(isolated=True)
def fit_workers(answer, device, seed):
    """The model recovered from exact seconds, and fitted to noisy ones."""
    rng = torch.Generator().manual_seed(seed)
    work, overhead = 0.4 + 0.01 * (seed % 9), 0.03 + 0.001 * (seed % 7)
    workers = [1, 2, 3, 4, 6, 8, 12, 16]

    def fitted(work, overhead, last=math.inf, noise=0, workers=workers):
        """The model fitted to seconds that stay the same from `last` workers on, with noise in per cent of each."""
        seconds = _seconds(workers, work, overhead, last)
        if noise:
            seconds *= 1 + noise / 100 * torch.randn(len(workers), generator=rng, dtype=torch.float64)
        return _named(answer(list(workers), seconds))

    yield from _exact_seconds(answer, fitted, workers, work, overhead)
    for noise in (3, 10, 30):
        for where, last in (("no floor", math.inf), ("a floor from 5 on", 5), ("from 2 on", 1)):
            for again in ("", ", other seconds"):
                yield f"noise of {noise} %, {where}{again}", fitted(work, overhead, last, noise)
    for points in (3, 4, 5, 12):
        few = sorted(random.Random(seed + points).sample(range(1, 33), points))
        last = work / (0.09 - overhead)
        yield f"noisy, {points} points", fitted(work, overhead, last, noise=10, workers=few)


def _exact_seconds(answer, fitted, workers, work, overhead):
    exact = _seconds(workers, work, overhead)
    model = answer(list(workers), exact.clone())
    yield "returns three Python floats", [type(value).__name__ for value in model]
    yield "exact seconds on the line: no floor, it is 0.0", _named(model)
    yield "exact seconds, the last one on a floor", fitted(work, overhead, 13)
    yield "exact seconds, the last four on a floor", fitted(work, overhead, 5)
    yield "exact seconds, all but two on a floor", fitted(work, overhead, 2.5)
    yield "the line meets the floor exactly at 8 workers", fitted(work, overhead, 8)
    yield "without work all seconds are overhead, not floor", fitted(0.0, overhead)
    yield "an overhead below 0 is returned as it is", fitted(work, -0.02)
    yield "a time that rises with the workers has work below 0", fitted(-0.1, 0.5)
    yield "three points", fitted(work, overhead, 2.5, workers=[2, 4, 9])
    for unit, scale in (("seconds", 1.0), ("microseconds", 1e6), ("hours", 1 / 3600)):
        raised = [scale * _raised_at_the_end(workers, work, overhead, by) for by in (0.7e-12, 1.4e-12)]
        models = [_named(answer(list(workers), seconds)) for seconds in raised]
        yield f"a floor that gains less than the allowance, in {unit}", models[0]
        yield f"a floor that gains a little more, in {unit}", models[1]
    last = work / (work / 5 - overhead)
    yield "milliseconds give a thousand times the numbers", fitted(1000 * work, 1000 * overhead, last)
    yield "float32 seconds will do", _named(answer(list(workers), exact.float()))
