"""Probe of exercise ring_all_reduce."""

import functools
from collections.abc import Callable, Iterable

import torch

from course.checks.data_parallel.messages import (
    COLLECTIVES,
    Call,
    Calls,
    Case,
    calls_in_ranks,
    operations_and_requests,
    sent,
    tensors_held,
    whole,
)
from course.checks.data_parallel.ranks import each_rank
from course.engine.exercise import Answer, Facts, exercise


@exercise(changes_inputs=True, forbids=COLLECTIVES)
def ring_all_reduce(answer: Answer, device: torch.device, seed: int) -> Facts:
    """Sums on a ring: values, then messages and bytes; lengths and layouts one after the other."""
    rng = torch.Generator().manual_seed(seed)
    even = 12 * (1 + seed % 3)  # a length that 2, 3 and 4 divide
    for n in (2, 3, 4):
        yield from _on_a_ring(answer, n, even, functools.partial(_case, rng, n))
    did = calls_in_ranks(answer, 1, {"alone": _case(rng, 1, 5)})
    alone = [_values(did, ["alone"]), sent(*did["alone"])]
    yield "1 rank: its values stay, and nothing is sent", alone


def _transposed(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.t()


def _every_other(tensor: torch.Tensor) -> torch.Tensor:
    return tensor[..., ::2]


def _case(
    rng: torch.Generator,
    n: int,
    *shape: int,
    dtype: torch.dtype = torch.float32,
    view: Callable[[torch.Tensor], torch.Tensor] = whole,
) -> Case:
    """A tensor for each of `n` ranks, and the view of it that the answer is given."""
    # float32 numbers would be drawn with other last digits on other CPUs
    values = torch.randn(n, *shape, generator=rng, dtype=torch.float64)
    if dtype in (torch.int32, torch.bfloat16):
        # sums of small whole numbers do not depend on the order
        values = (10 * values).round()
    return values.to(dtype), view, ()


def _on_a_ring(answer: Answer, n: int, even: int, draw: Callable[..., Case]) -> Facts:
    """The facts of `n` ranks; `even` is a length that `n` divides."""
    shapes = {"shape (2, 3, 4)": draw(2, 3, 4), "int32": draw(even, dtype=torch.int32)}
    layouts = {
        "a transposed tensor": draw(3, 4, view=_transposed),
        "every other number": draw(2 * even, view=_every_other),
        "every other column": draw(3, 8, view=_every_other),
    }
    lengths = {}
    # with two ranks a mix-up of pieces shows in their values, where more ranks would break off
    if n > 2:
        shapes["float64"] = draw(even, dtype=torch.float64)
        shapes["bfloat16"] = draw(even, dtype=torch.bfloat16)
        for length in (even + 1, even - 1, 2, 1):
            lengths[f"length {length}"] = draw(length)
        lengths["shape ()"] = draw()
    first = f"length {even}"
    did = calls_in_ranks(answer, n, {first: draw(even)} | shapes | layouts | lengths)
    yield f"{n} ranks: every rank holds the sum, {even} numbers", _values(did, [first])
    yield from operations_and_requests(n, did)
    yield from _messages(n, did[first])
    if lengths:
        yield f"{n} ranks: lengths that {n} does not divide", _values(did, lengths)
        odd = even + 1
        sizes = []
        for call in did[f"length {odd}"]:
            sizes += call.sizes
        yield f"{n} ranks: bytes that all ranks send, {odd} numbers", sum(sizes)
        yield f"{n} ranks: bytes of the largest message, {odd} numbers", max(sizes, default=0)
    yield f"{n} ranks: other shapes and dtypes", _values(did, shapes)
    strided = _values(did, layouts)
    yield f"{n} ranks: tensors that are not contiguous, and what lies between", strided
    yield f"{n} ranks: all hold the same sum to the last bit", _same_everywhere(did)


def _messages(n: int, calls: list[Call]) -> Facts:
    """How many messages each rank sends, to whom, and how many bytes."""
    counts = []
    to_whom = []
    n_bytes = []
    for call in calls:
        counts.append(len(call.sends))
        to_whom.append(" and ".join(f"rank {to}" for to in sorted(set(call.receivers))))
        n_bytes.append(sum(call.sizes))
    yield f"{n} ranks: messages that each rank sends", each_rank(counts)
    receivers = each_rank(to_whom)
    yield f"{n} ranks: each rank sends to the next one and to nobody else", receivers
    yield f"{n} ranks: bytes that each rank sends", each_rank(n_bytes)


def _values(did: Calls, cases: Iterable[str]) -> dict[str, torch.Tensor]:
    """What every rank holds after each of these cases."""
    values = {}
    for case in cases:
        for rank, tensor in tensors_held(did[case]).items():
            values[f"{case}, {rank}"] = tensor
    return values


def _same_everywhere(did: Calls) -> bool:
    """True if all ranks hold the same where the answer was given a tensor to write to."""
    for case, calls in did.items():
        view = _every_other if "every other" in case else whole
        for call in calls:
            if not torch.equal(view(call.tensor), view(calls[0].tensor)):
                return False
    return True
