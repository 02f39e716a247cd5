"""Probe of exercise flushed_share."""

import torch

from course.engine.exercise import Answer, Facts, exercise
from course.engine.probing.values import number_kind


@exercise()
def flushed_share(answer: Answer, device: torch.device, seed: int) -> Facts:
    """What fp16 makes zero, and what it does not."""
    rng = torch.Generator().manual_seed(seed)

    def random(*shape: int) -> torch.Tensor:
        """Values of both signs over many powers of ten, a few of them exactly 0."""
        size = 10 ** (torch.rand(shape, generator=rng) * 9 - 11)
        values = torch.randn(shape, generator=rng) * size * (torch.rand(shape, generator=rng) < 0.9)
        return values.to(device)

    def tensor(*values: float) -> torch.Tensor:
        return torch.tensor(values, device=device)

    one = random(40 + seed % 9, 7).abs()
    one = one[one > 0]
    share = answer([one])
    yield "returns a number, no tensor", number_kind(share)
    yield "one tensor, all values above 0", share
    yield "negative values count by their size", answer([one, -one[: 50 + seed % 20]])
    several = [random(30 + seed % 5, 8), random(6), random(2, 3, 4) * 1e-3]
    half_zeros = torch.cat((one, torch.zeros_like(one)))
    yield "values that were 0 before do not count", answer([half_zeros])
    yield "tensors of several sizes count value by value", answer(several)
    yield "with a loss scale of 1024", answer(several, 1024.0)
    yield "a tensor of shape () counts too", answer([tensor(1e-9)[0], tensor(1.0, 1.0)])
    yield "a loss scale below 1 loses more", answer(several, loss_scale=0.125)
    scaled = answer([tensor(1e-9, 1e-10, 2e-4)], 2.0**10)
    yield "the product is made in float32, before the cast", scaled
    small = answer([tensor(2e-5, 1e-6, 2.0**-24, 1e-9)])
    yield "a small value that fp16 can still hold is not lost", small
    rounded = answer([tensor(2.0**-25, 1.01 * 2.0**-25, -(2.0**-25))])
    yield "rounding: 2**-25 is lost, a little more is not", rounded
    tiny = answer([tensor(1e-30, 1e20)], 2.0**-60)
    yield "a value that the scale makes 0 in float32 is lost, too", tiny
    yield "a value that overflows is not lost to zero", answer([tensor(1e-9, 1e6, -1e6)])
    yield "one single value, lost", answer([tensor(0.0, 1e-9)])
    yield "all values are zero", answer([tensor(0.0, 0.0), tensor(0.0)])
