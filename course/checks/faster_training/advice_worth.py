"""Probe of exercise advice_worth."""

import math

import torch

from course.checks.engine import exercise


@exercise()
def advice_worth(answer, device, seed):
    """What each piece of advice is worth, from runs of the race."""
    rng = torch.Generator().manual_seed(seed)
    base = [("all", s, t) for s, t in enumerate([10.0, 20.0, 40.0])]
    runs = [*base, *(("no bf16", s, t) for s, t in enumerate([15.0, 50.0, 80.0]))]
    found = answer(runs, "all")
    yield "returns a dict of triples", [type(found).__name__, sorted({len(value) for value in found.values()})]
    fact = "seeds 0, 1, 2: base 10, 20, 40 s, without the advice 15, 50, 80 s: median, lowest, highest of three ratios"
    yield fact, found["no bf16"]
    yield "the base is not compared with itself", sorted(found)
    slow = [("no bf16", 0, 5.0), ("no bf16", 1, 10.0), ("no bf16", 2, 10.0)]
    yield "advice that costs time", answer([*base, *slow], "all")
    yield "runs in any order are paired by their seeds", answer(runs[::-1], "all")
    yield "a seed that only one of the two has does not count", answer(runs[1:], "all")
    older = [("no bf16", 1, 3.0), ("all", 2, 1.0), ("all", 0, 99.0)]
    yield "the latest run of a name and seed counts", answer([*older, *runs], "all")
    never = [("slow", 0, math.inf), ("slow", 1, 30.0), ("slow", 2, math.inf)]
    yield "a run that never reached the target is infinitely slow", answer([*base, *never], "all")
    yield "a name without a seed in common is left out", answer([*runs, ("other", 9, 3.0)], "all")
    yield "two seeds: the median lies between them", answer([*base[:2], *never[1:], ("slow", 0, 20.0)], "all")
    drawn = (5 + 10 * torch.rand(4, 5, generator=rng)).tolist()
    many = [(name, s, t) for name, times in zip("wxyz", drawn, strict=True) for s, t in enumerate(times)]
    yield "four names, five seeds", answer(many, "y")
    yield "nothing but the base", answer(base, "all")
