"""Known mistakes of exercise noise_scale, and right answers in other styles."""

import math

from course.engine.known_answers import alternative

MISTAKES = {
    "norms_not_squared": (
        "The norms themselves are averaged; the equations are about their squares. Square them first.",
        ("small_norms.square()", "small_norms"),
        ("large_norms.square()", "large_norms"),
    ),
    "square_of_the_mean": (
        "The mean of the norms is squared. Square each norm first, then take the mean.",
        ("small_norms.square().mean()", "small_norms.mean().square()"),
        ("large_norms.square().mean()", "large_norms.mean().square()"),
    ),
    "mean_of_ratios": (
        "Every pair of norms gets a noise scale, and these ratios are averaged. Take the two means first, divide once.",
        (
            "small_norms.square().mean(), large_norms.square().mean()",
            "torch.tensor([*zip(small_norms**2, large_norms**2)]).T",
        ),
        (
            "(noise / signal).item() if signal > 0",
            "(noise / signal)[signal > 0].mean().item() if signal.max() > 0",
        ),
    ),
    "sizes_crossed_in_the_signal": (
        "In |G|² each mean is multiplied by the other's batch size. Insert your |G|² and S into the two equations.",
        ("large_batch * large - small_batch * small", "large_batch * small - small_batch * large"),
    ),
    "large_batch_as_truth": (
        "The squared norm of the large batch stands in for |G|², but it still holds S / B. Solve both equations.",
        (
            "signal = (large_batch * large - small_batch * small) / (large_batch - small_batch)",
            "signal = large",
        ),
    ),
    "noise_of_the_batch": (
        "The variance of a batch's gradient stands in for S, which is that of one sample: multiply it by B.",
        ("noise / signal", "noise / small_batch / signal"),
    ),
    "upside_down": (
        "The ratio is upside down: divide S, the noise, by |G|².",
        ("noise / signal", "signal / noise"),
    ),
    "negative_scale": (
        "A negative estimate of |G|² gives a negative noise scale. Return math.inf for 0 or less.",
        ("signal > 0", "signal"),
    ),
    "never_infinite": (
        "Where |G|² is estimated as 0 or less, the ratio means nothing. Return math.inf there.",
        (" if signal > 0 else math.inf", ""),
    ),
    "sizes_exchanged": (
        "The two batch sizes are exchanged. The first norms belong to the small batch.",
        (
            "    small, large =",
            "    small_batch, large_batch = large_batch, small_batch\n    small, large =",
        ),
    ),
    "difference_as_noise": (
        "The difference of the mean squares is S (1/m - 1/n), not S. Divide it by 1/m - 1/n.",
        (" / (1 / small_batch - 1 / large_batch)", ""),
    ),
    "never_below_zero": (
        "A negative estimate of S is cut off at 0. Return the ratio as it is: only |G|² <= 0 is special.",
        ("return (noise / signal)", "return (noise.clamp(min=0) / signal)"),
    ),
    "multiplied_by_the_sizes": (
        "The difference of the mean squares is multiplied by n - m. S is this difference over 1/m - 1/n.",
        ("/ (1 / small_batch - 1 / large_batch)", "* (large_batch - small_batch)"),
    ),
    "medians": (
        "The medians of the squared norms are taken. The equations hold on average: take the means.",
        ("small_norms.square().mean()", "small_norms.square().median()"),
        ("large_norms.square().mean()", "large_norms.square().median()"),
    ),
}


@alternative
def by_the_slope(small_norms, large_norms, small_batch, large_batch):
    x = 1 / small_batch, 1 / large_batch
    y = [(norms.double() ** 2).mean().item() for norms in (small_norms, large_norms)]
    slope = (y[0] - y[1]) / (x[0] - x[1])  # a line through two points: squared norm against 1 / B
    at_zero = y[1] - slope * x[1]
    return slope / at_zero if at_zero > 0 else math.inf


@alternative
def plain_python(small_norms, large_norms, small_batch, large_batch):
    small, large = (
        sum(n * n for n in norms.tolist()) / len(norms) for norms in (small_norms, large_norms)
    )
    signal = (large_batch * large - small_batch * small) / (large_batch - small_batch)
    if signal <= 0:
        return math.inf
    return (small - large) * small_batch * large_batch / (large_batch - small_batch) / signal
