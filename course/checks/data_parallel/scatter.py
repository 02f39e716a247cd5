"""Probe of exercise scatter."""

import torch

from course.checks.data_parallel.devices import READY_MADE, StampingTransfers, message_sizes, ways
from course.engine.exercise import Answer, Facts, exercise
from course.parallel.distributed import Transfers


@exercise(forbids=READY_MADE)
def scatter(answer: Answer, device: torch.device, seed: int) -> Facts:
    """Batches cut and sent, on one device that plays several."""
    rng = torch.Generator().manual_seed(seed)
    n = 3 + seed % 2

    def rows(length, *shape):
        return torch.randn(length, *shape, generator=rng, dtype=torch.float64).to(device)

    def cut(batch, kind=Transfers):
        transfers = kind([device] * n)
        return answer(batch, transfers), transfers

    batch = rows(2 * n, 3)
    parts, transfers = cut(batch)
    yield "returns a list", type(parts).__name__
    yield "one part a device", len(parts)
    yield "each part of a tensor is a tensor", [type(part).__name__ for part in parts]
    yield "the rows of each part", [part.shape[0] for part in parts]
    yield "the values of the parts", parts
    yield "one message a part, from place 0", sorted(ways(transfers.log))
    yield "bytes of each message", sorted(message_sizes(transfers.log))
    yield "the part of place k is sent to place k", cut(batch, StampingTransfers)[0]
    yield (
        "a length that is not a multiple: rows of each part",
        [len(part) for part in cut(rows(3 * n - 1))[0]],
    )
    for length, text in ((n - 1, "fewer rows than devices"), (n + 1, "one row more than devices")):
        batch = rows(length, 2)
        parts, transfers = cut(batch)
        yield f"{text}: rows of each part", [len(part) for part in parts]
        yield f"{text}: messages", sorted(ways(transfers.log))

    images, labels = rows(2 * n - 1, 2, 2), torch.arange(2 * n - 1, device=device)
    parts, transfers = cut((images, labels))
    yield "a tuple of tensors gives tuples", [type(part).__name__ for part in parts]
    yield "a tuple of tensors: the parts", parts
    yield "a tuple of tensors: still one message a part", sorted(ways(transfers.log))
    yield "a tuple of tensors: bytes of each message", sorted(message_sizes(transfers.log))
    yield "a list of tensors gives lists", cut([images, labels])[0]
    yield "a dict of tensors gives dicts", cut({"labels": labels, "images": images})[0]
    nested = {"pair": (labels, [images, "name"]), "rate": 0.5, "mask": None}
    parts, transfers = cut(nested)
    yield "a nested batch, with a number, a string and None", parts
    yield "a nested batch: still one message a part", sorted(ways(transfers.log))
    yield (
        "a nested batch: what is sent is what stands in the parts",
        cut(nested, StampingTransfers)[0],
    )
    tag = object()
    parts, _ = cut((labels, tag))
    yield "every part holds what is not a tensor, unchanged", all(part[1] is tag for part in parts)
    batch = rows(2 * n, 2).requires_grad_()
    sum((k + 1) * part.sum() for k, part in enumerate(cut(batch)[0])).backward()
    yield "gradients flow back to the batch", batch.grad
    parts, transfers = cut(rows(3, 2), lambda devices: Transfers(devices[:1]))
    yield "a single device", [[len(part) for part in parts], ways(transfers.log)]
