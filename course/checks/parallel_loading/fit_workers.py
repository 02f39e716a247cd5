"""Probe of exercise fit_workers."""

import random

import torch

from course.checks.engine import exercise


def _kinked(workers, floor, work, overhead, noise=0.0, rng=None):
    """Seconds a batch by the model, with noise in per cent of each value."""
    seconds = torch.tensor([max(floor, work / w + overhead) for w in workers], dtype=torch.float64)
    return (
        seconds * (1 + noise / 100 * torch.randn(len(workers), generator=rng, dtype=torch.float64))
        if noise
        else seconds
    )


def _model_at(workers, work, overhead, share):
    """Seconds on a line, the last one raised so that the best line misses by `share` of the sum of the squares."""
    seconds = _kinked(workers, 0.0, work, overhead)
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

    def fitted(*model, noise=0.0, workers=workers):
        return _named(answer(list(workers), _kinked(workers, *model, noise, rng)))

    model = answer(list(workers), _kinked(workers, 0.0, work, overhead))
    yield "returns three Python floats", [type(value).__name__ for value in model]
    yield "exact seconds on the line: no floor, it is 0.0", _named(model)
    yield "exact seconds, the last one on a floor", fitted(work / 13 + overhead, work, overhead)
    yield "exact seconds, the last four on a floor", fitted(work / 5 + overhead, work, overhead)
    yield "exact seconds, all but two on a floor", fitted(work / 2.5 + overhead, work, overhead)
    yield "the line meets the floor exactly at 8 workers", fitted(work / 8 + overhead, work, overhead)
    yield "without work all seconds are overhead, not floor", fitted(0.0, 0.0, overhead)
    yield "an overhead below 0 is returned as it is", fitted(0.0, work, -0.02)
    yield "a time that rises with the workers has work below 0", fitted(0.0, -0.1, 0.5)
    yield "three points", fitted(work / 2.5 + overhead, work, overhead, workers=[2, 4, 9])
    for unit, scale in (("seconds", 1.0), ("microseconds", 1e6), ("hours", 1 / 3600)):
        raised = [
            _named(answer(list(workers), scale * _model_at(workers, work, overhead, by))) for by in (0.7e-12, 1.4e-12)
        ]
        yield f"a floor that gains less than the allowance, in {unit}", raised[0]
        yield f"a floor that gains a little more, in {unit}", raised[1]
    yield "milliseconds give a thousand times the numbers", fitted(*(1000 * x for x in (work / 5, work, overhead)))
    exact = _kinked(workers, 0.0, work, overhead)
    yield "float32 seconds will do", _named(answer(list(workers), exact.float()))
    for noise in (3, 10, 30):
        for where, floor in (
            ("no floor", 0.0),
            ("a floor from 5 on", work / 5 + overhead),
            ("from 2 on", work + overhead),
        ):
            for again in ("", ", other seconds"):
                yield f"noise of {noise} %, {where}{again}", fitted(floor, work, overhead, noise=noise)
    for points in (3, 4, 5, 12):
        few = sorted(random.Random(seed + points).sample(range(1, 33), points))
        yield f"noisy, {points} points", fitted(0.09, work, overhead, noise=10, workers=few)
