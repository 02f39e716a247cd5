"""Probe of exercise global_moments."""

import torch

from course.checks.data_parallel.ranks import each_rank, results_in_ranks
from course.engine.exercise import Answer, Facts, exercise
from course.engine.probing.tensors import kind


def _kinds(result):
    pair = isinstance(result, (list, tuple)) and len(result) == 2
    return [kind(value) for value in result] if pair else f"not a pair: {kind(result)}"


@exercise()
def global_moments(answer: Answer, device: torch.device, seed: int) -> Facts:
    """Shards of one size, of different sizes, as images, far from 0, and empty: moments on two or
    three ranks.
    """
    rng = torch.Generator().manual_seed(seed)
    channels = 2 + seed % 3

    def shards(*sizes, image=(), mean=0.0, apart=1.0, dtype=torch.float32):
        """[(x,) of each rank]: the means of the ranks lie `apart`, in steps of their numbers."""
        drawn = [
            torch.randn(n, channels, *image, generator=rng, dtype=torch.float64) for n in sizes
        ]
        return [((x * (1 + rank) + mean + apart * rank).to(dtype),) for rank, x in enumerate(drawn)]

    def facts(text, found):
        yield f"{text}: the mean", each_rank(result[0] for result, _, _ in found)
        yield f"{text}: the variance", each_rank(result[1] for result, _, _ in found)

    (found,) = results_in_ranks(answer, shards(6, 6))
    yield (
        "returns a pair of tensors (C,) on each rank",
        each_rank(_kinds(result) for result, _, _ in found),
    )
    yield from facts("equal shards", found)
    yield "asks the group for 2 operations or fewer", all(calls <= 2 for _, calls, _ in found)
    many = [(torch.randn(4000 + rank, channels, generator=rng),) for rank in range(3)]
    far = [(1e4 + torch.randn(n, channels, generator=rng),) for n in (300, 500, 200)]
    uneven, wide, many, moved = results_in_ranks(
        answer, shards(9, 2, 5), shards(4, 1, 3, dtype=torch.float64), many, far
    )
    yield from facts("shards of different sizes", uneven)
    yield from facts("in float64", wide)
    samples = 4000 * channels * 4  # bytes of what a rank has
    yield (
        "what it sends does not grow with the number of samples",
        all(sent < samples / 2 for _, _, sent in many),
    )
    (found,) = results_in_ranks(answer, shards(3, 1, image=(2, 4)))
    yield from facts("images (n, C, H, W)", found)

    exact = torch.cat([x for (x,) in far]).double()
    for place, (name, limit) in enumerate({"mean": 1e-2, "variance": 1e-3}.items()):
        right = (exact.mean(0), exact.var(0, correction=0))[place]
        worst = max((result[place] - right).abs().max() for result, _, _ in moved)
        yield f"a mean of 1e4 in float32: the {name} is right to {limit:g}", bool(worst < limit)

    halves = [
        (100 + rank + torch.randn(500 + rank, channels, generator=rng)).half() for rank in range(3)
    ]
    (found,) = results_in_ranks(answer, [(x,) for x in halves])
    right = torch.cat(halves).double().mean(0)
    yield (
        "float16, 1503 values of about 100: the mean is right to 0.1",
        all(bool(((result[0] - right).abs() < 0.1).all()) for result, _, _ in found),
    )

    rows, images = results_in_ranks(answer, shards(4, 0, 3), shards(0, 2, 1, image=(3, 1)))
    yield from facts("a rank without samples", rows)
    yield from facts("a rank without images", images)
