"""Probe of exercise halving_doubling."""

import torch

from course.checks.data_parallel.messages import (
    COLLECTIVES,
    calls_in_ranks,
    operations_and_requests,
    sent,
    tensors_held,
    whole,
)
from course.checks.data_parallel.ranks import each_rank
from course.engine.exercise import Answer, Facts, exercise
from course.engine.probing.laws import tried


@exercise(changes_inputs=True, forbids=COLLECTIVES)
def halving_doubling(answer: Answer, device: torch.device, seed: int) -> Facts:
    """Sums by recursive halving and doubling: values, then messages, bytes and steps."""
    rng = torch.Generator().manual_seed(seed)
    for n in (2, 4, 8):
        yield from _of_ranks(answer, n, n * (2 + seed % 3), rng)
    did = calls_in_ranks(answer, 1, {"alone": (torch.randn(1, 5, generator=rng), whole, ())})
    (alone,) = did["alone"]
    yield "1 rank: its values stay, and nothing is sent", [alone.tensor, sent(alone)]


def _of_ranks(answer: Answer, n: int, length: int, rng: torch.Generator) -> Facts:
    """The facts of `n` ranks with tensors of `length` numbers."""
    values = torch.randn(n, length, generator=rng)
    whole_numbers = torch.randint(1000, (n, 2 * length), generator=rng)
    first = f"length {length}"
    cases = {first: (values, whole, ()), "int64": (whole_numbers, whole, ())}
    others = {}
    for other in (length + 1, length - 1, n - 1, 1):  # the last two: fewer elements than ranks
        others[f"length {other}"] = (torch.randn(n, other, generator=rng), whole, ())
    cases |= others
    did = calls_in_ranks(answer, n, cases)
    calls = did[first]
    yield f"{n} ranks: every rank holds the sum", tensors_held(calls)
    yield from operations_and_requests(n, did)
    yield f"{n} ranks: what each rank sends", each_rank(map(sent, calls))
    receivers = each_rank(call.receivers for call in calls)
    yield f"{n} ranks: to whom, in which order", tried(receivers, length)
    sizes = each_rank(call.sizes for call in calls)
    yield f"{n} ranks: bytes of its messages, in order", sizes
    yield f"{n} ranks: sums of whole numbers", tensors_held(did["int64"])
    same = all(torch.equal(call.tensor, calls[0].tensor) for call in calls)
    yield f"{n} ranks: all hold the same bits", same
    sums = {name: tensors_held(did[name]) for name in others}
    yield f"{n} ranks: lengths that {n} does not divide, also fewer elements than ranks", sums
