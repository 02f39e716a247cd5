"""Probe of exercise all_gather."""

import torch

from course.checks.data_parallel.messages import (
    COLLECTIVES,
    calls_in_ranks,
    operations_and_requests,
    sent,
    whole,
)
from course.checks.data_parallel.ranks import FREE, HANG, each_rank
from course.engine.exercise import Answer, Facts, exercise
from course.parallel.network import simulate


@exercise(forbids=COLLECTIVES)
def all_gather(answer: Answer, device: torch.device, seed: int) -> Facts:
    """The shards of all ranks in each of them: values, then messages."""
    rng = torch.Generator().manual_seed(seed)
    for n in (2, 3, 4):
        values = torch.randn(n, 3 + seed % 4, generator=rng)
        results = simulate(_gathered, n, FREE, answer, values, timeout=HANG).results
        yield f"{n} ranks: what each of them gets", each_rank(results)
        did = calls_in_ranks(answer, n, {"all": (values, whole, ())})
        yield from operations_and_requests(n, did)
        yield f"{n} ranks: what each rank sends", each_rank(map(sent, did["all"]))
        receivers = [sorted({to for to, _ in call.sends}) for call in did["all"]]
        yield f"{n} ranks: each rank sends to the next one and to nobody else", each_rank(receivers)
    whole_numbers = torch.randint(1000, (2, 4), generator=rng)
    yield (
        "whole numbers",
        each_rank(simulate(_gathered, 2, FREE, answer, whole_numbers, timeout=HANG).results),
    )
    yield (
        "1 rank: its own shard",
        simulate(_gathered, 1, FREE, answer, values[:1], timeout=HANG).results[0],
    )


def _gathered(rank, world_size, answer, values):
    return answer(values[rank].clone())
