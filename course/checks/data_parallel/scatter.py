"""Probe of exercise scatter."""

from collections import namedtuple
from collections.abc import Callable, Sequence, Sized
from typing import Any

import torch

from course.checks.data_parallel.devices import (
    READY_MADE,
    StampingTransfers,
    message_sizes,
    routes,
)
from course.engine.exercise import Answer, Facts, exercise
from course.engine.probing.values import type_word
from course.parallel.distributed import Transfers

Pair = namedtuple("Pair", "image label")  # default_collate keeps such a type
Rows = Callable[..., torch.Tensor]


@exercise(forbids=READY_MADE)
def scatter(answer: Answer, device: torch.device, seed: int) -> Facts:
    """Batches cut and sent, on one device that plays several."""
    rng = torch.Generator().manual_seed(seed)
    n = 3 + seed % 2
    devices = [device] * n

    def rows(length: int, *shape: int) -> torch.Tensor:
        return torch.randn(length, *shape, generator=rng, dtype=torch.float64).to(device)

    yield from _tensors(answer, devices, rows)
    images = rows(2 * n - 1, 2, 2)
    labels = torch.arange(2 * n - 1, device=device)
    yield from _collections(answer, devices, images, labels)
    tag = object()
    parts, _ = _cut(answer, (labels, tag), devices)
    unchanged = all(part[1] is tag for part in parts)
    yield "every part holds what is not a tensor, unchanged", unchanged

    batch = rows(2 * n, 2).requires_grad_()
    parts, _ = _cut(answer, batch, devices)
    loss = 0
    for k, part in enumerate(parts, 1):
        loss = loss + k * part.sum()
    loss.backward()
    yield "gradients flow back to the batch", batch.grad
    parts, transfers = _cut(answer, rows(3, 2), devices[:1])
    yield "a single device", [_lengths(parts), routes(transfers.log)]


def _tensors(answer: Answer, devices: list[torch.device], rows: Rows) -> Facts:
    """The facts of batches that are one tensor."""
    n = len(devices)
    batch = rows(2 * n, 3)
    parts, transfers = _cut(answer, batch, devices)
    yield "returns a list", type_word(parts)
    yield "one part a device", len(parts)
    yield "each part of a tensor is a tensor", _types(parts)
    yield "the rows of each part", [part.shape[0] for part in parts]
    yield "the values of the parts", parts
    yield "one message a part, from place 0", sorted(routes(transfers.log))
    yield "bytes of each message", sorted(message_sizes(transfers.log))
    stamped, _ = _cut(answer, batch, devices, StampingTransfers)
    yield "the part of place k is sent to place k", stamped
    parts, _ = _cut(answer, rows(3 * n - 1), devices)
    yield "a length that is not a multiple: rows of each part", _lengths(parts)
    for length, text in ((n - 1, "fewer rows than devices"), (n + 1, "one row more than devices")):
        parts, transfers = _cut(answer, rows(length, 2), devices)
        yield f"{text}: rows of each part", _lengths(parts)
        yield f"{text}: messages", sorted(routes(transfers.log))


def _collections(
    answer: Answer, devices: list[torch.device], images: torch.Tensor, labels: torch.Tensor
) -> Facts:
    """The facts of batches that hold several tensors."""
    parts, transfers = _cut(answer, (images, labels), devices)
    yield "a tuple of tensors gives tuples", _types(parts)
    yield "a tuple of tensors: the parts", parts
    yield "a tuple of tensors: still one message a part", sorted(routes(transfers.log))
    yield "a tuple of tensors: bytes of each message", sorted(message_sizes(transfers.log))
    parts, _ = _cut(answer, [images, labels], devices)
    yield "a list of tensors gives lists", parts
    parts, transfers = _cut(answer, Pair(images, [labels]), devices)
    yield "a namedtuple gives namedtuples", parts
    yield "a namedtuple: still one message a part", sorted(routes(transfers.log))
    parts, _ = _cut(answer, {"labels": labels, "images": images}, devices)
    yield "a dict of tensors gives dicts", parts
    nested = {"pair": (labels, [images, "name"]), "rate": 0.5, "mask": None}
    parts, transfers = _cut(answer, nested, devices)
    yield "a nested batch, with a number, a string and None", parts
    yield "a nested batch: still one message a part", sorted(routes(transfers.log))
    stamped, _ = _cut(answer, nested, devices, StampingTransfers)
    yield "a nested batch: what is sent is what stands in the parts", stamped


def _cut(
    answer: Answer, batch: Any, devices: list[torch.device], kind: type[Transfers] = Transfers
) -> tuple[Any, Transfers]:
    """The parts, and the transfers with which they were sent."""
    transfers = kind(devices)
    return answer(batch, transfers), transfers


def _types(parts: Sequence[Any]) -> list[str]:
    return [type_word(part) for part in parts]


def _lengths(parts: Sequence[Sized]) -> list[int]:
    return [len(part) for part in parts]
