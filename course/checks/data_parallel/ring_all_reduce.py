"""Probe of exercise ring_all_reduce."""

import functools

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


def _transposed(tensor):
    return tensor.t()


def _every_other(tensor):
    return tensor[..., ::2]


def _case(rng, n, *shape, dtype=torch.float32, view=whole):
    """A tensor for each of `n` ranks, and the view of it that the answer is given."""
    values = torch.randn(n, *shape, generator=rng)
    # sums of small whole numbers do not depend on the order
    rounded = dtype in (
        torch.int32,
        torch.bfloat16,
    )
    return ((10 * values).round() if rounded else values).to(dtype), view, ()


@exercise(changes_inputs=True, forbids=COLLECTIVES)
def ring_all_reduce(answer: Answer, device: torch.device, seed: int) -> Facts:
    """Sums on a ring: values, then messages and bytes; lengths and layouts one after the other."""
    rng = torch.Generator().manual_seed(seed)
    even = 12 * (1 + seed % 3)
    for n in (2, 3, 4):
        yield from _on_a_ring(answer, n, even, functools.partial(_case, rng, n))
    did = calls_in_ranks(answer, 1, {"alone": _case(rng, 1, 5)})
    yield (
        "1 rank: its values stay, and nothing is sent",
        [_values(did, ["alone"]), sent(*did["alone"])],
    )


def _on_a_ring(answer, n, even, draw):
    """The facts of `n` ranks; `even` is a length that divides."""
    first, lengths = f"length {even}", {}
    shapes = {"shape (2, 3, 4)": draw(2, 3, 4), "int32": draw(even, dtype=torch.int32)}
    layouts = {
        "a transposed tensor": draw(3, 4, view=_transposed),
        "every other number": draw(2 * even, view=_every_other),
        "every other column": draw(3, 8, view=_every_other),
    }
    if (
        n > 2
        # two ranks go first: a mix-up of pieces shows in their values, where more ranks would break off
    ):
        shapes |= {
            str(dtype)[6:]: draw(even, dtype=dtype) for dtype in (torch.float64, torch.bfloat16)
        }
        lengths = {f"length {k}": draw(k) for k in (even + 1, even - 1, 2, 1)} | {
            "shape ()": draw()
        }
    did = calls_in_ranks(answer, n, {first: draw(even)} | shapes | layouts | lengths)
    yield f"{n} ranks: every rank holds the sum, {even} numbers", _values(did, [first])
    yield from operations_and_requests(n, did)
    yield from _messages(n, did[first])
    if lengths:
        yield f"{n} ranks: lengths that {n} does not divide", _values(did, lengths)
        k = even + 1
        sizes = [size for call in did[f"length {k}"] for _, size in call.sends]
        yield f"{n} ranks: bytes that all ranks send, {k} numbers", sum(sizes)
        yield f"{n} ranks: bytes of the largest message, {k} numbers", max(sizes, default=0)
    yield f"{n} ranks: other shapes and dtypes", _values(did, shapes)
    yield (
        f"{n} ranks: tensors that are not contiguous, and what lies between",
        _values(did, layouts),
    )
    yield f"{n} ranks: all hold the same sum to the last bit", all(_same_everywhere(did))


def _messages(n, calls):
    """How many messages each rank sends, to whom, and how many bytes."""
    yield f"{n} ranks: messages that each rank sends", each_rank(len(call.sends) for call in calls)
    receivers = [sorted({to for to, _ in call.sends}) for call in calls]
    yield (
        f"{n} ranks: each rank sends to the next one and to nobody else",
        each_rank(" and ".join(f"rank {to}" for to in some) for some in receivers),
    )
    yield (
        f"{n} ranks: bytes that each rank sends",
        each_rank(sum(size for _, size in call.sends) for call in calls),
    )


def _values(did, names):
    """What every rank holds after each of these cases."""
    return {
        f"{name}, {rank}": call.tensor
        for name in names
        for rank, call in each_rank(did[name]).items()
    }


def _same_everywhere(did):
    """Of every case and rank, whether it holds what rank 0 does in the part that the answer was
    given.
    """
    for name, calls in did.items():
        view = _every_other if "every other" in name else whole
        yield from (torch.equal(view(call.tensor), view(calls[0].tensor)) for call in calls)
