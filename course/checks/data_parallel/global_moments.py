"""Probe of exercise global_moments."""

from collections.abc import Sequence

import torch

from course.checks.data_parallel.ranks import RankResult, each_rank, results_in_ranks
from course.engine.exercise import Answer, Facts, exercise
from course.engine.probing.laws import tried
from course.engine.probing.tensors import kind

Shards = list[tuple[torch.Tensor]]  # the argument of each rank
FLOAT32_BYTES = 4


@exercise()
def global_moments(answer: Answer, device: torch.device, seed: int) -> Facts:
    """Moments on two or three ranks: shards of one size and several, images, far from 0, empty."""
    rng = torch.Generator().manual_seed(seed)
    channels = 2 + seed % 3

    def shards(
        *sizes: int, image: tuple[int, ...] = (), dtype: torch.dtype = torch.float32
    ) -> Shards:
        """Shards of these sizes, with another mean and spread on each rank."""
        of_ranks = []
        for rank, n in enumerate(sizes):
            x = torch.randn(n, channels, *image, generator=rng, dtype=torch.float64)
            of_ranks.append(((x * (1 + rank) + rank).to(dtype),))
        return of_ranks

    (found,) = results_in_ranks(answer, shards(6, 6))
    kinds = each_rank(_kinds(rank.value) for rank in found)
    yield "returns a pair of tensors (C,) on each rank", kinds
    yield from _moments("equal shards", found)
    few = all(rank.operations <= 2 for rank in found)
    yield "asks the group for 2 operations or fewer", tried(few, channels)

    many = []
    for rank in range(3):
        many.append((torch.randn(4000 + rank, channels, generator=rng),))
    far = []
    for n in (300, 500, 200):
        far.append((1e4 + torch.randn(n, channels, generator=rng),))
    uneven = shards(9, 2, 5)
    in_float64 = shards(4, 1, 3, dtype=torch.float64)
    of_uneven, of_float64, of_many, of_far = results_in_ranks(answer, uneven, in_float64, many, far)
    yield from _moments("shards of different sizes", of_uneven)
    yield from _moments("in float64", of_float64)
    shard_bytes = 4000 * channels * FLOAT32_BYTES
    small = all(rank.bytes_sent < shard_bytes / 2 for rank in of_many)
    yield "what it sends does not grow with the number of samples", tried(small, many[0][0][:2])
    (found,) = results_in_ranks(answer, shards(3, 1, image=(2, 4)))
    yield from _moments("images (n, C, H, W)", found)

    yield from _far_from_zero(far, of_far)
    yield from _in_float16(answer, channels, rng)

    rows, images = results_in_ranks(answer, shards(4, 0, 3), shards(0, 2, 1, image=(3, 1)))
    yield from _moments("a rank without samples", rows)
    yield from _moments("a rank without images", images)


def _kinds(result: object) -> object:
    if isinstance(result, (list, tuple)) and len(result) == 2:
        return [kind(value) for value in result]
    return f"not a pair: {kind(result)}"


def _moments(text: str, found: Sequence[RankResult]) -> Facts:
    yield f"{text}: the mean", each_rank(rank.value[0] for rank in found)
    yield f"{text}: the variance", each_rank(rank.value[1] for rank in found)


def _far_from_zero(shards: Shards, found: Sequence[RankResult]) -> Facts:
    """Whether squares of large numbers, which lose digits, spoil the moments."""
    exact = _all_samples(shards)
    mean_is_right = _largest_error(found, 0, exact.mean(0)) < 1e-2
    yield "a mean of 1e4 in float32: the mean is right to 0.01", tried(mean_is_right, len(exact[0]))
    variance = exact.var(0, correction=0)
    variance_is_right = _largest_error(found, 1, variance) < 1e-3
    yield (
        "a mean of 1e4 in float32: the variance is right to 0.001",
        tried(variance_is_right, len(exact[0])),
    )


def _largest_error(found: Sequence[RankResult], place: int, exact: torch.Tensor) -> float:
    """The largest error, on all ranks, of what stands at `place` of the pair."""
    return max((rank.value[place] - exact).abs().max().item() for rank in found)


def _in_float16(answer: Answer, channels: int, rng: torch.Generator) -> Facts:
    """Whether a sum that float16 cannot hold spoils the mean."""
    shards = []
    for rank in range(3):
        x = 100 + rank + torch.randn(500 + rank, channels, generator=rng)
        shards.append((x.half(),))
    (found,) = results_in_ranks(answer, shards)
    mean = _all_samples(shards).mean(0)
    close = True
    for rank in found:
        close = close and bool(((rank.value[0] - mean).abs() < 0.1).all())
    yield "float16, 1503 values of about 100: the mean is right to 0.1", tried(close, channels)


def _all_samples(shards: Shards) -> torch.Tensor:
    """The samples of all ranks in one tensor, float64."""
    return torch.cat([x for (x,) in shards]).double()
