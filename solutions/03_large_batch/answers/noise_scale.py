"""Known mistakes of exercise noise_scale, and right answers in other styles."""

import math

from course.checks.engine import alternative, mistake


def _ratio(small, large, small_batch, large_batch):
    """Noise over signal from mean squared norms `small` and `large`."""
    signal = (large_batch * large - small_batch * small) / (large_batch - small_batch)
    noise = (small - large) / (1 / small_batch - 1 / large_batch)
    return float(noise / signal) if signal > 0 else math.inf


@mistake("noise_scale", "The norms themselves are averaged; the equations are about their squares. Square them first.")
def norms_not_squared(small_norms, large_norms, small_batch, large_batch):
    return _ratio(small_norms.mean(), large_norms.mean(), small_batch, large_batch)


@mistake("noise_scale", "The mean of the norms is squared. Square each norm first, then take the mean.")
def square_of_the_mean(small_norms, large_norms, small_batch, large_batch):
    return _ratio(small_norms.mean() ** 2, large_norms.mean() ** 2, small_batch, large_batch)


@mistake(
    "noise_scale",
    "A noise scale is computed for every pair of norms, and these ratios are averaged. Take the two means first, and "
    "divide once.",
)
def mean_of_ratios(small_norms, large_norms, small_batch, large_batch):
    squares = zip(small_norms.square(), large_norms.square(), strict=False)
    ratios = [_ratio(small, large, small_batch, large_batch) for small, large in squares]
    finite = [ratio for ratio in ratios if ratio < math.inf]
    return sum(finite) / len(finite) if finite else math.inf


@mistake(
    "noise_scale",
    "In |G|² each mean is multiplied by the other's batch size. Insert your |G|² and S into the two equations.",
)
def sizes_crossed_in_the_signal(small_norms, large_norms, small_batch, large_batch):
    small, large = small_norms.square().mean(), large_norms.square().mean()
    signal = (large_batch * small - small_batch * large) / (large_batch - small_batch)
    noise = (small - large) / (1 / small_batch - 1 / large_batch)
    return float(noise / signal) if signal > 0 else math.inf


@mistake(
    "noise_scale",
    "The squared norm of the large batch stands in for |G|², but it still holds S / B. Solve both equations.",
)
def large_batch_as_truth(small_norms, large_norms, small_batch, large_batch):
    small, large = small_norms.square().mean(), large_norms.square().mean()
    return float((small - large) / (1 / small_batch - 1 / large_batch) / large)


@mistake(
    "noise_scale", "The variance of a batch's gradient stands in for S, which is that of one sample: multiply it by B."
)
def noise_of_the_batch(small_norms, large_norms, small_batch, large_batch):
    return _ratio(small_norms.square().mean(), large_norms.square().mean(), small_batch, large_batch) / small_batch


@mistake("noise_scale", "The ratio is upside down: divide S, the noise, by |G|².")
def upside_down(small_norms, large_norms, small_batch, large_batch):
    ratio = _ratio(small_norms.square().mean(), large_norms.square().mean(), small_batch, large_batch)
    return 1 / ratio if ratio else math.inf


@mistake("noise_scale", "A negative estimate of |G|² gives a negative noise scale. Return math.inf for 0 or less.")
def negative_scale(small_norms, large_norms, small_batch, large_batch):
    small, large = small_norms.square().mean(), large_norms.square().mean()
    signal = (large_batch * large - small_batch * small) / (large_batch - small_batch)
    noise = (small - large) / (1 / small_batch - 1 / large_batch)
    return float(noise / signal) if signal else math.inf


@mistake("noise_scale", "Where |G|² is estimated as 0 or less, the ratio means nothing. Return math.inf there.")
def never_infinite(small_norms, large_norms, small_batch, large_batch):
    small, large = small_norms.square().mean(), large_norms.square().mean()
    signal = (large_batch * large - small_batch * small) / (large_batch - small_batch)
    noise = (small - large) / (1 / small_batch - 1 / large_batch)
    return (noise / signal).item()


@mistake("noise_scale", "The two batch sizes are exchanged. The first norms belong to the small batch.")
def sizes_exchanged(small_norms, large_norms, small_batch, large_batch):
    return _ratio(small_norms.square().mean(), large_norms.square().mean(), large_batch, small_batch)


@mistake("noise_scale", "The difference of the mean squares is S (1/m - 1/n), not S. Divide it by 1/m - 1/n.")
def difference_as_noise(small_norms, large_norms, small_batch, large_batch):
    small, large = small_norms.square().mean(), large_norms.square().mean()
    ratio = _ratio(small, large, small_batch, large_batch)
    return ratio * (1 / small_batch - 1 / large_batch)


@alternative("noise_scale")
def by_the_slope(small_norms, large_norms, small_batch, large_batch):
    x = 1 / small_batch, 1 / large_batch
    y = [(norms.double() ** 2).mean().item() for norms in (small_norms, large_norms)]
    slope = (y[0] - y[1]) / (x[0] - x[1])  # a line through two points: squared norm against 1 / B
    at_zero = y[1] - slope * x[1]
    return slope / at_zero if at_zero > 0 else math.inf


@alternative("noise_scale")
def plain_python(small_norms, large_norms, small_batch, large_batch):
    small, large = (sum(n * n for n in norms.tolist()) / len(norms) for norms in (small_norms, large_norms))
    signal = (large_batch * large - small_batch * small) / (large_batch - small_batch)
    if signal <= 0:
        return math.inf
    return (small - large) * small_batch * large_batch / (large_batch - small_batch) / signal
