"""Known mistakes of exercise largest_safe_scale, and right answers in other styles."""

import math

import torch

from course.checks.engine import alternative, mistake


def _peak(gradients):
    return max(g.abs().max().item() for g in gradients)


def _power_below(limit):
    return 2.0 ** math.floor(math.log2(limit))


@mistake(
    "largest_safe_scale",
    "The largest value is used, not the largest magnitude, so a large negative gradient overflows. Use abs().",
)
def without_magnitude(gradients, headroom=2.0):
    peak = max(g.max().item() for g in gradients)
    if peak <= 0:
        return 1.0
    return _power_below(65504 / (peak * headroom))


@mistake(
    "largest_safe_scale", "The limit itself is returned. Round its exponent down, so that scaling changes no digit."
)
def any_number(gradients, headroom=2.0):
    peak = _peak(gradients)
    return 65504 / (peak * headroom) if peak else 1.0


@mistake(
    "largest_safe_scale",
    "The exponent is rounded to the nearest, so the scale can be too large. Round down: math.floor.",
)
def nearest_power(gradients, headroom=2.0):
    peak = _peak(gradients)
    return 2.0 ** round(math.log2(65504 / (peak * headroom))) if peak else 1.0


@mistake("largest_safe_scale", "The headroom is left out. Require max|g| * s * headroom <= 65504.")
def no_headroom(gradients, headroom=2.0):
    peak = _peak(gradients)
    return _power_below(65504 / peak) if peak else 1.0


@mistake(
    "largest_safe_scale",
    "The scale never falls below 1, so gradients that are too large still overflow. Exponents may be negative.",
)
def never_below_one(gradients, headroom=2.0):
    peak = _peak(gradients)
    return max(1.0, _power_below(65504 / (peak * headroom))) if peak else 1.0


@mistake("largest_safe_scale", "Only the first tensor is looked at. The largest gradient may be in any of them.")
def first_tensor(gradients, headroom=2.0):
    peak = _peak(gradients[:1])
    return _power_below(65504 / (peak * headroom)) if peak else 1.0


@alternative("largest_safe_scale")
def halve_and_double(gradients, headroom=2.0):
    peak = max(float(g.abs().max()) for g in gradients) * headroom
    scale = 1.0
    while peak and scale * peak * 2 <= 65504:
        scale *= 2
    while scale * peak > 65504:
        scale /= 2
    return scale


@alternative("largest_safe_scale")
def by_the_exponent(gradients, headroom=2.0):
    peak = torch.stack([g.abs().amax() for g in gradients]).amax().item()
    if peak == 0:
        return 1
    _, exponent = math.frexp(torch.finfo(torch.float16).max / peak / headroom)
    return 2 ** (exponent - 1)  # an int if it is a whole number
