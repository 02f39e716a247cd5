"""Probe of exercise largest_safe_scale."""

import torch

from course.checks.engine import exercise
from course.checks.probing.values import number_kind, numbered


@exercise(isolated=True)
def largest_safe_scale(answer, device, seed):
    """The largest power of two, up to the edge and beyond it."""
    rng = torch.Generator().manual_seed(seed)

    def random(*shape, peak):
        """Values up to `peak` in magnitude, the largest of them positive."""
        values = torch.rand(shape, generator=rng) - 0.5
        values.view(-1)[1] = 1.0
        return (values * peak).to(device)

    def times(limit, step):
        """The float32 value `limit`, moved by `step` units in its last place."""
        value = torch.tensor([limit])
        return torch.nextafter(value, torch.tensor([step * 1e9])).to(device) if step else value.to(device)

    peaks = [10 ** (-5 * x) for x in torch.rand(6, generator=rng).tolist()]
    first = answer([random(5 + seed % 4, 3, peak=peaks[0])])
    yield "returns a number, no tensor", number_kind(first)
    yield "is a power of two", first > 0 and float(first).hex().startswith("0x1.0000000000000p")
    yield "one tensor", first
    yield "five other tensors", numbered("tensor", [answer([random(9, peak=peak)]) for peak in peaks[1:]])
    yield "gradients small as 1e-9", answer([random(4, peak=1e-9)])
    yield "the largest magnitude is that of a negative value", answer([-random(7, peak=peaks[1]) * 3])
    several = [random(3, 4, peak=1e-4), random(6, peak=0.03), random(5, peak=1e-6)]
    yield (
        "the largest value counts, in whichever tensor it is",
        {
            "three tensors": answer(several),
            "without the first": answer(several[1:]),
            "in reverse order": answer(several[::-1]),
        },
    )
    yield (
        "no headroom, and a headroom of 64",
        {"headroom 1": answer(several, 1.0), "64": answer(several, headroom=64.0)},
    )
    odd = {f"headroom {h:g}": answer(several, headroom=h) for h in (3.0, 5.0, 7.0, 1.1)}
    yield "a headroom that is no power of two", odd
    yield "just as large as allowed", answer([times(65504.0 / 2**9, 0)])
    yield "a hair above that", answer([times(65504.0 / 2**9, 1)])
    yield "a hair below that", answer([times(65504.0 / 2**9, -1)])
    yield "gradients small as 1e-30", answer([random(4, peak=1e-30)])
    yield "gradients that are too large get a scale below 1", answer([random(8, peak=3e6)])
    yield "all gradients are zero", answer([torch.zeros(3, device=device), torch.zeros(2, 2, device=device)])
