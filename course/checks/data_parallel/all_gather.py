"""Probe of exercise all_gather."""

import torch

from course.checks.data_parallel.messages import (
    COLLECTIVES,
    calls_in_ranks,
    operations_and_requests,
    sent,
    whole,
)
from course.checks.data_parallel.ranks import FREE, HANG_SECONDS, each_rank
from course.engine.exercise import Answer, Facts, exercise
from course.engine.probing.laws import tried
from course.engine.probing.tensors import storage
from course.parallel.network import simulate


@exercise(forbids=COLLECTIVES)
def all_gather(answer: Answer, device: torch.device, seed: int) -> Facts:
    """The shards of all ranks in each of them: values, then messages."""
    rng = torch.Generator().manual_seed(seed)
    for n in (2, 3, 4):
        values = torch.randn(n, 3 + seed % 4, generator=rng)
        yield f"{n} ranks: what each of them gets", each_rank(_in_ranks(n, answer, values))
        did = calls_in_ranks(answer, n, {"all": (values, whole, ())})
        calls = did["all"]
        yield from operations_and_requests(n, did)
        yield f"{n} ranks: what each rank sends", each_rank(map(sent, calls))
        receivers = each_rank(sorted(set(call.receivers)) for call in calls)
        yield (
            f"{n} ranks: each rank sends to the next one and to nobody else",
            tried(receivers, values.shape),
        )
    whole_numbers = torch.randint(1000, (2, 4), generator=rng)
    yield "whole numbers", each_rank(_in_ranks(2, answer, whole_numbers))
    yield "1 rank: its own shard", _in_ranks(1, answer, values[:1])[0]
    (is_new,) = simulate(_is_new, 1, FREE, answer, values, timeout=HANG_SECONDS).results
    yield "1 rank: in a new vector", tried(is_new, values.shape)


def _in_ranks(n: int, answer: Answer, values: torch.Tensor) -> list[torch.Tensor]:
    """What each of `n` ranks gets if it gives its row of `values`."""
    return simulate(_gathered, n, FREE, answer, values, timeout=HANG_SECONDS).results


def _gathered(rank: int, world_size: int, answer: Answer, values: torch.Tensor) -> torch.Tensor:
    return answer(values[rank].clone())


def _is_new(rank: int, world_size: int, answer: Answer, values: torch.Tensor) -> bool:
    """Whether the result lies in other memory than the shard."""
    shard = values[rank].clone()
    return storage(answer(shard)) != storage(shard)
