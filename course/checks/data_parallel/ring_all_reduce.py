"""Probe of exercise ring_all_reduce."""

import torch

from course.checks.data_parallel.shared import COLLECTIVES, _itself, _manners, _on_ranks, _sent
from course.checks.engine import exercise


def _transposed(tensor):
    return tensor.t()


def _every_other(tensor):
    return tensor[..., ::2]


@exercise(changes_inputs=True, forbids=COLLECTIVES)
def ring_all_reduce(answer, device, seed):
    """Sums on a ring: values, then messages and bytes; lengths and layouts one after the other."""
    rng = torch.Generator().manual_seed(seed)

    def case(*shape, dtype=torch.float32, view=_itself):
        values = torch.randn(n, *shape, generator=rng)
        whole = dtype in (torch.int32, torch.bfloat16)  # sums of small whole numbers do not depend on the order
        return ((10 * values).round() if whole else values).to(dtype), view, ()

    def values(*names):
        return {f"{name}, rank {r}": call.whole for name in names for r, call in enumerate(did[name])}

    even = 12 * (1 + seed % 3)
    for n in (2, 3, 4):
        shapes = {
            "shape (2, 3, 4)": case(2, 3, 4),
            "int32": case(even, dtype=torch.int32),
        }
        layouts = {
            "a transposed tensor": case(3, 4, view=_transposed),
            "every other number": case(2 * even, view=_every_other),
            "every other column": case(3, 8, view=_every_other),
        }
        lengths = {}
        if n > 2:  # two ranks go first: a mix-up of pieces shows in their values, where more ranks would break off
            shapes |= {str(dtype)[6:]: case(even, dtype=dtype) for dtype in (torch.float64, torch.bfloat16)}
            lengths = {f"length {k}": case(k) for k in (even + 1, even - 1, 2, 1)} | {"shape ()": case()}
        first = f"length {even}"
        did = _on_ranks(answer, n, {first: case(even)} | shapes | layouts | lengths)
        calls = did[first]
        sends = [[(to, size) for kind, to, size in call.log if kind == "send"] for call in calls]
        yield f"{n} ranks: every rank holds the sum, {even} numbers", values(first)
        yield from _manners(n, did)
        yield f"{n} ranks: messages that each rank sends", {f"rank {r}": len(sent) for r, sent in enumerate(sends)}
        yield (
            f"{n} ranks: each rank sends to the next one and to nobody else",
            {
                f"rank {r}": " and ".join(f"rank {to}" for to in sorted({to for to, _ in sent}))
                for r, sent in enumerate(sends)
            },
        )
        yield (
            f"{n} ranks: bytes that each rank sends",
            {f"rank {r}": sum(size for _, size in sent) for r, sent in enumerate(sends)},
        )
        if lengths:
            yield f"{n} ranks: lengths that {n} does not divide", values(*lengths)
            k = even + 1
            sizes = [size for call in did[f"length {k}"] for kind, _, size in call.log if kind == "send"]
            yield f"{n} ranks: bytes that all ranks send, {k} numbers", sum(sizes)
            yield f"{n} ranks: bytes of the largest message, {k} numbers", max(sizes, default=0)
        yield f"{n} ranks: other shapes and dtypes", values(*shapes)
        yield f"{n} ranks: tensors that are not contiguous, and what lies between", values(*layouts)
        same = [
            torch.equal(_shown(name, call.whole), _shown(name, calls[0].whole))
            for name, calls in did.items()
            for call in calls
        ]
        yield f"{n} ranks: all hold the same sum to the last bit", all(same)
    n = 1
    did = _on_ranks(answer, n, {"alone": case(5)})
    yield "1 rank: its values stay, and nothing is sent", [values("alone"), _sent(*did["alone"])]


def _shown(name, whole):
    """The part of a rank's memory that the answer was given."""
    return _every_other(whole) if "every other" in name else whole
