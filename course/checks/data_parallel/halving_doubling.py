"""Probe of exercise halving_doubling."""

import torch

from course.checks.data_parallel.messages import (
    COLLECTIVES,
    calls_in_ranks,
    operations_and_requests,
    sent,
    whole,
)
from course.checks.data_parallel.ranks import each_rank
from course.engine.exercise import Answer, Facts, exercise


@exercise(changes_inputs=True, forbids=COLLECTIVES)
def halving_doubling(answer: Answer, device: torch.device, seed: int) -> Facts:
    """Sums by recursive halving and doubling: values, then messages, bytes and steps."""
    rng = torch.Generator().manual_seed(seed)
    for n in (2, 4, 8):
        length = n * (2 + seed % 3)
        values = torch.randn(n, length, generator=rng)
        whole_numbers = torch.randint(1000, (n, 2 * length), generator=rng)
        cases = {f"length {length}": (values, whole, ()), "int64": (whole_numbers, whole, ())}
        did = calls_in_ranks(answer, n, cases)
        calls = did[f"length {length}"]
        yield f"{n} ranks: every rank holds the sum", each_rank(call.tensor for call in calls)
        yield from operations_and_requests(n, did)
        yield f"{n} ranks: what each rank sends", each_rank(map(sent, calls))
        yield (
            f"{n} ranks: to whom, in which order",
            each_rank([to for to, _ in call.sends] for call in calls),
        )
        yield (
            f"{n} ranks: bytes of its messages, in order",
            each_rank([b for _, b in call.sends] for call in calls),
        )
        yield f"{n} ranks: sums of whole numbers", each_rank(call.tensor for call in did["int64"])
        yield (
            f"{n} ranks: all hold the same bits",
            all(torch.equal(c.tensor, calls[0].tensor) for c in calls),
        )
    did = calls_in_ranks(answer, 1, {"alone": (torch.randn(1, 5, generator=rng), whole, ())})
    yield (
        "1 rank: its values stay, and nothing is sent",
        [did["alone"][0].tensor, sent(*did["alone"])],
    )
